"""Ids become codes, batch by batch, and at the end a sorted vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.data.clean import Ids
from monogram.data.vocabulary import Kind, Vocabulary, compact, is_text
from monogram.errors import DataError

_FOLD = 262_144  # distinct values that may wait before they are folded into the vocabulary
_PARTS = 2  # of the vocabulary, each looked through on its own while folding
_SLAB = 262_144  # rows worked on at once where the whole log is gone through


class Growing:
    """One array that grows in place: large blocks are moved by the kernel, not copied."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data = np.empty(0, dtype=dtype)
        self.size = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values at the end; floats among integers make all of them floats."""
        if values.dtype.kind == "f" and self._data.dtype.kind == "i":
            self._data = self._data.astype(np.float64)
        need = self.size + len(values)
        if need > len(self._data):
            self._data.resize(max(need, self.size + max(_SLAB, self.size // 32)), refcheck=False)
        self._data[self.size : need] = values
        self.size = need

    def replace(self, start: int, stop: int, table: npt.NDArray[Any]) -> None:
        """Put `table[value]` in the place of each value."""
        self._data[start:stop] = table[self._data[start:stop]]

    @property
    def dtype(self) -> Any:
        """Type of the values."""
        return self._data.dtype

    def finish(self) -> npt.NDArray[Any]:
        """Give the array away, and begin anew."""
        whole, self._data = self._data, np.empty(0, dtype=self._data.dtype)
        whole.resize(self.size, refcheck=False)
        self.size = 0
        return whole


class Codebook:
    """Ids seen so far, and the code of each row of each batch.

    Distinct ids of a batch wait in `_waiting` until half as many wait as are known; then they are looked up
    among the known ones. So the work stays linear in the ids seen, however many batches there are.
    """

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self._known: Any = None
        self._waiting: list[tuple[int, Any]] = []  # first row, and distinct ids, of a batch
        self._codes = Growing(np.int32)

    def add(self, ids: Ids, keep: npt.NDArray[np.bool_] | None) -> None:
        """Take the kept rows of a batch (all of them when None)."""
        codes, values = ids.codes, ids.values
        if keep is not None:
            used, places = np.unique(codes[keep], return_inverse=True)
            values, codes = values.take(pa.array(used)), places.astype(np.int32)
        if len(codes) == 0:
            return
        self.kind = ids.kind
        self._waiting.append((self._codes.size, values))
        self._codes.append(codes)
        if sum(len(values) for _, values in self._waiting) > max(
            _FOLD, 0 if self._known is None else len(self._known) // 2
        ):
            self._fold()

    def __len__(self) -> int:
        """Number of distinct ids known for certain; some may wait beside them."""
        return 0 if self._known is None else len(self._known)

    def drain(self) -> npt.NDArray[np.int32]:
        """Codes of the rows since the last time, in the order in which ids were first seen; they are given up."""
        self._fold()
        return self._codes.finish()

    def vocabulary(self, textual: bool) -> tuple[Vocabulary, npt.NDArray[np.int32]]:
        """Sorted vocabulary, and the index in it of each code; the ids are given up."""
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
        """Sorted vocabulary and the index of each row in it; the codes are given up on the way."""
        vocabulary, rank = self.vocabulary(textual)
        for start in range(0, self._codes.size, _SLAB):
            self._codes.replace(start, min(start + _SLAB, self._codes.size), rank)
        return vocabulary, self._codes.finish()

    def _fold(self) -> None:
        if not self._waiting:
            return
        release()
        if self._known is None:
            self._known = self._waiting[0][1][:0]
        known, *parts = _one_type([self._known, *(values for _, values in self._waiting)])
        fresh = pa.chunked_array(parts)
        codes = _positions(fresh, known)
        unknown = codes < 0
        new = fresh.filter(pa.array(unknown)).combine_chunks().dictionary_encode()
        codes[unknown] = new.indices.to_numpy() + np.int32(len(known))
        ends = [start for start, _ in self._waiting[1:]] + [self._codes.size]
        for (start, values), stop in zip(self._waiting, ends, strict=True):
            self._codes.replace(start, stop, codes[: len(values)])
            codes = codes[len(values) :]
        self._known, self._waiting = pa.concat_arrays([known, new.dictionary]), []
        del known, parts, fresh, new, values
        release()


def _positions(fresh: Any, known: Any) -> npt.NDArray[np.int32]:
    """Place of each id among the known ones, −1 where it is new; a hash table of only some of them exists at once."""
    codes = np.full(len(fresh), -1, dtype=np.int32)
    step = max(_FOLD, -(-len(known) // _PARTS))
    for start in range(0, len(known), step):
        found = pc.index_in(fresh, value_set=known[start : start + step]).fill_null(-1).to_numpy()
        np.add(found, np.int32(start), out=codes, where=found >= 0)
        del found
        release()
    return codes


def release() -> None:
    """Give back what Arrow's pool holds but does not use: it would keep several times its need."""
    pa.default_memory_pool().release_unused()


def _one_type(parts: list[Any]) -> list[Any]:
    """Arrays of one type: signed and unsigned integers meet as unsigned."""
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
    """Text ids as integers when every one of them is the canonical spelling of an int64."""
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values
    same = is_text(values.type) and numbers.cast(values.type).equals(values)
    return numbers if same else values
