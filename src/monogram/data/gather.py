"""Collect batches of raw columns into one log; rows that cannot be used raise an error or are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from monogram.data.cells import Fault
from monogram.data.clean_ids import clean_ids
from monogram.data.clean_numbers import Style, clean_times, clean_weights
from monogram.data.columns import ColumnNames
from monogram.data.encode import Codebook, Growing
from monogram.data.interactions import Interactions, Merge, check_weights
from monogram.data.merge import LogRows, Merged, keys_of, merged
from monogram.data.source import Batch, Column, Lost, shown, value_at
from monogram.data.spill import Spill, Watch
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, Message, Option

ADVICE = Message("Correct the row, or read with ", Option("on_error", '"skip"'), " to leave such rows out.")
WHOLE = 2**28  # bytes of rows up to which a log is merged in memory
BLOCK = 2**25  # bytes of rows of a larger log before they are written to disk


class Tally:
    """Counts skipped, empty and merged rows for the notes; without `skip` the first bad row raises `DataError`."""

    def __init__(self, label: str, skip: bool) -> None:
        self.label, self.skip = label, skip
        self.reasons: Counter[str] = Counter()
        self.rows = self.zeros = 0

    @property
    def skipped(self) -> int:
        """Number of rows skipped because of a fault."""
        return self.reasons.total()

    def count_lost(self, lost: list[Lost]) -> None:
        """Count rows that could not be split into columns."""
        for row in lost:
            if not self.skip:
                raise DataError(
                    Message(f"{self.label}, row {row.row:,}: {row.reason}, got {shown(row.text)}. ", ADVICE)
                )
            self.rows += 1
            self.reasons[row.reason] += 1

    def count_faults(
        self,
        columns: dict[str, Column],
        start: int,
        size: int,
        faults: list[tuple[str, Fault]],
        label: str = "",
    ) -> npt.NDArray[np.bool_] | None:
        """Count the rows of a batch and their faults; the mask of the rows to keep, or None for all."""
        self.rows += size
        if not faults:
            return None
        if not self.skip:
            self._refuse(columns, start, faults, label or self.label)
        keep = np.ones(size, dtype=bool)
        for name, fault in faults:
            fresh = fault.rows[keep[fault.rows]]
            self.reasons[f'column "{name}": {fault.reason}'] += len(fresh)
            keep[fault.rows] = False
        return keep

    def _refuse(self, columns: dict[str, Column], start: int, faults: list[tuple[str, Fault]], label: str) -> NoReturn:
        name, fault = min(faults, key=lambda pair: pair[1].rows[0])
        row = int(fault.rows[0])
        value = shown(value_at(columns[name], row))
        where = f'{label}, row {start + row + 1:,}, column "{name}"'
        raise DataError(Message(f"{where}: {fault.reason}, got {value}. ", ADVICE))

    def drop_zeros(
        self, weights: npt.NDArray[np.float32] | None, keep: npt.NDArray[np.bool_] | None
    ) -> npt.NDArray[np.bool_] | None:
        """Exclude rows of weight 0, which mean no interaction."""
        if weights is None or weights.all():
            return keep
        nonzero: npt.NDArray[np.bool_] = weights != 0
        self.zeros += int((~nonzero).sum() if keep is None else (~nonzero & keep).sum())
        return nonzero if keep is None else nonzero & keep

    def notes(self, events: int, merge: Merge) -> list[str]:
        """Lines about merged, skipped and empty rows."""
        lines = []
        repeats = self.rows - self.skipped - self.zeros - events
        if repeats:
            how = "every pair counts 1" if merge == "binary" else "weights added"
            lines.append(f"{repeats:,} repeated {_rows(repeats)} merged ({how})")
        if self.zeros:
            lines.append(f"{self.zeros:,} {_rows(self.zeros)} with weight 0 left out")
        if self.skipped:
            lines.append(f"{self.skipped:,} {_rows(self.skipped)} skipped: {self.reasons_text()}")
        return lines

    def reasons_text(self) -> str:
        """The reasons for skipped rows, with their counts."""
        return "; ".join(f"{count:,} × {reason}" for reason, count in self.reasons.most_common() if count)

    def nothing_left(self) -> DataError:
        """The error for a log without a usable row."""
        if self.rows == 0:
            return DataError(f"{self.label} has no rows: a log needs at least one user–item pair.")
        parts = [f"{self.skipped:,} skipped ({self.reasons_text()})"] if self.skipped else []
        parts += [f"{self.zeros:,} of weight 0"] if self.zeros else []
        return DataError(f"{self.label}: none of the {self.rows:,} rows can be used: {', '.join(parts)}.")


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


class Gatherer:
    """Collects the rows of a log batch by batch; a log too large for memory is spilled to disk.

    Parameters
    ----------
    names, tally, merge
        Columns of the log, the counter of its rows, and how repeated pairs are merged.
    expected
        Number of rows; None when it is not known in advance.
    time_unit
        Unit of times that are numbers; None when it is not known.
    """

    def __init__(
        self,
        names: ColumnNames,
        tally: Tally,
        merge: Merge,
        expected: int | None = None,
        time_unit: str | None = None,
    ) -> None:
        self.names, self.tally, self.merge = names, tally, merge
        self.users, self.items = Codebook(), Codebook()
        self._weights, self._times = Growing(np.float32), Growing(np.int64)
        self._weighted = names.weight is not None and merge == "sum"
        self._style: Style | None = None
        self._from_floats: dict[str, None] = {}
        self._expected, self._buffered, self._spilled = expected, 0, 0
        self._unit = time_unit
        self._spill: Spill | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Gatherer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, batch: Batch) -> None:
        """Check one batch and buffer its usable rows."""
        self.tally.count_lost(batch.lost)
        names, columns = self.names, batch.columns
        if not columns:
            return
        users = clean_ids(columns[names.user], self.users.kind)
        items = clean_ids(columns[names.item], self.items.kind)
        faults = [(names.user, fault) for fault in users.faults] + [(names.item, fault) for fault in items.faults]
        weights, times = None, None
        if names.weight is not None:
            weights, wrong = clean_weights(columns[names.weight])
            faults += [(names.weight, fault) for fault in wrong]
        if names.time is not None:
            times, self._style, wrong = clean_times(columns[names.time], self._style)
            faults += [(names.time, fault) for fault in wrong]
        keep = self.tally.count_faults(columns, batch.start, len(users.codes), faults, batch.label)
        keep = self.tally.drop_zeros(weights, keep)
        self._buffer_numbers(weights if self._weighted else None, times, keep)
        for name, ids, book in ((names.user, users, self.users), (names.item, items, self.items)):
            book.add(ids, keep)
            self._from_floats.update({name: None} if ids.from_floats else {})
        self._buffered += len(users.codes) if keep is None else int(keep.sum())
        if self._buffered > self._buffer_limit():
            self._spill_buffer()

    def _buffer_numbers(
        self,
        weights: npt.NDArray[np.float32] | None,
        times: npt.NDArray[Any] | None,
        keep: npt.NDArray[np.bool_] | None,
    ) -> None:
        for buffer, values in ((self._weights, weights), (self._times, times)):
            if values is not None:
                buffer.append(values if keep is None else values[keep])

    @property
    def _width(self) -> int:
        """Bytes of a buffered row."""
        return 8 + 4 * self._weighted + 8 * (self.names.time is not None)

    @property
    def _ordered(self) -> bool:
        """Whether rows are numbered: by their times and numbers, or by their numbers alone."""
        return self.names.ordered or self.names.time is not None

    def _buffer_limit(self) -> int:
        """Rows that may be buffered: all of a moderate log, else one block, at least as large as the vocabularies."""
        if self._spill is None and (self._expected is None or self._expected * self._width <= WHOLE):
            return WHOLE // self._width
        return max(BLOCK // self._width, len(self.users) + len(self.items))

    def _spill_buffer(self) -> None:
        if self._spill is None:
            binary = self.merge == "binary"
            timed = self.names.time is not None
            width = self._width + (0 if binary else 8) + 8 * self._ordered + 8 * timed  # count, number, last time
            self._spill = self._stack.enter_context(Spill(binary, width, self._expected))
        users, items = self.users.drain(), self.items.drain()
        weights = self._weights.finish() if self._weighted else None
        times = None if self.names.time is None else self._times.finish()
        step = BLOCK // self._width + 1
        for part in (slice(start, start + step) for start in range(0, self._buffered, step)):
            row_weights, row_times = (None if values is None else values[part] for values in (weights, times))
            end = min(part.stop, self._buffered)
            numbers = np.arange(part.start, end, dtype=np.int64) + self._spilled if self._ordered else None
            keys = keys_of(users[part], items[part])
            self._spill.add(LogRows(keys, row_weights, times=row_times, numbers=numbers))
        self._spilled += self._buffered
        self._buffered = 0

    def finish(
        self, textual: bool, notes: Iterable[str], watch: Watch = lambda shards, _: iter(shards)
    ) -> Interactions:
        """Merge the collected rows into a matrix; `watch` iterates over the shards on disk, and may show progress."""
        if self.users.kind is None:
            raise self.tally.nothing_left()
        users, items, arrays = (
            self._whole(textual) if self._spill is None else self._sharded(self._spill, textual, watch)
        )
        breaks = _line_breaks(users, items) if textual else []
        floats = [f'ids of column "{name}" were floats and are read as integers' for name in self._from_floats]
        lines = [*notes, *floats, *breaks]
        return conclude(arrays, users, items, self.merge, self.tally, lines, self._time_unit())

    def _time_unit(self) -> str | None:
        """The unit of the times: dates are microseconds, numbers have the unit that was given."""
        return unit_of_times(self._style, self._unit, self.tally.label, self.names.time)

    def _whole(self, textual: bool) -> tuple[Vocabulary, Vocabulary, Merged]:
        users, rows = self.users.finish(textual)
        items, columns = self.items.finish(textual)
        weights = self._weights.finish() if self._weighted else None
        times = self._times.finish() if self.names.time is not None else None
        binary, in_order = self.merge == "binary", self.names.ordered
        return users, items, merged(rows, columns, weights, times, len(users), binary, in_order=in_order)

    def _sharded(self, spill: Spill, textual: bool, watch: Watch) -> tuple[Vocabulary, Vocabulary, Merged]:
        if self._buffered:
            self._spill_buffer()
        users, rows = self.users.vocabulary(textual)
        items, columns = self.items.vocabulary(textual)
        times = None if self.names.time is None else self._times.dtype
        return users, items, spill.merged(rows, columns, times, self._ordered, watch)


def _line_breaks(*vocabularies: Vocabulary) -> list[str]:
    """A note about ids that contain a line break, possibly because a quote was not closed."""
    texts = [ids._array for ids in vocabularies if ids.kind == "string"]
    count = sum(pc.sum(pc.match_substring_regex(text, "[\r\n]")).as_py() or 0 for text in texts)
    contain = "id contains" if count == 1 else "ids contain"
    return [f"{count:,} {contain} a line break: was a quote left open?"] if count else []


def unit_of_times(style: Style | None, given: str | None, label: str, column: str | None) -> str | None:
    """The unit of times that were read: microseconds of dates, else the given one."""
    if style != "date":
        return given
    if given not in (None, "us"):
        given_unit = Option("time_unit", f'"{given}"')
        raise DataError(
            Message(
                f'{label}: column "{column}" holds dates, which are read as microseconds; ',
                given_unit,
                " is for numbers. Leave it out.",
            )
        )
    return "us"


def conclude(
    arrays: Merged,
    users: Vocabulary,
    items: Vocabulary,
    merge: Merge,
    tally: Tally,
    notes: Iterable[str],
    time_unit: str | None = None,
) -> Interactions:
    """Interactions from merged arrays, with the notes of the reader and of the tally."""
    matrix = arrays.matrix(len(items))
    check_weights(matrix, users, items)
    return Interactions(
        matrix,
        users,
        items,
        arrays.times,
        merge,
        (*notes, *tally.notes(matrix.nnz, merge)),
        tally.skipped,
        last_times=arrays.last_times,
        order=arrays.order,
        time_unit=time_unit,
    )
