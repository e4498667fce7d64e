"""Array types for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array as Csr

Float64 = NDArray[np.float64]
Float = NDArray[np.floating[Any]]  # of either working precision
Indices = NDArray[np.int64]

__all__ = ["Csr", "Float", "Float64", "Indices"]
