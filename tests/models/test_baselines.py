"""ItemKNN against its formula on dense data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.engine.topk import column_topk
from monogram.errors import MemoryBudgetError, ParameterError
from monogram.testing import check_recommender


def reference(matrix, k, shrink) -> np.ndarray:
    """Each column's k largest cosines; between equals the lower row."""
    x = matrix.toarray().astype(np.float64)
    gram = x.T @ x
    d = np.diag(gram)
    below = np.sqrt(np.outer(d, d)) + shrink
    cosine = np.divide(gram, below, out=np.zeros_like(gram), where=gram > 0)
    np.fill_diagonal(cosine, 0)
    out = np.zeros_like(cosine)
    for j in range(len(d)):
        best = np.argsort(-cosine[:, j], kind="stable")[:k]
        out[best, j] = cosine[best, j]
    return out


@given(
    seed=st.integers(0, 1000), k=st.integers(1, 12), shrink=st.sampled_from([0.0, 1.0, 50.0]), weighted=st.booleans()
)
def test_item_knn_is_its_formula(seed, k, shrink, weighted):
    rng = np.random.default_rng(seed)
    dense = (rng.random((15, 10)) < 0.3) * (rng.integers(1, 5, (15, 10)) if weighted else 1)
    dense[0, 0] = 1
    matrix = sp.csr_array(dense.astype(np.float32))
    model = mg.ItemKNN(k=k, shrink=shrink).fit(matrix, dtype="float64", threads=2)
    np.testing.assert_allclose(model.item_weights(), reference(matrix, k, shrink), rtol=1e-14, atol=0)
    assert (model.weights_.matrix.data > 0).all()


def test_the_blocks_and_the_threads_change_nothing(world, monkeypatch):
    whole = mg.ItemKNN(k=4).fit(world, threads=1).weights_.matrix
    monkeypatch.setattr(column_topk, "WIDTH", 7)
    for threads in (1, 3):
        part = mg.ItemKNN(k=4).fit(world, threads=threads).weights_.matrix
        np.testing.assert_array_equal(part.indices, whole.indices)
        np.testing.assert_array_equal(part.data, whole.data)


def test_ties_go_to_the_lower_index():
    matrix = sp.csr_array(np.ones((3, 5), np.float32))
    actual = mg.ItemKNN(k=2, shrink=0).fit(matrix).item_weights()
    assert [np.flatnonzero(actual[:, j]).tolist() for j in range(5)] == [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]]


def test_the_plan_knows_the_neighbours_and_refuses(world):
    size = (10_000, 50_000, 10**6)
    assert mg.ItemKNN(k=100).plan(size).chosen.bytes < 4 * 50_000**2 / 10, "no square array"
    assert mg.ItemKNN(k=200).plan(size).chosen.bytes > mg.ItemKNN(k=100).plan(size).chosen.bytes
    with pytest.raises(MemoryBudgetError, match="lower k"):
        mg.ItemKNN().fit(world, memory="1 MB")
    model = mg.ItemKNN().fit(world)
    assert model.report_.planned_bytes == mg.ItemKNN().plan(world).chosen.bytes


@pytest.mark.parametrize("parameters", [{"k": 0}, {"k": 2.5}, {"shrink": -1}])
def test_parameters_outside_their_range_are_named(parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        mg.ItemKNN(**parameters)


@pytest.mark.parametrize("parameters", [{}, {"k": 3, "shrink": 0}])
def test_the_contract(parameters):
    check_recommender(mg.ItemKNN, **parameters)
