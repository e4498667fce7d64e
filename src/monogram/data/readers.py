"""`read`: any file, data frame or iterable of pairs as Interactions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from monogram.data.archive import read_npz
from monogram.data.columns import ORDER, ColumnNames, check_unit_of_order, choose, notes_of_order
from monogram.data.files import file_source
from monogram.data.frames import frame_source, pairs_source
from monogram.data.gather import Gatherer, Tally
from monogram.data.interactions import Interactions, Merge, check_merge
from monogram.data.progress import with_progress
from monogram.data.source import Source
from monogram.data.spans import check_time_unit
from monogram.errors import DataError, Message, Option, ParameterError


def read(
    source: Any,
    user: str | None = None,
    item: str | None = None,
    weight: str | None = None,
    time: str | None = None,
    *,
    time_unit: str | None = None,
    merge: Merge | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    part: Literal["train", "test"] = "train",
    quiet: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Interactions:
    """Read a log of user-item events.

    Parameters
    ----------
    source
        A path (.csv, .tsv, .parquet, .jsonl, .ndjson, .json, text formats also .gz and .zst; .npz; a folder
        of Parquet files, nested or not, whose folders may be named as `day=2025-01-31`), a data frame (pandas,
        Polars, Arrow, DuckDB, …), or an iterable of (user, item) or (user, item, weight).
    user, item
        Columns of the ids. When None they are guessed from the names, with a message on stderr and in `notes`.
    weight
        Column of the weights; 0 means no interaction. Never guessed.
    time
        Column of the times: dates become microseconds since 1970 (UTC), numbers stay as they are. Never guessed.
        "order" declares that the rows stand in order, the oldest first, without times; where there is a column of
        that name, it is the column of the times, and a note says so.
    time_unit
        Unit of times that are numbers: "ns", "us", "ms", "s", "min", "h" or "d". Where it is None, numbers that are
        Unix times (1980 to 2100) are recognised when a duration needs their unit.
    merge
        Repeated pairs: "binary" (every pair counts 1) or "sum" (weights are added, 1 per row without a weight
        column). None: "sum" with weights, else "binary". The first and the last time are kept.
    on_error
        "raise" stops at the first row that cannot be used; "skip" skips and counts such rows.
    part
        Which part of an .npz split file.
    quiet
        Print nothing to stderr.
    tell
        Receives the message about guessed columns that is otherwise printed to stderr.

    Returns
    -------
    Interactions
        Ids sorted ascending, so that the order of the rows does not matter (.npz: in index order). With times it
        decides between events of a user at the same time; with time="order" it is the order of the events.

    Raises
    ------
    DataError
        If the source cannot be read; the message names the row and the column, in a folder also the file.
    StorageError
        If the log is too large to be merged in memory, and TMPDIR has not enough space for its rows.

    Notes
    -----
    Memory grows with the distinct ids and pairs, not with the rows: beyond 256 MiB, rows are merged block by block and
    written to an unnamed temporary file, sharded by user. The result is bit-identical for any division into files, and
    without times for any order of the rows.

    Examples
    --------
    >>> log = read([("ann", "tea"), ("bob", "tea"), ("ann", "tea")])
    >>> log.n_users, log.n_items, log.n_events
    (2, 1, 2)
    """
    _check_parameters(merge, on_error, part)
    _check_unit(time_unit, time)
    path = _path(source)
    before = _file_stamps(path)
    columns = (user, item, weight, time)
    log = _read(source, path, columns, time_unit, merge, on_error, part, quiet, tell or _print_stderr)
    if _file_stamps(path) != before:
        raise DataError(f"{path} changed while it was read; read a copy, or wait until it is complete.")
    return log


def _read(
    source: Any,
    path: Path | None,
    columns: tuple[str | None, str | None, str | None, str | None],
    time_unit: str | None,
    merge: Merge | None,
    on_error: str,
    part: str,
    quiet: bool,
    tell: Callable[[str], None],
) -> Interactions:
    user, item, weight, time = columns
    if path is not None and path.suffix.lower() == ".npz":
        return read_npz(path, user, item, weight, time, time_unit, merge, on_error == "skip", part)
    if part != "train":
        raise ParameterError(f"part={part!r} is for .npz split files only.")
    opened = (
        _in_memory(source) if path is None else file_source(path, [name for name in columns if isinstance(name, str)])
    )
    names = _columns(opened, path is None and opened.label.endswith("pairs"), user, item, weight, time)
    check_unit_of_order(names, time_unit)
    note = names.note
    if note is not None and not quiet:
        tell(Message(f"{opened.label}: ", note))
    default: Merge = "binary" if names.weight is None else "sum"
    notes = [*opened.notes, *([note] if note is not None else []), *notes_of_order(names)]
    tally = Tally(opened.label, on_error == "skip")
    with Gatherer(names, tally, merge or default, opened.rows, time_unit) as gatherer:
        batches = opened.open(names.names)
        for batch in with_progress(batches, opened.total, opened.unit, quiet, done=lambda batch: batch.done):
            gatherer.add(batch)
        return gatherer.finish(
            opened.textual, notes, lambda shards, total: with_progress(shards, total, "shards", quiet, "merging")
        )


def _print_stderr(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # a closed stderr does not stop the reading
            sys.stderr.write(f"monogram: {text}\n")
            sys.stderr.flush()


def as_interactions(log: Any) -> Interactions:
    """The training data of a model as Interactions: from a matrix of users by items, or from a source of `read`."""
    if isinstance(log, Interactions):
        return log
    if sp.issparse(log) or (isinstance(log, np.ndarray) and log.ndim == 2):
        _check_no_pairs(log)
        return Interactions.from_csr(log)
    return read(log)


def _check_no_pairs(matrix: Any) -> None:
    """Refuse a dense array that may contain either rows of ids or weights."""
    narrow = isinstance(matrix, np.ndarray) and matrix.dtype.kind in "iu" and matrix.shape[1] in (2, 3)
    if narrow and (matrix > 1).any():
        raise DataError(
            f"an array of {matrix.shape[0]:,} × {matrix.shape[1]} integers is ambiguous: for rows of (user, item) or "
            "(user, item, weight) pass a list, such as array.tolist(); for a matrix of users by items pass a SciPy "
            "sparse matrix, or Interactions.from_csr(array)."
        )


def _check_parameters(merge: str | None, on_error: str, part: str) -> None:
    if merge is not None:
        check_merge(merge)
    if on_error not in ("raise", "skip"):
        raise ParameterError(f'on_error must be "raise" or "skip", got {on_error!r}.')
    if part not in ("train", "test"):
        raise ParameterError(f'part must be "train" or "test", got {part!r}.')


def _check_unit(time_unit: str | None, time: str | None) -> None:
    check_time_unit(time_unit)
    if time_unit is not None and time is None:
        given = Option("time_unit", f'"{time_unit}"')
        raise ParameterError(Message(given, " is the unit of times; name their column, with ", Option("time")))


def _path(source: Any) -> Path | None:
    if not isinstance(source, (str, Path)):
        return None
    path = Path(source).expanduser()
    if not path.exists():
        raise DataError(f"{path} does not exist (looked in {Path.cwd()}); nothing is ever downloaded.")
    return path


def _file_stamps(path: Path | None) -> list[tuple[str, int, int, int]]:
    """Identity, size and time of a file, or of the files of a folder, to detect changes."""
    if path is None:
        return []
    try:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        facts = [(str(file), file.stat()) for file in files]
    except FileNotFoundError:
        return [("removed", 0, 0, 0)]
    return [(name, fact.st_ino, fact.st_size, fact.st_mtime_ns) for name, fact in facts]


def _in_memory(source: Any) -> Source:
    frame = frame_source(source)
    if frame is not None:
        return frame
    if sp.issparse(source) or isinstance(source, np.ndarray):
        raise DataError(
            "read takes rows, not a matrix: use Interactions.from_csr for users by items, "
            "or array.tolist() where an array holds (user, item) rows."
        )
    if isinstance(source, Iterable) and not isinstance(source, (bytes, dict)):
        return pairs_source(source)
    raise DataError(
        f"cannot read a {type(source).__name__}; give a path, a data frame, or an iterable of (user, item) pairs."
    )


def _columns(
    opened: Source, pairs: bool, user: str | None, item: str | None, weight: str | None, time: str | None
) -> ColumnNames:
    if not pairs:
        return choose(opened.columns, opened.label, user, item, weight, time)
    if any(name is not None for name in (user, item, weight)) or time not in (None, ORDER):
        raise ParameterError(
            "pairs have no named columns: leave user, item, weight and time out, or give a frame "
            '(time="order" declares that the pairs stand in order).'
        )
    return ColumnNames("user", "item", "weight" if len(opened.columns) == 3 else None, ordered=time == ORDER)
