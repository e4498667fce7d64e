"""`Factorization`: matrix factorisation, trained with a ranking loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from monogram.engine.runtime.arrays import Csr
from monogram.gradient.ranking import RankingModel
from monogram.models.context import FitOptions

if TYPE_CHECKING:
    from monogram.gradient.encoders import Encoder
    from monogram.gradient.trainer import Context


@dataclass(kw_only=True, eq=False)
class Factorization(RankingModel):
    """Matrix factorisation, trained by gradients with a ranking loss (BPR: Rendle et al. 2009).

    Every user u and item i has a vector of `rank` numbers; the score is s_ui = p_u·q_i, or the cosine of both.
    Minimises the mean over the events (u, i) of the log, with other items j,

    loss(s_ui, s_uj) + l2/2·(‖p_u‖² + ‖q_i‖² + ‖q_j‖²),   for BPR −log σ(s_ui − s_uj).

    With loss="softmax" or "sparsemax" j runs over all items. SSM (MF) is loss="sampled_softmax" with cosine=True and a
    temperature. loss="rg2" is `RG2`, by Newton-CG.

    Known users have their trained vector. Any other history is folded in: p is the ridge regression of the indicator of
    the history on the item vectors, with the gain and the ridge that agree best with the trained vectors of the users.
    `explain` gives differences, how much a folded-in score falls without one item.

    With `recency` or `half_life` the weighted history differs from the row in the log, so that users of the log too are
    scored as new users: folded in, without their trained vector.
    """

    name: ClassVar[str] = "factorization"

    def _warm(self, options: FitOptions) -> None:
        super()._warm(options)
        from monogram.gradient.pair_scores import compile_pairs

        compile_pairs(options.dtype)

    def _encoder(self, matrix: Csr, context: Context) -> Encoder:
        from monogram.gradient.encoders import TableEncoder

        return TableEncoder(matrix, context, self.rank)
