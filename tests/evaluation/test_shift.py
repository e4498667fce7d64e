"""The shift of a split: 1 on a random split of any log, far from 1 where the held-out share depends on popularity."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import ParameterError


def world(seed=0, users=1500, items=300, timed=False):
    """A log with a long tail, and histories of very different lengths."""
    rng = np.random.default_rng(seed)
    chance = np.outer(rng.uniform(0.02, 1, users) ** 2, 1 / np.arange(1, items + 1) ** 0.7)
    matrix = sp.csr_array((rng.random((users, items)) < chance).astype(np.float32))
    times = rng.random(matrix.nnz) if timed else None
    return mg.Interactions.from_csr(matrix, times=times)


def by_hand(split, least):
    """Item by item, event by event: the formula of the docstring."""
    history, target = (one.matrix.toarray() > 0 for one in (split.histories, split.targets))
    share = target.sum(axis=1) / (target.sum(axis=1) + history.sum(axis=1))
    terms = []
    for item in range(target.shape[1]):
        own = share[history[:, item] | target[:, item]]
        spread = (own * (1 - own)).sum()
        if spread >= least:
            terms.append((target[:, item].sum() - own.sum()) ** 2 / spread)
    return np.mean(terms), len(terms)


def test_it_is_the_mean_of_its_terms():
    for split in (mg.splits.holdout(world()), mg.splits.strong(world(1)), mg.splits.ratio811(world(2))):
        found = mg.shift(split)
        value, items = by_hand(split, 1.0)
        assert found.dispersion == pytest.approx(value, rel=1e-12)
        assert found.items == items > 30


@pytest.mark.parametrize("protocol", ["holdout", "strong", "ratio811", "temporal"])
@pytest.mark.parametrize("seed", range(3))
def test_a_random_cut_has_1(protocol, seed):
    """The times are random here, so that a cut by time is a random cut, too.

    A term has mean 1 and, its variance being at least 1, a variance of at most 3 (that of a sum of Bernoulli variables,
    squared: 2 + κ with κ ≤ 1/variance); terms of different items are nearly independent.
    """
    found = mg.shift(mg.splits.PROTOCOLS[protocol](world(seed, timed=True)))
    assert abs(found.dispersion - 1) < 5 * np.sqrt(3 / found.items)
    for row in found.deciles:
        assert abs(row["ratio"] - 1) < 5 / np.sqrt(row["expected"])
    assert abs(found.dispersion - 1) < 5 * found.spread


def test_over_many_seeds_the_mean_is_1():
    values = np.array([mg.shift(mg.splits.holdout(world(), seed=seed)).dispersion for seed in range(40)])
    spread = mg.shift(mg.splits.holdout(world(), seed=0)).spread
    assert abs(values.mean() - 1) < 4 * spread / np.sqrt(len(values))
    assert values.std() == pytest.approx(spread, rel=0.45)  # four standard errors of a deviation of 40 values


def shifted(log, power):
    """Of each user a fifth, the rarer items rather (power < 0) or the more popular ones."""
    rng, matrix = np.random.default_rng(0), log.matrix
    counts = np.bincount(matrix.indices, minlength=log.n_items).astype(float)
    keys = rng.random(matrix.nnz) ** (1 / counts[matrix.indices] ** power)
    asked = np.zeros(matrix.nnz, bool)
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        asked[start + np.argsort(-keys[start:stop])[: (stop - start) // 5]] = True
    parts = []
    for kept in (~asked, asked):
        part = matrix.copy()
        part.data = kept.astype(np.float32)
        part.eliminate_zeros()
        parts.append(mg.Interactions.from_csr(part, items=log.items, users=log.users))
    return mg.splits.Split("own", parts[0], parts[0], parts[1])


def test_a_cut_by_popularity_is_found_out():
    log = world()
    towards, away = mg.shift(shifted(log, 0.5)), mg.shift(shifted(log, -0.5))
    assert towards.dispersion > 1 + 10 * towards.spread
    assert away.dispersion > 1 + 10 * away.spread
    assert towards.deciles[0]["ratio"] < 0.8 < 1.1 < towards.deciles[-1]["ratio"]
    assert away.deciles[0]["ratio"] > 1.2 > 0.95 > away.deciles[-1]["ratio"]


def test_users_of_different_shares_are_no_shift():
    """Half of the users give half of their events, the others a tenth, and they use different items."""
    rng = np.random.default_rng(0)
    left = rng.random((1000, 100)) < 0.2
    right = rng.random((1000, 100)) < 0.2
    dense = sp.block_diag([left, right]).toarray()
    asked = rng.random(dense.shape) < np.where(np.arange(2000) < 1000, 0.5, 0.1)[:, None]
    train, test = (
        mg.Interactions.from_csr(sp.csr_array(part.astype(np.float32))) for part in (dense & ~asked, dense & asked)
    )
    found = mg.shift(mg.splits.Split("own", train, train, test))
    assert abs(found.dispersion - 1) < 5 * np.sqrt(3 / found.items)


def test_the_deciles_are_tenths_of_the_items_that_sum_to_all():
    split = mg.splits.holdout(world())
    found = mg.shift(split)
    assert [row["decile"] for row in found.deciles] == list(range(1, 11))
    assert sum(row["events"] for row in found.deciles) == split.targets.n_events
    assert sum(row["expected"] for row in found.deciles) == pytest.approx(split.targets.n_events)
    counts = [row["items"] for row in found.deciles]
    assert max(counts) - min(counts) <= 1
    most = [row["most"] for row in found.deciles]
    assert most == sorted(most)
    assert found.deciles[0]["least"] >= 1


def test_a_small_catalogue_has_fewer_groups():
    log = mg.Interactions.from_csr(sp.csr_array(np.ones((30, 4), np.float32)))
    found = mg.shift(mg.splits.holdout(log, share=0.5))
    assert [row["items"] for row in found.deciles] == [1, 1, 1, 1]


def test_without_items_enough_there_is_no_dispersion():
    log = mg.Interactions.from_csr(sp.csr_array(np.ones((2, 4), np.float32)))
    found = mg.shift(mg.splits.holdout(log, share=0.5))
    assert found.items == 0
    assert found.dispersion is found.spread is None
    assert "too few events" in str(found)


def test_it_prints_and_goes_into_json():
    found = mg.shift(mg.splits.holdout(world()))
    text = str(found)
    assert f"{found.dispersion:.3f}" in text
    assert len(text.splitlines()) == 12
    told = json.loads(json.dumps(found.document()))
    assert told["dispersion"] == found.dispersion
    assert len(told["deciles"]) == 10


def test_what_is_no_split_is_refused():
    with pytest.raises(ParameterError, match=r"split is a Interactions; expected one of monogram\.splits"):
        mg.shift(world())
