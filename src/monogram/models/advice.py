"""Advice for errors of the engine: the engine states what failed, the models know which parameter changes that.

Each function is a context manager, and a decorator too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from monogram.engine.inverse.tile_store import FolderError, FreeSpaceError
from monogram.engine.lowrank.spectrum import ConvergenceError
from monogram.errors import MemoryBudgetError, MonogramWarning, NumericalError, StorageError


@contextmanager
def inverse_advice() -> Iterator[None]:
    """Name `l2`, `dtype` and `scratch` where a matrix cannot be factored or a folder cannot hold the files."""
    try:
        yield
    except NumericalError as error:
        raise NumericalError(f"{error}: raise l2, or use dtype='float64'") from error
    except FreeSpaceError as error:
        raise StorageError(f"{error}: free some space, or name another folder (scratch)") from error
    except FolderError as error:
        raise StorageError(f"{error}; name another folder (scratch)") from error


@contextmanager
def spectrum_advice(dtype: str) -> Iterator[None]:
    """Name what to change where eigenpairs do not converge, or where a product overflows."""
    try:
        yield
    except ConvergenceError as error:
        finer = "use dtype='float64'" if dtype == "float32" else "raise the tolerance"
        raise NumericalError(f"{error}; ask for a lower rank, or {finer}") from error
    except NumericalError as error:
        raise NumericalError(f"{error}: use dtype='float64', or smaller weights") from error


@contextmanager
def sparsity_advice() -> Iterator[None]:
    """Name `l1` and the memory where sparse weights have more entries than fit in memory."""
    try:
        yield
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"{error}; raise l1, or the memory") from error


def warn_of_restart(reason: str) -> None:
    """Warn that a fit on disk could not resume from what an earlier one left."""
    warnings.warn(f"{reason}: the fit starts again from the beginning", MonogramWarning, stacklevel=2)
