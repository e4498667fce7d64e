"""What a piece of work took is measured whatever was done before it."""

from __future__ import annotations

import platform

import pytest

from monogram.engine.runtime import memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc hands it back when asked")
def test_memory_that_earlier_work_left_does_not_hide_what_is_taken():
    def work():
        return [bytearray(b"x" * 60_000) for _ in range(1000)]  # small enough to stay with malloc when freed

    held, pins = work(), []
    pins.append(bytearray(b"x" * 60_000))  # above them: they cannot simply be cut off
    held.clear()
    with memory.Peak() as peak:
        held = work()
    assert peak.bytes > 50_000_000
    assert len(pins) == len(held[0]) // 60_000
