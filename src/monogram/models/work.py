"""How a fit is to be done, and how it went."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime.progress import Stage, silent
from monogram.errors import ParameterError
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.cluster import Cluster
    from monogram.planning.plan import Plan


def check_dtype(dtype: str) -> str:
    """The name of a working precision."""
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"dtype = {dtype!r}; expected 'float32' or 'float64'")
    return dtype


SOLVERS = ("auto", "primal", "dual")


def check_solver(solver: str, among: tuple[str, ...] = SOLVERS) -> str:
    """The name of a solver, one of some."""
    if solver not in among:
        *most, last = (repr(one) for one in among)
        raise ParameterError(f"solver = {solver!r}; expected {', '.join(most)} or {last}")
    return solver


def scratch_folder(scratch: str | Path | None, solver: str) -> Path | None:
    """Where large files may be made: where it was said, or, when they were asked for, where the system has such."""
    if scratch is not None:
        return Path(scratch)
    return Path(tempfile.gettempdir()) if solver == "disk" else None


Between = Callable[[int, Callable[[], Weights]], None]


@dataclass(frozen=True)
class ObservedLog:
    """What a fit learns from, and who is called between its epochs: `fit` takes it in place of the log.

    Attributes
    ----------
    source : what `fit` takes
    between : receives the number of epochs done and a function that makes the weights as they stand
        It is called after each epoch of the whole model but the last; what it raises leaves `fit`.
    """

    source: Any
    between: Between


@dataclass
class Work:
    """How a fit is to be done, and what it notes on the way.

    `given` is what a source brought beside its log (a spectrum), `record` the objective by epoch, `between` as in
    `ObservedLog`, `scratch` the folder in which a fit on disk may make its files, `gram` the Gram where it is
    there already, `kept` what the model keeps beside its weights, `cluster` where the work is done if not here,
    `note` what the report is to say of it, `unit` the factor of the users' weights, `data` the log with them, `plan`
    the plan of the fit, made once.
    """

    dtype: str = "float32"
    budget: int = 0
    threads: int = 1
    solver: str = "auto"
    progress: Stage = silent
    used: str = "none"
    planned: int | None = None
    residual: float | None = None
    error: float | None = None
    deviation: float | None = None
    rank: int | None = None
    record: list[float] = field(default_factory=list)
    given: Any = None
    between: Between | None = None
    scratch: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    keep_gram: bool = False
    gram: NDArray[Any] | None = None
    kept: Any = None
    cluster: Cluster | None = None
    note: str = ""
    unit: float | None = None
    data: Any = None
    plan: Plan | None = None

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def tick(self, stage: str, amount: float = 0.0) -> None:
        """Count the time since the last tick to a stage, and pass the work done in it on."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
        self.progress(stage, amount)

    def pause(self, weights: Callable[[Any], Weights]) -> Callable[[int, Callable[[], Any]], None] | None:
        """What a loop of the engine calls between epochs, where someone watches; `weights` are made of its state."""
        watch = self.between
        if watch is None:
            return None
        return lambda done, state: watch(done, lambda: weights(state()))


@dataclass(frozen=True)
class Report:
    """How a fit went.

    Attributes
    ----------
    solver : "primal", "dual", "disk", "matrix_free" or "none"; for a spectrum the side and the method, or "reused";
        on a cluster "cluster (one worker)", "cluster (tiles)", or "cluster" and the method
    dtype : working precision
    threads : threads used
    seconds : by stage (compile: kernels, the first time on a machine)
    peak_bytes : most memory taken during the fit above what the process held before (None: not measurable)
    planned_bytes : what the plan foresaw
    residual : largest off-diagonal entry of (S + Λ)B − S on probe columns, relative to max|S|; for a spectrum the
        largest ‖Av − σ²v‖/σ²; for SLIM the largest violation of the conditions of its minimum, relative to max|S|
    error : error of the weights on those columns, relative to the largest: a bound, or where that is large an estimate
        (None: not known). Of TwoStep by the dual at least that of the lists of a few users
    rank : of the weights, where it is not full
    objectives : after each epoch of an iterative fit; of some closed forms their one value
    deviation : of a matrix-free fit that estimates c = diag C: the largest standard error of an item's c, relative
    changes : how often users or items were added or forgotten since the fit; the numbers above are then of the last one
    residual_at_fit, error_at_fit : what the fit had, where there were changes since
    note : what was done in another way than the plain one, such as a refit in place of a change, and why
    unit : where users have weights, their factor: w_u = unit·n_u^(−user_power). It is that of the log of the fit, and
        stays as users come and go
    """

    solver: str
    dtype: str
    threads: int
    seconds: dict[str, float]
    peak_bytes: int | None
    planned_bytes: int | None
    residual: float | None
    error: float | None = None
    rank: int | None = None
    objectives: tuple[float, ...] = ()
    deviation: float | None = None
    changes: int = 0
    residual_at_fit: float | None = None
    error_at_fit: float | None = None
    note: str = ""
    unit: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "objectives", tuple(self.objectives))  # a list in a file

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items() if value >= 0.005)
        total = sum(self.seconds.values())
        lines = [f"solver {self.solver}, {self.dtype}, {self.threads} threads, {total:.2f} s ({stages})"]
        if self.peak_bytes is not None:
            planned = "" if self.planned_bytes is None else f" (planned {memory_.show(self.planned_bytes)})"
            lines.append(f"peak {memory_.show(self.peak_bytes)}{planned}")
        if self.residual is not None:
            error = "" if self.error is None else f", error of the weights at most about {self.error:.0e}"
            lines.append(f"residual {self.residual:.1e}{error}")
        if self.deviation:
            lines.append(f"diagonal estimated, standard error at most {self.deviation:.1%}; refined for each list")
        if self.rank is not None:
            lines.append(f"rank {self.rank}")
        if self.objectives:
            epochs = len(self.objectives)
            lines.append(f"objective {self.objectives[-1]:.6g}" + (f" after {epochs} epochs" if epochs > 1 else ""))
        if self.changes:
            lines.append(f"{self.changes:,} changes since the fit, whose residual was {self.residual_at_fit or 0:.1e}")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)
