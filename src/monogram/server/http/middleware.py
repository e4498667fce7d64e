"""ASGI middleware around the application: limits, API key, timeouts, log line and headers of every response."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from monogram.server import logs
from monogram.server.http.errors import describe_error, error_body
from monogram.server.http.security import HEADERS, PAGE, AccessControl, Refused
from monogram.server.metrics import Metrics
from monogram.server.queries.batching import Load
from monogram.server.settings import Settings

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MAX_REQUESTS = 1024  # concurrent requests; more are refused
LONGEST_PATH = 32_768
ID_PREFIX, ID_COUNTER = secrets.token_hex(4), itertools.count(secrets.randbits(24))  # of request ids
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestContext:
    """The id, model and number of rows of the current request, for its log line."""

    __slots__ = ("model", "request_id", "rows")

    def __init__(self, request_id: str) -> None:
        self.request_id, self.model, self.rows = request_id, "", 0


CONTEXT: contextvars.ContextVar[RequestContext] = contextvars.ContextVar("request")


class RequestMiddleware:
    """Checks each request, limits it, answers its errors and logs it."""

    def __init__(self, app: Any, settings: Settings, metrics: Metrics, load: Load) -> None:
        self.app, self.settings, self.metrics, self.access = app, settings, metrics, AccessControl(settings)
        self.load = load

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, headers = time.perf_counter(), dict(scope["headers"])
        client_id = headers.get(b"x-request-id", b"")
        context = RequestContext(
            client_id.decode() if REQUEST_ID.fullmatch(client_id) else f"{ID_PREFIX}{next(ID_COUNTER):08x}"
        )
        CONTEXT.set(context)
        response = ResponseSender(send, context, scope["path"])
        self.load.active += 1
        try:
            await self._respond(scope, headers, receive, response)
        finally:
            self.load.active -= 1
            self._log(scope, response, context, time.perf_counter() - start)

    async def _respond(
        self, scope: dict[str, Any], headers: dict[bytes, bytes], receive: Receive, response: ResponseSender
    ) -> None:
        try:
            self._check(scope, headers)
            body = LimitedBody(receive, self.settings)
            async with asyncio.timeout(self.settings.timeout):
                await self.app(scope, body, response)
        except TimeoutError:
            await response.fail(Refused(504, "timeout", f"no answer within {self.settings.timeout:g} s"))
        except ClientDisconnected:
            response.status = 499
        except Exception as error:
            if describe_error(error)[0] == 500:
                logs.LOG.error(
                    "unexpected error", exc_info=error, extra={"fields": {"request_id": response.context.request_id}}
                )
            await response.fail(error)

    def _check(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        if self.load.active > MAX_REQUESTS:
            raise Refused(503, "overloaded", f"the server already handles {MAX_REQUESTS:,} requests; try again")
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_PATH:
            raise Refused(414, "too_large", f"the address is longer than {LONGEST_PATH:,} bytes")
        self.access.check(scope["method"], scope["path"], headers)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.body:
            raise too_large(self.settings)

    def _log(self, scope: dict[str, Any], response: ResponseSender, context: RequestContext, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or ("/page" if scope["path"].startswith(PAGE) else "none")
        self.metrics.requests.labels(route, response.status).inc()
        self.metrics.latency.labels(route).observe(seconds)
        fields: dict[str, Any] = {"request_id": context.request_id, "method": scope["method"], "path": route}
        fields |= {"status": response.status, "ms": round(seconds * 1e3, 3)}
        if context.model:
            fields |= {"model": context.model, "rows": context.rows}
        logs.emit("request", logging.ERROR if response.status >= 500 else logging.INFO, **fields)


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""


def too_large(settings: Settings) -> Refused:
    """The error for a body above the size limit."""
    return Refused(413, "too_large", f"the body is larger than {settings.body:,} bytes; split it into several requests")


class LimitedBody:
    """The ASGI `receive` of the application: refuses a body that is too large or too slow."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self.receive, self.settings, self.size = receive, settings, 0
        self.end = time.monotonic() + settings.reading
        self.complete = False

    async def __call__(self) -> Message:
        """The next message."""
        if self.complete:
            return await self.receive()
        try:
            async with asyncio.timeout(self.end - time.monotonic()):
                message = await self.receive()
        except TimeoutError:
            slow = f"the request was not received within {self.settings.reading:g} s"
            raise Refused(408, "too_slow", slow) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        self.size += len(message.get("body", b""))
        if self.size > self.settings.body:
            raise too_large(self.settings)
        self.complete = not message.get("more_body", False)
        return message


class ResponseSender:
    """The ASGI `send` of the application: adds headers, and records the status."""

    def __init__(self, send: Send, context: RequestContext, path: str) -> None:
        self.send, self.context, self.status, self.started = send, context, 500, False
        cache = b"no-cache" if path == "/" or path.startswith(PAGE) else b"no-store"
        self.extra = [*HEADERS, (b"x-request-id", context.request_id.encode()), (b"cache-control", cache)]

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message["headers"] = [*message.get("headers", []), *self.extra]
            if self.status in (408, 413):
                message["headers"].append((b"connection", b"close"))  # the remaining body is not read
        await self.send(message)

    async def fail(self, error: BaseException) -> None:
        """Send an error response, unless a response has already started."""
        if self.started:
            return
        status, kind, message = describe_error(error)
        body = error_body(kind, message, self.context.request_id)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
