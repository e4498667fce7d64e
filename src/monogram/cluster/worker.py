"""Loaded by the worker processes that are started here, before they work."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(_: Any) -> None:
    """Leave Ctrl-C, which a terminal sends to all, to the process that started the workers: it ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
