"""Data frames of any library, and Python tuples, as batches of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from monogram.data.source import BATCH_ROWS, Batch, Column, Lost, Source, packed
from monogram.errors import DataError

_PAIRS = 65_536
PAIR_COLUMNS = ("user", "item", "weight")


def frame_source(data: Any) -> Source | None:
    """Open a data frame as a source; None when narwhals does not support its type."""
    import narwhals as nw

    if isinstance(data, pa.RecordBatchReader):
        return Source("the pyarrow stream", data.schema.names, lambda column_names: _streamed(data, column_names))
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    try:
        frame = nw.from_native(data, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise DataError(
            f"the frame has a column name more than once; give each column its own name. {error}"
        ) from error
    label = f"the {type(data).__module__.partition('.')[0]} frame"
    if isinstance(frame, nw.LazyFrame):
        lazy = frame
        names = lazy.collect_schema().names()
        return Source(label, names, lambda column_names: _batches(_collected(lazy, column_names, label), column_names))
    if isinstance(frame, nw.DataFrame):
        eager = frame
        return Source(label, list(eager.columns), lambda column_names: _batches(eager, column_names), len(eager))
    return None


def _streamed(stream: Any, column_names: list[str]) -> Iterator[Batch]:
    start = 0
    try:
        for rows in stream:
            for part in (rows.slice(first, BATCH_ROWS) for first in range(0, rows.num_rows, BATCH_ROWS)):
                yield Batch({name: part.column(name) for name in column_names}, start, start + part.num_rows)
                start += part.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"the pyarrow stream could not be read: {error}") from error


def _collected(frame: Any, column_names: list[str], label: str) -> Any:
    try:
        return frame.select(column_names).collect("pyarrow")
    except Exception as error:  # a lazy frame may raise any exception of its engine
        raise DataError(f"{label} could not be computed: {error}") from error


def _batches(frame: Any, column_names: list[str]) -> Iterator[Batch]:
    for start in range(0, len(frame), BATCH_ROWS):
        stop = min(start + BATCH_ROWS, len(frame))
        columns = {name: _column(frame.get_column(name)[start:stop]) for name in column_names}
        yield Batch(columns, start, stop)


def _column(series: Any) -> Column:
    """One slice of a series as an Arrow array; as a list where Arrow cannot represent its objects."""
    import narwhals as nw

    if series.dtype == nw.Object:  # Polars would export pointers to Arrow
        return packed(series.to_list())
    try:
        array = series.to_arrow()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return packed(series.to_list())
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def pairs_source(data: Iterable[Any]) -> Source:
    """Open an iterable of (user, item) or (user, item, weight) as a source."""
    rows = iter(data)
    first = list(islice(rows, 1))
    width = len(first[0]) if first and _is_row(first[0]) else 2
    names = list(PAIR_COLUMNS[:width]) if width in (2, 3) else list(PAIR_COLUMNS[:2])
    label = f"the {type(data).__name__} of pairs"
    return Source(label, names, lambda _: _pair_batches(chain(first, rows), names))


def _is_row(row: Any) -> bool:
    return isinstance(row, (tuple, list, np.ndarray)) and np.ndim(len(row)) == 0


def _pair_batches(rows: Iterator[Any], names: list[str]) -> Iterator[Batch]:
    start = 0
    while chunk := list(islice(rows, _PAIRS)):
        good = [row for row in chunk if _is_row(row) and len(row) == len(names)]
        lost = [] if len(good) == len(chunk) else _lost(chunk, start, len(names))
        columns = {name: packed([row[place] for row in good]) for place, name in enumerate(names)}
        yield Batch(columns if good else {}, start, start + len(chunk), lost)
        start += len(chunk)


def _lost(chunk: list[Any], start: int, width: int) -> list[Lost]:
    expected = f"({', '.join(PAIR_COLUMNS[:width])})"
    reason = f"the row is not a tuple {expected} like the first" if width == 3 else f"the row is not a {expected} pair"
    numbered = enumerate(chunk, start=start + 1)
    return [Lost(number, reason, repr(row)) for number, row in numbered if not (_is_row(row) and len(row) == width)]
