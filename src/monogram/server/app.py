"""The ASGI application, assembled from its parts."""

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
from monogram.server.http.openapi import openapi_document
from monogram.server.http.routes import JSON, PAGE, AppState, router
from monogram.server.metrics import Metrics
from monogram.server.model_registry import ModelRegistry
from monogram.server.queries.batching import Load
from monogram.server.settings import Settings
from monogram.server.updates.events import EventStore, EventWriter
from monogram.server.updates.refresh import Refresher

QUERIES = ("/v1/recommend", "/v1/similar", "/v1/explain", "/v1/score")
OnStart = Callable[[AppState], Any]


def prepare(settings: Settings) -> AppState:
    """Load the models and apply the events they lack; errors are raised before the server listens."""
    metrics = Metrics()
    registry = ModelRegistry(settings, metrics, Load())
    registry.open()
    state = AppState(registry, metrics)
    if settings.events is not None:
        _start_updates(state, settings.events)
    return state


def _start_updates(state: AppState, url: str) -> None:
    updates.check(state.registry.get().model)  # before a database is created
    store = EventStore(url)
    try:
        refresher = Refresher(state.registry, store)
        refresher.start()
    except BaseException:
        store.close()
        raise
    state.writer, state.refresher = EventWriter(store), refresher
    state.metrics.stored.set(store.last)


def application(state: AppState, on_start: OnStart | None = None) -> Any:
    """The ASGI application; `on_start` is called on its event loop at the start."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if on_start is not None:
            on_start(state)
        yield
        close(state)

    app = FastAPI(
        title="Monogram", docs_url=None, redoc_url=None, openapi_url="/openapi.json", lifespan=lifespan,
        redirect_slashes=False, description="Recommendations, explanations and exact updates.",
    )  # fmt: skip
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    routes = router(state)
    app.include_router(routes)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    for kind in (MonogramError, msgspec.MsgspecError, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_exception_handler(HTTPException, _http)
    settings = state.registry.settings
    wrapped: Any = RequestMiddleware(DirectRoutes(app, routes.routes), settings, state.metrics, state.registry.load)
    if settings.cors:
        wrapped = CORSMiddleware(
            wrapped, allow_origins=settings.cors, allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"], expose_headers=["x-request-id"],
        )  # fmt: skip
    return wrapped


def close(state: AppState) -> None:
    """Stop the threads after their current work."""
    if state.writer is not None and state.refresher is not None:
        state.writer.stop()
        if state.refresher.stop():
            state.writer.store.close()
    state.registry.pool.shutdown(wait=False)


class DirectRoutes:
    """Calls the handlers of queries directly: FastAPI's dispatch takes longer than many a query.

    The routes are FastAPI's own; `RequestMiddleware` answers the exceptions of a handler.
    """

    def __init__(self, app: Any, routes: Iterable[Any]) -> None:
        self.app = app
        self.routes: dict[Any, Any] = {("POST", route.path): route for route in routes if route.path in QUERIES}

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
    content = error_body(kind, str(error.detail), CONTEXT.get().request_id)
    return Response(content, error.status_code, headers=error.headers, media_type=JSON)
