"""Each metric against a slow reference written from its formula, in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monogram.errors import ParameterError
from monogram.evaluation import metrics
from monogram.evaluation.metrics import BY_CATALOGUE, BY_USER, JudgedLists


def slow(name: str, items: list[int], wanted: set[int], k: int, surprise) -> float:
    shown = items[:k]
    hits = [rank for rank, item in enumerate(shown, 1) if item in wanted]
    match name:
        case "recall":
            return len(hits) / len(wanted)
        case "recall_capped":
            return len(hits) / min(k, len(wanted))
        case "precision":
            return len(hits) / k
        case "hit":
            return 1.0 if hits else 0.0
        case "mrr":
            return 1 / hits[0] if hits else 0.0
        case "ndcg":
            ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))
            return sum(1 / math.log2(rank + 1) for rank in hits) / ideal
        case "map":
            return sum((number + 1) / rank for number, rank in enumerate(hits)) / min(k, len(wanted))
        case "novelty":
            return sum(surprise[item] for item in shown) / len(shown) if shown else 0.0
    raise AssertionError(name)


@st.composite
def worlds(draw):
    n, k = draw(st.integers(1, 30)), draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    users = draw(st.integers(1, 8))
    lists = [list(rng.permutation(n)[: rng.integers(0, min(k, n) + 1)]) for _ in range(users)]
    wanted = [set(rng.permutation(n)[: rng.integers(1, n + 1)].tolist()) for _ in range(users)]
    return n, k, lists, wanted, rng.random(n) * 10


def as_lists(k, lists, wanted, surprise) -> JudgedLists:
    ranks = max(1, *(len(one) for one in lists)) if len(lists) > 1 else max(1, len(lists[0]))
    hits, items = np.zeros((len(lists), ranks), bool), np.zeros((len(lists), ranks), np.int64)
    for user, one in enumerate(lists):
        items[user, : len(one)] = one
        hits[user, : len(one)] = [item in wanted[user] for item in one]
    lengths = np.array([len(one) for one in lists])
    return JudgedLists(k, hits, items, lengths, np.array([len(one) for one in wanted]), surprise)


@pytest.mark.parametrize("name", BY_USER)
@given(world=worlds())
def test_against_the_formula(name, world):
    _, k, lists, wanted, surprise = world
    found = BY_USER[name](as_lists(k, lists, wanted, surprise))
    expected = [slow(name, one, want, k, surprise) for one, want in zip(lists, wanted, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_gini_and_coverage_against_their_formulas(counts):
    array = np.array(counts)
    assert metrics.coverage(array) == pytest.approx(sum(one > 0 for one in counts) / len(counts), abs=1e-12)
    total = sum(counts)
    # The mean absolute difference, the definition the sorted formula is short for.
    expected = sum(abs(a - b) for a in counts for b in counts) / (2 * len(counts) * total) if total else 0.0
    assert metrics.gini(array) == pytest.approx(expected, abs=1e-12)


def test_names():
    assert str(metrics.parse("recall_capped@50")) == "recall_capped@50"
    for text in (
        "recall",
        "recall@0",
        "recall@-1",
        "recal@20",
        "recall@20x",
        "",
        "recall@1٣",
        "recall@" + "9" * 30,
        "@5",
        None,
        "recall@ 5",
    ):
        with pytest.raises(ParameterError, match="recall@20"):
            metrics.parse(text)


@pytest.mark.parametrize("name", [*BY_USER, *BY_CATALOGUE])
def test_every_docstring_gives_the_formula(name):
    assert len({**BY_USER, **BY_CATALOGUE}[name].__doc__) > 5
