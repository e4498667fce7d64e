"""External ids and their indices: strings, integers or UUIDs go in and come out as they were."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from monogram.data.hashed import Hashed
from monogram.errors import DataError, ParameterError

Id: TypeAlias = str | int | UUID
Kind: TypeAlias = Literal["string", "integer", "uuid"]

_SMALL = 1_000_000  # up to here a Python dict is affordable and answers single questions fastest
_FEW = 100  # so many times fewer questions than ids are looked up one by one
_SOON = 2  # such questions before it pays to prepare for more
_STRING_LIMIT = 2**31 - 1  # bytes of text that 32-bit offsets can address
_INT64_MAX = 2**63 - 1
_SLAB = 65_536


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

    __slots__ = ("_array", "_asked", "_hashed", "_kind", "_lookup")
    _array: Any
    _asked: int
    _hashed: Hashed | None
    _kind: Kind
    _lookup: dict[Any, int] | None

    def __init__(self, ids: Iterable[Any] | Any) -> None:
        array = ids._array if isinstance(ids, Vocabulary) else _storage(_to_arrow(ids))
        if not isinstance(ids, Vocabulary):
            _check_unique(array)
        self._hold(array)

    @classmethod
    def range(cls, n: int) -> Vocabulary:
        """Integers 0 … n − 1, each its own index."""
        return cls._trusted(pa.array(np.arange(n, dtype=np.int64)))

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
        array = _storage(_uuids(array) if pa.types.is_fixed_size_binary(array.type) else array)
        _check_unique(array)
        return cls._trusted(array)

    @classmethod
    def _trusted(cls, array: Any) -> Vocabulary:
        """Wrap an Arrow array already in storage form, without nulls or duplicates."""
        new = cls.__new__(cls)
        new._hold(array)
        return new

    def _hold(self, array: Any) -> None:
        self._array, self._kind, self._lookup = array, kind_of(array.type), None
        self._hashed, self._asked = None, 0

    @property
    def kind(self) -> Kind:
        """What the ids are: "string", "integer" or "uuid"."""
        return self._kind

    @property
    def nbytes(self) -> int:
        """Bytes the ids take."""
        return int(self._array.nbytes)

    def take(self, indices: npt.ArrayLike) -> Any:
        """Ids at these indices, as an Arrow array (strings, integers or `pa.uuid()`)."""
        chosen = self._array.take(_places(indices))
        return _uuids(chosen) if self._kind == "uuid" else chosen

    def ids(self, indices: npt.ArrayLike) -> list[Id]:
        """Ids at these indices, as the `str`, `int` or `uuid.UUID` that went in."""
        return cast("list[Id]", self.take(indices).to_pylist())

    def index(self, ids: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Index of each id; −1 where it is unknown.

        Parameters
        ----------
        ids
            Any sequence. The spelling may differ: `"42"` and 42.0 find the integer 42, 42 finds the string
            `"42"`, and the text of a UUID finds it. Whatever else an element is, it is unknown.
        """
        if isinstance(ids, (str, bytes)):
            raise ParameterError(f"ids must be a sequence of ids, got the single value {ids!r}: write [{ids!r}].")
        native = self._native(ids)
        if native is not None:
            return _positions(native, self._array)
        keys = list(map(_KEYS[self._kind], _elements(ids)))
        if len(self) <= _SMALL:
            lookup = self._dictionary()
            return np.fromiter((lookup.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))
        if _FEW * len(keys) < len(self):
            self._asked += 1
            if self._asked > _SOON:
                return self._hashes().index(keys)
        return _positions(_query(keys, self._array.type), self._array)

    def to_bytes(self) -> bytes:
        """Arrow IPC stream of the ids, for `from_bytes`."""
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([self._array], names=["id"])
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return cast("bytes", sink.getvalue().to_pybytes())

    def part(self, indices: npt.ArrayLike) -> Vocabulary:
        """The ids at these indices, each of which must be another, in their order."""
        return Vocabulary._trusted(self._array.take(_places(indices)))

    def extended(self, ids: Iterable[Any]) -> Vocabulary:
        """These ids, and more of the same kind after them; what `index` would take for such an id is one."""
        given = list(_elements(ids))
        keys = [_KEYS[self._kind](one) for one in given]
        for one, key in zip(given, keys, strict=True):
            if key is None:
                raise DataError(f"id {str(one)[:60]!r} ({type(one).__name__}) cannot stand among {self._kind} ids.")
        try:
            more = pa.array(keys, self._array.type)
            array = pa.concat_arrays([self._array, more])
        except (OverflowError, UnicodeEncodeError, pa.ArrowException) as error:
            raise DataError(f"the new ids cannot stand among {self._kind} ids: {error}") from error
        _check_unique(array)
        return Vocabulary._trusted(array)

    def same_kind(self, id_: Any) -> Id | None:
        """The id as it would stand among these, or None where it cannot; `extended` takes what this gives."""
        key = _KEYS[self._kind](id_)
        if key is None or not _fits(key, self._array.type):
            return None
        return UUID(bytes=key) if self._kind == "uuid" else cast("Id", key)

    def _native(self, ids: Any) -> Any:
        """Return the query as Arrow of this very type when hashing all ids for it pays off."""
        array = ids._array if isinstance(ids, Vocabulary) else ids
        if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind == "i":
            array = pa.array(array)
        if isinstance(array, pa.Array) and pa.types.is_signed_integer(array.type):
            array = array.cast(pa.int64())
        fits = isinstance(array, pa.Array) and array.type == self._array.type
        return array if fits and (len(self) > _SMALL or 8 * len(array) > len(self)) else None

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
        for start in range(0, len(self), _SLAB):
            yield from self.ids(np.arange(start, min(start + _SLAB, len(self))))

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
    """Indices as Arrow has them, over the same memory; `pa.array` imports pandas, to look for a series."""
    array = np.ascontiguousarray(indices, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(array), [None, pa.py_buffer(array)])


