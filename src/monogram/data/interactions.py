"""Interactions: a sparse user-item matrix and the ids of its rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from monogram.data.id_arrays import Id
from monogram.data.spans import UNIX, Span, check_time_unit, in_unit_of, unix_unit
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, Message, Option, ParameterError, UnknownIdError

Merge: TypeAlias = Literal["binary", "sum"]


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Users by items: float32 weights in a canonical CSR matrix, and two vocabularies.

    Immutable: the arrays are read-only views; the caller's own arrays stay writable. The constructor expects a
    canonical matrix (sorted, no duplicates, no zeros) without checking it; use `from_csr` for any other.

    Attributes
    ----------
    matrix
        `scipy.sparse.csr_array` of shape (users, items).
    users, items
        Ids of the rows and of the columns.
    times
        Time of each event, aligned with `matrix.data` (int64 or float64), or None. Of repeated events the first.
    merge
        How repeated events are merged: "binary" (every pair counts 1) or "sum".
    notes
        Notes of the reader: guessed columns, merged repeats, skipped rows.
    skipped
        Number of rows that could not be read and were skipped.
    last_times
        The last time of each event where events were repeated; None: `times`.
    order
        A number for each event by which the events of a user are ordered, the oldest first (int32); None: by
        `last_times`. Events at the same time keep the order of the file.
    time_unit
        Unit of the times: "ns", "us" (also of dates), "ms", "s", "min", "h" or "d"; None where it is not known.
    """

    matrix: Any
    users: Vocabulary
    items: Vocabulary
    times: npt.NDArray[Any] | None = None
    merge: Merge = "sum"
    notes: tuple[str, ...] = ()
    skipped: int = 0
    last_times: npt.NDArray[Any] | None = None
    order: npt.NDArray[np.int32] | None = None
    time_unit: str | None = None

    def __post_init__(self) -> None:
        check_merge(self.merge)
        _check_ids(self.matrix.shape, self.users, self.items)
        object.__setattr__(self, "matrix", _sealed(self.matrix))
        object.__setattr__(self, "notes", tuple(self.notes))
        check_time_unit(self.time_unit)
        for name in ("times", "last_times", "order"):
            values = getattr(self, name)
            if values is not None:
                if values.shape != self.matrix.data.shape:
                    raise DataError(f"{name} has {values.size} values for {self.matrix.nnz} events.")
                if values.size and values.dtype.kind == "i" and int(values.max()) - int(values.min()) >= 2**62:
                    raise DataError(
                        f"{name} are from {values.min()} to {values.max()}, too far apart to subtract: does one of "
                        "them stand for a missing time?"
                    )
                object.__setattr__(self, name, _frozen(values))

    @classmethod
    def from_csr(
        cls,
        X: Any,
        users: Any = None,
        items: Any = None,
        times: npt.ArrayLike | None = None,
        merge: Merge | None = None,
        *,
        order: npt.ArrayLike | None = None,
        time_unit: str | None = None,
    ) -> Interactions:
        """Interactions from a matrix of users by items.

        Parameters
        ----------
        X
            Any SciPy sparse matrix or array, or a dense 2-D array, with finite weights that are not negative.
            Canonical float32 CSR is not copied. X is never changed.
        users, items
            Ids of rows and columns; 0, 1, 2 … when None.
        times
            Time of each stored entry; X must then be canonical CSR, so that the order is defined.
        merge
            "sum" keeps the weights (stored duplicates are added); "binary" makes every one of them 1. When None:
            "binary" if every weight is 1 already, else "sum". Later histories are merged the same way.
        order
            A number for each stored entry by which the events of a user are ordered, the oldest first, where there are
            no times or where they do not decide; X as for `times`.
        time_unit
            Unit of times that are numbers: "ns", "us", "ms", "s", "min", "h" or "d".

        Raises
        ------
        DataError
            If a weight is NaN, infinite or negative, the ids do not match the shape, or there are no events.
        """
        if merge is not None:
            check_merge(merge)
        csr = _as_csr(X)
        rows = Vocabulary.range(csr.shape[0]) if users is None else Vocabulary(users)
        columns = Vocabulary.range(csr.shape[1]) if items is None else Vocabulary(items)
        _check_ids(csr.shape, rows, columns)
        check_weights(csr, rows, columns)
        matrix = _canonical(csr)
        check_weights(matrix, rows, columns)
        timed = times is not None or order is not None
        if timed and not (getattr(X, "format", "") == "csr" and _is_canonical(csr)):
            raise DataError(
                "times and order need X as canonical CSR (sorted, no duplicates, no zeros), one for each entry: "
                "call X.sum_duplicates() and X.eliminate_zeros() before taking the times."
            )
        ones = bool((matrix.data == 1).all())
        merge = merge or ("binary" if ones else "sum")
        if merge == "binary" and not ones:
            matrix = _with_data(matrix, np.ones(matrix.nnz, dtype=np.float32))
        if times is not None and np.asarray(times).dtype.kind == "M":
            time_unit = "us"
        return cls(
            matrix,
            rows,
            columns,
            None if times is None else _times(times),
            merge,
            order=None if order is None else _order(order),
            time_unit=time_unit,
        )

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def n_events(self) -> int:
        """Number of stored user–item pairs."""
        return int(self.matrix.nnz)

    @property
    def latest(self) -> npt.NDArray[Any] | None:
        """The last time of each event, or None."""
        return self.times if self.last_times is None else self.last_times

    @cached_property
    def unit_of_times(self) -> str | None:
        """`time_unit`, or the unit of times that look like Unix times; None where it is not known."""
        return self.time_unit or (None if self.latest is None else unix_unit(self.latest))

    @cached_property
    def unix_range(self) -> tuple[float, float] | None:
        """The years 1980 to 2100 in the unit of the times, where all times are in between; else None."""
        if self.latest is None or not len(self.latest) or self.unit_of_times is None:
            return None
        low, high = (in_unit_of(Span(seconds, "s"), self.latest, self.unit_of_times) for seconds in UNIX)
        return (low, high) if low <= self.latest.min() and self.latest.max() <= high else None

    @property
    def has_order(self) -> bool:
        """Whether the events of a user have an order: by their times, or by their rows in the file."""
        return self.order is not None or self.times is not None

    @cached_property
    def positions(self) -> npt.NDArray[np.int32]:
        """The position of each event in its user's history, 0 the oldest; DataError for a log without order."""
        self.require_order("the order of events is used")
        from monogram.data.parts import ranks

        key = self.latest if self.order is None else self.order
        return _frozen(ranks(self.matrix, np.asarray(key)))

    def require_order(self, why: str) -> None:
        """Raise DataError where the events of a user have no order; `why` it is needed begins the message."""
        if not self.has_order:
            raise DataError(
                Message(
                    f"{why}, but this log has neither times nor an order; name the column of times when it is read, "
                    "with ",
                    Option("time"),
                    ", or declare that its rows are in order, with ",
                    Option("time", '"order"'),
                )
            )

    def on_time_axis(self, span: Span, setting: str = "") -> npt.NDArray[Any]:
        """The place of each event on the time axis in units of a span: int32 for single events, else float64.

        DataError where the log has no such axis; `setting` is the parameter that needs it, for the message.
        """
        if span.in_events:
            if setting:
                self.require_order(f"{setting} needs the order of events")
            return self.positions if span.amount == 1 else self.positions / span.amount
        latest = self.latest
        if latest is None:
            raise DataError(
                Message(
                    f"{span} is a span of time, but this log has no times; name their column when it is read, with ",
                    Option("time"),
                    ", or give a number of events, such as '1 event'",
                )
            )
        unit = in_unit_of(span, latest, self.unit_of_times)
        with np.errstate(over="ignore"):
            places: npt.NDArray[np.float64] = (latest - (latest.min() if len(latest) else 0)) / unit
        if not np.isfinite(places.max(initial=0.0)):
            raise DataError(
                f"the times of this log are more units of {span} apart than a number can hold; give a longer unit"
            )
        return places

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix, the vocabularies, the times and the order."""
        arrays = [self.matrix.data, self.matrix.indices, self.matrix.indptr]
        arrays += [array for array in (self.times, self.last_times, self.order) if array is not None]
        return sum(int(a.nbytes) for a in arrays) + self.users.nbytes + self.items.nbytes

    def history(self, user_id: Id) -> dict[Id, float]:
        """The weights of one user's items, by item id; the oldest item first where the log has an order."""
        row = int(self.users.index([user_id])[0])
        if row < 0:
            raise UnknownIdError(f"user {str(user_id)[:60]!r} is not in this log of {self.n_users:,} users")
        part = slice(self.matrix.indptr[row], self.matrix.indptr[row + 1])
        key = self.latest if self.order is None else self.order
        order = slice(None) if key is None else np.argsort(key[part], kind="stable")
        items = self.items.ids(self.matrix.indices[part][order])
        return dict(zip(items, self.matrix.data[part][order].tolist(), strict=True))

    def at_least(self, users: int = 0, items: int = 0) -> Interactions:
        """Only users with at least `users` events, and items with at least `items`.

        Removing a user or an item removes events of others, so the filter is repeated until it holds for all that
        remain. Users and items without events are removed too; the other ids do not change. To apply one filter after
        the other:
        `log.at_least(items=200).at_least(users=20)`.
        """
        from monogram.data.parts import at_least

        return at_least(self, users, items)

    def __len__(self) -> int:
        return self.n_events

    def __repr__(self) -> str:
        sizes = f"{self.n_users:,} users × {self.n_items:,} items, {self.n_events:,} events"
        extra = ", with times" if self.times is not None else ", in order" if self.order is not None else ""
        return "\n  ".join([f'Interactions({sizes}, merge="{self.merge}"{extra})', *self.notes])


