"""Linear autoencoders that are trained by gradients: `ELSA` and `LinearAutoencoder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from monogram.data.interactions import Interactions
from monogram.errors import ParameterError
from monogram.gradient.model import GradientModel
from monogram.models.parameters import param
from monogram.models.search_axes import DROPOUT, L2, RANK, Search
from monogram.planning.gradient_costs import TrainingSize
from monogram.planning.size import Size

if TYPE_CHECKING:
    from monogram.gradient.trainer import Context, Training


@dataclass(kw_only=True, eq=False)
class LinearGradientModel(GradientModel):
    """Base class of the linear autoencoders. The entries of X are the weights of the events."""

    additive_shares: ClassVar[bool] = True
    matrices: ClassVar[int] = 1  # that are trained, items × rank
    rank: int = param(64, "columns of the factors", low=1, high=100_000, search=RANK)

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        batch, parameters = min(self.batch, size.users), self.matrices * size.items * self.rank
        steps, events = size.users / max(1, batch), size.events * batch / max(1, size.users)
        return TrainingSize(
            parameters=parameters,
            batch=6 * batch * self.rank + 3 * parameters + 4 * self.rank**2 + 4 * events * (self.rank + 4),
            flops=6.0 * self.rank**2 * (size.users + steps * self.matrices * size.items),
            lookups=2.0 * self.matrices * size.events * self.rank + steps * parameters,
            epochs=self.epochs,
        )


@dataclass(kw_only=True, eq=False)
class ELSA(LinearGradientModel):
    """Scalable linear shallow autoencoder (Vančura et al. 2022).

    W = AAᵀ − I, where the rows of A have `rank` numbers and length 1, so that the diagonal of W is 0. Minimises the
    mean over the users of ‖x/‖x‖ − xW/‖xW‖‖² = 2 − 2·cos(x, xW), with Nesterov's Adam.
    """

    name: ClassVar[str] = "elsa"
    optimiser: ClassVar[str] = "nadam"
    epochs: int = param(20, "number of epochs, at most", low=1, high=1_000_000)
    batch: int = param(1024, "users in a batch", low=1, high=10_000_000)
    learning_rate: float = param(
        0.1, "learning rate of the optimiser", low=1e-12, high=1e30, search=Search((0.01, 0.03, 0.1))
    )
    rank: int = param(256, "columns of A", low=1, high=100_000, search=RANK)

    def _training(self, log: Interactions, context: Context) -> Training:
        from monogram.gradient.linear import UnitTraining

        return UnitTraining(log.matrix, context, rank=self.rank, batch=self.batch)


@dataclass(kw_only=True, eq=False)
class LinearAutoencoder(LinearGradientModel):
    """Linear autoencoder W = UVᵀ, trained as the rows of table 1 of Steck (2020) by gradients and sampled dropout.

    Minimises E‖A^½ ∘ (X − X̃·UVᵀ)‖²/N + l2·R. In X̃ an entry is hidden with the probability p = `dropout`, and the others
    are scaled by 1/(1 − p). A is 1 where the entry is hidden, and `b` where it is kept; N = p + (1 − p)·b. R is
    ‖UVᵀ‖² less the share 1 − b/N² of its diagonal (penalty="product"), or ‖U‖² + ‖V‖² (penalty="factors").

    - dropout = 0, "factors": weight decay. The closed form is `WLAE` with one weight.
    - dropout = 0, "product", b = 1: the closed form is `LRR`.
    - b = 1: denoising. The closed form is `LowRankDLAE`.
    - b = 0: emphasised denoising. Minimises the objective of `LowRankEDLAE`.

    The closed forms and their solvers reach the optimum sooner; this model is for comparison.
    """

    name: ClassVar[str] = "linear_autoencoder"
    matrices: ClassVar[int] = 2
    batch: int = param(500, "users in a batch", low=1, high=10_000_000)
    l2: float = param(100.0, "penalty on the squared weights, in the units of XᵀX", low=0, high=1e30, search=L2)
    penalty: str = param("product", "what l2 multiplies", choices=("product", "factors"))
    dropout: float = param(0.3, "probability with which an entry is hidden", low=0, high=1, below=True, search=DROPOUT)
    b: float = param(1.0, "weight of the squared error on kept entries; 1 on hidden ones", low=0, high=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.b == 0 and self.dropout == 0:
            raise ParameterError("b = 0 with dropout = 0 leaves no error to minimise; expected one of them above 0")

    def _training(self, log: Interactions, context: Context) -> Training:
        from monogram.gradient.linear import LinearSettings, LinearTraining

        settings = LinearSettings(
            rank=self.rank, l2=self.l2, penalty=self.penalty, dropout=self.dropout, b=self.b, batch=self.batch
        )
        return LinearTraining(log.matrix, context, settings)
