"""Routes, and the handler of each: decode the request, answer it, encode the response."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from monogram.data.interactions import Interactions
from monogram.data.moments import moment_in
from monogram.data.spans import unix_unit
from monogram.errors import ParameterError
from monogram.models import live
from monogram.server.http import schemas
from monogram.server.http.middleware import CONTEXT
from monogram.server.http.openapi import operation
from monogram.server.http.security import Refused
from monogram.server.metrics import Metrics
from monogram.server.model_registry import ModelRegistry, ServedModel
from monogram.server.queries import responses
from monogram.server.updates.events import UNKNOWN, EventWriter, LogChange
from monogram.server.updates.refresh import Refresher

PAGE = Path(__file__).parents[1] / "page"
JSON = "application/json"
Struct = TypeVar("Struct")


@dataclass
class AppState:
    """The parts of the application that the handlers use."""

    registry: ModelRegistry
    metrics: Metrics
    writer: EventWriter | None = None
    refresher: Refresher | None = None
    draining: bool = False
    after_reload: Any = None  # called after a reload requested over HTTP


def json_response(content: bytes, status: int = 200) -> Response:
    """A JSON response."""
    return Response(content, status, media_type=JSON)


async def read(request: Request, kind: type[Struct]) -> Struct:
    """The body of a request, decoded and checked."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise Refused(415, "media_type", f"expected the header Content-Type: {JSON}")
    decoder: Any = schemas.decoders[kind]  # type: ignore[index]
    content = await request.body()
    try:
        decoded: Struct = decoder.decode(content)
    except (UnicodeDecodeError, RecursionError) as error:
        raise ParameterError("the request cannot be read: expected JSON in UTF-8 of moderate nesting") from error
    return decoded


def _record(served: ServedModel, rows: int) -> None:
    """Store the model and the number of rows for the log line of the request."""
    context = CONTEXT.get()
    context.model, context.rows = served.name, rows