def kind_of(type_: Any) -> Kind:
    """Kind of id that an Arrow storage type holds."""
    if pa.types.is_integer(type_):
        return "integer"
    return "uuid" if pa.types.is_fixed_size_binary(type_) else "string"


def compact(array: Any) -> Any:
    """Ids in the smallest of their storage types: string before large_string, int64 before uint64."""
    if pa.types.is_large_string(array.type) and _text_bytes(array) <= _STRING_LIMIT:
        return array.cast(pa.string())
    if pa.types.is_uint64(array.type) and (len(array) == 0 or pc.max(array).as_py() <= _INT64_MAX):
        return array.cast(pa.int64())
    return array


def decimal_key(text: str) -> int | None:
    """Return the integer that `text` spells in canonical decimal form, if it does."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    number = int(text)
    return number if str(number) == text else None


def _text_bytes(array: Any) -> int:
    return int(pc.sum(pc.binary_length(array)).as_py() or 0)


def _uuids(storage: Any) -> Any:
    if storage.type != pa.binary(16):
        raise DataError(f"a UUID has 16 bytes, got ids of Arrow type {storage.type}.")
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _to_arrow(ids: Any) -> Any:
    """Any sequence of ids as one Arrow array, of whatever type it happens to have."""
    if isinstance(ids, pa.ChunkedArray):
        wide = ids.cast(pa.large_string()) if pa.types.is_string(ids.type) else ids
        return wide.combine_chunks()
    if isinstance(ids, pa.Array):
        return ids
    if isinstance(ids, (str, bytes)):
        raise DataError(f"ids must be a sequence of ids, got the single value {ids!r}.")
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim == 1:
        return pa.array(ids)
    if hasattr(ids, "__arrow_c_stream__") and hasattr(ids, "dtype"):  # a series of some data frame
        return _to_arrow(pa.chunked_array(ids))
    return _from_objects(list(_elements(ids)))


def _elements(ids: Any) -> Iterable[Any]:
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        return cast("list[Any]", ids.to_pylist())
    if isinstance(ids, np.ndarray):
        return cast("list[Any]", ids.tolist())
    return (one.as_py() if isinstance(one, pa.Scalar) else one for one in ids)


def _from_objects(values: list[Any]) -> Any:
    kinds = [_object_kind(value) for value in values]
    for position, kind in enumerate(kinds):
        if kind is None:
            raise DataError(
                f"id {values[position]!r} at position {position} is {type(values[position]).__name__}; "
                "ids are strings, integers or UUIDs."
            )
        if kind != kinds[0]:
            raise DataError(
                f"ids must be of one kind: position 0 is {kinds[0]} ({values[0]!r}), "
                f"position {position} is {kind} ({values[position]!r})."
            )
    return _pack(values, (kinds[0] if kinds else None) or "string")


def _object_kind(value: object) -> Kind | None:
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return "integer"
    return "uuid" if isinstance(value, UUID) else None


def _pack(values: list[Any], kind: Kind) -> Any:
    if kind == "uuid":
        return _uuids(pa.array([value.bytes for value in values], pa.binary(16)))
    try:
        if kind == "string":
            return pa.array(values, pa.large_string())
        top = max(map(int, values))
        return pa.array(list(map(int, values)), pa.uint64() if top > _INT64_MAX else pa.int64())
    except (OverflowError, pa.ArrowException) as error:
        raise DataError("integer ids must all fit 64 bits, signed or all unsigned.") from error
    except UnicodeEncodeError as error:
        raise DataError(f"a string id cannot be written as UTF-8: {error}") from error


def _storage(array: Any) -> Any:
    """Arrow ids of any supported type, in the type a vocabulary keeps."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.null_count:
        position = pc.index(pc.is_null(array), True).as_py()
        raise DataError(f"the id at position {position} is missing; every id must have a value.")
    if isinstance(array.type, pa.UuidType):
        return array.storage
    if pa.types.is_integer(array.type):
        unsigned = pa.types.is_unsigned_integer(array.type)
        return compact(array.cast(pa.uint64())) if unsigned else array.cast(pa.int64())
    if is_text(array.type) or (pa.types.is_null(array.type) and len(array) == 0):
        return compact(array.cast(pa.large_string()))
    raise DataError(f"ids of Arrow type {array.type} are not supported; use strings, integers or UUIDs.")


