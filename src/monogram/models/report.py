"""How a fit went, the object that collects that during the fit, and what pruning left out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from monogram.engine.runtime import memory
from monogram.engine.runtime.progress import Stage, silent

FROZEN = "penalties frozen"  # the note of an update that leaves the penalties as they are
LENGTH = 20  # of the lists on which pruning is measured


@dataclass(frozen=True, kw_only=True)
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
        (None: not known). For TwoStep by the dual at least that of the lists of a few users
    rank : of the weights, where it is not full
    objectives : after each epoch of an iterative fit; of some closed forms their one value
    deviation : of a matrix-free fit that estimates c = diag C: the largest standard error of an item's c, relative
    changes : number of updates (users or items added, users forgotten) since the fit; the numbers above are then those
        of the last update
    residual_at_fit, error_at_fit : residual and error of the fit, where there were updates since
    note : what was done differently from a plain fit, such as a refit in place of an update, and why
    unit : where users have weights, their factor: w_u = unit·n_u^(−user_power). It is computed from the log of the fit
        and does not change with updates
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
            planned = "" if self.planned_bytes is None else f" (planned {memory.show(self.planned_bytes)})"
            lines.append(f"peak {memory.show(self.peak_bytes)}{planned}")
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


@dataclass(kw_only=True)
class ReportBuilder:
    """A report that is being collected while a fit runs; the fields have the meaning they have in `Report`."""

    dtype: str = "float32"
    threads: int = 1
    progress: Stage = silent
    solver: str = "none"
    planned_bytes: int | None = None
    residual: float | None = None
    error: float | None = None
    deviation: float | None = None
    rank: int | None = None
    objectives: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    note: str = ""
    unit: float | None = None

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def tick(self, stage: str, amount: float = 0.0) -> None:
        """Add the time since the last tick to a stage, and report the amount of work done in it."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
        self.progress(stage, amount)

    def reused(self, source: Report | None) -> None:
        """Note that the factorisation of an earlier fit was reused, with its measured accuracy."""
        self.solver = "reused"
        if source is not None:
            self.residual, self.error, self.deviation = source.residual, source.error, source.deviation

    def build(self, peak_bytes: int | None) -> Report:
        """The finished report."""
        return Report(
            solver=self.solver,
            dtype=self.dtype,
            threads=self.threads,
            seconds=self.seconds,
            peak_bytes=peak_bytes,
            planned_bytes=self.planned_bytes,
            residual=self.residual,
            error=self.error,
            rank=self.rank,
            objectives=tuple(self.objectives),
            deviation=self.deviation,
            note=self.note,
            unit=self.unit,
        )


@dataclass(frozen=True)
class Pruning:
    """What was left out of a model's weights.

    Attributes
    ----------
    keep : weights kept for each item
    density : share of the entries of W that are left
    overlap : share of a user's first 20 items that is still among them, mean over the users that were asked
    users : how many were asked
    bytes_before, bytes_after : size of the weights
    """

    keep: int
    density: float
    overlap: float
    users: int
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        return (
            f"{self.keep:,} weights an item, {self.density:.2%} of all; {memory.show(self.bytes_before)} became "
            f"{memory.show(self.bytes_after)}; overlap@{LENGTH} {self.overlap:.3f} on {self.users:,} users"
        )
