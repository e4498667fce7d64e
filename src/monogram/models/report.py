"""Reports: `Report` of a fit, `ReportBuilder` that collects it during the fit, and `Pruning`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from monogram.engine.runtime import memory
from monogram.engine.runtime.progress import Stage, silent

if TYPE_CHECKING:
    from monogram.planning.plan import Plan

FROZEN = "penalties frozen"  # note of an update that does not change the penalties
EXPANDED = "dual, expanded"  # solver of weights W that were computed from a dual inverse
LENGTH = 20  # length of the lists that are compared after pruning


@dataclass(frozen=True, kw_only=True)
class Report:
    """Solver, time, memory and accuracy of a fit.

    Attributes
    ----------
    solver : "primal", "dual", "dual, expanded", "disk", "local", "matrix_free" or "none"; for a spectrum the side and
        the method, or "reused"; on a cluster "cluster (one worker)", "cluster (tiles)", or "cluster" and the method
    dtype : working precision
    threads : number of threads
    seconds : by stage (compile: kernels, the first time on a machine)
    peak_bytes : largest memory of the process during the fit, less its memory before (None: not measurable)
    planned_bytes : memory of the plan
    residual : largest off-diagonal entry of (S + Λ)B − S on probe columns, relative to max|S|; for a spectrum the
        largest ‖Av − σ²v‖/σ²; for SLIM the largest violation of the conditions of its minimum, relative to max|S|
    error : error of the weights on those columns, relative to the largest weight: a bound, or where the bound is large
        an estimate (None: not known). For TwoStep with the dual solver at least the error of the scores of a few users
    rank : of the weights, where it is not full
    objectives : value of the objective after each epoch of an iterative fit; for some closed forms a single value
    deviation : of a matrix-free fit that estimates c = diag C: the largest relative standard error of an item's c
    device : of a gradient-trained fit: "cpu", "cuda" or "mps"
    metric, metrics : of a fit with early stopping: the name of the validation metric, and its value after each epoch
    validation : of a fit with early stopping: the events on which the metric was measured, as a phrase
    epoch_seconds : seconds of each epoch of a gradient-trained fit, without those of the validation
    stopped : of a gradient-trained fit: whether its limit of time ended it
    neighbours : of a local fit: largest number of candidates of an item
    gap, largest_gap : of a local fit: the share by which the objective of an item would still fall with twice the
        candidates, mean and largest of eight items
    changes : number of updates (users or items added, users forgotten) since the fit; the numbers above are then those
        of the last update
    residual_at_fit, error_at_fit : residual and error of the fit, where there were updates since
    note : difference from a plain fit, such as a refit in place of an update, with its reason
    unit : factor of the user weights w_u = unit·n_u^(−user_power), computed from the log of the fit and not changed by
        updates; None where all user weights are 1
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
    neighbours: int | None = None
    gap: float | None = None
    largest_gap: float | None = None
    device: str = ""
    metric: str = ""
    metrics: tuple[float, ...] = ()
    validation: str = ""
    epoch_seconds: tuple[float, ...] = ()
    stopped: bool = False

    def __post_init__(self) -> None:
        for name in ("objectives", "metrics", "epoch_seconds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a model file has lists

    def epochs(self) -> list[dict[str, float]]:
        """The record of an iterative fit: one dictionary for each epoch, of what was measured."""
        columns = {"objective": self.objectives, "seconds": self.epoch_seconds, self.metric: self.metrics}
        return [
            {"epoch": epoch} | {name: values[epoch - 1] for name, values in columns.items() if len(values) >= epoch}
            for epoch in range(1, len(self.objectives) + 1)
        ]

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
        if self.gap is not None:
            lines.append(
                f"{self.neighbours:,} candidates an item; with twice as many the objective would fall by "
                f"{self.gap:.2%} (mean of a few items; at most {self.largest_gap or 0:.2%})"
            )
        if self.rank is not None:
            lines.append(f"rank {self.rank}")
        if self.objectives:
            epochs = len(self.objectives)
            lines.append(f"objective {self.objectives[-1]:.6g}" + (f" after {epochs} epochs" if epochs > 1 else ""))
        if self.device:
            mean = sum(self.epoch_seconds) / max(1, len(self.epoch_seconds))
            lines.append(f"device {self.device}, {mean:.3g} s an epoch")
        if self.metrics:
            best = max(range(len(self.metrics)), key=self.metrics.__getitem__)
            held_out = f", on {self.validation}" if self.validation else ""
            lines.append(f"best {self.metric} {self.metrics[best]:.4f}, after epoch {best + 1}{held_out}")
        if self.changes:
            updates = "update" if self.changes == 1 else "updates"
            lines.append(f"{self.changes:,} {updates} since the fit; its residual was {self.residual_at_fit or 0:.1e}")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)


@dataclass(kw_only=True)
class ReportBuilder:
    """The report of a fit that is running; the fields have the meaning that they have in `Report`.

    `plan` is the plan of the fit; None until the plan is made.
    """

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
    neighbours: int | None = None
    gap: float | None = None
    largest_gap: float | None = None
    device: str = ""
    metric: str = ""
    metrics: list[float] = field(default_factory=list)
    validation: str = ""
    epoch_seconds: list[float] = field(default_factory=list)
    stopped: bool = False
    plan: Plan | None = None

    def __post_init__(self) -> None:
        self._last = time.perf_counter()

    def tick(self, stage: str, amount: float = 0.0) -> None:
        """Add the time since the last tick to a stage, and report the amount of work done in it."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
        self.progress(stage, amount)

    def reused(self, source: Report | None) -> None:
        """Record that a factorisation was reused, with the accuracy in its report."""
        self.solver = "reused"
        if source is not None:
            self.residual, self.error, self.deviation = source.residual, source.error, source.deviation
            self.neighbours, self.gap, self.largest_gap = source.neighbours, source.gap, source.largest_gap

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
            neighbours=self.neighbours,
            gap=self.gap,
            largest_gap=self.largest_gap,
            device=self.device,
            metric=self.metric,
            metrics=tuple(self.metrics),
            validation=self.validation,
            epoch_seconds=tuple(self.epoch_seconds),
            stopped=self.stopped,
        )


@dataclass(frozen=True)
class Pruning:
    """Size and effect of a pruning.

    Attributes
    ----------
    keep : weights kept for each item
    density : share of the entries of W that are not zero
    overlap : share of a user's first 20 items that are also among the first 20 after pruning, mean over sampled users
    users : number of sampled users
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
