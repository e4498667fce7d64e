"""Times: dates become microseconds, numbers stay, and every event keeps its own."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monogram.data import files, parquet
from monogram.data.readers import read
from monogram.errors import DataError


def save(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


SECOND = 1_577_836_800  # 2020-01-01
MICROS = SECOND * 10**6


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1, 2], [1, 2]),
        ([1.5, 2], [1.5, 2.0]),
        (pa.array([1, 2], pa.uint8()), [1, 2]),
        (pa.array([datetime(2020, 1, 1)] * 2, pa.timestamp("ns")), [MICROS] * 2),
        (pa.array([datetime(2020, 1, 1)] * 2, pa.timestamp("s", "Europe/Berlin")), [MICROS] * 2),
        (pa.array([date(2020, 1, 1)] * 2), [MICROS] * 2),
        (["2020-01-01", "2020-01-01T00:00:01"], [MICROS, MICROS + 10**6]),
        (["2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00"], [MICROS] * 2),
        (["2020-01-01T00:00:00Z", "2020-01-01 00:00:00.5"], [MICROS, MICROS + 500_000]),
        (["15", "16"], [15, 16]),
        (["15", "16.5"], [15.0, 16.5]),
    ],
)
def test_times(times, expected):
    log = read(pa.table({"user": ["a", "b"], "item": ["x", "y"], "t": times}), time="t", quiet=True)
    assert log.times.tolist() == expected
    assert log.times.dtype == (np.int64 if isinstance(expected[0], int) else np.float64)
    assert not log.times.flags.writeable


def test_times_of_objects_and_csv(tmp_path):
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "t": pd.to_datetime(["2020-01-01", None])})
    with pytest.raises(DataError, match='row 2, column "t": the time is missing'):
        read(frame, time="t", quiet=True)
    assert read(frame, time="t", quiet=True, on_error="skip").times.tolist() == [MICROS]
    frame["t"] = pd.Series([date(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 1)], dtype=object)
    assert read(frame, time="t", quiet=True).times.tolist() == [MICROS, MICROS + 10**6]
    path = save(tmp_path, "a.csv", "user,item,t\na,x,2020-01-01 00:00:00\nb,x,2020-01-01\n")
    assert read(path, time="t", quiet=True).times.tolist() == [MICROS, MICROS]


def test_periods_are_no_times(tmp_path):
    months = pd.period_range("2020-01", periods=2, freq="M")
    frame = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "t": months})
    table = pa.table(frame)
    for source in (frame, table, table.to_batches()[0]):
        with pytest.raises(DataError, match=r"column .t.: times of type pandas.period are not supported"):
            read(source, time="t", quiet=True)
    with pytest.raises(DataError, match="the time cannot be read"):
        read(frame.astype({"t": object}), time="t", quiet=True)
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(DataError, match="times of type pandas"):
        read(tmp_path / "p.parquet", time="t", quiet=True)
    unregistered = pa.schema([pa.field("t", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})])
    with pytest.raises(DataError, match="column 't' holds periods of pandas"):
        parquet._check_periods(tmp_path, unregistered, ["t"])
    assert read(tmp_path / "p.parquet", quiet=True).n_events == 2


def test_the_first_time_stays_and_times_follow_their_events():
    rows = pa.table({"user": ["b", "a", "b", "a"], "item": ["x", "y", "x", "x"], "t": [5, 1, 3, 2], "w": [1, 2, 4, 8]})
    log = read(rows, time="t", weight="w", quiet=True)
    assert log.times.tolist() == [2, 1, 3]  # (a, x), (a, y), (b, x)
    assert log.matrix.data.tolist() == [8, 2, 5]
    assert read(rows, time="t", quiet=True).times.tolist() == [2, 1, 3]


def test_times_may_turn_to_floats_later(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "CSV_BLOCK", 64)
    rows = "".join(f"u{n},i,{n if n < 50 else n + 0.5}\n" for n in range(60))
    log = read(save(tmp_path, "a.csv", "user,item,t\n" + rows), time="t", quiet=True)
    assert log.times.dtype == np.float64
    assert sorted(log.times.tolist()) == [n if n < 50 else n + 0.5 for n in range(60)]
