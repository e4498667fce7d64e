"""Popularity with a half-life: the trending items."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.errors import DataError, ParameterError
from monogram.models import live
from monogram.models.parameters import search_axes
from monogram.ranking import NO_RECENCY

DAY = 86_400


def log_of(seed, **changes):
    rng = np.random.default_rng(seed)
    dense = (rng.random((30, 12)) < 0.3) * rng.integers(1, 4, (30, 12))
    dense[0, 0] = 1
    matrix = sp.csr_array(dense.astype(np.float32))
    times = rng.integers(1_500_000_000, 1_500_000_000 + 90 * DAY, matrix.nnz)
    return mg.Interactions.from_csr(matrix, times=changes.get("times", lambda t: t)(times), time_unit="s")


def scores(model):
    return model.weights_.scores


@given(seed=st.integers(0, 1000), days=st.sampled_from([1, 7, 30, 1000]))
def test_each_event_counts_by_its_age(seed, days):
    log = log_of(seed)
    expected = np.zeros(12)
    for item, weight, time in zip(log.matrix.indices, log.matrix.data, log.times, strict=True):
        expected[item] += weight * 2.0 ** (-(max(log.times) - time) / (days * DAY))
    model = mg.Popularity(half_life=f"{days}d").fit(log)
    np.testing.assert_allclose(scores(model), expected, rtol=1e-12)
    ranked = [row["item"] for row in model.recommend(histories=[[]], k=12).rows()]
    assert ranked == sorted(range(12), key=lambda item: (-expected[item], item))


@given(seed=st.integers(0, 1000))
def test_doubling_every_age_and_the_half_life_changes_nothing(seed):
    once = mg.Popularity(half_life=5 * DAY).fit(log_of(seed))
    twice = mg.Popularity(half_life=10 * DAY).fit(log_of(seed, times=lambda times: 2 * times))
    shifted = mg.Popularity(half_life="5d").fit(log_of(seed, times=lambda times: times - 40 * DAY))
    assert (scores(once) == scores(twice)).all()
    assert (scores(once) == scores(shifted)).all()


def test_without_half_life_it_is_the_total_weight():
    log = log_of(1)
    assert (scores(mg.Popularity().fit(log)) == log.matrix.sum(axis=0)).all()
    assert mg.Popularity(half_life="30d").half_life == "30d"


def test_a_repeated_pair_counts_at_its_last_time():
    table = pa.table({"user": ["a", "b", "a"], "item": ["x", "y", "x"], "time": [0, 10 * DAY, 20 * DAY]})
    log = mg.read(table, user="user", item="item", time="time", time_unit="s", merge="binary")
    model = mg.Popularity(half_life="10d").fit(log)
    assert scores(model).tolist() == [1.0, 0.5]


def test_histories_are_not_weighted():
    """The half-life is that of the log: no age of a history is asked for."""
    model = mg.Popularity(half_life="30d")
    assert model.recency_rule() is NO_RECENCY
    log = log_of(2)
    model.fit(log)
    assert live.parameters(model) == {}
    assert (model.score([[3], []]) == scores(model)).all()
    assert mg.EASE(half_life="30d").recency_rule().active


@pytest.mark.parametrize("half_life", ["5 events", "1 event"])
def test_events_are_no_unit(half_life):
    with pytest.raises(ParameterError, match="expected a duration such as '30d'"):
        mg.Popularity(half_life=half_life)


def test_a_log_without_times_is_refused():
    matrix = log_of(3).matrix
    ordered = mg.Interactions.from_csr(matrix, order=np.arange(matrix.nnz))
    with pytest.raises(DataError, match="needs times, but this log has none, only an order of the events of each user"):
        mg.Popularity(half_life="30d").fit(ordered)
    with pytest.raises(DataError, match=r"needs times, but this log has none; name the column of times"):
        mg.Popularity(half_life="30d").fit(matrix)
    unknown = mg.Interactions.from_csr(matrix, times=np.arange(matrix.nnz))
    with pytest.raises(DataError, match="unit of this log's times is not known"):
        mg.Popularity(half_life="30d").fit(unknown)
    assert mg.Popularity(half_life=30).fit(unknown).report_ is not None


def test_files_keep_the_half_life(tmp_path):
    model = mg.Popularity(half_life="30d").fit(log_of(4))
    model.save(tmp_path / "m.mono")
    loaded = mg.load(tmp_path / "m.mono")
    assert loaded.half_life == "30d"
    assert (scores(loaded) == scores(model)).all()


def test_tune_does_not_search_the_recency_of_histories():
    assert search_axes(mg.Popularity) == {}
    assert "recency" in search_axes(mg.EASE)
