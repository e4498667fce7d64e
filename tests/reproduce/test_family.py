"""Models from one inverse are the models fitted alone."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.reproduce import family


def models():
    return [
        mg.EDLAE(l2=5, dropout=0.3),
        mg.DLAE(l2=5, dropout=0.3),
        *(mg.DEQL(l2=5, dropout=0.3, b=b) for b in (0, 0.5, 2)),
        mg.DEQL(l2=5, dropout=0.3, zero_diagonal=True),
    ]


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_one_inverse_for_all(world, solver):
    log = mg.Interactions.from_csr(world)
    shared, count = models(), 0
    for one, alone in zip(family.fitted(shared, log, dtype="float64", solver=solver), models(), strict=True):
        alone.fit(log, dtype="float64", solver=solver)
        items = np.arange(log.n_items)
        found, expected = (m.weights_.score(log.matrix, items, 1) for m in (one, alone))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        assert one.report_.solver == solver
        count += 1
    assert count == len(shared)
    assert all("weights_" not in vars(one) for one in shared), "each forgets when the next is asked for"


def test_who_is_of_a_family():
    assert family.key(mg.EASE(l2=5)) == family.key(mg.DEQL(l2=5, dropout=0)) == (5, 0)
    assert family.key(mg.LowRankDLAE(l2=5)) is None, "a student has other weights than its teacher"
    assert family.key(mg.LRR()) is None


def test_one_alone_of_any_kind(world):
    (one,) = (repr(m.weights_) for m in family.fitted([mg.LRR(rank=2)], mg.Interactions.from_csr(world)))
    assert "Factors" in one
