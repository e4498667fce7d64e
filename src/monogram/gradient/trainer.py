"""The loop that trains every model: epochs, early stopping, a time budget, checkpoints, and a record by epoch."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from monogram.engine.runtime.arrays import Csr, Float
from monogram.errors import NumericalError
from monogram.gradient.checkpoint import Checkpoint
from monogram.models.context import Between
from monogram.models.report import ReportBuilder
from monogram.weights import Weights

_process = threading.RLock()  # torch's generator and its number of threads belong to the process


@dataclass(frozen=True)
class Context:
    """Where and how a model is trained.

    Parameters
    ----------
    device : "cpu", "cuda" or "mps"
    dtype : "float32" or "float64"
    threads : number of threads
    learning_rate : of the optimiser
    """

    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1
    learning_rate: float = 1e-3

    def random(self, *shape: int, scale: float) -> torch.Tensor:
        """A parameter with normal values; drawn on the CPU, so that they do not depend on the device."""
        return self.parameter(torch.randn(*shape, dtype=torch.float32) * scale)

    def parameter(self, values: Any) -> torch.Tensor:
        """A parameter with these values."""
        return self.tensor(values).detach().clone().requires_grad_(True)

    def tensor(self, values: Any) -> torch.Tensor:
        """Values as a tensor on the device: floats in the working precision, whole numbers as they are."""
        given = torch.as_tensor(values)
        given = given.to(getattr(torch, self.dtype)) if given.is_floating_point() else given
        return given.to(self.device)  # converted before: not every device has float64


class Training(ABC):
    """What the trainer runs: an epoch at a time, and the weights that the parameters amount to.

    Attributes
    ----------
    parameters : the tensors that are trained, by name
    finished : whether there is nothing left to train; an epoch may set it
    cut : whether the last epoch was ended before its last batch, for lack of time
    """

    parameters: dict[str, torch.Tensor]
    finished: bool = False
    cut: bool = False

    @abstractmethod
    def epoch(self, out_of_time: Callable[[], bool]) -> float:
        """Train for one epoch and return its mean loss; end early where `out_of_time` is true after a batch."""

    @abstractmethod
    def weights(self, training: Csr) -> Weights:
        """The weights of the current parameters; row u of `training` is the history of user u at serving time."""

    def prepare(self) -> None:
        """Make `state` have all its tensors, with initial values; called before `restore`."""
        return

    def state(self) -> dict[str, torch.Tensor]:
        """Tensors beside the parameters that a resumed training needs, such as moments of the optimiser."""
        return {}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Set the tensors of `state`."""
        return

    def array(self, name: str) -> Float:
        """A parameter as an array."""
        return np.array(self.parameters[name].detach().cpu().numpy())


