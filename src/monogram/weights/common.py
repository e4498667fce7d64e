"""The interface of all kinds of weights, and helpers that several kinds use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from monogram.engine.inverse.disk import ScratchFolder
from monogram.engine.inverse.protocols import ReadableInverse
from monogram.engine.runtime.arrays import Csr, Float64, Indices
from monogram.engine.runtime.progress import Stage, silent
from monogram.engine.topk.best import Best, Eligible
from monogram.errors import ModelFileError, MonogramWarning, ParameterError
from monogram.weights.update_state import UpdateState

if TYPE_CHECKING:
    from monogram.weights.dense import Dense

Tensors = dict[str, NDArray[Any]]


class Head(Protocol):
    """The rescaling θ and the diagonal δ of W = B·diag(θ) + diag(δ); see `models.heads`."""

    @property
    def needs_diagonal(self) -> bool:
        """Whether θ or δ need c = diag C."""

    def __call__(self, c: Float64, penalties: Float64, d: Float64, counts: Float64) -> tuple[Float64, Float64]:
        """θ and δ; `counts` are the users of each item."""


class Weights(Protocol):
    """The interface of every kind of weights.

    The kinds inherit from it. Methods that only some kinds support have a default that raises TypeError or returns
    False.

    Attributes
    ----------
    kind : name of the kind in a model file
    solver : the solver of a full-rank fit that gives this kind; None for all other kinds
    update_state : what an exact update needs beside the arrays; None where there is none
    scratch : the folder of files in which the arrays lie; None where they are in memory or in a model file
    additive : whether a score is a sum over the entries of the history, so that `shares` are exact; else `shares` are
        differences: how much the score falls without the one entry
    batch_invariant : whether `best` gives a history the same list, to the last bit, whatever other histories are in
        the batch
    refit_from_log : whether another model is fitted from the log of this one, because the weights hold no inverse
    square_axis : "items" or "users" where the weights are a square array over that axis, which an update reallocates
    expansion : how W can be computed from the arrays: "rows" where also some rows at a time, "whole" where only as one
        array; None where it cannot, or where it is stored already
    """

    kind: ClassVar[str]
    solver: ClassVar[str | None] = None
    update_state: UpdateState | None = None
    scratch: ScratchFolder | None = None
    additive: ClassVar[bool] = True
    batch_invariant: bool = False
    refit_from_log: ClassVar[bool] = False
    square_axis: ClassVar[str | None] = None
    expansion: ClassVar[str | None] = None

    @property
    def linear(self) -> bool:
        """Whether the scores are exactly the history times W, so that `columns` determines them."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory in addition to the training data."""

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        """The k best eligible items of each history."""

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        """Scores of the items for each history (histories × items)."""

    def columns(self, items: Indices) -> Float64:
        """W[:, items]: what each item of a history adds to the scores of the items."""

    def shares(self, history: Csr, item: int) -> Float64:
        """What each entry of a history (a CSR batch of one) adds to the score of an item; see `additive`."""
        return np.asarray(self.columns(np.array([item]))[history.indices, 0] * history.data)

    def base(self, items: Indices) -> Float64:
        """The part of the scores of the items that does not depend on the history; 0 for most kinds."""
        return np.zeros(len(items))

    def tensors(self) -> Tensors:
        """The arrays to store."""

    def complete(self, threads: int) -> None:
        """Compute what scores of some histories need, and a validation does not; `fit` calls this at its end."""
        return

    def bind_head(self, head: Head) -> None:
        """Take the head of the model: for kinds that apply it when they score a history. Others contain θ and δ."""
        return

    def serves_head(self, head: Head) -> bool:
        """Whether `with_head` and `copy_with_head` can apply this head: full-rank kinds only."""
        return False

    def with_head(self, head: Head, d: Float64, counts: Float64) -> Weights:
        """The weights under another head, over the same arrays; d = diag S and `counts` are as for `Head`."""
        raise TypeError(f"weights of kind {self.kind!r} have no head")

    def copy_with_head(self, head: Head, d: Float64, counts: Float64, *, budget: int, threads: int) -> Weights:
        """The weights under another head, of a model of their own: no array that is written to is shared."""
        raise TypeError(f"weights of kind {self.kind!r} have no head")

    def read_inverse(self, data: Csr) -> ReadableInverse:
        """C as it is read from the weights; `data` are the weighted training data. Full-rank kinds only."""
        raise TypeError(f"weights of kind {self.kind!r} hold no inverse")

    def expanded_bytes(self, threads: int) -> int:
        """Memory that `expand` takes in addition to these weights."""
        raise TypeError(f"weights of kind {self.kind!r} cannot be expanded")

    def expand(self, *, budget: int | None = None, threads: int | None = None, stage: Stage = silent) -> Dense:
        """W as an array, for kinds with an `expansion`; MemoryBudgetError where it takes more bytes than the budget.

        By default the budget is the free memory, and the threads are all cores.
        """
        raise TypeError(f"weights of kind {self.kind!r} cannot be expanded")

    def required_state(self) -> UpdateState:
        """The update state, or a ParameterError where there is none."""
        if self.update_state is None:
            raise ParameterError("this model was saved without the diagonal of C, which updates need: fit it again")
        return self.update_state

    def seal(self) -> Self:
        """Make the square arrays read-only, so that an update makes new ones; the weights themselves."""
        read_only(self, self.update_state)
        return self


