"""`Moments`: the two moments that define an expected quadratic loss, and the log of the model fitted on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram.moment_sums import MomentSums
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import ParameterError

SYMMETRY = 1e-6  # largest difference of two entries that must be equal, relative to the largest entry
PANEL = 512  # columns checked or copied at a time


class Moments:
    """The moments E[x̂ᵀx̂] and E[x̂ᵀt] of an input x̂ and a target t over the items of a log.

    `fit` of `ExpectedQuadratic` takes them in place of the log. They can be means or sums: only the size of the
    penalties depends on it. The arrays are neither copied nor changed.

    Parameters
    ----------
    log : Interactions, or anything `fit` takes
        Its items, in the order of `log.items`, are the rows and columns of the moments; its rows are the histories of
        the users whom the model knows.
    second : E[x̂ᵀx̂], items × items, an array or a sparse matrix; symmetric and positive semi-definite
    cross : E[x̂ᵀt], items × items
        As a sparse matrix: the weights are then kept as a product of the inverse and this matrix. As an array: the
        weights are formed.
    penalties : a penalty for each item, in addition to l2
    diagonal : the value of W_jj for each item, NaN where it is free
    """

    def __init__(self, log: Any, second: Any, cross: Any, *, penalties: Any = None, diagonal: Any = None) -> None:
        self._set(as_interactions(log), second, cross, penalties, diagonal)
        _check_symmetric(self.second)

    def _set(self, log: Interactions, second: Any, cross: Any, penalties: Any, diagonal: Any) -> None:
        self.log, n = log, log.n_items
        self.second, self.cross = _square("second", second, n), _square("cross", cross, n)
        self.penalties = np.zeros(n) if penalties is None else _vector("penalties", penalties, n)
        if not (np.isfinite(self.penalties).all() and (self.penalties >= 0).all()):
            raise ParameterError("penalties must be finite numbers of at least 0, one for each item")
        self.diagonal = None if diagonal is None else _vector("diagonal", diagonal, n)
        if self.diagonal is not None and np.isinf(self.diagonal).any():
            raise ParameterError("diagonal holds an infinite number; give finite ones, or NaN where W_jj is free")

    @classmethod
    def from_blocks(
        cls,
        log: Any,
        blocks: Iterable[Any],
        *,
        penalties: Any = None,
        diagonal: Any = None,
        memory: int | float | str | None = None,
    ) -> Moments:
        """The moments Σ w·x̂ᵀx̂ and Σ w·x̂ᵀt of blocks of rows, which are read once.

        Parameters
        ----------
        log, penalties, diagonal : as of the class
        blocks : iterable of (input, target) or (input, target, weight)
            Input and target have a row for each observation and a column for each item; both are sparse, or arrays.
            The weight is a number, or one for each row; without it every row counts 1.
        memory : bytes that the sums may take, or a text such as "8 GB"; by default the free memory, less a margin
            It includes the blocks that wait to be added. Sums that need more raise MemoryBudgetError before they are
            allocated.
        """
        data = as_interactions(log)
        sums = MomentSums(data.n_items, memory_.parse(memory))
        number = -1
        for number, block in enumerate(blocks):
            sums.add(*_block(number, block, data.n_items))
        if number < 0:
            raise ParameterError(
                "there are no blocks; expected at least one (input, target) or (input, target, weight)"
            )
        moments = cls.__new__(cls)  # the sums are symmetric: the check would need memory beside them
        moments._set(data, *sums.sums(), penalties, diagonal)
        return moments

    def __repr__(self) -> str:
        kinds = ["sparse" if sp.issparse(moment) else "dense" for moment in (self.second, self.cross)]
        return f"Moments({self.log.n_items:,} items, second {kinds[0]}, cross {kinds[1]})"

    @property
    def cross_entries(self) -> int:
        """The number of stored entries of the cross moment."""
        return int(self.cross.nnz if sp.issparse(self.cross) else self.cross.size)

    def working_second(self, dtype: str) -> Float:
        """A copy of the second moment that a solver may overwrite, Fortran-ordered."""
        return _copy(self.second, dtype)

    def working_cross(self, dtype: str) -> Csr | Float:
        """A copy of the cross moment that a solver may overwrite: by column where it is sparse."""
        if not sp.issparse(self.cross):
            return _copy(self.cross, dtype)
        by_column: Csr = sp.csr_array(self.cross.astype(dtype).T)
        by_column.sum_duplicates()
        return by_column


def _copy(moment: Any, dtype: str) -> Float:
    n = moment.shape[0]
    out: Float = np.empty((n, n), dtype, order="F")
    columns = moment.tocsc() if sp.issparse(moment) else moment
    for start in range(0, n, PANEL):
        part = columns[:, start : start + PANEL]
        out[:, start : start + PANEL] = part.toarray() if sp.issparse(part) else part
    return out


def _square(name: str, moment: Any, n: int) -> Any:
    """A moment as a sparse matrix or a float array, its shape and values checked."""
    if not sp.issparse(moment):
        moment = _array(name, moment)
    if moment.shape != (n, n):
        raise ParameterError(
            f"{name} has shape {moment.shape}; expected ({n}, {n}), a row and a column for each item of the log"
        )
    if moment.dtype.kind not in "biuf":
        raise ParameterError(f"{name} has dtype {moment.dtype}; expected numbers")
    if sp.issparse(moment):
        moment = sp.csr_array(moment)
        moment.check_format(full_check=True)
    elif moment.dtype.kind != "f" or moment.dtype.itemsize < 4:
        moment = moment.astype(np.float64)
    values = moment.data if sp.issparse(moment) else moment
    if not np.isfinite([values.min(initial=0), values.max(initial=0)]).all():  # NaN is the smallest and the largest
        raise ParameterError(f"{name} holds NaN or infinity; expected finite numbers")
    return moment


def _array(name: str, values: Any) -> Any:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ParameterError(f"{name} is no array of numbers ({error})") from error


def _check_symmetric(second: Any) -> None:
    """Raise ParameterError for a second moment that is not symmetric, or has a negative diagonal."""
    if sp.issparse(second):
        difference, largest = abs(second - second.T).max(), abs(second).max()
    else:
        panels = [slice(start, start + PANEL) for start in range(0, len(second), PANEL)]
        difference = max(float(np.abs(second[:, part] - second[part].T).max()) for part in panels)
        largest = max(float(np.abs(second[part]).max()) for part in panels)
    if difference > SYMMETRY * largest:
        raise ParameterError(
            f"second is not symmetric: two entries differ by {difference:.2g}; expected E[x̂ᵀx̂], the same input twice"
        )
    if (second.diagonal() < 0).any():
        raise ParameterError("second has a negative number on its diagonal; expected E[x̂ᵀx̂], sums of squares")


def _vector(name: str, values: Any, n: int) -> Float64:
    vector = _array(name, values)
    if vector.shape != (n,) or vector.dtype.kind not in "biuf":
        raise ParameterError(f"{name} has shape {vector.shape}; expected ({n},), one number for each item of the log")
    return np.asarray(vector, np.float64)


def _block(number: int, block: Any, n: int) -> tuple[Csr, Any, Float64]:
    """Input, target and row weights of a block, checked."""
    if not isinstance(block, tuple | list) or len(block) not in (2, 3):
        raise ParameterError(f"block {number} is {type(block).__name__}; expected (input, target) or (…, weight)")
    inputs, targets = (part if sp.issparse(part) else _array(f"block {number}", part) for part in block[:2])
    if inputs.ndim != 2 or inputs.shape != targets.shape or inputs.shape[1] != n:
        raise ParameterError(
            f"block {number} has an input of shape {inputs.shape} and a target of shape {targets.shape}; expected "
            f"equally many rows, and {n} columns, one for each item of the log"
        )
    rows = sp.csr_array(inputs)
    weights = np.ones(rows.shape[0])
    if len(block) == 3 and block[2] is not None:
        try:
            weights = np.broadcast_to(np.asarray(block[2], np.float64), weights.shape)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"block {number} has weights that are not a number, or one for each of its {rows.shape[0]} rows"
            ) from error
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ParameterError(f"block {number} has a weight that is not a finite number of at least 0")
    return rows, sp.csr_array(targets) if sp.issparse(targets) else targets, weights
