"""Lookup of a few ids among very many, without a Python object for each id."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SLAB = 65_536


class Hashed:
    """Sorted hashes of ids: 16 bytes per id, and a binary search for each lookup.

    Parameters
    ----------
    array : Arrow array of the ids, as a vocabulary stores them
    """

    def __init__(self, array: Any) -> None:
        hashes = np.empty(len(array), np.int64)
        for start in range(0, len(array), SLAB):
            part = array.slice(start, SLAB).to_pylist()
            hashes[start : start + len(part)] = list(map(hash, part))
        self._order = np.argsort(hashes, kind="stable")
        self._hashes, self._array = hashes[self._order], array

    def index(self, keys: list[Any]) -> npt.NDArray[np.int64]:
        """Index of each key; −1 where it is not one of the ids."""
        wanted = np.fromiter(map(hash, keys), np.int64, len(keys))
        first, last = (np.searchsorted(self._hashes, wanted, side).tolist() for side in ("left", "right"))
        spans = zip(keys, first, last, strict=True)
        return np.array([self._place(key, start, stop) for key, start, stop in spans], np.int64)

    def _place(self, key: Any, start: int, stop: int) -> int:
        """Index of a key among the ids with the same hash."""
        candidates = (int(self._order[at]) for at in range(start, stop))
        return next((place for place in candidates if self._array[place].as_py() == key), -1)
