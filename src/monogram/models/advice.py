"""Advice for errors of the engine, which states what failed but knows no parameter of a model.

The context managers add the parameters to change to the message; they can also be used as decorators.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from monogram.engine.inverse.tile_store import FolderError, FreeSpaceError
from monogram.engine.lowrank.spectrum import ConvergenceError
from monogram.errors import MemoryBudgetError, NumericalError, StorageError, warn


@contextmanager
def inverse_advice() -> Iterator[None]:
    """Add `l2` and `dtype` to a numerical error, and `scratch` to an error of the folder for large files."""
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
    """Add rank and precision to an error of eigenpairs that do not converge or of products that overflow."""
    try:
        yield
    except ConvergenceError as error:
        advice = "use dtype='float64'" if dtype == "float32" else "raise the tolerance"
        raise NumericalError(f"{error}; use a lower rank, or {advice}") from error
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
    """Warn that a fit on disk cannot resume from the files of an earlier one."""
    warn(f"{reason}: the fit starts again from the beginning")
