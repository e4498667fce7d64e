"""Logs as JSON lines on stderr. They name routes, never paths, queries, histories, ids or keys."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any

import msgspec

LOG = logging.getLogger("monogram.server")


class JsonLines(logging.Formatter):
    """One JSON object a line; what a record carries under `fields` stands beside its message."""

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
    """Where an error came from, without its text: that may quote what a client sent."""
    frames = [f"{one.filename}:{one.lineno} {one.name}" for one in traceback.extract_tb(error.__traceback__)]
    return {"error": type(error).__name__, "frames": frames}


def configure() -> None:
    """Send everything to stderr as JSON lines, warnings of the library too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOG.setLevel(logging.INFO)
    logging.captureWarnings(True)


def emit(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log a message with fields beside it."""
    LOG.log(level, message, extra={"fields": fields})
