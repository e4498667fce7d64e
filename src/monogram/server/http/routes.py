"""The addresses, and what each does with a request: decode, ask, encode."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from monogram.errors import ParameterError
from monogram.models import live
from monogram.server.http import schemas
from monogram.server.http.middleware import CONTEXT
from monogram.server.http.openapi import operation
from monogram.server.http.security import Refused
from monogram.server.metrics import Metrics
from monogram.server.model_registry import ModelRegistry, ServedModel
from monogram.server.queries import responses
from monogram.server.updates.events import Change, EventWriter
from monogram.server.updates.refresh import Refresher

PAGE = Path(__file__).parents[1] / "page"
JSON = "application/json"
Struct = TypeVar("Struct")


@dataclass
class AppState:
    """What the handlers work with."""

    registry: ModelRegistry
    metrics: Metrics
    writer: EventWriter | None = None
    refresher: Refresher | None = None
    draining: bool = False
    told: Any = None  # called after a reload that was asked for over HTTP


def body(content: bytes, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(content, status, media_type=JSON)


async def read(request: Request, kind: type[Struct]) -> Struct:
    """The body of a request, decoded and checked."""
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form != JSON:
        raise Refused(415, "media_type", f"expected the header Content-Type: {JSON}")
    decoder: Any = schemas.decoders[kind]  # type: ignore[index]
    content = await request.body()
    try:
        found: Struct = decoder.decode(content)
    except (UnicodeDecodeError, RecursionError) as error:
        raise ParameterError("the request cannot be read: it is not JSON in UTF-8, or too deep") from error
    return found


def _note(served: ServedModel, rows: int) -> None:
    notes = CONTEXT.get()
    notes.model, notes.rows = served.name, rows


class Handlers:
    """The handlers of one application."""

    def __init__(self, state: AppState) -> None:
        self.state, self.registry = state, state.registry

    async def recommend(self, request: Request) -> Response:
        """Ranked items."""
        return await self._lists(await read(request, schemas.Recommend))

    async def similar(self, request: Request) -> Response:
        """Items like others."""
        return await self._lists(await read(request, schemas.Similar))

    async def _lists(self, asked: schemas.Recommend | schemas.Similar) -> Response:
        served = self.registry.get(asked.model)
        job = responses.ListsJob(served, asked)
        _note(served, job.size)
        return body(await served.batcher.ask(job))

    async def score(self, request: Request) -> Response:
        """Scores of some items."""
        asked = await read(request, schemas.Score)
        served = self.registry.get(asked.model)
        rows = len(asked.users or asked.histories or ())
        if rows * len(asked.items) > 1_000_000:
            raise ParameterError(f"{rows:,} rows of {len(asked.items):,} scores; expected at most 1,000,000 in all")
        _note(served, rows)
        return body(await self._aside(responses.score, served, asked, self.registry.threads))

    async def explain(self, request: Request) -> Response:
        """Why an item has its score."""
        asked = await read(request, schemas.Explain)
        served = self.registry.get(asked.model)
        _note(served, 1)
        return body(await self._aside(responses.explain, served, asked))

    async def models(self, request: Request) -> Response:
        """The models that are served."""
        found = [self._model(served) for served in self.registry.models.values()]
        return body(schemas.encode(schemas.Models(found)))

    def _model(self, served: ServedModel) -> schemas.Model:
        log = served.model.log_
        sizes = log.n_users, log.n_items, log.n_events
        lively = list(live.parameters(served.model))
        default = served is self.registry.get()
        return schemas.Model(served.name, type(served.model).__name__, *sizes, self._updates(), lively, default)

    def _updates(self) -> schemas.Updates | None:
        return None if self.state.refresher is None else self.state.refresher.status()

    async def card(self, request: Request) -> Response:
        """All about one model."""
        served = self.registry.get(request.path_params["name"])
        return body(schemas.encode(served.card(self._updates())))

    async def items(self, request: Request) -> Response:
        """Items by a part of their id or title."""
        given = request.query_params.multi_items()
        if len(dict(given)) < len(given):
            raise ParameterError("a parameter was given twice")
        asked = msgspec.convert(dict(given), schemas.Search, strict=False)
        served = self.registry.get(asked.model)
        page = await self._aside(served.catalogue.search, served.name, asked.query, asked.offset, asked.limit)
        return body(schemas.encode(page))

    async def events(self, request: Request) -> Response:
        """Store events, durably; the model follows."""
        self._refresher()
        asked = await read(request, schemas.Events)
        log = self.registry.get().model.log_
        changes = [
            Change(_id(one.user, log.users, "user", at), _id(one.item, log.items, "item", at), one.weight, one.time)
            for at, one in enumerate(asked.events)
        ]
        return await self._stored(changes)

    async def forget(self, request: Request) -> Response:
        """Forget a user: stored durably; the model and its file follow."""
        self._refresher()
        user = request.path_params["user"]
        return await self._stored([Change(_id(user, self.registry.get().model.log_.users, "user", 0))])

    async def _stored(self, changes: list[Change]) -> Response:
        refresher = self._refresher()
        assert self.state.writer is not None
        ticket = refresher.admit(changes)
        storing = self.state.writer.submit(changes)
        storing.add_done_callback(ticket.stored)
        # Shielded: a client that leaves does not take back what is on its way to the disk.
        seq = await asyncio.shield(asyncio.wrap_future(storing))
        refresher.notify()
        self.state.metrics.stored.set(seq)
        return body(schemas.encode(schemas.Stored(seq, len(changes), refresher.applied)), 202)

    def _refresher(self) -> Refresher:
        if self.state.refresher is None:
            raise Refused(409, "no_updates", "this server takes no events; start it with --updates")
        return self.state.refresher

    async def reload(self, request: Request) -> Response:
        """Load the model files that have changed."""
        try:
            done = await self._aside(self.registry.reload)
        finally:
            if self.state.told is not None:
                self.state.told()
        return body(schemas.encode(schemas.Reloads(done)))

    async def alive(self, request: Request) -> Response:
        """Whether the process responses."""
        return body(schemas.encode(schemas.State("ok")))

    async def ready(self, request: Request) -> Response:
        """Whether it should get requests."""
        if self.state.draining:
            raise Refused(503, "draining", "the server is about to stop")
        return body(schemas.encode(schemas.State("ready")))

    async def metrics(self, request: Request) -> Response:
        """The numbers for Prometheus."""
        return Response(self.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(self, request: Request) -> Response:
        """The web page."""
        return Response((PAGE / "index.html").read_bytes(), media_type="text/html; charset=utf-8")

    async def _aside(self, function: Any, *arguments: Any) -> Any:
        """Run in a thread: the loop is free for others."""
        return await asyncio.get_running_loop().run_in_executor(self.registry.pool, partial(function, *arguments))


def _id(given: Any, ids: Any, what: str, position: int) -> str:
    """An id as text, if it can stand among others and be stored."""
    found = ids.same_kind(given)
    text = "" if found is None else str(found)
    if not text.strip() or "\0" in text:
        raise ParameterError(
            f"the {what} of event {position} cannot stand among the model's {ids.kind} ids; "
            f"expected {'a text that is not blank' if ids.kind == 'string' else f'one that is {ids.kind}'}"
        )
    return text


class TextConvertor(Convertor[str]):
    """A path parameter of any text: slashes and line feeds too, which Starlette's own convertors do not match."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """The parameter as it is."""
        return value

    def to_string(self, value: str) -> str:
        """The parameter as it is."""
        return value


