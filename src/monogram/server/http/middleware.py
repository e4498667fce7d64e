"""The outermost room of the application: limits, the key, the clock, the log line and the headers of every answer."""

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
MAX_REQUESTS = 1024  # requests under way; more are refused
LONGEST_PATH = 32_768
FIRST, COUNT = secrets.token_hex(4), itertools.count(secrets.randbits(24))  # of request ids
ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestContext:
    """What is known of a request while it is answered: for its log line."""

    __slots__ = ("model", "request_id", "rows")

    def __init__(self, request_id: str) -> None:
        self.request_id, self.model, self.rows = request_id, "", 0


CONTEXT: contextvars.ContextVar[RequestContext] = contextvars.ContextVar("notes")


class RequestMiddleware:
    """ASGI middleware around everything."""

    def __init__(self, app: Any, settings: Settings, metrics: Metrics, load: Load) -> None:
        self.app, self.settings, self.metrics, self.access = app, settings, metrics, AccessControl(settings)
        self.load = load

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, headers = time.perf_counter(), dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        notes = RequestContext(given.decode() if ID.fullmatch(given) else f"{FIRST}{next(COUNT):08x}")
        CONTEXT.set(notes)
        answer = Answer(send, notes, scope["path"])
        self.load.active += 1
        try:
            await self._inside(scope, headers, receive, answer)
        finally:
            self.load.active -= 1
            self._note(scope, answer, notes, time.perf_counter() - start)

    async def _inside(
        self, scope: dict[str, Any], headers: dict[bytes, bytes], receive: Receive, answer: Answer
    ) -> None:
        try:
            self._check(scope, headers)
            body = Body(receive, self.settings)
            async with asyncio.timeout(self.settings.timeout):
                await self.app(scope, body, answer)
        except TimeoutError:
            await answer.fail(Refused(504, "timeout", f"no answer within {self.settings.timeout:g} s"))
        except ClientDisconnected:
            answer.status = 499
        except Exception as error:
            if describe_error(error)[0] == 500:
                logs.LOG.error("unforeseen", exc_info=error, extra={"fields": {"request_id": answer.notes.request_id}})
            await answer.fail(error)

    def _check(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        if self.load.active > MAX_REQUESTS:
            raise Refused(503, "overloaded", f"more than {MAX_REQUESTS:,} requests are under way; try again")
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_PATH:
            raise Refused(414, "too_large", f"the address is longer than {LONGEST_PATH:,} bytes")
        self.access.check(scope["method"], scope["path"], headers)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.settings.body:
            raise too_large(self.settings)

    def _note(self, scope: dict[str, Any], answer: Answer, notes: RequestContext, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or ("/page" if scope["path"].startswith(PAGE) else "none")
        self.metrics.requests.labels(route, answer.status).inc()
        self.metrics.latency.labels(route).observe(seconds)
        fields: dict[str, Any] = {"request_id": notes.request_id, "method": scope["method"], "path": route}
        fields |= {"status": answer.status, "ms": round(seconds * 1e3, 3)}
        if notes.model:
            fields |= {"model": notes.model, "rows": notes.rows}
        logs.emit("request", logging.ERROR if answer.status >= 500 else logging.INFO, **fields)


class ClientDisconnected(Exception):
    """The client left before its request was whole."""


def too_large(settings: Settings) -> Refused:
    """The error of a body over its limit."""
    return Refused(413, "too_large", f"the body is larger than {settings.body:,} bytes; ask in several requests")


class Body:
    """What the application receives: a body within its size and its time."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self.receive, self.settings, self.size = receive, settings, 0
        self.end = time.monotonic() + settings.reading
        self.whole = False

    async def __call__(self) -> Message:
        """The next part."""
        if self.whole:
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
        self.whole = not message.get("more_body", False)
        return message


class Answer:
    """What the application sends through: adds the headers, and remembers the status."""

    def __init__(self, send: Send, notes: RequestContext, path: str) -> None:
        self.send, self.notes, self.status, self.started = send, notes, 500, False
        fresh = b"no-cache" if path == "/" or path.startswith(PAGE) else b"no-store"
        self.extra = [*HEADERS, (b"x-request-id", notes.request_id.encode()), (b"cache-control", fresh)]

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message["headers"] = [*message.get("headers", []), *self.extra]
            if self.status in (408, 413):
                message["headers"].append((b"connection", b"close"))  # the rest of the body is not read
        await self.send(message)

    async def fail(self, error: BaseException) -> None:
        """Answer with an error; where an answer has begun there is nothing left to say."""
        if self.started:
            return
        status, kind, message = describe_error(error)
        body = error_body(kind, message, self.notes.request_id)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
