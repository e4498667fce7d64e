"""The interface of all kinds of weights, and helpers that several kinds use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from monogram.engine.runtime.arrays import Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.errors import ModelFileError, MonogramWarning

Tensors = dict[str, NDArray[Any]]


class Weights(Protocol):
    """The interface of every kind of weights."""

    kind: str

    @property
    def linear(self) -> bool:
        """Whether the scores are exactly the history times W, so that `columns` determines them."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory in addition to the training data."""

    def best(self, histories: Any, eligible: Eligible, k: int, threads: int) -> Best:
        """The k best eligible items of each history."""

    def score(self, histories: Any, items: Indices, threads: int) -> Float64:
        """Scores of the items for each history (histories × items)."""

    def columns(self, items: Indices) -> Float64:
        """W[:, items]: what each item of a history adds to the scores of the items."""

    def shares(self, history: Any, item: int) -> Float64:
        """What each entry of a history (a CSR batch of one) adds to the score of an item."""

    def base(self, items: Indices) -> Float64:
        """The part of the scores of the items that does not depend on the history."""

    def tensors(self) -> Tensors:
        """The arrays to store."""


def checked(tensors: Tensors, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A stored float tensor; ModelFileError where it is missing or has another shape."""
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype.name not in ("float32", "float64"):
        stored = "none" if tensor is None else f"one of {tensor.dtype} and shape {tensor.shape}"
        raise ModelFileError(f"the file must hold a float tensor {name!r} of shape {shape}; it has {stored}")
    return tensor


def whole_numbers(tensors: Tensors, name: str) -> NDArray[Any]:
    """A stored vector of indices; ModelFileError where it is missing or of another type."""
    tensor = tensors.get(name)
    if tensor is None or tensor.ndim != 1 or tensor.dtype.name not in ("int32", "int64"):
        stored = "none" if tensor is None else f"one of {tensor.dtype} and shape {tensor.shape}"
        raise ModelFileError(f"the file must hold a vector {name!r} of indices; it has {stored}")
    return tensor


def share(*holders: Any) -> None:
    """Make the two-dimensional arrays of weights and update state read-only: an update then copies before it writes."""
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
