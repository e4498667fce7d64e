"""The context of a fit: its options and its inputs. The third part, the report, is in `models.report`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from monogram.data.interactions import Interactions
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.inverse import local
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import Message, Option, ParameterError
from monogram.models.recipe import GramRecipe
from monogram.models.report import ReportBuilder
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.cluster import Cluster

SOLVERS = ("auto", "primal", "dual")
Between = Callable[[int, Callable[[], Weights]], None]  # receives the epochs done, and a function that makes weights


def check_dtype(dtype: str) -> str:
    """The name of a working precision; ParameterError for any other."""
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype = {dtype!r}; expected 'float32' or 'float64'")
    return dtype


def check_solver(solver: str, choices: tuple[str, ...] = SOLVERS) -> str:
    """The name of a solver; ParameterError where it is not one of the choices."""
    if solver not in choices:
        *most, last = (repr(choice) for choice in choices)
        raise ParameterError(f"solver = {solver!r}; expected {', '.join(most)} or {last}")
    return solver


def check_neighbours(neighbours: Any, solver: str, choices: tuple[str, ...]) -> int | None:
    """The number of candidates of a local fit, None for the default; ParameterError where it is no such number."""
    if neighbours is None:
        return None
    if isinstance(neighbours, bool) or not isinstance(neighbours, int | np.integer) or neighbours < 1:
        raise ParameterError(f"neighbours = {neighbours!r}; expected a whole number of at least 1")
    if local.NAME not in choices or solver not in ("auto", local.NAME):
        has = "" if local.NAME in choices else ", which this model does not have"
        raise ParameterError(
            Message(
                f"neighbours = {neighbours!r} with solver = {solver!r}; it is for ",
                Option("solver", "'local'"),
                f"{has}: leave it out",
            )
        )
    return int(neighbours)


def scratch_folder(scratch: str | Path | None, solver: str) -> Path | None:
    """The folder for large files: `scratch`, or with solver="disk" the system's temporary folder; else None."""
    if scratch is not None:
        return Path(scratch)
    return Path(tempfile.gettempdir()) if solver == "disk" else None


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of a fit, checked; a fit does not change them.

    Parameters
    ----------
    dtype : working precision
    budget : bytes that the fit may take
    threads : number of threads
    solver : "auto", or the solver to use
    keep_gram : keep S beside the weights
    neighbours : most candidates of an item in a local fit; None: the default number
    expand : True: expand dual weights to W after the fit; "file": they are expanded when the model is saved
    scratch : folder for the files of a fit on disk; None where no folder was named
    cluster : cluster that does the work; None: this process
    progress : receives the name of a stage and the work done in it since the last call
    """

    dtype: str = "float32"
    budget: int = 2**62
    threads: int = 1
    solver: str = "auto"
    keep_gram: bool = False
    neighbours: int | None = None
    expand: bool | str = False
    scratch: Path | None = None
    cluster: Cluster | None = None
    progress: Stage = silent

    @classmethod
    def parse(
        cls,
        *,
        dtype: str = "float32",
        memory: int | float | str | None = None,
        threads: int | None = None,
        solver: str = "auto",
        progress: Callable[[str, float], None] | None = None,
        **options: Any,
    ) -> FitOptions:
        """Options from the arguments of `fit`, checked. Without `memory` the budget is the memory that is free now."""
        return cls(
            dtype=check_dtype(dtype),
            budget=memory_.parse(memory),
            threads=parallel.count(threads),
            solver=solver,
            progress=progress or silent,
            **options,
        )

    @property
    def candidates(self) -> int:
        """Most candidates of an item in a local fit."""
        return self.neighbours or local.NEIGHBOURS

    def report(self) -> ReportBuilder:
        """An empty report of a fit with these options."""
        return ReportBuilder(dtype=self.dtype, threads=self.threads, progress=self.progress)


@dataclass
class FitInputs:
    """The inputs of a fit.

    Parameters
    ----------
    log : the log
    factorisation : an `Inverse` or `Spectrum` of the log to reuse; None: the fit computes its own
    between : called between the epochs of an iterative fit, but not after the last one, with the number of epochs done
        and a function that makes the current weights; an exception that it raises ends the fit
    unit : factor of the user weights of an earlier fit; by default it is computed from the log
    gram : the Gram matrix of the log, where it is known already
    """

    log: Interactions
    factorisation: Any = None
    between: Between | None = None
    unit: float | None = None
    gram: Float | None = None
    _weighted: tuple[GramRecipe, Csr] | None = field(default=None, repr=False)
    _kernel: tuple[GramRecipe, TimeKernel | None] | None = field(default=None, repr=False)

    def data(self, recipe: GramRecipe) -> Csr:
        """The log scaled by the user weights of the recipe, computed once; with its `kernel` its Gram matrix is S."""
        if self._weighted is None or self._weighted[0] != recipe:
            if self.unit is None:
                self.unit = recipe.unit(self.log.matrix)
            self._weighted = recipe, recipe.data(self.log.matrix, self.unit)
        return self._weighted[1]

    def kernel(self, recipe: GramRecipe) -> TimeKernel | None:
        """The time kernel of the recipe on the log, computed once; None where the recipe has none."""
        if self._kernel is None or self._kernel[0] != recipe:
            self._kernel = recipe, recipe.kernel(self.log)
        return self._kernel[1]

    def pause(self, weights: Callable[[Any], Weights]) -> Callable[[int, Callable[[], Any]], None] | None:
        """The callback that an engine loop calls between epochs; `weights` turns the state of the loop into weights."""
        between = self.between
        if between is None:
            return None
        return lambda done, state: between(done, lambda: weights(state()))
