"""What a fitted model is: something that scores every item for a batch of histories.

Histories come as a CSR batch (histories × items). The kinds:

- `Dense`: W itself, n × n; a score is a sum of rows.
- `Dual`: K⁻¹ of the training users (m × m) and the sparse data; W is never formed.
- `TwoStepDual`: two steps through a `Dual`.
- `MatrixFree`: the sparse data alone; each batch of histories is solved for.
- `Factors`: W = U·diag(f)·Vᵀ of rank k; two thin products.
- `Sparse`: W with most entries left out.
- `FoldIn`: item factors; the history's own row is solved from them, then multiplied.
- `Fixed`: the same score for everyone (popularity).
"""

from __future__ import annotations

from typing import Any

from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights
from monogram.weights.dense import Dense, Fixed
from monogram.weights.dual import Dual
from monogram.weights.factors import Factors
from monogram.weights.fold_in import FoldIn
from monogram.weights.matrix_free import MatrixFree
from monogram.weights.mixtures import Mixture, Mixtures
from monogram.weights.sparse import Sparse
from monogram.weights.two_step_dual import TwoStepDual

__all__ = [
    "Dense",
    "Dual",
    "Factors",
    "Fixed",
    "FoldIn",
    "MatrixFree",
    "Mixture",
    "Mixtures",
    "Sparse",
    "Tensors",
    "TwoStepDual",
    "Weights",
    "from_tensors",
]


def from_tensors(kind: str, tensors: Tensors, training: Any) -> Weights:
    """Weights of a stored kind."""
    kinds: dict[str, Any] = {
        one.kind: one for one in (Dense, Dual, Factors, Fixed, FoldIn, MatrixFree, Sparse, TwoStepDual)
    }
    if kind not in kinds:
        raise ModelFileError(f"the file holds weights of kind {kind!r}; expected one of {', '.join(kinds)}")
    weights: Weights = kinds[kind].from_tensors(tensors, training)
    return weights
