"""Logs as JSON lines on stderr. They hold routes, but never paths, queries, histories, ids or keys."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any

import msgspec

LOG = logging.getLogger("monogram.server")


class JsonLines(logging.Formatter):
    """One JSON object in each line; the `fields` of a record are added to it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= trace(record.exc_info[1])
        return msgspec.json.encode(line).decode()


def trace(error: BaseException) -> dict[str, Any]:
    """The class and the frames of an error, without its text, which may quote a request."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return {"error": type(error).__name__, "frames": frames}


def configure() -> None:
    """Send all logs, and the warnings of the library, to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.INFO)
    logging.captureWarnings(True)


def emit(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log a message with fields."""
    LOG.log(level, message, extra={"fields": fields})
