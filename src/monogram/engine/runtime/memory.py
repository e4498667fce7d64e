"""Available memory, memory budgets, and the peak memory of a block of code."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path
from types import TracebackType

import numpy as np

from monogram.errors import ParameterError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
MARGIN = 0.9  # share of the free memory that is used; the rest is for other processes


def parse(memory: int | float | str | None) -> int:
    """A budget in bytes from a number of bytes, a text such as "8 GB" or "512MiB", or None for the free memory."""
    if memory is None:
        return int(MARGIN * available())
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", memory.lower())
        if match and match[2] in _UNITS:
            memory = float(match[1]) * _UNITS[match[2]]
    if isinstance(memory, bool) or not isinstance(memory, int | float | np.number) or not 0 < memory < 2**63:
        text = repr(memory)[:60]
        raise ParameterError(f'memory = {text}; expected bytes above 0, or a text such as "8 GB" or "512 MiB"')
    return int(memory)


def show(number: float) -> str:
    """Format a number of bytes with a decimal unit: 3.57 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def available() -> int:
    """Bytes this process can still allocate: free system memory, within the limit of its container (cgroup)."""
    free = [_system_free()]
    for folder, limit, usage in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        bound, taken = _number(f"{folder}/{limit}"), _number(f"{folder}/{usage}")
        if bound is not None and taken is not None:
            free.append(max(0, bound - taken + _cached(f"{folder}/memory.stat")))
    return min(free)


def _cached(path: str) -> int:
    """Bytes of the page cache of a container that the kernel can reclaim."""
    try:
        match = re.search(r"^inactive_file (\d+)", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such file, or the word "max"
        return None


def _system_free() -> int:
    free = _status("/proc/meminfo", "MemAvailable")
    if free is not None:
        return free
    if (
        hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
    ):  # no portable count of free pages: assume half of all pages
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 4 * 10**9


def _status(path: str, key: str) -> int | None:
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    match = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


class Peak:
    """Peak memory of the process inside the block, above its memory at the start; None where it cannot be measured."""

    bytes: int | None = None

    def __enter__(self) -> Peak:
        _trim_heap()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: reset the high-water mark
        except OSError:
            self._start = _high_water()
            return self
        self._start = _status("/proc/self/status", "VmRSS")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = _high_water()
        if self._start is not None and end is not None:
            self.bytes = max(0, end - self._start)


def _trim_heap() -> None:
    """Return free heap memory to the system: memory left over from earlier work would hide new allocations."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc has malloc_trim, musl does not
        trim(ctypes.c_size_t(0))


def _high_water() -> int | None:
    mark = _status("/proc/self/status", "VmHWM")
    if mark is not None or sys.platform == "win32":
        return mark
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
