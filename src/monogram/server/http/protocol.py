"""uvicorn's HTTP protocol with a timeout and a size limit for request heads, before the application is called."""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from monogram.server.http.errors import error_body

HEADER_BYTES = 65_536


def limited_protocol(reading: float) -> type[asyncio.Protocol]:
    """The protocol class; the head of a request must arrive within `reading` seconds."""

    class LimitedProtocol(HttpToolsProtocol):
        """Closes idle and slow connections; answers malformed HTTP with the error envelope."""

        head_timer: asyncio.TimerHandle | None = None
        head_bytes = 0
        in_head = True

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.in_head:
                self.head_bytes += len(data)
            super().data_received(data)
            if self.in_head and self.head_bytes > HEADER_BYTES and not self.transport.is_closing():
                self._refuse(431, "too_large", f"the head of the request is larger than {HEADER_BYTES:,} bytes")

        def on_message_begin(self) -> None:
            self.in_head = True
            if self.head_timer is None:
                self._start_timer()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.in_head, self.head_bytes = False, 0
            self._cancel_timer()
            super().on_headers_complete()

        def eof_received(self) -> bool:  # type: ignore[override]
            """A client that has closed its side after a complete request still gets the response."""
            waiting = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
            if waiting:
                self.cycle.keep_alive = False
            return waiting

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, "malformed", msg)

        def _refuse(self, status: int, kind: str, message: str) -> None:
            body = error_body(kind, message, secrets.token_hex(8))
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

        def _start_timer(self) -> None:
            self.head_timer = self.loop.call_later(reading, self._too_slow)

        def _cancel_timer(self) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None

        def _too_slow(self) -> None:
            self.head_timer = None
            if not self.transport.is_closing():
                self._refuse(408, "too_slow", f"the request was not received within {reading:g} s")

    protocol: Any = LimitedProtocol
    return protocol  # type: ignore[no-any-return]