def checked(tensors: Tensors, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A stored float tensor; ModelFileError where it is missing or has another shape."""
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype.name not in ("float32", "float64"):
        stored = "none" if tensor is None else f"one of {tensor.dtype} and shape {tensor.shape}"
        raise ModelFileError(f"the file must hold a float tensor {name!r} of shape {shape}; it has {stored}")
    return tensor


def columns_of(tensors: Tensors, name: str) -> int:
    """The number of columns of a stored matrix; ModelFileError where it is missing or no matrix."""
    tensor = tensors.get(name)
    if tensor is None or tensor.ndim != 2:
        stored = "none" if tensor is None else f"one of shape {tensor.shape}"
        raise ModelFileError(f"the file must hold a matrix {name!r}; it has {stored}")
    return int(tensor.shape[1])


def whole_numbers(tensors: Tensors, name: str) -> NDArray[np.integer[Any]]:
    """A stored vector of indices; ModelFileError where it is missing or of another type."""
    tensor = tensors.get(name)
    if tensor is None or tensor.ndim != 1 or tensor.dtype.name not in ("int32", "int64"):
        stored = "none" if tensor is None else f"one of {tensor.dtype} and shape {tensor.shape}"
        raise ModelFileError(f"the file must hold a vector {name!r} of indices; it has {stored}")
    return tensor


def read_only(*holders: Any) -> None:
    """Make the square arrays of weights and of update state read-only: an update then makes a copy."""
    for holder in holders:
        for array in vars(holder).values() if holder is not None else ():
            if isinstance(array, np.ndarray) and array.ndim == 2:
                array.setflags(write=False)


def batches(size: int, batch: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges (start, stop) of consecutive batches."""
    for start in range(0, size, batch):
        yield start, min(start + batch, size)


def part(eligible: Eligible, start: int, stop: int) -> Eligible:
    """The eligibility rules of a range of users."""
    only = eligible.only_pointers
    return Eligible(
        eligible.mask,
        eligible.out_pointers[start : stop + 1],
        eligible.out,
        only[start : stop + 1] if len(only) else only,
        eligible.only,
    )


def joined(parts: list[Best], k: int) -> Best:
    """Concatenate the lists of consecutive batches."""
    none = Best(np.zeros((0, k), np.int64), np.zeros((0, k)), np.zeros(0, np.int64))
    names = ("items", "scores", "counts")
    return Best(*(np.concatenate([getattr(lists, name) for lists in (none, *parts)]) for name in names))


def warn_not_converged(converged: bool) -> None:
    """Warn that a solve with a dual inverse did not converge."""
    if not converged:
        warnings.warn(
            "float32 is not precise enough for this model: its scores of new histories are approximate; "
            "fit with dtype='float64', or with solver='primal'",
            MonogramWarning,
            stacklevel=4,
        )