class BatchTraining(Training):
    """A training by batches with Adam: a subclass defines `parameters`, `batches`, `loss` and `weights`.

    Attributes
    ----------
    learning_rate : of the optimiser
    """

    learning_rate: float = 1e-3
    _optimiser: torch.optim.Optimizer | None = None

    @abstractmethod
    def batches(self) -> Iterator[Any]:
        """The batches of one epoch."""

    @abstractmethod
    def loss(self, batch: Any) -> torch.Tensor:
        """The mean loss of a batch."""

    def optimiser(self) -> torch.optim.Optimizer:
        """The optimiser of the parameters: Adam. (Its sparse form was slower for every size of log and batch tried.)"""
        return torch.optim.Adam(list(self.parameters.values()), lr=self.learning_rate, fused=True)

    def epoch(self, out_of_time: Callable[[], bool]) -> float:
        """Train on every batch once."""
        optimiser = self._optimiser = self._optimiser or self.optimiser()
        total, number = torch.zeros((), dtype=torch.float64), 0
        for batch in self.batches():
            if number and out_of_time():
                self.cut = True
                break
            loss = self.loss(batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            total, number = total + loss.detach().cpu().double(), number + 1
        return float(total) / max(1, number)

    def state(self) -> dict[str, torch.Tensor]:
        """The state of the optimiser, by the number of the parameter and its own names."""
        if self._optimiser is None:
            return {}
        return {
            f"{number}.{name}": torch.as_tensor(value)
            for number, values in self._optimiser.state_dict()["state"].items()
            for name, value in values.items()
        }

    def prepare(self) -> None:
        """Make the optimiser, and its state by a step with gradients of 0."""
        self._optimiser = self.optimiser()
        before = {name: tensor.detach().clone() for name, tensor in self.parameters.items()}
        for tensor in self.parameters.values():
            tensor.grad = torch.zeros_like(tensor)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        _assign(self.parameters, before)

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Set the state of the optimiser, whose tensors keep their types: `load_state_dict` would convert some."""
        assert self._optimiser is not None, "prepare comes first"
        tensors = [tensor for group in self._optimiser.param_groups for tensor in group["params"]]
        for number, tensor in enumerate(tensors):
            stored = {name: state.get(f"{number}.{name}") for name in self._optimiser.state[tensor]}
            for name, value in stored.items():
                if value is None:  # the parameter never had a gradient
                    del self._optimiser.state[tensor]
                    break
                self._optimiser.state[tensor][name].copy_(value)


@dataclass(frozen=True)
class Schedule:
    """How long a training runs.

    Parameters
    ----------
    epochs : most epochs
    seconds : time after which it stops, validation included
    patience : epochs without a better metric after which it stops; the parameters of the best epoch are kept
    """

    epochs: int
    seconds: float = math.inf
    patience: int = 0


@dataclass
class Progress:
    """How far a training is, as a checkpoint stores it."""

    elapsed: float = 0.0
    losses: list[float] = field(default_factory=list)
    metrics: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ended: bool = False

    @classmethod
    def of(cls, header: Any) -> Progress | None:
        """The progress in the header of a checkpoint; None where it is not one."""
        if not isinstance(header, dict) or header.keys() != vars(cls()).keys():
            return None
        progress = cls(**header)
        series = progress.losses, progress.metrics, progress.seconds
        if not all(isinstance(values, list) and all(map(_is_number, values)) for values in series):
            return None
        done = len(progress.losses)
        whole = done > 0 and len(progress.seconds) == done and len(progress.metrics) in (0, done)
        return progress if whole and _is_number(progress.elapsed) and progress.ended is False else None

    @property
    def best(self) -> int:
        """The epoch with the best metric, the first of equal ones, from 1; 0 where none was measured."""
        return 1 + max(range(len(self.metrics)), key=self.metrics.__getitem__) if self.metrics else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Trainer:
    """Trains a model.

    Parameters
    ----------
    training : what is trained
    schedule : how long
    report : receives the record of every epoch; its progress callback may have a method `measured(metric, value)`,
        and a method `checkpoint(path)`, which is called with the file of the checkpoint before the first epoch (and
        `validated(how)`, which is called with how the validation part was cut)
    measure : the validation metric of weights, larger is better; None: no early stopping
    training_rows : histories of the users in the training data, for the weights of which the metric is measured
    between : called between epochs, as `FitInputs.between`; its weights are those of `serving_rows`
    serving_rows : histories of the users at serving time
    checkpoint : where the state is stored; None: nowhere
    """

    def __init__(
        self,
        training: Training,
        schedule: Schedule,
        report: ReportBuilder,
        *,
        measure: Callable[[Weights], float] | None = None,
        training_rows: Csr | None = None,
        between: Between | None = None,
        serving_rows: Csr | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.training, self.schedule, self.report = training, schedule, report
        self.measure, self.training_rows = measure, training_rows
        self.between, self.serving_rows = between, serving_rows
        self.checkpoint = checkpoint
        self.progress = Progress()
        self._best: dict[str, torch.Tensor] = {}
        self._start = 0.0

    def run(self) -> None:
        """Train to the end of the schedule; the parameters are then those of the best epoch, or of the last."""
        if self.checkpoint is not None and hasattr(self.report.progress, "checkpoint"):
            self.report.progress.checkpoint(self.checkpoint.path)
        self._resume()
        progress = self.progress
        self._start = time.perf_counter() - progress.elapsed
        while not progress.ended:
            self._epoch(lambda: self._elapsed() >= self.schedule.seconds)
            progress.elapsed = self._elapsed()
            progress.ended = self._ended()
            if self.checkpoint is not None and not progress.ended:
                self.checkpoint.save_now_and_then(self._stored)
            if self.between is not None and not progress.ended:
                called = time.perf_counter()
                self.between(len(progress.losses), self._serving_weights)
                self._start += time.perf_counter() - called  # not time of the training
        self._conclude()

    def _elapsed(self) -> float:
        return time.perf_counter() - self._start

    def _serving_weights(self) -> Weights:
        return self.training.weights(self.serving_rows)

    def _epoch(self, out_of_time: Callable[[], bool]) -> None:
        """Train for one epoch, record it, and measure."""
        progress, start = self.progress, time.perf_counter()
        loss = self.training.epoch(out_of_time)
        number = len(progress.losses) + 1
        finite = all(bool(torch.isfinite(tensor).all()) for tensor in self.training.parameters.values())
        if not math.isfinite(loss) or not finite:
            raise NumericalError(
                f"the loss is {loss:g} in epoch {number}, or a parameter is not finite: lower learning_rate, raise l2 "
                "or temperature where the model has them, or use dtype='float64'"
            )
        progress.losses.append(loss)
        progress.seconds.append(time.perf_counter() - start)
        self.report.tick("epochs", 1)
        if self.measure is not None and self.training_rows is not None:
            progress.metrics.append(self.measure(self.training.weights(self.training_rows)))
            if progress.best == number:
                self._best = {name: tensor.detach().clone() for name, tensor in self.training.parameters.items()}
            if hasattr(self.report.progress, "measured"):
                self.report.progress.measured(self.report.metric, progress.metrics[-1])
            self.report.tick("validation")

    def _ended(self) -> bool:
        """Whether the training is at an end: its epochs, its time, or its patience."""
        done, schedule = len(self.progress.losses), self.schedule
        stale = bool(self.progress.metrics) and done - self.progress.best >= schedule.patience
        if self.training.finished:
            return True
        return done >= schedule.epochs or stale or self.progress.elapsed >= schedule.seconds

    def _conclude(self) -> None:
        """Keep the best parameters and fill the report."""
        progress, report, done = self.progress, self.report, len(self.progress.losses)
        if self._best:
            _assign(self.training.parameters, self._best)
        report.objectives, report.metrics = progress.losses, progress.metrics
        report.epoch_seconds = progress.seconds
        report.stopped = self.training.cut or (
            progress.elapsed >= self.schedule.seconds and done < self.schedule.epochs
        )
        if report.stopped:
            report.note = f"stopped by the budget of {self.schedule.seconds:g} seconds after {done} epochs"
        elif progress.metrics:
            report.note = f"trained for {done} epochs; the weights are those after epoch {progress.best}"
        if self.checkpoint is not None:
            self.checkpoint.delete()

    def _stored(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """The state of the training: numbers for the header, and tensors."""
        parts = {"parameter": self.training.parameters, "best": self._best, "state": self.training.state()}
        tensors = {f"{part}/{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
        return vars(self.progress), tensors | {f"random/{name}": state for name, state in _random_state().items()}

    def _resume(self) -> None:
        """Continue from the checkpoint, where there is one."""
        stored = None if self.checkpoint is None else self.checkpoint.load()
        if self.checkpoint is None or stored is None:
            return
        header, tensors = stored
        self.progress = self._checked(header, tensors, self.checkpoint)

        def part(prefix: str) -> dict[str, torch.Tensor]:
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

        try:
            _set_random_state(part("random/"))
        except RuntimeError as error:
            raise self.checkpoint.error("the state of the random generator is not valid") from error
        self.training.restore(part("state/"))
        _assign(self.training.parameters, part("parameter/"))
        self._best = part("best/")

    def _checked(self, header: Any, tensors: dict[str, torch.Tensor], checkpoint: Checkpoint) -> Progress:
        """The progress of a checkpoint whose numbers and tensors fit the fresh training; else ModelFileError."""
        progress = Progress.of(header)
        if progress is None or bool(progress.metrics) != (self.measure is not None):
            raise checkpoint.error("the record of its epochs is not valid")
        self.training.prepare()
        if progress.metrics:
            self._best = self.training.parameters
        _, fresh = self._stored()
        stored = {_moments_of(name) for name in tensors} | {None}  # not of a parameter that never had a gradient
        checkpoint.check_tensors(
            tensors, {name: tensor for name, tensor in fresh.items() if _moments_of(name) in stored}
        )
        return progress


def _assign(parameters: dict[str, torch.Tensor], values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in parameters.items():
            tensor.copy_(values[name])


def _moments_of(name: str) -> str | None:
    """The number of the parameter, where a stored tensor is of its state in the optimiser."""
    number, _, moment = name.removeprefix("state/").partition(".")
    return number if name.startswith("state/") and moment else None


def _random_state() -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def _set_random_state(states: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


@contextmanager
def seeded(seed: int, threads: int) -> Iterator[None]:
    """Inside, torch draws from a generator with this seed and uses so many threads; afterwards both are as before.

    Both belong to the process: a second training in another thread waits for the first.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with _process, torch.random.fork_rng(devices):
        before = torch.get_num_threads()
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
