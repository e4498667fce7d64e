"""`RankingModel`: an encoder of users and items, trained with any of the ranking losses. It imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from monogram.data.interactions import Interactions
from monogram.engine.runtime.arrays import Csr
from monogram.errors import ParameterError
from monogram.gradient.model import GradientModel
from monogram.models.parameters import param
from monogram.models.search_axes import RANK, Search
from monogram.planning.gradient_costs import PAIRS, TrainingSize
from monogram.planning.size import Size

if TYPE_CHECKING:
    from monogram.gradient.encoders import Encoder
    from monogram.gradient.trainer import Context, Training

# By loss: the default number of negatives, and the default margin.
SAMPLED = {
    "bpr": (1, 1.0),
    "bce": (4, 1.0),
    "sampled_softmax": (1024, 1.0),
    "cosine_contrastive": (100, 0.4),
    "uib": (10, 1.0),
    "sml": (10, 1.0),
}
SCORE_ARRAYS = {"softmax": 6, "sparsemax": 15}  # arrays of users × items that a batch takes, gradients included
ALL_ITEMS = tuple(SCORE_ARRAYS)
LOSSES = (*SAMPLED, *ALL_ITEMS, "rg2")
OF_COSINES = ("cosine_contrastive", "sml")  # losses that are defined for cosines
PENALTY = Search((1e-4, 1e-3, 1e-2, 1e-1))


@dataclass(kw_only=True, eq=False)
class RankingModel(GradientModel):
    """An encoder with a ranking loss; a subclass has a method `_encoder(matrix, context)`."""

    losses: ClassVar[tuple[str, ...]] = LOSSES
    plain_rg2: ClassVar[bool] = True  # whether the encoder is linear and symmetric, as RG² without sampling needs
    rank: int = param(64, "numbers in the vector of a user or an item", low=1, high=100_000, search=RANK)
    l2: float = param(0.001, "penalty on half of the squared vectors of a pair", low=0, high=1e30, search=PENALTY)
    loss: str = param("bpr", "loss that compares the items of a user with others", choices=LOSSES)
    negatives: int | None = param(None, "items that each event is compared with; None: by the loss", low=1, high=1e6)
    proposal: str = param(
        "uniform", "distribution of the sample of sampled_softmax", choices=("uniform", "log_popularity")
    )
    cosine: bool = param(False, "whether scores are cosines; always for cosine_contrastive and sml")
    temperature: float = param(
        1.0, "divides the scores in the loss; 1 for cosine_contrastive and sml", low=1e-6, high=1e6
    )
    margin: float | None = param(
        None, "margin of cosine_contrastive and uib, largest margin of sml; None: by the loss", low=-1, high=1e6
    )
    negative_weight: float = param(
        1.0, "weight of the negatives in cosine_contrastive, of the item distances in sml", low=0, high=1e9
    )
    margin_reward: float = param(0.1, "reward of large margins in sml", low=0, high=1e9)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == "rg2" and not self.plain_rg2:
            raise ParameterError("loss = 'rg2' is for the encoders of Factorization and LightGCN; choose another loss")
        if self.loss == "rg2" and (self.cosine or self.temperature != 1.0 or self.device not in ("auto", "cpu")):
            raise ParameterError(
                "loss = 'rg2' has products as scores and runs on the CPU; leave cosine, temperature and device out"
            )
        if self.loss in OF_COSINES and self.temperature != 1.0:
            raise ParameterError(
                f"temperature = {self.temperature!r}; loss = {self.loss!r} has undivided cosines: leave temperature out"
            )
        if self.loss == "sml" and self.margin is not None and self.margin <= 0:
            raise ParameterError(f"margin = {self.margin!r}; expected a number above 0 with loss='sml'")

    def _device(self, dtype: str) -> str:
        return "cpu" if self.loss == "rg2" else super()._device(dtype)

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        """The encoder of the users and items of a log."""
        raise TypeError(f"{type(self).__name__} must define _encoder(matrix, context)")

    def _training(self, log: Interactions, context: Context) -> Training:
        from monogram.gradient.newton import Rg2Training
        from monogram.gradient.pairs import ListTraining, LossSettings, PairTraining

        if self.loss == "rg2":
            return Rg2Training(log.matrix, self._encoder(log.matrix, context), self.l2, self.seed)
        settings = LossSettings(**self._settings())
        kind = ListTraining if self.loss in ALL_ITEMS else PairTraining
        return kind(log.matrix, context, self._encoder(log.matrix, context), settings)

    def _settings(self) -> dict[str, Any]:
        """The arguments of `LossSettings`."""
        negatives, margin = SAMPLED.get(self.loss, (1, 1.0))
        return {
            "name": self.loss,
            "batch": self.batch,
            "negatives": self.negatives or negatives,
            "proposal": self.proposal,
            "cosine": self.cosine or self.loss in OF_COSINES,
            "temperature": self.temperature,
            "margin": margin if self.margin is None else self.margin,
            "weight": self.negative_weight,
            "reward": self.margin_reward,
            "l2": self.l2,
        }

    def training_cost(self, size: Size) -> TrainingSize:
        """What the training takes on a log of this size."""
        settings, rank = self._settings(), self.rank
        parameters = float(size.users + size.items) * rank
        if self.loss == "rg2":
            return TrainingSize(parameters, 8 * parameters, 60.0 * parameters * rank, 0.0, self.epochs)
        if self.loss in ALL_ITEMS:
            users = min(self.batch, size.users)
            scores = float(users) * size.items
            flops = 6.0 * size.users * size.items * rank
            batch = SCORE_ARRAYS[self.loss] * scores + 3 * size.items * rank
            return TrainingSize(parameters, batch, flops, parameters, self.epochs)
        pairs, sampled = min(self.batch, size.events), settings["negatives"]
        shared = self.loss == "sampled_softmax"
        vectors = float(pairs) * (2 if shared else 2 + sampled) * rank
        steps = size.events / pairs
        return TrainingSize(
            parameters=parameters,
            batch=8 * vectors + (4.0 * pairs * sampled if shared else 0.0),
            flops=6.0 * size.events * (1 + sampled) * rank,
            lookups=steps * (vectors + 3 * parameters),
            epochs=self.epochs,
            fixed=PAIRS * size.events,
        )
