"""Models measured from one shared inverse have the values of separate fits."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.errors import ParameterError
from monogram.evaluation import shared_fits
from monogram.evaluation.metrics import parse
from monogram.evaluation.protocol import measure_model
from monogram.models.recipe import GramRecipe, Penalties


def models():
    return [
        mg.EDLAE(l2=5, dropout=0.3),
        mg.DLAE(l2=5, dropout=0.3),
        *(mg.DEQL(l2=5, dropout=0.3, b=b) for b in (0, 0.5, 2)),
        mg.DEQL(l2=5, dropout=0.3, zero_diagonal=True),
    ]


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_one_inverse_for_all(world, solver):
    split = mg.splits.holdout(mg.Interactions.from_csr(world), share=0.3, seed=3)
    how = {"dtype": "float64", "solver": solver}
    asked = (parse("recall@5"), parse("ndcg@3"), parse("coverage@2"))
    report, found = shared_fits.measure_models(models(), split, asked, how)
    assert report.solver == solver
    assert len(found) == len(models())
    for (values, catalogue), alone in zip(found, models(), strict=True):
        expected = measure_model(alone.fit(split.train, **how), split, asked, 1)
        np.testing.assert_array_equal(values, expected[0])
        assert catalogue == expected[1]


def test_equal_recipe_and_penalties_share_one_inverse():
    inverse_key, reads_heads = shared_fits.inverse_key, shared_fits.reads_heads
    assert inverse_key(mg.EASE(l2=5)) == inverse_key(mg.DEQL(l2=5, dropout=0)) == (GramRecipe(), Penalties(5))
    assert inverse_key(mg.LowRankDLAE(l2=5)) == inverse_key(mg.DLAE(l2=5))
    assert reads_heads(mg.DLAE())
    assert not reads_heads(mg.LowRankDLAE()), "a student has other weights than its teacher"
    assert not reads_heads(mg.TwoStep())
    assert inverse_key(mg.LRR()) is None
    assert not reads_heads(mg.LRR())


@pytest.mark.parametrize(
    "others", [[mg.EASE(l2=5), mg.EASE(l2=6)], [mg.LRR(), mg.LRR(l2=3)], [mg.DLAE(), mg.LowRankDLAE()]]
)
def test_models_without_a_shared_inverse_are_refused(world, others):
    split = mg.splits.holdout(mg.Interactions.from_csr(world), seed=3)
    with pytest.raises(ParameterError, match="do not share one inverse"):
        shared_fits.measure_models(others, split, (parse("ndcg@3"),), {})


def test_a_single_model_of_any_kind(world):
    split, asked = mg.splits.holdout(mg.Interactions.from_csr(world), seed=3), (parse("ndcg@3"),)
    model = mg.LRR(rank=2)
    report, ((values, _),) = shared_fits.measure_models([model], split, asked, {})
    assert report.rank == 2
    np.testing.assert_array_equal(values, measure_model(mg.LRR(rank=2).fit(split.train), split, asked, 1)[0])
    assert "weights_" not in vars(model), "the model itself is not fitted"
    assert shared_fits.measure_models([model], split, (), {})[0].rank == 2, "only the cost of the fit is wanted"
