"""Encode ids as integer codes, batch by batch, and build the sorted vocabulary at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.data.clean_ids import Ids
from monogram.data.id_arrays import Kind, compact, is_text
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError

FOLD = 262_144  # distinct ids of recent batches before they are added to the known ids
_PARTS = 2  # parts of the known ids, each searched with its own hash table
SLAB = 262_144  # rows processed at once in a pass over the whole log


class Growing:
    """An array that grows in place: for large blocks the kernel remaps pages instead of copying."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data = np.empty(0, dtype=dtype)
        self.size = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append values; the first float converts an integer array to a float array."""
        if values.dtype.kind == "f" and self._data.dtype.kind == "i":
            self._data = self._data.astype(np.float64)
        end = self.size + len(values)
        if end > len(self._data):
            self._data.resize(max(end, self.size + max(SLAB, self.size // 32)), refcheck=False)
        self._data[self.size : end] = values
        self.size = end

    def replace(self, start: int, stop: int, table: npt.NDArray[Any]) -> None:
        """Replace each value by `table[value]`."""
        self._data[start:stop] = table[self._data[start:stop]]

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return self._data.dtype

    def finish(self) -> npt.NDArray[Any]:
        """Return the array and start with an empty one."""
        whole, self._data = self._data, np.empty(0, dtype=self._data.dtype)
        whole.resize(self.size, refcheck=False)
        self.size = 0
        return whole


class Codebook:
    """The ids seen so far, and the code of each row of each batch.

    The distinct ids of each batch are collected in `_pending`. When there are half as many as known ids, they are
    looked up among the known ids at once, so that the work is linear in the ids, for any number of batches.
    """

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self._known: Any = None
        self._pending: list[tuple[int, Any]] = []  # first row and distinct ids of a batch
        self._codes = Growing(np.int32)

    def add(self, ids: Ids, keep: npt.NDArray[np.bool_] | None) -> None:
        """Add the rows of a batch where `keep` is true (all when None)."""
        codes, values = ids.codes, ids.values
        if keep is not None:
            distinct, places = np.unique(codes[keep], return_inverse=True)
            values, codes = values.take(pa.array(distinct)), places.astype(np.int32)
        if len(codes) == 0:
            return
        self.kind = ids.kind
        self._pending.append((self._codes.size, values))
        self._codes.append(codes)
        if sum(len(values) for _, values in self._pending) > max(
            FOLD, 0 if self._known is None else len(self._known) // 2
        ):
            self._fold()

    def __len__(self) -> int:
        """Number of known ids, without those of pending batches."""
        return 0 if self._known is None else len(self._known)

    def drain(self) -> npt.NDArray[np.int32]:
        """Remove and return the codes of the rows added since the last call; codes count ids in order of appearance."""
        self._fold()
        return self._codes.finish()

    def vocabulary(self, textual: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
        """The sorted vocabulary, and the index in it of each code; the ids are released."""
        self._fold()
        values = compact(_integers(self._known) if textual and self.kind == "string" else self._known)
        order = pc.sort_indices(values)
        rank = np.empty(len(values), dtype=np.int32)
        rank[order.to_numpy()] = np.arange(len(values), dtype=np.int32)
        vocabulary = Vocabulary._trusted(values.take(order))
        self._known = None
        del values, order
        release()
        return vocabulary, rank

    def finish(self, textual: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
        """The sorted vocabulary, and the index in it of each row; the codes are released."""
        vocabulary, rank = self.vocabulary(textual)
        for start in range(0, self._codes.size, SLAB):
            self._codes.replace(start, min(start + SLAB, self._codes.size), rank)
        return vocabulary, self._codes.finish()

    def _fold(self) -> None:
        if not self._pending:
            return
        release()
        if self._known is None:
            self._known = self._pending[0][1][:0]
        known, *parts = _one_type([self._known, *(values for _, values in self._pending)])
        fresh = pa.chunked_array(parts)
        codes = _positions(fresh, known)
        unknown = codes < 0
        new = fresh.filter(pa.array(unknown)).combine_chunks().dictionary_encode()
        codes[unknown] = new.indices.to_numpy() + np.int32(len(known))
        ends = [start for start, _ in self._pending[1:]] + [self._codes.size]
        for (start, values), stop in zip(self._pending, ends, strict=True):
            self._codes.replace(start, stop, codes[: len(values)])
            codes = codes[len(values) :]
        self._known, self._pending = pa.concat_arrays([known, new.dictionary]), []
        del known, parts, fresh, new, values
        release()


def _positions(fresh: Any, known: Any) -> npt.NDArray[np.int32]:
    """Index of each id among the known ids, −1 for new ids; at any time a hash table of one part only exists."""
    codes = np.full(len(fresh), -1, dtype=np.int32)
    step = max(FOLD, -(-len(known) // _PARTS))
    for start in range(0, len(known), step):
        matches = pc.index_in(fresh, value_set=known[start : start + step]).fill_null(-1).to_numpy()
        np.add(matches, np.int32(start), out=codes, where=matches >= 0)
        del matches
        release()
    return codes


def release() -> None:
    """Return unused memory of Arrow's pool to the system; the pool would keep several times what is needed."""
    pa.default_memory_pool().release_unused()


def _one_type(parts: list[Any]) -> list[Any]:
    """The arrays with one common type: signed and unsigned integers become unsigned."""
    if len({part.type for part in parts}) == 1:
        return parts
    try:
        return [part.cast(pa.uint64()) for part in parts]
    except pa.ArrowInvalid as error:
        raise DataError(
            "the integer ids do not fit one 64-bit type: some are negative, some are above 2**63 - 1. "
            "Write them as strings."
        ) from error


def _integers(values: Any) -> Any:
    """Text ids as integers, when every id is the canonical text of an int64."""
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values
    same = is_text(values.type) and numbers.cast(values.type).equals(values)
    return numbers if same else values
