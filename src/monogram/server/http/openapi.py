"""The OpenAPI document: FastAPI's paths, and msgspec's schemas of requests and responses."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from monogram._version import __version__
from monogram.server.http import schemas

REF = "#/components/schemas/{name}"
DOCUMENTED = (
    schemas.Recommend,
    schemas.Similar,
    schemas.Explain,
    schemas.Score,
    schemas.Events,
    schemas.ListsResponse,
    schemas.Scored,
    schemas.Explained,
    schemas.Models,
    schemas.Card,
    schemas.Page,
    schemas.StoredResponse,
    schemas.Reloads,
    schemas.ServerStatus,
    schemas.Envelope,
)
EXACTLY_ONE = {
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
    """The OpenAPI operation of a route, as FastAPI takes it.

    Parameters
    ----------
    gives, takes : schema of the response and of the request body; None: text, and no body
    named : name of the path parameter
    query : schema of the query parameters
    wrong : statuses of errors beyond the common ones
    """
    statuses = sorted({*ALWAYS, *(WITH_BODY if takes else ()), *wrong})
    content = {"text/plain": {"schema": {"type": "string"}}} if gives is None else _json(gives)
    responses: dict[int | str, Any] = {status: {"description": "The answer", "content": content}}
    responses |= {code: {"description": "An error", "content": _json(schemas.Envelope)} for code in statuses}
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
    _, components = msgspec.json.schema_components([kind], ref_template=REF)
    properties = components[kind.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in properties.items()]


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The whole document."""
    document = get_openapi(title="Monogram", version=__version__, routes=app.routes, description=app.description)
    _, components = msgspec.json.schema_components(DOCUMENTED, ref_template=REF)
    for name, fields in EXACTLY_ONE.items():
        components[name]["oneOf"] = [{"required": [field]} for field in fields]
    key = {"type": "http", "scheme": "bearer"}
    document["components"] = {"schemas": components, "securitySchemes": {"key": key}}
    document["security"] = [{}, {"key": []}]  # the key is needed where the server has one
    return document
