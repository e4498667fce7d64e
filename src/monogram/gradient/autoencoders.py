"""Autoencoders with hidden layers: `MultDAE`, `MultVAE` and `CDAE`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from monogram.data.interactions import Interactions
from monogram.errors import ModelFileError
from monogram.gradient.model import GradientModel
from monogram.gradient.ranking import PENALTY
from monogram.models.parameters import param
from monogram.models.report import Pruning, Report
from monogram.models.search_axes import DROPOUT, RANK, Search
from monogram.planning.gradient_costs import TrainingSize
from monogram.planning.size import Size
from monogram.weights import Autoencoder, Weights

if TYPE_CHECKING:
    from monogram.gradient.trainer import Context, Training

DECAY = Search((2e-6, 2e-5, 2e-4, 2e-3))
RATE = Search((3e-4, 1e-3, 3e-3))


@dataclass(kw_only=True, eq=False)
class NetworkModel(GradientModel):
    """Base class of the autoencoders with hidden layers.

    The entries of X are the weights of the events. A history of any user is scored by the network; `explain` gives
    differences, how much the score falls without one item.
    """

    batch: int = param(500, "users in a batch", low=1, high=10_000_000)
    learning_rate: float = param(0.001, "learning rate of the optimiser", low=1e-12, high=1e30, search=RATE)
    dropout: float = param(
        0.5, "probability with which an entry is hidden in training", low=0, high=1, below=True, search=DROPOUT
    )

    def widths(self) -> tuple[int, ...]:
        """The width of each layer before the items."""
        raise TypeError(f"{type(self).__name__} must define widths()")

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        widths, batch = self.widths(), min(self.batch, size.users)
        inner = sum(left * right for left, right in itertools.pairwise(widths))
        events = size.events * batch / max(1, size.users)
        steps = size.users / batch
        parameters = size.items * (2 * widths[0] + widths[-1]) + 2 * inner
        return TrainingSize(
            parameters=parameters,
            batch=5 * batch * size.items + 6 * batch * sum(widths) + 8 * events,
            flops=6.0 * size.users * (size.items * widths[-1] + 2 * inner),
            lookups=2.0 * size.events * widths[0] + steps * parameters,
            epochs=self.epochs,
        )


@dataclass(kw_only=True, eq=False)
class MultDAE(NetworkModel):
    """Denoising autoencoder with a multinomial likelihood (Liang et al. 2018).

    The scores are s = g(x̃/‖x̃‖)·Qᵀ + b, where g has layers of tanh and a code of `rank` numbers, and in training hidden
    entries of x are 0 and the others scaled by 1/(1 − dropout). Minimises the mean over the users, with the sum of the
    squared weights of all layers but no biases,

    −Σ_i x_i·log softmax(s)_i + l2·Σ‖layer‖².

    The published l2 is 2·10⁻⁵: the authors divide their 0.01 by the 500 users of a batch.
    """

    name: ClassVar[str] = "mult_dae"
    loss: ClassVar[str] = "multinomial"
    rank: int = param(200, "numbers in the code", low=1, high=100_000, search=RANK)
    layers: int = param(0, "hidden layers before the code, and as many behind it", low=0, high=100)
    hidden: int = param(600, "width of these layers", low=1, high=100_000)
    l2: float = param(2e-5, "penalty on the squared weights of all layers", low=0, high=1e30, search=DECAY)

    def widths(self) -> tuple[int, ...]:
        """The hidden layers, the code, and the hidden layers."""
        return (*[self.hidden] * self.layers, self.rank, *[self.hidden] * self.layers)

    def _training(self, log: Interactions, context: Context) -> Training:
        from monogram.gradient.networks import NetworkSettings, NetworkTraining

        activations = ("tanh",) * len(self.widths())
        settings: dict[str, Any] = {"dropout": self.dropout, "l2": self.l2, "batch": self.batch, "loss": self.loss}
        return NetworkTraining(
            log.matrix, context, NetworkSettings(widths=self.widths(), activations=activations, **settings)
        )


@dataclass(kw_only=True, eq=False)
class MultVAE(NetworkModel):
    """Variational autoencoder with a multinomial likelihood (Liang et al. 2018; Mult-VAE with partial regularisation).

    The encoder gives the mean μ and the variance σ² of a code z of `rank` numbers; in training z is drawn from
    N(μ, σ²), in use it is μ. Minimises the mean over the users, with s the scores of the decoder for z,

    −Σ_i x_i·log softmax(s)_i + β·KL(N(μ, σ²) ‖ N(0, 1)) + l2·Σ‖layer‖²,

    where β rises linearly from 0 to `beta` during the first `annealing` epochs. Entries are hidden as for MultDAE.
    """

    name: ClassVar[str] = "mult_vae"
    rank: int = param(200, "numbers in the code", low=1, high=100_000, search=RANK)
    layers: int = param(1, "hidden layers before the code, and as many behind it", low=0, high=100)
    hidden: int = param(600, "width of these layers", low=1, high=100_000)
    beta: float = param(
        0.2, "largest weight of the divergence of the code", low=0, high=1e6, search=Search((0.05, 0.2, 0.8))
    )
    annealing: int = param(20, "epochs in which this weight rises from 0", low=0, high=1_000_000)
    l2: float = param(0.0, "penalty on the squared weights of all layers", low=0, high=1e30)

    def widths(self) -> tuple[int, ...]:
        """The hidden layers, the code, and the hidden layers."""
        return (*[self.hidden] * self.layers, self.rank, *[self.hidden] * self.layers)

    def _training(self, log: Interactions, context: Context) -> Training:
        from monogram.gradient.networks import NetworkSettings, VariationalTraining

        side = ("tanh",) * self.layers
        settings = NetworkSettings(
            widths=self.widths(),
            activations=(*side, "none", *side),
            dropout=self.dropout,
            l2=self.l2,
            batch=self.batch,
        )
        return VariationalTraining(
            log.matrix, context, settings, code=self.layers, beta=self.beta, annealing=self.annealing
        )


@dataclass(kw_only=True, eq=False)
class CDAE(NetworkModel):
    """Collaborative denoising autoencoder (Wu et al. 2016), with the logistic loss.

    The scores are s = σ(x̃·W + v_u + c)·Qᵀ + b with a vector v_u of the user. Minimises the mean over the users

    −Σ_i log σ(s_i) − Σ_j log σ(−s_j) + l2·(‖W‖² + ‖V‖² + ‖Q‖²),

    over the entries i of the user, and `negatives` unused items j drawn for each entry. Entries are hidden in x̃, and
    the others scaled by 1/(1 − dropout). A history that is of no user of the log has the mean vector of the users.

    With `recency` or `half_life` the weighted history differs from the row in the log, so that all users have the mean
    vector.
    """

    name: ClassVar[str] = "cdae"
    rank: int = param(64, "numbers in the hidden layer", low=1, high=100_000, search=RANK)
    l2: float = param(0.001, "penalty on the squared weights and vectors", low=0, high=1e30, search=PENALTY)
    negatives: int = param(5, "unused items drawn for each entry; 0: all unused items", low=0, high=1_000_000)

    def widths(self) -> tuple[int, ...]:
        """The hidden layer."""
        return (self.rank,)

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        cost, share = super().training_cost(size), min(1.0, self.batch / max(1, size.users))
        return replace(
            cost,
            parameters=cost.parameters + size.users * self.rank,
            batch=cost.batch + 12 * size.events * share * self.negatives,
            lookups=cost.lookups + size.users * self.rank / share + 4.0 * size.events * self.negatives,
        )

    def _training(self, log: Interactions, context: Context) -> Training:
        from monogram.gradient.networks import NetworkSettings, UserTraining

        settings = NetworkSettings(
            widths=self.widths(),
            activations=("sigmoid",),
            unit=False,
            dropout=self.dropout,
            l2=self.l2,
            batch=self.batch,
        )
        return UserTraining(log.matrix, context, settings, negatives=self.negatives)

    def adopt(self, log: Interactions, weights: Weights, report: Report, pruning: Pruning | None = None) -> None:
        """Set the state of a fitted model; ModelFileError where the weights lack the vectors of the users."""
        if isinstance(weights, Autoencoder) and weights.users is None:
            raise ModelFileError("the weights of this CDAE have no vectors of users: save the model again")
        super().adopt(log, weights, report, pruning)