register_url_convertor("text", TextConvertor())


def router(state: AppState) -> APIRouter:
    """Every route but those of the page's files."""
    own, on = Handlers(state), APIRouter(redirect_slashes=False)

    def add(method: str, path: str, handler: Any, status: int = 200, **described: Any) -> None:
        extra = operation(handler.__doc__, status, **described)
        on.add_api_route(path, handler, methods=[method], response_class=Response, status_code=status, **extra)

    add("POST", "/v1/recommend", own.recommend, takes=schemas.Recommend, gives=schemas.Lists, wrong=(404, 501))
    add("POST", "/v1/similar", own.similar, takes=schemas.Similar, gives=schemas.Lists, wrong=(404,))
    add("POST", "/v1/explain", own.explain, takes=schemas.Explain, gives=schemas.Explained, wrong=(404,))
    add("POST", "/v1/score", own.score, takes=schemas.Score, gives=schemas.Scored, wrong=(404,))
    add("GET", "/v1/models", own.models, gives=schemas.Models)
    add("GET", "/v1/models/{name}", own.card, gives=schemas.Card, named="name", wrong=(404,))
    add("GET", "/v1/items", own.items, gives=schemas.Page, query=schemas.Search, wrong=(404, 422))
    add("POST", "/v1/events", own.events, 202, takes=schemas.Events, gives=schemas.Stored, wrong=(409, 507))
    add("DELETE", "/v1/users/{user:text}", own.forget, 202, gives=schemas.Stored, named="user", wrong=(409, 422, 507))
    add("POST", "/admin/reload", own.reload, gives=schemas.Reloads, wrong=(422,))
    add("GET", "/healthz", own.alive, gives=schemas.State)
    add("GET", "/readyz", own.ready, gives=schemas.State, wrong=(503,))
    add("GET", "/metrics", own.metrics, gives=None)
    for path, handler in (("/", own.page), ("/healthz", own.alive), ("/readyz", own.ready)):
        methods = ["GET", "HEAD"] if path == "/" else ["HEAD"]
        on.add_api_route(path, handler, methods=methods, include_in_schema=False, response_class=Response)
    return on
