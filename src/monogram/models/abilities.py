"""Declarations on a model class: whether its fit runs in epochs, and which computation it shares with other models.

Other packages read these declarations from the class instead of keeping lists of models. So a model that another
package registers is treated like the models of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from monogram.data.interactions import Interactions

Reading = Literal["fit", "heads", "two_steps"]


@dataclass(frozen=True)
class EpochTraining:
    """A fit that runs in epochs, at most as many as the model's parameter `epochs`.

    The fit calls `FitInputs.between` after each epoch, so that it can be stopped early.

    Parameters
    ----------
    solvers : values of the parameter `solver` with which the fit runs in epochs; empty: with every value
    """

    solvers: tuple[str, ...] = ()

    def runs_with(self, solver: Any) -> bool:
        """Whether a fit with this value of the parameter `solver` runs in epochs."""
        return not self.solvers or solver in self.solvers


@dataclass(frozen=True)
class SharedFit:
    """The computation that a fit shares with the fits of other models on the same log.

    Models share it where `computation` and `key` are equal.

    Parameters
    ----------
    computation : "inverse" (a factorisation of S + Λ), "spectrum" (singular pairs of the log) or "sequence" (fits that
        start from the weights of the fit before)
    key : (recipe, penalties) of an inverse; the target of a spectrum; the equal parameters of a sequence
    reading : how the weights of a model follow from the shared computation
        "fit": `fit` accepts the `Inverse` or the `Spectrum` in place of the log. "heads": the weights are B with
        rescaled columns (the `head` of the formula), so that one pass of scores ranks for many models. "two_steps": as
        `TwoStep`, from the scores of one step and of two steps.
    source : of a sequence, a function of the log; `fit` of all models of the sequence accepts what it returns
    order : of a sequence, the models of lower order are fitted first
    """

    computation: Literal["inverse", "spectrum", "sequence"]
    key: Any
    reading: Reading = "fit"
    source: Callable[[Interactions], Any] | None = None
    order: float = 0.0
