"""Errors as clients see them: a status and one JSON envelope, without internal details."""

from __future__ import annotations

import re

import msgspec

from monogram.errors import MonogramError, ParameterError
from monogram.server.http.schemas import Envelope, Wrong, encode
from monogram.server.http.security import Refused

KINDS = {400: "malformed", 404: "not_found", 405: "method_not_allowed", 408: "too_slow", 413: "too_large"}
INTERNAL = "an internal error occurred; look for the request id in the server's log"


def error_kind(error: MonogramError) -> str:
    """The name of an error in responses: unknown_id for UnknownIdError."""
    if isinstance(error, Refused):
        return error.kind
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()


def describe_error(error: BaseException) -> tuple[int, str, str]:
    """The status, kind and message of an error; the text of an unexpected exception is not sent to clients."""
    if isinstance(error, MonogramError):
        return error.http_status, error_kind(error), str(error)
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return ParameterError.http_status, "parameter", f"the request cannot be read: {error}"
    return 500, "internal", INTERNAL


def error_body(kind: str, message: str, request_id: str) -> bytes:
    """The body of an error response."""
    return encode(Envelope(Wrong(kind, message, request_id)))
