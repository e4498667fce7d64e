"""Copies are independent models, and parameters of a fitted model are frozen."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import ParameterError

FITS = [
    (mg.EASE(l2=3), {"solver": "primal"}),
    (mg.EDLAE(l2=3, dropout=0.3), {"solver": "dual"}),
    (mg.EDLAE(l2=3, dropout=0.3), {"keep_gram": True}),
    (mg.DLAE(l2=3), {"solver": "matrix_free", "dtype": "float64"}),
]


@pytest.fixture
def log():
    dense = np.random.default_rng(3).random((60, 12)) < 0.3
    return mg.Interactions.from_csr(sp.csr_array(dense.astype(np.float32)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("changed", [0, 1], ids=["the original changes", "the copy changes"])
@pytest.mark.parametrize(("model", "how"), FITS, ids=str)
def test_an_update_of_a_copy_does_not_change_the_original(log, model, how, changed, copied):
    model = type(model)(**model.params()).fit(log, **how)
    pair = [model, copied(model)]
    before, rows = pair[1 - changed].item_weights(), pair[1 - changed].recommend(k=3).rows()
    pair[changed].forget_users([1, 2, 3])
    pair[changed].add_users(sp.csr_array(np.ones((2, 12), np.float32)))
    np.testing.assert_array_equal(pair[1 - changed].item_weights(), before)
    assert pair[1 - changed].recommend(k=3).rows() == rows
    assert pair[1 - changed].log_.n_users == 60
    assert not np.allclose(pair[changed].item_weights(), before)


@pytest.mark.parametrize("changed", [0, 1])
def test_a_kept_gram_is_not_shared_by_a_change(log, changed):
    model = mg.EASE(l2=3).fit(log, keep_gram=True)
    pair = [model, copy.copy(model)]
    pair[changed].forget_users([1, 2, 3])
    for one in pair:
        expected = mg.EASE(l2=9).fit(one.log_).item_weights()
        np.testing.assert_allclose(one.changed(l2=9).item_weights(), expected, atol=1e-5)


def test_a_copy_of_an_unfitted_model():
    other = copy.copy(mg.EASE(l2=3))
    other.l2 = 5
    assert other.params() == mg.EASE(l2=5).params()


@pytest.mark.parametrize(
    ("model", "name", "way"),
    [(mg.EASE(l2=3), "l2", r"changed\(l2=-5\) gives"), (mg.LRR(rank=2), "rank", "make and fit")],
)
def test_parameters_of_a_fitted_model_are_frozen(log, tmp_path, model, name, way):
    model = type(model)(**model.params()).fit(log)
    before = model.params()
    with pytest.raises(ParameterError, match=way):
        setattr(model, name, -5)
    assert model.params() == before
    model.save(tmp_path / "model.mono")
    assert mg.load(tmp_path / "model.mono").params() == before


def test_parameters_may_change_before_a_fit(log):
    model = mg.EASE(l2=3)
    model.l2 = 7
    assert repr(model.fit(log)) == "EASE(l2=7.0)"
    with pytest.raises(ParameterError, match="is fitted with l2 = 7"):
        model.l2 = 3
    model.fit(log)
