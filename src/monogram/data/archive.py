"""NumPy archives (.npz): a split into train and test, or a log of index arrays."""

from __future__ import annotations

import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from monogram.data.cells import Fault
from monogram.data.clean_numbers import clean_times, clean_weights
from monogram.data.columns import ORDER, ColumnNames, check_unit_of_order, listed, notes_of_order
from monogram.data.gather import Tally, conclude, unit_of_times
from monogram.data.interactions import Interactions, Merge
from monogram.data.merge import merged
from monogram.data.parts import rows_of
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError

_BROKEN = (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)


class Archive:
    """The arrays of an .npz file, each loaded on request and never unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = ExitStack()
        try:
            handle = self._stack.enter_context(path.open("rb"))  # np.load leaves it open when it fails
            self._file = self._stack.enter_context(np.load(handle, allow_pickle=False))
            self.names = list(self._file.files)
        except (*_BROKEN, AttributeError, TypeError) as error:
            self._stack.close()
            raise DataError(f"{path} is not a readable .npz archive: {error}") from error

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str, kinds: str = "iuf") -> npt.NDArray[Any]:
        """One array of one dimension, whose dtype is of one of these NumPy kinds."""
        if name not in self.names:
            raise DataError(f"{self.path} has no array {name!r}; it has {listed(self.names)}.")
        try:
            array = np.asarray(self._file[name])  # bytes when the member is not an array
        except _BROKEN as error:
            raise DataError(f"{self.path}: array {name!r} cannot be read: {error}") from error
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise DataError(
                f"{self.path}: array {name!r} is {array.dtype} of shape {array.shape}, "
                f"expected one dimension and a dtype of kind {kinds!r}."
            )
        return array

    def number(self, name: str) -> int:
        """One whole number."""
        try:
            array = np.asarray(self._file[name])
        except _BROKEN as error:
            raise DataError(f"{self.path}: {name!r} cannot be read: {error}") from error
        if array.size != 1 or array.dtype.kind not in "iu":
            raise DataError(f"{self.path}: {name!r} is {array.dtype} of shape {array.shape}, expected a whole number.")
        return int(array.reshape(-1)[0])

    def shape(self) -> tuple[int, int]:
        """Numbers of users and of items."""
        shape = self.get("shape", "iu")
        if len(shape) != 2 or (shape < 1).any() or (shape > np.iinfo(np.int32).max).any():
            raise DataError(f"{self.path}: shape must be (users, items), both at least 1, got {shape.tolist()}.")
        return int(shape[0]), int(shape[1])

    def vocabulary(self, name: str, size: int) -> Vocabulary:
        """The ids stored under this name; without them 0 … size − 1."""
        if name not in self.names:
            return Vocabulary.range(size)
        ids = Vocabulary(self.get(name, "iuU"))
        if len(ids) != size:
            raise DataError(f"{self.path}: {name} has {len(ids):,} ids, shape says {size:,}.")
        return ids


def read_npz(
    path: Path,
    user: str | None,
    item: str | None,
    weight: str | None,
    time: str | None,
    time_unit: str | None,
    merge: Merge | None,
    skip: bool,
    part: str,
) -> Interactions:
    """Read a split (arrays `train_indptr`, …) or a log (arrays `user`, `item`); indices keep their order.

    A split whose rows are declared to be in order (time="order") or are not sorted, and a log of sessions, are read as
    ordered: their events stand in order.
    """
    with Archive(path) as archive:
        if f"{part}_indptr" not in archive.names:
            if part != "train":
                raise DataError(f"{path} has no part {part!r}; it has {listed(archive.names)}.")
            ordered = time == ORDER and ORDER not in archive.names
            names = ColumnNames(user or "user", item or "item", weight, None if ordered else time, (), ordered)
            check_unit_of_order(names, time_unit)
            return _log(archive, names, time_unit, merge, Tally(str(path), skip))
        if weight is not None or time not in (None, ORDER):
            raise DataError(f"{path} is a split of plain pairs: it has no weight or time. Leave these options out.")
        check_unit_of_order(ColumnNames("user", "item", None, None, (), time == ORDER), time_unit)
        return _split(archive, part, merge or "binary", time == ORDER)


def _split(archive: Archive, part: str, merge: Merge, ordered: bool) -> Interactions:
    shape = archive.shape()
    indptr, indices = archive.get(f"{part}_indptr", "iu"), archive.get(f"{part}_indices", "iu")
    try:
        matrix = sp.csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"{archive.path}: {part} is not a CSR matrix of shape {shape}: {error}") from error
    users, items = archive.vocabulary("user_ids", shape[0]), archive.vocabulary("item_ids", shape[1])
    rows = rows_of(matrix)
    if not ordered and not _in_order(rows, matrix.indices):
        return Interactions.from_csr(matrix, users, items, merge=merge)
    tally = Tally(str(archive.path), False)
    tally.rows = len(rows)
    codes = matrix.indices.astype(np.int32, copy=False)
    arrays = merged(rows.astype(np.int32), codes, None, None, shape[0], merge == "binary", in_order=True)
    why = "declared to be in order" if ordered else "not sorted"
    note = f"the items of a user are {why} in {part}_indices: they are taken in their order, the oldest first"
    return conclude(arrays, users, items, merge, tally, [note])


def _in_order(users: npt.NDArray[Any], items: npt.NDArray[Any]) -> bool:
    """Whether rows can stand in the order of events: the items of some user are not sorted."""
    return bool(((users[1:] == users[:-1]) & (items[1:] < items[:-1])).any())


def is_sessions(archive: Archive) -> bool:
    """Whether an archive is a log of sessions: the first `n_train_users` are for training, and none has times."""
    return {"user", "item", "n_train_users"} <= set(archive.names) and "timestamp" not in archive.names


def _log(
    archive: Archive, names: ColumnNames, time_unit: str | None, merge: Merge | None, tally: Tally
) -> Interactions:
    merge = merge or ("binary" if names.weight is None else "sum")
    shape = archive.shape()
    users, items = archive.get(names.user, "iu"), archive.get(names.item, "iu")
    columns = {name: pa.array(archive.get(name)) for name in (names.weight, names.time) if name is not None}
    _check_lengths(archive, {names.user: users, names.item: items, **columns})
    columns |= {names.user: pa.array(users), names.item: pa.array(items)}
    faults = [
        (name, Fault(f"the index is outside 0 … {size - 1}", rows))
        for name, values, size in ((names.user, users, shape[0]), (names.item, items, shape[1]))
        if (rows := np.flatnonzero((values < 0) | (values >= size))).size
    ]
    weights, times, style = None, None, None
    if names.weight is not None:
        weights, wrong = clean_weights(columns[names.weight])
        faults += [(names.weight, fault) for fault in wrong]
    if names.time is not None:
        times, style, wrong = clean_times(columns[names.time], None)
        faults += [(names.time, fault) for fault in wrong]
    keep = tally.drop_zeros(weights, tally.count_faults(columns, 0, len(users), faults))
    if len(users) == 0 or (keep is not None and not keep.any()):
        raise tally.nothing_left()
    parts = (users, items, weights, times)
    kept: list[Any] = [array if array is None or keep is None else array[keep] for array in parts]
    user_codes, item_codes = (codes.astype(np.int32, copy=False) for codes in kept[:2])
    notes = notes_of_order(names)
    in_order = names.ordered
    if names.time is None and not in_order and is_sessions(archive) and _in_order(user_codes, item_codes):
        in_order, notes = True, ["a log of sessions: its rows are taken in their order, the oldest first"]
    arrays = merged(user_codes, item_codes, kept[2], kept[3], shape[0], merge == "binary", in_order=in_order)
    ids = archive.vocabulary("user_ids", shape[0]), archive.vocabulary("item_ids", shape[1])
    unit = unit_of_times(style, time_unit, str(archive.path), names.time)
    return conclude(arrays, *ids, merge, tally, notes, unit)


def _check_lengths(archive: Archive, arrays: dict[str, Any]) -> None:
    if len({len(array) for array in arrays.values()}) > 1:
        sizes = ", ".join(f"{name} {len(array):,}" for name, array in arrays.items())
        raise DataError(f"{archive.path}: the arrays of a log must have the same length, got {sizes}.")