def check_merge(merge: str) -> None:
    """Raise `ParameterError` unless `merge` is "binary" or "sum"."""
    if merge not in ("binary", "sum"):
        raise ParameterError(f'merge must be "binary" or "sum", got {merge!r}.')


def _check_ids(shape: tuple[int, ...], users: Vocabulary, items: Vocabulary) -> None:
    for name, ids, size, axis in (("users", users, shape[0], "rows"), ("items", items, shape[1], "columns")):
        if size == 0:
            raise DataError(f"the matrix has 0 {axis}: there are no {name} to learn from.")
        if len(ids) != size:
            raise DataError(f"{len(ids):,} {name} ids were given for a matrix of {size:,} {axis}.")


def _as_csr(X: Any) -> Any:
    """Float32 CSR over the same arrays where possible, its index arrays checked."""
    if not sp.issparse(X):
        X = np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"expected a matrix of users by items, got {X.ndim} dimension(s).")
    if X.dtype.kind not in "biuf":
        raise DataError(f"weights must be real numbers, got a matrix of dtype {X.dtype}.")
    csr = X.tocsr() if sp.issparse(X) else sp.csr_array(X)
    with np.errstate(over="ignore"):  # an overflow gives infinity, which `check_weights` refuses
        data = csr.data.astype(np.float32, copy=False)
    try:
        result = sp.csr_array((data, csr.indices, csr.indptr), shape=csr.shape)
        result.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"the CSR arrays are not consistent: {error}") from error
    return result


