"""The low-pass projection of two-step weights: D⁻¹GGᵀD, with a power of item popularity on the diagonal of D."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, checked


@dataclass(frozen=True, eq=False)
class Projection:
    """P = D⁻¹GGᵀD.

    Parameters
    ----------
    basis : G, n × some columns
    powers : the diagonal of D, above 0; None where all are 1
    """

    basis: Float
    powers: Float64 | None = None

    @classmethod
    def none(cls, items: int, dtype: np.typing.DTypeLike) -> Projection:
        """A projection on no directions: P = 0."""
        return cls(np.zeros((items, 0), dtype))

    @classmethod
    def from_tensors(cls, tensors: Tensors, items: int) -> Projection | None:
        """Build from stored arrays, checked; None where there are none."""
        basis = tensors.get("basis")
        if basis is None:
            return None
        powers = checked(tensors, "low_pass_powers", (items,)) if "low_pass_powers" in tensors else None
        if powers is not None and not (np.isfinite(powers).all() and (powers > 0).all()):
            raise ModelFileError("the file's low-pass projection has a power of an item that is not above 0")
        return cls(checked(tensors, "basis", (items, basis.shape[1] if basis.ndim == 2 else 1)), powers)

    def tensors(self) -> Tensors:
        """The arrays to store."""
        tensors: Tensors = {"basis": self.basis} if self.basis.size else {}
        return tensors if self.powers is None or not tensors else tensors | {"low_pass_powers": self.powers}

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.basis.nbytes + (0 if self.powers is None else self.powers.nbytes)

    def coordinates(self, rows: Csr) -> Float:
        """hD⁻¹G of histories, in the precision of the two."""
        if self.powers is None:
            return np.asarray(rows @ self.basis)
        data = rows.data / self.powers[rows.indices].astype(rows.dtype)
        return np.asarray(Csr((data, rows.indices, rows.indptr), shape=rows.shape) @ self.basis)

    def scores(self, coordinates: Float, rank: int | None = None) -> Float:
        """The scores of all items by coordinates of the first `rank` directions, by default of all."""
        scores = coordinates[:, :rank] @ self.basis[:, :rank].T
        return scores if self.powers is None else scores * self.powers.astype(scores.dtype)

    def of_items(self, rows: Csr, items: Indices) -> Float64:
        """The scores of some items for histories, in float64."""
        used = np.unique(rows.indices)
        part = Projection(self.basis[used].astype(np.float64), None if self.powers is None else self.powers[used])
        return self._columns(part.coordinates(rows[:, used].astype(np.float64)), items)

    def columns(self, items: Indices) -> Float64:
        """P[:, items]."""
        columns = self._columns(self.basis, items)
        return np.asarray(columns if self.powers is None else columns / self.powers[:, None])

    def rows(self, start: int, stop: int) -> Float:
        """P[start:stop], in the precision of G."""
        left = self.basis[start:stop]
        return self.scores(left if self.powers is None else left / self.powers[start:stop, None].astype(left.dtype))

    def _columns(self, left: Float, items: Indices) -> Float64:
        columns = left @ self.basis[items].T.astype(np.float64)
        return np.asarray(columns if self.powers is None else columns * self.powers[items])
