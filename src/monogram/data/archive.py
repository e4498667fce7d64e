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
from monogram.data.columns import listed
from monogram.data.gather import Tally, conclude
from monogram.data.interactions import Interactions, Merge
from monogram.data.merge import merged
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
    merge: Merge | None,
    skip: bool,
    part: str,
) -> Interactions:
    """Read a split (arrays `train_indptr`, …) or a log (arrays `user`, `item`); indices keep their order."""
    with Archive(path) as archive:
        if f"{part}_indptr" not in archive.names:
            if part != "train":
                raise DataError(f"{path} has no part {part!r}; it has {listed(archive.names)}.")
            names = (user or "user", item or "item")
            return _log(archive, names, weight, time, merge, Tally(str(path), skip))
        if weight is not None or time is not None:
            raise DataError(f"{path} is a split of plain pairs: it has no weight or time. Leave these options out.")
        return _split(archive, part, merge or "binary")


def _split(archive: Archive, part: str, merge: Merge) -> Interactions:
    shape = archive.shape()
    indptr, indices = archive.get(f"{part}_indptr", "iu"), archive.get(f"{part}_indices", "iu")
    try:
        matrix = sp.csr_array((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=shape)
    except ValueError as error:
        raise DataError(f"{archive.path}: {part} is not a CSR matrix of shape {shape}: {error}") from error
    users, items = archive.vocabulary("user_ids", shape[0]), archive.vocabulary("item_ids", shape[1])
    return Interactions.from_csr(matrix, users, items, merge=merge)


def _log(
    archive: Archive,
    names: tuple[str, str],
    weight: str | None,
    time: str | None,
    merge: Merge | None,
    tally: Tally,
) -> Interactions:
    merge = merge or ("binary" if weight is None else "sum")
    shape = archive.shape()
    users, items = archive.get(names[0], "iu"), archive.get(names[1], "iu")
    columns = {name: pa.array(archive.get(name)) for name in (weight, time) if name is not None}
    _check_lengths(archive, {names[0]: users, names[1]: items, **columns})
    columns |= {names[0]: pa.array(users), names[1]: pa.array(items)}
    faults = [
        (name, Fault(f"the index is outside 0 … {size - 1}", rows))
        for name, values, size in ((names[0], users, shape[0]), (names[1], items, shape[1]))
        if (rows := np.flatnonzero((values < 0) | (values >= size))).size
    ]
    weights, times = None, None
    if weight is not None:
        weights, wrong = clean_weights(columns[weight])
        faults += [(weight, fault) for fault in wrong]
    if time is not None:
        times, _, wrong = clean_times(columns[time], None)
        faults += [(time, fault) for fault in wrong]
    keep = tally.drop_zeros(weights, tally.count_faults(columns, 0, len(users), faults))
    if len(users) == 0 or (keep is not None and not keep.any()):
        raise tally.nothing_left()
    columns_kept = [
        None if array is None else (array if keep is None else array[keep]) for array in (users, items, weights, times)
    ]
    codes = [np.asarray(values).astype(np.int32, copy=False) for values in columns_kept[:2]]
    arrays = merged(codes[0], codes[1], columns_kept[2], columns_kept[3], shape[0], merge == "binary")
    ids = archive.vocabulary("user_ids", shape[0]), archive.vocabulary("item_ids", shape[1])
    return conclude(arrays, *ids, merge, tally, [])


def _check_lengths(archive: Archive, arrays: dict[str, Any]) -> None:
    if len({len(array) for array in arrays.values()}) > 1:
        sizes = ", ".join(f"{name} {len(array):,}" for name, array in arrays.items())
        raise DataError(f"{archive.path}: the arrays of a log must have the same length, got {sizes}.")
