"""The weights of a fitted model, which score every item for a batch of histories (CSR, histories × items).

The kinds:

- `Dense`: W as an n × n array; a score is a sum of rows.
- `Dual`: K⁻¹ of the training users (m × m) and the sparse data; W is never formed.
- `TwoStepDual`: two-step scoring through a `Dual`.
- `TwoStepSparse`: two-step scoring through the sparse B of local regressions.
- `MatrixFree`: the sparse data alone; each batch of histories is a linear solve.
- `Factors`: W = U·diag(f)·Vᵀ of rank k; two thin products.
- `Sparse`: W as a CSR matrix.
- `Local`: W as a CSR matrix, from local regressions, with which it can be updated.
- `SolvedProduct`: W = C·V for a symmetric array C and a sparse V; the product is not formed.
- `FoldIn`: item factors; the user factor of a history is solved from them.
- `TrainedFoldIn`: trained vectors of users and items; other histories are folded in.
- `TrainedSum`: trained vectors of users and items; the vector of another history is a sum over its items.
- `TrainedSage`: trained vectors of users and items; other histories run through dense layers.
- `Autoencoder`: the layers of a trained network, which encodes each history.
- `HollowFactors`: W = A·Aᵀ without its diagonal.
- `Fixed`: the same scores for every history (popularity).
"""

from __future__ import annotations

from typing import Any

from monogram.engine.runtime.arrays import Csr
from monogram.errors import ModelFileError
from monogram.weights.autoencoder import Autoencoder
from monogram.weights.common import Tensors, Weights
from monogram.weights.dense import Dense, Fixed
from monogram.weights.dual import Dual
from monogram.weights.factors import Factors
from monogram.weights.fold_in import FoldIn
from monogram.weights.hollow_factors import HollowFactors
from monogram.weights.local import Local
from monogram.weights.matrix_free import MatrixFree
from monogram.weights.mixtures import Mixture, Mixtures
from monogram.weights.sage import TrainedSage
from monogram.weights.solved_product import SolvedProduct
from monogram.weights.sparse import Sparse
from monogram.weights.trained import TrainedFoldIn, TrainedSum
from monogram.weights.two_step_dual import TwoStepDual
from monogram.weights.two_step_sparse import TwoStepSparse

__all__ = [
    "Autoencoder",
    "Dense",
    "Dual",
    "Factors",
    "Fixed",
    "FoldIn",
    "HollowFactors",
    "Local",
    "MatrixFree",
    "Mixture",
    "Mixtures",
    "SolvedProduct",
    "Sparse",
    "Tensors",
    "TrainedFoldIn",
    "TrainedSage",
    "TrainedSum",
    "TwoStepDual",
    "TwoStepSparse",
    "Weights",
    "from_tensors",
]


def from_tensors(kind: str, tensors: Tensors, training: Csr) -> Weights:
    """Build the weights of a stored kind from their tensors."""
    known = (
        Autoencoder, Dense, Dual, Factors, Fixed, FoldIn, HollowFactors, Local, MatrixFree, SolvedProduct, Sparse,
        TrainedFoldIn, TrainedSage, TrainedSum, TwoStepDual, TwoStepSparse,
    )  # fmt: skip
    kinds: dict[str, Any] = {weights.kind: weights for weights in known}
    if kind not in kinds:
        raise ModelFileError(f"the file holds weights of kind {kind!r}; expected one of {', '.join(kinds)}")
    loaded: Weights = kinds[kind].from_tensors(tensors, training)
    return loaded