class Handlers:
    """The handlers of one application."""

    def __init__(self, state: AppState) -> None:
        self.state, self.registry = state, state.registry

    async def recommend(self, request: Request) -> Response:
        """Ranked items."""
        return await self._lists(await read(request, schemas.Recommend))

    async def similar(self, request: Request) -> Response:
        """Similar items."""
        return await self._lists(await read(request, schemas.Similar))

    async def _lists(self, query: schemas.Recommend | schemas.Similar) -> Response:
        served = self.registry.get(query.model)
        job = responses.ListsJob(served, query)
        _record(served, job.size)
        return json_response(await served.batcher.submit(job))

    async def score(self, request: Request) -> Response:
        """Scores of some items."""
        query = await read(request, schemas.Score)
        served = self.registry.get(query.model)
        rows = len(query.users or query.histories or ())
        if rows * len(query.items) > 1_000_000:
            raise ParameterError(f"{rows:,} rows of {len(query.items):,} scores; expected at most 1,000,000 in all")
        _record(served, rows)
        return json_response(await self._in_thread(responses.score, served, query, self.registry.threads))

    async def explain(self, request: Request) -> Response:
        """Why an item has its score."""
        query = await read(request, schemas.Explain)
        served = self.registry.get(query.model)
        _record(served, 1)
        return json_response(await self._in_thread(responses.explain, served, query))

    async def models(self, request: Request) -> Response:
        """The served models."""
        models = [self._model(served) for served in self.registry.models.values()]
        return json_response(schemas.encode(schemas.Models(models)))

    def _model(self, served: ServedModel) -> schemas.Model:
        log = served.model.log_
        sizes = log.n_users, log.n_items, log.n_events
        live_parameters = list(live.parameters(served.model))
        default = served is self.registry.get()
        return schemas.Model(
            served.name, type(served.model).__name__, *sizes, self._updates(), live_parameters, default
        )

    def _updates(self) -> schemas.Updates | None:
        return None if self.state.refresher is None else self.state.refresher.status()

    async def card(self, request: Request) -> Response:
        """The details of one model."""
        served = self.registry.get(request.path_params["name"])
        return json_response(schemas.encode(served.card(self._updates())))

    async def items(self, request: Request) -> Response:
        """Items whose id or title contains a text."""
        parameters = request.query_params.multi_items()
        if len(dict(parameters)) < len(parameters):
            raise ParameterError("a query parameter was given twice; expected each once")
        query = msgspec.convert(dict(parameters), schemas.ItemSearch, strict=False)
        served = self.registry.get(query.model)
        page = await self._in_thread(served.catalogue.search, served.name, query.query, query.offset, query.limit)
        return json_response(schemas.encode(page))

    async def events(self, request: Request) -> Response:
        """Store events durably; the model is updated in the background."""
        self._refresher()
        query = await read(request, schemas.Events)
        log = self.registry.get().model.log_
        return await self._stored([_change(event, log, position) for position, event in enumerate(query.events)])

    async def forget(self, request: Request) -> Response:
        """Forget a user: stored durably; the model and its file are updated in the background."""
        self._refresher()
        user = request.path_params["user"]
        return await self._stored([LogChange(_id(user, self.registry.get().model.log_.users, "user", 0))])

    async def _stored(self, changes: list[LogChange]) -> Response:
        refresher = self._refresher()
        assert self.state.writer is not None
        ticket = refresher.admit(changes)
        storing = self.state.writer.submit(changes)
        storing.add_done_callback(ticket.stored)
        # Shielded: the changes are stored even if the client disconnects.
        seq = await asyncio.shield(asyncio.wrap_future(storing))
        refresher.notify()
        self.state.metrics.stored.set(seq)
        return json_response(schemas.encode(schemas.StoredResponse(seq, len(changes), refresher.applied)), 202)

    def _refresher(self) -> Refresher:
        if self.state.refresher is None:
            raise Refused(
                409,
                "no_updates",
                "this server does not accept events; start it with --updates",
            )
        return self.state.refresher

    async def reload(self, request: Request) -> Response:
        """Load the model files that have changed."""
        try:
            done = await self._in_thread(self.registry.reload)
        finally:
            if self.state.after_reload is not None:
                self.state.after_reload()
        return json_response(schemas.encode(schemas.Reloads(done)))

    async def alive(self, request: Request) -> Response:
        """Whether the process responds."""
        return json_response(schemas.encode(schemas.ServerStatus("ok")))

    async def ready(self, request: Request) -> Response:
        """Whether the server accepts requests."""
        if self.state.draining:
            raise Refused(503, "draining", "the server is stopping")
        return json_response(schemas.encode(schemas.ServerStatus("ready")))

    async def metrics(self, request: Request) -> Response:
        """The metrics in Prometheus' format."""
        return Response(self.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(self, request: Request) -> Response:
        """The web page."""
        return Response((PAGE / "index.html").read_bytes(), media_type="text/html; charset=utf-8")

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        """Run a function in a worker thread, so that the event loop stays free."""
        return await asyncio.get_running_loop().run_in_executor(self.registry.pool, partial(function, *arguments))


def _change(event: schemas.Event, log: Interactions, position: int) -> LogChange:
    """An event as it is stored: ids as text, a date as a number in the unit of the log's times, with that unit."""
    user = _id(event.user, log.users, "user", position)
    item = _id(event.item, log.items, "item", position)
    time = None if event.time is None else moment_in(log, event.time, f"the time of event {position} is {{}}")
    return LogChange(user, item, event.weight, time, unit=_unit_of(event.time, log))


def _unit_of(time: Any, log: Interactions) -> str | None:
    """The unit in which `moment_in` returns a time."""
    if time is None:
        return None
    if log.latest is not None:
        return log.unit_of_times or UNKNOWN
    return "us" if isinstance(time, str) else unix_unit(np.array([time])) or UNKNOWN


def _id(value: Any, ids: Any, column: str, position: int) -> str:
    """An id as text; it must be of the kind of the model's ids, and not blank."""
    id_ = ids.same_kind(value)
    text = "" if id_ is None else str(id_)
    if not text.strip() or "\0" in text:
        raise ParameterError(
            f"the {column} of event {position} does not fit the model's {ids.kind} ids; "
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
    handlers, routes = Handlers(state), APIRouter(redirect_slashes=False)

    def add(method: str, path: str, handler: Any, status: int = 200, **described: Any) -> None:
        extra = operation(handler.__doc__, status, **described)
        routes.add_api_route(path, handler, methods=[method], response_class=Response, status_code=status, **extra)

    add(
        "POST",
        "/v1/recommend",
        handlers.recommend,
        takes=schemas.Recommend,
        gives=schemas.ListsResponse,
        wrong=(404, 501),
    )
    add("POST", "/v1/similar", handlers.similar, takes=schemas.Similar, gives=schemas.ListsResponse, wrong=(404,))
    add("POST", "/v1/explain", handlers.explain, takes=schemas.Explain, gives=schemas.Explained, wrong=(404,))
    add("POST", "/v1/score", handlers.score, takes=schemas.Score, gives=schemas.Scored, wrong=(404,))
    add("GET", "/v1/models", handlers.models, gives=schemas.Models)
    add("GET", "/v1/models/{name}", handlers.card, gives=schemas.Card, named="name", wrong=(404,))
    add("GET", "/v1/items", handlers.items, gives=schemas.Page, query=schemas.ItemSearch, wrong=(404, 422))
    add(
        "POST", "/v1/events", handlers.events, 202, takes=schemas.Events, gives=schemas.StoredResponse, wrong=(409, 507)
    )
    add(
        "DELETE",
        "/v1/users/{user:text}",
        handlers.forget,
        202,
        gives=schemas.StoredResponse,
        named="user",
        wrong=(409, 422, 507),
    )
    add("POST", "/admin/reload", handlers.reload, gives=schemas.Reloads, wrong=(422,))
    add("GET", "/healthz", handlers.alive, gives=schemas.ServerStatus)
    add("GET", "/readyz", handlers.ready, gives=schemas.ServerStatus, wrong=(503,))
    add("GET", "/metrics", handlers.metrics, gives=None)
    for path, handler in (("/", handlers.page), ("/healthz", handlers.alive), ("/readyz", handlers.ready)):
        methods = ["GET", "HEAD"] if path == "/" else ["HEAD"]
        routes.add_api_route(path, handler, methods=methods, include_in_schema=False, response_class=Response)
    return routes
