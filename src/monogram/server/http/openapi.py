"""The OpenAPI document: FastAPI's paths, and msgspec's schemas of what is decoded and encoded."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from monogram._version import __version__
from monogram.server.http import schemas

REF = "#/components/schemas/{name}"
ALL = (
    schemas.Recommend, schemas.Similar, schemas.Explain, schemas.Score, schemas.Events, schemas.Lists, schemas.Scored,
    schemas.Explained, schemas.Models, schemas.Card, schemas.Page, schemas.Stored, schemas.Reloads, schemas.State,
    schemas.Envelope,
)  # fmt: skip
EITHER = {
    "Recommend": ("users", "histories"),
    "Score": ("users", "histories"),
    "Explain": ("user", "history"),
}
ALWAYS = (401, 403, 414, 500, 503, 504)
WITH_BODY = (408, 413, 415, 422)


def operation(
    summary: str,
    status: int,
    *,
    gives: type | None,
    takes: type | None = None,
    named: str | None = None,
    query: type | None = None,
    wrong: tuple[int, ...] = (),
) -> dict[str, Any]:
    """What FastAPI is told about an address."""
    statuses = sorted({*ALWAYS, *(WITH_BODY if takes else ()), *wrong})
    content = {"text/plain": {"schema": {"type": "string"}}} if gives is None else _json(gives)
    responses: dict[int | str, Any] = {status: {"description": "The answer", "content": content}}
    responses |= {one: {"description": "An error", "content": _json(schemas.Envelope)} for one in statuses}
    extra: dict[str, Any] = {}
    if takes is not None:
        extra["requestBody"] = {"required": True, "content": _json(takes)}
    if named is not None:
        text = {"type": "string", "minLength": 1}
        extra["parameters"] = [{"name": named, "in": "path", "required": True, "schema": text}]
    if query is not None:
        extra["parameters"] = _parameters(query)
    return {"summary": summary.rstrip("."), "responses": responses, "openapi_extra": extra}


def _json(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(name=kind.__name__)}}}


def _parameters(kind: type) -> list[dict[str, Any]]:
    _, found = msgspec.json.schema_components([kind], ref_template=REF)
    own = found[kind.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in own.items()]


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    made = get_openapi(title="Monogram", version=__version__, routes=app.routes, description=app.description)
    _, components = msgspec.json.schema_components(ALL, ref_template=REF)
    for name, either in EITHER.items():
        components[name]["oneOf"] = [{"required": [one]} for one in either]
    key = {"type": "http", "scheme": "bearer"}
    made["components"] = {"schemas": components, "securitySchemes": {"key": key}}
    made["security"] = [{}, {"key": []}]  # a key where the server was given one
    return made
