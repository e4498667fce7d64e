"""Preload module of local worker processes."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(_: Any) -> None:
    """Ignore SIGINT, which a terminal sends to all processes: the process that started the workers stops them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
