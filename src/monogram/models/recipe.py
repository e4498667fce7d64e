"""The recipe of S and the penalties: two frozen values. Models whose values are equal share one factorisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from monogram.data.interactions import Interactions
from monogram.data.spans import EVENT, Span, parse_span
from monogram.engine.gram import user_weights
from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.errors import ParameterError


def _check(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high:
        raise ParameterError(f"{name} = {value!r}; expected a number of at least {low:g} and at most {high:g}")


@dataclass(frozen=True)
class GramRecipe:
    """The definition of the Gram matrix of a log X: S_ij = Σ_u w_u·k(Δ_uij)·x_ui·x_uj.

    Without decay k = 1 and S = Xᵀ·diag(w)·X. With decay k(Δ) = floor + (1 − floor)·(1 + Δ)^(−decay), so that items that
    a user used close together count more; Δ is the distance of the two events, in units of `decay_unit`.

    Parameters
    ----------
    user_power : user u has the weight w_u = unit·n_u^(−user_power), n_u the sum of the user's row; 0: all weights are 1
    decay : power with which a pair of events counts less the further apart they are; 0: all pairs count the same
    decay_unit : unit of the distance: a number of events ("1 event"), a duration ("7d"), or a number in the unit of the
        log's times
    floor : what a pair counts at a great distance, from 0 up to, but not including, 1
    """

    user_power: float = 0.0
    decay: float = 0.0
    decay_unit: Span = EVENT
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check("user_power", self.user_power, 0, 2)
        _check("decay", self.decay, 0, 100)
        _check("floor", self.floor, 0, 1)
        if self.floor == 1:
            raise ParameterError(
                "floor = 1; expected a number below 1: with 1 all pairs count the same, as with decay = 0"
            )
        object.__setattr__(self, "decay_unit", parse_span(self.decay_unit, "decay_unit"))
        if self.decay == 0:  # equal recipes share one factorisation
            object.__setattr__(self, "decay_unit", EVENT)
            object.__setattr__(self, "floor", 0.0)

    @property
    def weighted(self) -> bool:
        """Whether user weights differ from 1."""
        return self.user_power != 0

    @property
    def timed(self) -> bool:
        """Whether S depends on the order or the times of the events."""
        return self.decay != 0

    def kernel(self, log: Interactions) -> TimeKernel | None:
        """The time kernel on the events of a log; None without decay. DataError where the log has no such order."""
        if not self.timed:
            return None
        return TimeKernel(log.on_time_axis(self.decay_unit, f"decay = {self.decay:g}"), self.decay, self.floor)

    def small_kernel(self, events: int) -> TimeKernel | None:
        """A time kernel of the same kind on simultaneous events, with which a fit is compiled; None without decay."""
        dtype = np.int32 if self.decay_unit == EVENT else np.float64
        return TimeKernel(np.zeros(events, dtype), self.decay, self.floor) if self.timed else None

    def unit(self, matrix: Csr) -> float | None:
        """The factor with which the mean weight of an event of this log is 1; None where all user weights are 1."""
        return user_weights.unit(matrix, self.user_power) if self.weighted else None

    def weights(self, matrix: Csr, unit: float | None) -> Float64 | None:
        """The user weights with a factor `unit`; None where all are 1."""
        return user_weights.user_weights(matrix, self.user_power, unit) if self.weighted and unit is not None else None

    def data(self, matrix: Csr, unit: float | None) -> Csr:
        """The data X̃ = diag(√w)·X; X itself where all user weights are 1. Without decay X̃ᵀX̃ = S."""
        return scale_rows(matrix, self.weights(matrix, unit))

    def copied_bytes(self, events: int) -> int:
        """Bytes of the weighted data, and of the positions by user, by item and by hub, in addition to the log."""
        return events * (16 * self.weighted + 24 * self.timed)


@dataclass(frozen=True)
class Penalties:
    """The penalties ℓ = l2 + dropout/(1 − dropout)·d on the squared weights of each item, d = diag S."""

    l2: float
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check("l2", self.l2, 0, math.inf)
        _check("dropout", self.dropout, 0, 1)
        if self.dropout == 1 or math.isinf(self.l2):
            raise ParameterError(
                f"l2 = {self.l2!r}, dropout = {self.dropout!r}; expected l2 finite and dropout below 1"
            )

    @property
    def none(self) -> bool:
        """Whether all penalties are 0, so that S itself is inverted."""
        return self.l2 == 0 and self.dropout == 0

    def of(self, d: Float64) -> Float64:
        """The penalty ℓ of each item."""
        penalties = self.l2 + self.dropout / (1 - self.dropout) * d
        # The row of an item without events is zero in S: with any penalty its weights are 0, with 0 S + Λ is singular.
        return np.where((d == 0) & (penalties == 0), 1.0, penalties)
