"""What a model class says about its fit: whether it runs in epochs, and what it shares with other models.

Other packages read these values from the class. So no package keeps a list of models, and a registered model from
outside is treated as the models of this package are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Reading = Literal["fit", "heads", "two_steps"]


@dataclass(frozen=True)
class EpochTraining:
    """A fit that runs in at most `epochs` epochs, a parameter of the model.

    Parameters
    ----------
    solvers : values of the parameter `solver` whose fit runs in epochs; empty: every fit does
    observable : whether the fit calls the observer of an `ObservedLog` between epochs, so that it can be stopped early
    """

    solvers: tuple[str, ...] = ()
    observable: bool = True

    def runs_with(self, solver: Any) -> bool:
        """Whether a fit with this value of the parameter `solver` runs in epochs."""
        return not self.solvers or solver in self.solvers


@dataclass(frozen=True)
class SharedFit:
    """The computation that a fit shares with the fits of other models on the same log.

    Models share it where `computation` and `key` are equal.

    Parameters
    ----------
    computation : "inverse" (a factorisation of S + Λ) or "spectrum" (singular pairs of the log)
    key : (recipe, penalties) of an inverse; the target of a spectrum
    reading : how a model is obtained from the shared computation
        "fit": `fit` takes the `Inverse` or the `Spectrum` in place of the log. "heads": its weights are those of the
        inverse with rescaled columns (the `head` of its formula), so that many models rank from one pass of scores.
        "two_steps": as `TwoStep`, from the scores of one and of two steps.
    """

    computation: Literal["inverse", "spectrum"]
    key: Any
    reading: Reading = "fit"
