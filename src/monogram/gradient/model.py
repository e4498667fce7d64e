"""`GradientModel`, the base class of the gradient-trained models. It imports no torch."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from monogram.data.interactions import Interactions
from monogram.errors import ParameterError
from monogram.evaluation import metrics
from monogram.gradient import extra
from monogram.models.abilities import EpochTraining
from monogram.models.base import Recommender
from monogram.models.context import FitInputs, FitOptions
from monogram.models.parameters import param
from monogram.models.report import ReportBuilder
from monogram.models.search_axes import Search
from monogram.planning.gradient_costs import VALIDATION, TrainingSize, gradient
from monogram.planning.plan import Plan
from monogram.planning.size import Size
from monogram.weights import Weights

if TYPE_CHECKING:
    from monogram.gradient.trainer import Context, Training

LESS_IS_BETTER = ("gini",)  # metrics that early stopping cannot maximise


@dataclass(kw_only=True, eq=False)
class GradientModel(Recommender):
    """A model that is trained by gradients, batch by batch, with torch.

    A subclass has a method `_training(log, context)` that returns a `Training`, and `training_cost(size)`.

    With patience > 0 a share of each user's events is held out, the latest where the log has an order, else random
    ones (`report_.validation`), and their metric is measured after each epoch. The weights are those of the best epoch.
    With patience = 0 the model is trained on all events for all epochs.

    With `fit(…, scratch=folder)` the training is stored there after an epoch, at most every half minute; after a crash
    the same fit resumes from the file, with the same result. The autoencoders train on the weights of the events;
    the models with ranking losses do not use them.
    """

    needs_torch: ClassVar[bool] = True
    additive_shares: ClassVar[bool] = False
    brief: ClassVar[bool] = True
    optimiser: ClassVar[str] = "adam"
    epoch_training: ClassVar[EpochTraining | None] = EpochTraining()
    epochs: int = param(50, "number of epochs, at most", low=1, high=1_000_000)
    batch: int = param(2048, "events, or users, in a batch", low=1, high=10_000_000)
    learning_rate: float = param(
        0.005, "learning rate of the optimiser", low=1e-12, high=1e30, search=Search((5e-4, 5e-3, 5e-2))
    )
    patience: int = param(
        0, "epochs without a better validation metric before the training stops; 0: no validation", low=0
    )
    validation: float = param(
        0.1, "share of each user's events, the latest where known, held out for validation", low=0.001, high=0.9
    )
    metric: str = param("ndcg@20", "validation metric, with patience")
    seconds: float | None = param(None, "time after which the training stops; None: no limit", low=0.001, high=1e9)
    seed: int = param(0, "seed of the start, of the batches and of all samples", low=0, high=2**63 - 1)
    device: str = param(
        "auto", "where the training runs; auto: cuda if available, else cpu; mps is untested", choices=extra.DEVICES
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if metrics.parse(self.metric).name in LESS_IS_BETTER:
            raise ParameterError(
                f"metric = {self.metric!r} is better where it is less; expected one that is better where it is larger"
            )

    def _training(self, log: Interactions, context: Context) -> Training:
        """What the trainer runs, for a log."""
        raise TypeError(f"{type(self).__name__} must define _training(log, context), which returns a Training")

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        raise TypeError(f"{type(self).__name__} must define training_cost(size)")

    def plan_size(self, size: Size, options: FitOptions) -> Plan:
        """The plan of a fit on a log of this size."""
        needs = self.training_cost(size)
        if self.patience:
            needs = dataclasses.replace(needs, fixed=needs.fixed + VALIDATION * size.events)
        cost = gradient(self.optimiser, size, needs, dtype=options.dtype, threads=options.threads)
        return Plan.of(size, cost, dtype=options.dtype, budget=options.budget)

    def _device(self, dtype: str) -> str:
        """Where the training runs."""
        return extra.choose_device(self.device, dtype)

    def _warm(self, options: FitOptions) -> None:
        """Import torch, so that the measured time and memory of the fit do not include it."""
        extra.warm_up()
        self._device(options.dtype)

    def _fit(self, inputs: FitInputs, options: FitOptions, report: ReportBuilder) -> Weights:
        from monogram.gradient.trainer import Context, Trainer, seeded

        chosen = self._chosen(inputs, options, report)
        report.solver, report.planned_bytes = chosen.solver, chosen.bytes
        report.device = self._device(options.dtype)
        context = Context(report.device, options.dtype, options.threads, self.learning_rate)
        log, validated = self._parts(inputs.log, options, report)
        with seeded(self.seed, options.threads):
            training = self._training(log, context)
            report.tick("start")
            trainer = Trainer(
                training,
                self._schedule(),
                report,
                between=inputs.between,
                serving_rows=inputs.log.matrix,
                checkpoint=self._checkpoint(inputs.log, options),
                **validated,
            )
            trainer.run()
            return training.weights(inputs.log.matrix)

    def _parts(
        self, log: Interactions, options: FitOptions, report: ReportBuilder
    ) -> tuple[Interactions, dict[str, Any]]:
        """The log to train on, and how the trainer measures."""
        from monogram.gradient import validation

        if not self.patience:
            return log, {}
        part = validation.cut(log, self.validation, self.seed)
        self.require_ages(part.split.histories)
        split, report.metric, report.validation = part.split, self.metric, part.how
        if hasattr(report.progress, "validated"):
            report.progress.validated(part.how)
        measure = validation.measure(split, self.metric, options.threads, self.recency_rule())
        return split.train, {"measure": measure, "training_rows": split.train.matrix}

    def _schedule(self) -> Any:
        from monogram.gradient.trainer import Schedule

        return Schedule(self.epochs, math.inf if self.seconds is None else self.seconds, self.patience)

    def _checkpoint(self, log: Interactions, options: FitOptions) -> Any:
        from monogram.gradient.checkpoint import Checkpoint, key_of

        if options.scratch is None:
            return None
        machine: dict[str, Any] = {"dtype": options.dtype, "threads": options.threads}
        machine["device"] = self._device(options.dtype)
        return Checkpoint(options.scratch, self.name, key_of(self.name, self.params(), log, **machine))
