"""The layers of a trained autoencoder: a history is encoded, and the decoded code times the items scores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.engine.topk.best import Best, Eligible
from monogram.engine.topk.few import best_by_products, sum_rows
from monogram.errors import ModelFileError
from monogram.weights.common import Tensors, Weights, checked, whole_numbers
from monogram.weights.known_rows import KnownRows
from monogram.weights.trained import differences

ACTIVATIONS = ("none", "tanh", "sigmoid")


@dataclass(frozen=True)
class Layer:
    """A layer of a network: activation(x·matrix + bias).

    Parameters
    ----------
    matrix : inputs × outputs
    bias : one number for each output
    activation : "none", "tanh" or "sigmoid"
    """

    matrix: Float
    bias: Float
    activation: str = "none"

    def activated(self, products: Float64) -> Float64:
        """The output of the layer, from its products x·matrix; written in place."""
        products += self.bias
        if self.activation == "tanh":
            return np.tanh(products, out=products)
        if self.activation == "sigmoid":
            return np.asarray(0.5 * (1.0 + np.tanh(0.5 * products)))  # does not overflow
        return products


class Autoencoder(Weights):
    """A network: the first layer multiplies the history, the last vector p multiplies the items: p·Qᵀ + base.

    The network is computed in float64 with NumPy. `explain` leaves out one event at a time; for a known user too it
    compares scores without the user's vector.

    Parameters
    ----------
    layers : at least one; the inputs of the first are the items
    items : Q, n × outputs of the last layer
    offset : base, added to the scores of every history
    unit : whether a history is divided by its Euclidean norm
    users : for each user of the training data a vector that is added to the products of the first layer, where the
        history is that of the user, and equal for users with equal rows; None where the network has no such vectors
    training : the training data, whose row u is the history of user u
    """

    kind = "autoencoder"
    linear = False
    additive = False

    def __init__(
        self,
        layers: Sequence[Layer],
        items: Float,
        offset: Float,
        *,
        unit: bool,
        users: Float | None = None,
        training: Csr | None = None,
    ) -> None:
        self.layers, self.items, self.offset, self.unit = tuple(layers), items, offset.astype(np.float64), unit
        self.users, self.known = users, None if training is None else KnownRows(training)

    @classmethod
    def from_tensors(cls, tensors: Tensors, training: Csr) -> Autoencoder:
        """Build from stored arrays."""
        n = training.shape[1]
        codes = whole_numbers(tensors, "activations")
        if not len(codes) or codes.min() < 0 or codes.max() >= len(ACTIVATIONS):
            raise ModelFileError(f"the file's activations are not numbers below {len(ACTIVATIONS)}, one for each layer")
        layers, width = [], n
        for number, code in enumerate(codes.tolist()):
            outputs = tensors[f"bias.{number}"].size
            matrix, bias = checked(tensors, f"layer.{number}", (width, outputs)), tensors[f"bias.{number}"]
            layers.append(Layer(matrix, checked({"bias": bias}, "bias", (outputs,)), ACTIVATIONS[code]))
            width = outputs
        items, base = checked(tensors, "items", (n, width)), checked(tensors, "base", (n,))
        unit = bool(checked(tensors, "unit", (1,))[0])
        first = layers[0].matrix.shape[1]
        users = checked(tensors, "users", (training.shape[0], first)) if "users" in tensors else None
        return cls(layers, items, base, unit=unit, users=users, training=training)

    @property
    def nbytes(self) -> int:
        users = 0 if self.users is None else self.users.nbytes
        return int(users + self.items.nbytes + sum(layer.matrix.nbytes for layer in self.layers))

    def best(self, histories: Csr, eligible: Eligible, k: int, threads: int) -> Best:
        return best_by_products(self.rows(histories, threads), self.items, self.offset, eligible, k, threads=threads)

    def score(self, histories: Csr, items: Indices, threads: int) -> Float64:
        products = self.rows(histories, threads) @ self.items[items].astype(np.float64).T
        return np.asarray(products + self.offset[items])

    def columns(self, items: Indices) -> Float64:
        """W[i, j]: the score of j for the history [i] alone."""
        return self.score(sp.eye_array(len(self.items), dtype=np.float32, format="csr"), items, 1)

    def shares(self, history: Csr, item: int) -> Float64:
        return differences(Autoencoder(self.layers, self.items, self.offset, unit=self.unit), history, item)

    def tensors(self) -> Tensors:
        stored: Tensors = {"items": self.items, "base": self.offset, "unit": np.array([float(self.unit)])}
        stored["activations"] = np.array([ACTIVATIONS.index(layer.activation) for layer in self.layers])
        for number, layer in enumerate(self.layers):
            stored |= {f"layer.{number}": layer.matrix, f"bias.{number}": layer.bias}
        return stored if self.users is None else stored | {"users": self.users}

    def rows(self, histories: Csr, threads: int) -> Float64:
        """The output of the last layer for each history."""
        first, *others = self.layers
        read = unit_rows(histories) if self.unit else histories
        products = sum_rows(first.matrix, read, np.arange(first.matrix.shape[1]), threads=threads)
        if self.users is not None and self.known is not None:
            rows = self.known.find(histories)
            products[rows >= 0] += self.users[rows[rows >= 0]]
        hidden = first.activated(products)
        with parallel.blas_threads(threads):
            for layer in others:
                hidden = layer.activated(hidden @ layer.matrix.astype(np.float64))
        return hidden


def unit_rows(histories: Csr) -> Csr:
    """The histories, each divided by its Euclidean norm."""
    counts = np.diff(histories.indptr)
    owners = np.repeat(np.arange(len(counts)), counts)
    squares = np.bincount(owners, histories.data.astype(np.float64) ** 2, minlength=len(counts))
    norms = np.sqrt(np.where(squares > 0, squares, 1.0))
    data = histories.data / norms[owners]
    return sp.csr_array((data, histories.indices, histories.indptr), shape=histories.shape)