def _is_canonical(matrix: Any) -> bool:
    return bool(matrix.has_canonical_format) and bool((matrix.data != 0).all())


def _canonical(matrix: Any) -> Any:
    if not _is_canonical(matrix):
        matrix = matrix.copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    if matrix.nnz == 0:
        raise DataError("the matrix has no events: every weight is 0.")
    return matrix


def _with_data(matrix: Any, data: npt.NDArray[np.float32]) -> Any:
    return sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def check_weights(matrix: Any, users: Vocabulary, items: Vocabulary) -> None:
    """Raise `DataError` naming the first pair whose weight is NaN, infinite or negative."""
    data = matrix.data
    # min and max propagate NaN, so this accepts good weights without temporary arrays.
    if data.size == 0 or (data.min() >= 0 and data.max() < np.inf):
        return
    place = int(np.flatnonzero(~((data >= 0) & (data < np.inf)))[0])
    user = users[int(np.searchsorted(matrix.indptr, place, side="right")) - 1]
    item = items[int(matrix.indices[place])]
    raise DataError(
        f"the weight of user {user!r} and item {item!r} is {data[place]}; "
        "weights must be finite float32 numbers and not negative."
    )


def _times(times: npt.ArrayLike) -> npt.NDArray[Any]:
    array = np.asarray(times)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise DataError("times holds a missing time (NaT).")
        return array.astype("datetime64[us]").astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise DataError(f"times must be integers, floats or datetime64, got dtype {array.dtype}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError("times holds NaN or infinity; every event needs a time.")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)


def _order(order: npt.ArrayLike) -> npt.NDArray[np.int32]:
    array = np.asarray(order)
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() <= np.iinfo(np.int32).max):
        raise DataError("order must be whole numbers of at least 0 that fit in 32 bits, one for each stored entry.")
    return array.astype(np.int32)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def _sealed(matrix: Any) -> Any:
    """Read-only views of a canonical matrix, with 32-bit indices where they suffice."""
    wide = max(matrix.nnz, *matrix.shape) > np.iinfo(np.int32).max
    index = np.int64 if wide else np.int32
    sealed = sp.csr_array(matrix.shape, dtype=np.float32)
    sealed.data = _frozen(matrix.data.astype(np.float32, copy=False))
    sealed.indices = _frozen(matrix.indices.astype(index, copy=False))
    sealed.indptr = _frozen(matrix.indptr.astype(index, copy=False))
    sealed.has_canonical_format = True
    return cast("Any", sealed)
