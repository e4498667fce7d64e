"""Access control, and the security headers of every response."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from monogram.errors import MonogramError
from monogram.server.settings import Settings, digest, is_loopback

OPEN = ("/", "/healthz", "/readyz", "/favicon.ico")  # and /page/…: public, without data
PAGE = "/page/"
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]

Pairs = Iterable[tuple[bytes, bytes]]


class Refused(MonogramError):
    """A request that is refused with an HTTP status of its own; the library has no error class for it."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.http_status, self.kind = status, kind


class AccessControl:
    """Checks the API key where one is set, else that the host is this machine; and the origin of changing requests."""

    def __init__(self, settings: Settings) -> None:
        self.key, self.origins = settings.key, {origin.encode() for origin in settings.cors}
        self.local = settings.key is None

    def check(self, method: str, path: str, headers: dict[bytes, bytes]) -> None:
        """Raise `Refused` for a request without access."""
        if path in OPEN or path.startswith(PAGE):
            return
        if self.key is not None:
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            if not (hmac.compare_digest(digest(key.strip()), self.key) and scheme.lower() == b"bearer"):
                raise Refused(401, "unauthorized", "expected the header Authorization: Bearer with the API key")
        elif not is_loopback(_host_name(headers.get(b"host", b"localhost"))):
            # Against DNS rebinding: the name of another site may resolve to this machine.
            raise Refused(403, "forbidden", "this server answers to localhost; for other names start it with a key")
        origin = headers.get(b"origin")
        if (
            method not in ("GET", "HEAD", "OPTIONS")
            and origin is not None
            and not self._allowed_origin(origin, headers)
        ):
            raise Refused(403, "forbidden", "the request comes from a page of another origin; name it with --cors")

    def _allowed_origin(self, origin: bytes, headers: dict[bytes, bytes]) -> bool:
        return origin in self.origins or origin.partition(b"://")[2] == headers.get(b"host")


def _host_name(host: bytes) -> str:
    """The name in a Host header, without the port."""
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
