"""The graph of users and items, and propagation of vectors along its edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from monogram.engine.gram.propagate import multiply_add
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.engine.runtime.simd import LANES


class Links:
    """A sparse matrix with its transpose, whose product with vectors is an operation of torch.

    Products run in our threaded kernel on the CPU: with the transpose at hand, product and gradient took half the time
    of torch's sparse CSR matrices on Gowalla, and the bits do not depend on the threads. On other devices torch
    multiplies. The weights take the precision of the vectors, with the first product.

    Parameters
    ----------
    matrix : CSR, with its weights
    """

    def __init__(self, matrix: Csr, *, device: str = "cpu", threads: int = 1) -> None:
        self.device, self.threads = device, threads
        self.matrix: Any = matrix
        self.transposed: Any = None

    def __call__(self, block: torch.Tensor) -> torch.Tensor:
        """The product with vectors, as an operation of torch."""
        product: torch.Tensor = LinksProduct.apply(block, self)
        return product

    def times(self, block: torch.Tensor, base: torch.Tensor | None = None) -> torch.Tensor:
        """The product with vectors, plus `base`, without a gradient."""
        self._convert(block)
        return self._times(self.matrix, block, base)

    def transpose_times(self, block: torch.Tensor, base: torch.Tensor | None = None) -> torch.Tensor:
        """The product of the transpose, plus `base`, without a gradient."""
        self._convert(block)
        return self._times(self.transposed, block, base)

    def _convert(self, block: torch.Tensor) -> None:
        """Make the matrix and its transpose, in the precision of a block, for all products."""
        if self.transposed is not None:
            return
        dtype = str(block.dtype).removeprefix("torch.")
        self.matrix = self.matrix.astype(dtype)
        self.transposed = self.matrix.T.tocsr()
        if self.device != "cpu":
            self.matrix, self.transposed = (_on(self.device, part) for part in (self.matrix, self.transposed))

    def _times(self, matrix: Any, block: torch.Tensor, base: torch.Tensor | None) -> torch.Tensor:
        if self.device == "cpu":
            added = None if base is None else base.detach().numpy()
            return torch.from_numpy(multiply_add(matrix, block.detach().numpy(), added, self.threads))
        return matrix @ block if base is None else base + matrix @ block


class LinksProduct(torch.autograd.Function):  # type: ignore[misc]
    """The product of `Links` with vectors; its gradient is the product of the transpose."""

    @staticmethod
    def forward(ctx: Any, block: Any, links: Links) -> Any:
        """The product."""
        ctx.links = links
        return links.times(block)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The product of the transpose with the gradient."""
        return ctx.links.transpose_times(gradient.contiguous()), None


class Graph:
    """The normalised adjacency Â of a log: users and items, an edge for each event with the weight 1/√(d_u·d_i).

    Parameters
    ----------
    matrix : CSR, users × items
    """

    def __init__(self, matrix: Csr, *, device: str = "cpu", threads: int = 1) -> None:
        weighted = Csr((edge_weights(matrix), matrix.indices, matrix.indptr), shape=matrix.shape)
        self.links = Links(weighted, device=device, threads=threads)

    def smooth(self, users: torch.Tensor, items: torch.Tensor, layers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of Â⁰x, …, Âᴸx, by Horner's rule."""
        sums = users, items
        for _ in range(layers):
            sums = self.links.times(sums[1], users), self.links.transpose_times(sums[0], items)
        return sums[0] / (layers + 1), sums[1] / (layers + 1)


class Smoothing(torch.autograd.Function):  # type: ignore[misc]
    """`Graph.smooth` as an operation of torch. Its matrix is symmetric, so the gradient is smoothed in the same way."""

    @staticmethod
    def forward(ctx: Any, users: Any, items: Any, graph: Graph, layers: int) -> Any:
        """The smoothed vectors."""
        ctx.graph, ctx.layers = graph, layers
        return graph.smooth(users, items, layers)

    @staticmethod
    def backward(ctx: Any, users: Any, items: Any) -> Any:
        """The smoothed gradients; those of `rows_of` are sparse."""
        users, items = (part.to_dense() if part.is_sparse else part.contiguous() for part in (users, items))
        return *ctx.graph.smooth(users, items, ctx.layers), None, None


def rows_of(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows of a table that is smoothed, or the result of it: on the CPU no gradient in them fills a whole table."""
    return functional.embedding(index, table, sparse=table.device.type == "cpu")


def compile_products(dtype: str) -> None:
    """Compile the kernels of the products on the CPU."""
    for width in (1, LANES):
        multiply_add(Csr(np.ones((1, 1), dtype)), np.ones((1, width), dtype))


def without_edges(matrix: Csr, share: float) -> Csr:
    """A log without a random share of its events, drawn by torch."""
    kept = (torch.rand(matrix.nnz, dtype=torch.float64) >= share).numpy()
    pointers = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return Csr((matrix.data[kept], matrix.indices[kept], pointers), shape=matrix.shape)


def row_means(matrix: Csr) -> Csr:
    """The weights 1/d_u of each row: products with them are means over the events of a user."""
    lengths = np.diff(matrix.indptr)
    return Csr((np.repeat(1 / np.maximum(lengths, 1), lengths), matrix.indices, matrix.indptr), shape=matrix.shape)


def edge_weights(matrix: Csr) -> Float64:
    """1/√(d_u·d_i) for each entry of a matrix."""
    users = np.diff(matrix.indptr)
    items = np.bincount(matrix.indices, minlength=matrix.shape[1])
    return np.asarray(1 / np.sqrt(np.repeat(users, users) * items[matrix.indices].astype(np.float64)))


def _on(device: str, matrix: Csr) -> torch.Tensor:
    arrays = (torch.from_numpy(np.asarray(part)) for part in (matrix.indptr, matrix.indices, matrix.data))
    return torch.sparse_csr_tensor(*arrays, size=matrix.shape, device=device)
