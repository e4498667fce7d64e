"""The application, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.staticfiles import StaticFiles

from monogram.errors import MonogramError
from monogram.models import updates
from monogram.server.http.errors import KINDS, describe_error, error_body
from monogram.server.http.middleware import CONTEXT, RequestMiddleware
from monogram.server.http.openapi import document
from monogram.server.http.routes import JSON, PAGE, AppState, router
from monogram.server.metrics import Metrics
from monogram.server.model_registry import ModelRegistry
from monogram.server.queries.batching import Load
from monogram.server.settings import Settings
from monogram.server.updates.events import EventStore, EventWriter
from monogram.server.updates.refresh import Refresher

QUESTIONS = ("/v1/recommend", "/v1/similar", "/v1/explain", "/v1/score")
Begin = Callable[[AppState], Any]


def prepare(settings: Settings) -> AppState:
    """Load the models and bring them up to date: what is wrong with them is an error before anything listens."""
    metrics = Metrics()
    registry = ModelRegistry(settings, metrics, Load())
    registry.open()
    state = AppState(registry, metrics)
    if settings.events is not None:
        _follow(state, settings.events)
    return state


def _follow(state: AppState, url: str) -> None:
    updates.check(state.registry.get().model)  # before a database is made
    store = EventStore(url)
    try:
        refresher = Refresher(state.registry, store)
        refresher.begin()
    except BaseException:
        store.close()
        raise
    state.writer, state.refresher = EventWriter(store), refresher
    state.metrics.stored.set(store.last)


def application(state: AppState, begin: Begin | None = None) -> Any:
    """The ASGI application; `begin` is called on its loop when it starts."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if begin is not None:
            begin(state)
        yield
        close(state)

    app = FastAPI(
        title="Monogram", docs_url=None, redoc_url=None, openapi_url="/openapi.json", lifespan=lifespan,
        redirect_slashes=False, description="Recommendations, explanations and exact updates.",
    )  # fmt: skip
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    routes = router(state)
    app.include_router(routes)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    for kind in (MonogramError, msgspec.MsgspecError, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _http)
    settings = state.registry.settings
    gate: Any = RequestMiddleware(DirectRoutes(app, routes.routes), settings, state.metrics, state.registry.load)
    if settings.cors:
        gate = CORSMiddleware(
            gate, allow_origins=settings.cors, allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"], expose_headers=["x-request-id"],
        )  # fmt: skip
    return gate


def close(state: AppState) -> None:
    """Let the threads end what they have begun."""
    if state.writer is not None and state.refresher is not None:
        state.writer.stop()
        if state.refresher.stop():
            state.writer.store.close()
    state.registry.pool.shutdown(wait=False)


class DirectRoutes:
    """Calls the handlers of questions without FastAPI's way to them, which takes longer than many an answer.

    The routes are FastAPI's own; what a handler raises is answered by the gate.
    """

    def __init__(self, app: Any, routes: Iterable[Any]) -> None:
        self.app = app
        self.routes: dict[Any, Any] = {("POST", route.path): route for route in routes if route.path in QUESTIONS}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        route = self.routes.get((scope.get("method"), scope.get("path")))
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)


async def _failed(_: Request, error: Exception) -> Response:
    status, kind, message = describe_error(error)
    return Response(error_body(kind, message, CONTEXT.get().request_id), status, media_type=JSON)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = KINDS.get(error.status_code, "http")
    said = error_body(kind, str(error.detail), CONTEXT.get().request_id)
    return Response(said, error.status_code, headers=error.headers, media_type=JSON)
