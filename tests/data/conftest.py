"""Fixtures for tests of reading: writing Parquet files, and comparing two logs bit by bit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monogram.data.interactions import Interactions


def written(path: Path, columns: dict | pa.Table, **how: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **how)
    return path


def equal(one: Interactions, other: Interactions) -> None:
    """Bit for bit: ids, weights, times, order, how it was merged and what was said about it."""
    assert one.users == other.users
    assert one.items == other.items
    assert (one.merge, one.notes, one.skipped) == (other.merge, other.notes, other.skipped)
    for name in ("data", "indices", "indptr"):
        first, second = getattr(one.matrix, name), getattr(other.matrix, name)
        assert first.dtype == second.dtype
        assert first.tobytes() == second.tobytes()
    assert one.time_unit == other.time_unit
    for name in ("times", "last_times", "order"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            assert first.dtype == second.dtype
            assert first.tobytes() == second.tobytes()


@pytest.fixture(scope="session")
def write():
    return written


@pytest.fixture(scope="session")
def same():
    return equal
