"""Vocabulary: the ids of users or items (strings, integers or UUIDs) and their indices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.data.hashed import Hashed
from monogram.data.id_arrays import (
    KEYS,
    Id,
    Kind,
    arrow_keys,
    arrow_numbers,
    as_uuids,
    check_unique,
    elements,
    fits_type,
    kind_of,
    to_arrow,
    to_storage,
)
from monogram.errors import DataError, ParameterError

DICTIONARY_LIMIT = 1_000_000  # ids up to which lookups use a Python dict, the fastest way for single ids
SMALL_QUERY = 100  # a query this many times smaller than the vocabulary is small
QUERIES_BEFORE_INDEX = 2  # small queries that compare all ids, before the dict or sorted hashes are built
SLAB = 65_536


class Vocabulary:
    """An immutable list of unique ids, all of one kind, each with its index.

    Parameters
    ----------
    ids
        A sequence of `str`, of integers or of `uuid.UUID`: a list, a NumPy array, an Arrow array,
        a series of a data frame, or another vocabulary. Position gives the index.

    Raises
    ------
    DataError
        If an id is missing, occurs twice, is of no supported kind, or the kinds are mixed.

    Examples
    --------
    >>> words = Vocabulary(["ann", "bob"])
    >>> words.index(["bob", "eve"]).tolist()
    [1, -1]
    >>> words[0]
    'ann'
    """

    __slots__ = ("_array", "_hashed", "_kind", "_lookup", "_small_queries")
    _array: Any
    _small_queries: int
    _hashed: Hashed | None
    _kind: Kind
    _lookup: dict[Any, int] | None

    def __init__(self, ids: Iterable[Any] | Any) -> None:
        array = ids._array if isinstance(ids, Vocabulary) else to_storage(to_arrow(ids))
        if not isinstance(ids, Vocabulary):
            check_unique(array)
        self._hold(array)

    @classmethod
    def range(cls, n: int) -> Vocabulary:
        """Integers 0 … n − 1, each its own index."""
        return cls._trusted(arrow_numbers(np.arange(n, dtype=np.int64)))

    @classmethod
    def from_bytes(cls, data: Any) -> Vocabulary:
        """Read what `to_bytes` wrote; a malformed buffer is a `DataError`."""
        try:
            table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
            if table.num_columns != 1:
                raise DataError(f"a stored vocabulary has 1 column, this one has {table.num_columns}.")
            array = table.column(0).combine_chunks()
            array.validate(full=True)
        except (pa.ArrowException, OSError, TypeError, ValueError) as error:
            raise DataError(f"the bytes are not a stored vocabulary: {error}") from error
        array = to_storage(as_uuids(array) if pa.types.is_fixed_size_binary(array.type) else array)
        check_unique(array)
        return cls._trusted(array)

    @classmethod
    def _trusted(cls, array: Any) -> Vocabulary:
        """Wrap an Arrow array already in storage form, without nulls or duplicates."""
        new = cls.__new__(cls)
        new._hold(array)
        return new

    def _hold(self, array: Any) -> None:
        self._array, self._kind, self._lookup = array, kind_of(array.type), None
        self._hashed, self._small_queries = None, 0

    @property
    def kind(self) -> Kind:
        """Kind of the ids: "string", "integer" or "uuid"."""
        return self._kind

    @property
    def nbytes(self) -> int:
        """Bytes of the ids."""
        return int(self._array.nbytes)

    def take(self, indices: npt.ArrayLike) -> Any:
        """Ids at these indices, as an Arrow array (strings, integers or `pa.uuid()`)."""
        chosen = self._array.take(_places(indices))
        return as_uuids(chosen) if self._kind == "uuid" else chosen

    def ids(self, indices: npt.ArrayLike) -> list[Id]:
        """Ids at these indices, as `str`, `int` or `uuid.UUID`."""
        return cast("list[Id]", self.take(indices).to_pylist())

    def index(self, ids: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Index of each id; −1 where it is unknown.

        Parameters
        ----------
        ids
            Any sequence. Types are converted: `"42"` and 42.0 match the integer 42, 42 matches the string `"42"`,
            and the text of a UUID matches the UUID. An element of any other type is unknown.
        """
        if isinstance(ids, (str, bytes)):
            raise ParameterError(f"ids must be a sequence of ids, got the single value {ids!r}: write [{ids!r}].")
        native = self._native(ids)
        if native is not None:
            return _positions(native, self._array)
        keys = list(map(KEYS[self._kind], elements(ids)))
        small = SMALL_QUERY * len(keys) < len(self)
        if small and self._small_queries < QUERIES_BEFORE_INDEX:
            self._small_queries += 1
            return _looked_up(keys, _scan(keys, self._array))
        if len(self) <= DICTIONARY_LIMIT:
            return _looked_up(keys, self._dictionary())
        return self._hashes().index(keys) if small else _positions(_query(keys, self._array.type), self._array)

    def to_bytes(self) -> bytes:
        """Arrow IPC stream of the ids, for `from_bytes`."""
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([self._array], names=["id"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return cast("bytes", sink.getvalue().to_pybytes())

    def part(self, indices: npt.ArrayLike) -> Vocabulary:
        """The ids at these indices, which must be distinct, in the order given."""
        return Vocabulary._trusted(self._array.take(_places(indices)))

    def extended(self, ids: Iterable[Any]) -> Vocabulary:
        """This vocabulary with more ids of the same kind appended; types are converted as `index` does."""
        new = list(elements(ids))
        keys = [KEYS[self._kind](id_) for id_ in new]
        for id_, key in zip(new, keys, strict=True):
            if key is None:
                raise DataError(f"id {str(id_)[:60]!r} ({type(id_).__name__}) cannot be added to {self._kind} ids.")
        try:
            more = pa.array(keys, self._array.type)
            array = pa.concat_arrays([self._array, more])
        except (OverflowError, UnicodeEncodeError, pa.ArrowException) as error:
            raise DataError(f"the new ids cannot be added to {self._kind} ids: {error}") from error
        check_unique(array)
        return Vocabulary._trusted(array)

    def same_kind(self, id_: Any) -> Id | None:
        """The id converted to the kind of this vocabulary, as `extended` accepts it; None where that is impossible."""
        key = KEYS[self._kind](id_)
        if key is None or not fits_type(key, self._array.type):
            return None
        return UUID(bytes=key) if self._kind == "uuid" else cast("Id", key)

    def _native(self, ids: Any) -> Any:
        """The query as an Arrow array of the vocabulary's own type, when hashing all ids pays off, else None."""
        array = ids._array if isinstance(ids, Vocabulary) else ids
        if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind == "i":
            array = pa.array(array)
        if isinstance(array, pa.Array) and pa.types.is_signed_integer(array.type):
            array = array.cast(pa.int64())
        fits = isinstance(array, pa.Array) and array.type == self._array.type
        return array if fits and (len(self) > DICTIONARY_LIMIT or 8 * len(array) > len(self)) else None

    def _dictionary(self) -> dict[Any, int]:
        if self._lookup is None:
            self._lookup = {key: index for index, key in enumerate(self._array.to_pylist())}
        return self._lookup

    def _hashes(self) -> Hashed:
        if self._hashed is None:
            self._hashed = Hashed(self._array)
        return self._hashed

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Id]:
        for start in range(0, len(self), SLAB):
            yield from self.ids(np.arange(start, min(start + SLAB, len(self))))

    def __getitem__(self, index: int) -> Id:
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place} is outside a vocabulary of {len(self)} ids")
        return self.ids([place % len(self)])[0]

    def __contains__(self, id_: object) -> bool:
        return bool(self.index([id_])[0] >= 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return bool(self._array.type == other._array.type and self._array.equals(other._array))

    def __hash__(self) -> int:
        return hash((self._kind, len(self), self[0] if len(self) else None))

    def __reduce__(self) -> tuple[Callable[[Any], Vocabulary], tuple[bytes]]:
        return Vocabulary.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        shown = ", ".join(repr(x) for x in self.ids(np.arange(min(3, len(self)))))
        return f"Vocabulary({len(self):,} {self._kind} ids: {shown}{', …' if len(self) > 3 else ''})"


def _places(indices: npt.ArrayLike) -> Any:
    return arrow_numbers(np.asarray(indices, dtype=np.int64))


def _positions(query: Any, values: Any) -> npt.NDArray[np.int64]:
    positions = pc.index_in(query, value_set=values, skip_nulls=True)
    return cast("npt.NDArray[np.int64]", positions.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))


def _scan(keys: list[Any], values: Any) -> dict[Any, int]:
    """The index of each of a few keys that is among the values, which are read once and not indexed."""
    wanted, query = arrow_keys(dict.fromkeys(keys), values.type)
    numbers = pc.index_in(values, value_set=query)
    places = pc.indices_nonzero(numbers.is_valid())
    pairs = zip(numbers.take(places).to_pylist(), places.to_pylist(), strict=True)
    return {wanted[number]: place for number, place in pairs}


def _looked_up(keys: list[Any], lookup: dict[Any, int]) -> npt.NDArray[np.int64]:
    return np.fromiter((lookup.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))


def _query(keys: list[Any], type_: Any) -> Any:
    try:
        return pa.array(keys, type_)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return pa.array([key if fits_type(key, type_) else None for key in keys], type_)
