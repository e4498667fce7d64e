"""A pruned model against dense weights whose small entries are set to 0."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import monogram as mg
from monogram import store
from monogram.engine.runtime import memory
from monogram.engine.topk import column_topk
from monogram.errors import MemoryBudgetError, ModelFileError, NotFittedError, ParameterError
from monogram.models.parameters import param
from monogram.models.pruning import Pruning
from monogram.testing import check_recommender
from monogram.weights import Dense, Factors, Sparse


def reference(weights, keep) -> np.ndarray:
    """The largest of each column off the diagonal, by magnitude, ties to the lower row; and the diagonal."""
    out = np.diag(np.diag(weights))
    for j in range(len(weights)):
        size = np.abs(weights[:, j])
        size[j] = -1
        best = np.argsort(-size, kind="stable")[: min(keep, len(weights) - 1)]
        out[best, j] = weights[best, j]
    return out


@dataclass(kw_only=True, eq=False)
class Thin(mg.Recommender):
    """Factors of low rank."""

    name: ClassVar[str] = "thin"
    length: float = 0.0
    shift: float = 0.0

    def _fit(self, inputs, options, report):
        rng = np.random.default_rng(0)
        n = inputs.log.n_items
        left, right = rng.standard_normal((2, n, 3)).astype(options.dtype)
        return Factors(left, right, np.array([3.0, 2.0, 1.0]), np.full(n, self.shift), self.length)


@pytest.mark.parametrize("keep", [1, 4, 24, 25, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (mg.EASE(l2=2), "primal"),
        (mg.EASE(l2=2), "dual"),
        (mg.DLAE(l2=2), "primal"),
        (Thin(), "auto"),
        (mg.SLIM(l1=0.1, l2=2, positive=False), "auto"),
    ],
    ids=["dense", "dual", "with a diagonal", "factors", "sparse"],
)
def test_the_largest_of_each_column_stay(world, model, solver, dtype, keep, monkeypatch):
    monkeypatch.setattr(column_topk, "WIDTH", 8)
    model.fit(world, solver=solver, dtype=dtype)
    before = model.item_weights()
    pruned = model.prune(keep=keep)
    assert type(pruned) is type(model)
    assert pruned.params() == model.params()
    assert isinstance(pruned.weights_, Sparse)
    assert pruned.weights_.matrix.dtype == dtype
    assert (pruned.weights_.matrix.data != 0).all()
    expected = reference(before, keep).astype(dtype)
    np.testing.assert_allclose(pruned.item_weights(), expected, atol=1e-9 if solver == "dual" else 0)
    np.testing.assert_array_equal(model.item_weights(), before)
    assert pruned.report_ == model.report_


def test_all_weights_rank_as_before(world):
    model = mg.DEQL(l2=2, b=0.7).fit(world)
    pruned = model.prune(keep=25)
    assert pruned.pruning_.overlap == 1.0
    given = [{key: row[key] for key in ("user", "rank", "item")} for row in model.recommend(k=25).rows()]
    actual = [{key: row[key] for key in ("user", "rank", "item")} for row in pruned.recommend(k=25).rows()]
    assert actual == given


def test_pruning_reports_size_and_overlap(world):
    model = mg.EASE(l2=2).fit(world)
    pruned = model.prune(keep=2)
    caught = pruned.pruning_
    assert (caught.keep, caught.users) == (2, 59)
    assert caught.density == pruned.weights_.matrix.nnz / 25**2
    assert caught.bytes_before == model.weights_.nbytes > caught.bytes_after == pruned.weights_.nbytes
    lists = [{}, {}]
    for mine, one in zip(lists, (model, pruned), strict=True):
        for row in one.recommend(k=20).rows():
            mine.setdefault(row["user"], set()).add(row["item"])
    shares = [len(lists[0][user] & lists[1][user]) / len(lists[0][user]) for user in lists[0] if model.history(user)]
    assert caught.overlap == pytest.approx(np.mean(shares))
    assert caught.overlap < 1
    assert "2 weights an item" in str(caught)
    assert model.pruning_ is None


def test_the_sample_of_users_follows_the_seed(world, monkeypatch):
    monkeypatch.setattr("monogram.models.pruning.SAMPLE", 5)
    model = mg.EASE(l2=2).fit(world)
    caught = [model.prune(keep=1, seed=seed).pruning_ for seed in (0, 0, 1, 2, 3)]
    assert caught[0] == caught[1]
    assert caught[0].users == 5
    assert len({one.overlap for one in caught}) > 1


def test_every_item_with_weights_can_still_be_recommended(world):
    model = mg.DLAE(l2=2).fit(world)
    columns = model.prune(keep=1).item_weights()
    np.fill_diagonal(columns, 0)
    used = np.bincount(world.indices, minlength=25) > 0
    np.testing.assert_array_equal((columns != 0).sum(axis=0), used)


def test_saved_and_loaded_it_is_the_same(world, tmp_path):
    pruned = mg.EASE(l2=2).fit(world).prune(keep=3)
    pruned.save(tmp_path / "x.mono")
    loaded = mg.load(tmp_path / "x.mono")
    assert isinstance(loaded.pruning_, Pruning)
    assert loaded.pruning_ == pruned.pruning_
    assert loaded.recommend(k=9).rows() == pruned.recommend(k=9).rows()
    assert loaded.prune(keep=1).pruning_.bytes_after < pruned.weights_.nbytes


@pytest.mark.parametrize("wrong", ["text", {"keep": "3"}, {"kept": 3}, {"keep": 3}, [3]])
def test_a_forged_pruning_is_an_error(world, tmp_path, wrong):
    path = tmp_path / "x.mono"
    mg.EASE(l2=2).fit(world).prune(keep=3).save(path)
    stored = store.load(path)
    header = json.loads(json.dumps(stored.header)) | {"pruning": wrong}
    store.save(path, header, {name: np.array(one) for name, one in stored.tensors.items()})
    with pytest.raises(ModelFileError):
        mg.load(path)


def test_a_new_fit_discards_the_pruning(world):
    model = mg.EASE(l2=2).fit(world).prune(keep=3)
    assert isinstance(model.fit(world).weights_, Dense)
    assert model.pruning_ is None


@pytest.mark.parametrize("keep", [0, -1, 2.5, True, "3", None])
def test_an_invalid_keep_is_refused(world, keep):
    with pytest.raises(ParameterError, match="keep = "):
        mg.EASE(l2=2).fit(world).prune(keep=keep)


def test_models_that_cannot_be_pruned_are_refused(world):
    with pytest.raises(NotFittedError):
        mg.EASE().prune(keep=3)
    with pytest.raises(ParameterError, match="Popularity has no weights to prune"):
        mg.Popularity().fit(world).prune(keep=3)
    for model in (Thin(length=3.0), Thin(shift=1.0), mg.WRMF(rank=3, epochs=2)):
        with pytest.raises(ParameterError, match="not the history times one matrix"):
            model.fit(world).prune(keep=3)


def test_a_pruning_over_the_free_memory_is_refused(world, monkeypatch):
    model = mg.EASE(l2=2).fit(world)
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(MemoryBudgetError, match="lower keep"):
        model.prune(keep=3)


@dataclass(kw_only=True, eq=False)
class PrunedEASE(mg.EASE):
    """EASE that is pruned as soon as it is fitted."""

    name: ClassVar[str] = "pruned_ease"
    keep: int = param(5, "weights of each item", low=1)

    def fit(self, log, **options):
        super().fit(log, **options)
        self.__dict__.update(self.prune(keep=self.keep).__dict__)
        return self


@pytest.mark.parametrize("keep", [2, 5])
def test_the_contract(keep):
    check_recommender(PrunedEASE, l2=5, keep=keep)