def is_text(type_: Any) -> bool:
    """Whether an Arrow type is one of the three that hold text."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _check_unique(array: Any) -> None:
    if len(pc.unique(array)) == len(array):
        return
    counts = pc.value_counts(array)
    first = pc.index(pc.greater(counts.field(1), 1), True).as_py()
    value = counts.field(0)[first].as_py()
    shown = UUID(bytes=value) if isinstance(value, bytes) else value
    times = counts.field(1)[first].as_py()
    raise DataError(f"id {shown!r} occurs {times} times; every id of a vocabulary must be unique.")


def _positions(query: Any, values: Any) -> npt.NDArray[np.int64]:
    found = pc.index_in(query, value_set=values, skip_nulls=True)
    return cast("npt.NDArray[np.int64]", found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))


def _query(keys: list[Any], type_: Any) -> Any:
    try:
        return pa.array(keys, type_)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return pa.array([key if _fits(key, type_) else None for key in keys], type_)


def _fits(key: Any, type_: Any) -> bool:
    try:
        pa.array([key], type_)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return False
    return True


def _integer_key(value: object) -> int | None:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, (float, np.floating)):  # a column of integers with a gap arrives as floats
        return int(value) if value.is_integer() else None
    return decimal_key(value) if isinstance(value, str) else None


def _string_key(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else None


def _uuid_key(value: object) -> bytes | None:
    if isinstance(value, UUID):
        return value.bytes
    if not (isinstance(value, str) and len(value) == 36):
        return None
    try:
        found = UUID(value)
    except ValueError:
        return None
    return found.bytes if str(found) == value.lower() else None


_KEYS: dict[Kind, Callable[[object], Any]] = {
    "integer": _integer_key,
    "string": _string_key,
    "uuid": _uuid_key,
}
