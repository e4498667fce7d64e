"""The trend of items in TwoStep, against a loop over the events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import monogram as mg
from monogram.errors import DataError, MonogramWarning, ParameterError
from monogram.models import trend
from monogram.tuning.group_runner import GroupRunner, Task, grouped
from monogram.tuning.settings import Setting

SETTINGS = {"l2": 5, "dropout": 0.3, "second": 0.6, "item_power": 0.2}


@pytest.fixture
def timed(world):
    matrix = mg.Interactions.from_csr(world).matrix
    rng = np.random.default_rng(5)
    hours = rng.integers(0, 900, matrix.nnz)  # with ties
    again = hours + rng.integers(0, 2, matrix.nnz) * rng.integers(0, 200, matrix.nnz)  # some pairs are repeated
    return replace(mg.Interactions.from_csr(matrix, times=hours, time_unit="h"), last_times=again)


def ordered(log):
    return replace(
        log, times=None, last_times=None, time_unit=None, order=np.random.default_rng(6).permutation(log.n_events)
    )


def by_hand(log, half_life, in_events):
    """The trend of each item: a loop over its events; a repeated pair is one event, at its last time."""
    factors, lists = [], [[] for _ in range(log.n_items)]
    newest = 0 if in_events else log.latest.max()
    for user in range(log.n_users):
        events = range(log.matrix.indptr[user], log.matrix.indptr[user + 1])
        for event in events:
            if in_events:
                age = max(log.positions[other] for other in events) - log.positions[event]
            else:
                age = newest - log.latest[event]
            factors.append(2.0 ** (-age / half_life))
            lists[log.matrix.indices[event]].append(factors[-1])
    average = np.mean(factors)
    return np.array([(sum(own) + 1) / (len(own) * average + 1) for own in lists])


@pytest.mark.parametrize("solver", ["primal", "dual", "local"])
@pytest.mark.parametrize(
    ("half_life", "hours", "in_events"),
    [("2d", 48, False), ("36h", 36, False), ("3 events", 3, True), (None, None, False), (None, 10, True)],
)
def test_it_is_its_definition(timed, solver, half_life, hours, in_events):
    log = ordered(timed) if in_events and half_life is None else timed
    if hours is None:
        hours = 0.01 * (timed.latest.max() - timed.latest.min())
    how = {"solver": solver, "dtype": "float64"}
    plain = mg.TwoStep(**SETTINGS).fit(log, **how).item_weights()
    model = mg.TwoStep(**SETTINGS, trend=0.7, trend_half_life=half_life).fit(log, **how)
    wanted = plain * by_hand(log, hours, in_events) ** 0.7
    np.testing.assert_allclose(model.item_weights(), wanted, rtol=1e-9, atol=1e-12)


def test_a_power_of_0_is_the_model_without_a_trend_to_the_bit(timed):
    plain = mg.TwoStep(**SETTINGS).fit(timed)
    other = mg.TwoStep(**SETTINGS, trend=0, trend_half_life="3d").fit(timed)
    assert (plain.item_weights() == other.item_weights()).all()
    blind = replace(timed, times=None, last_times=None, time_unit=None)
    assert (mg.TwoStep(**SETTINGS, trend=0).fit(blind).item_weights() == plain.item_weights()).all()


@pytest.mark.parametrize("half_life", [None, "2d"])
def test_scaled_times_with_a_scaled_half_life_change_nothing(timed, half_life):
    days = replace(timed, times=timed.times * 24.0, last_times=timed.last_times * 24.0)
    longer = None if half_life is None else "48d"
    one = mg.TwoStep(**SETTINGS, trend=1, trend_half_life=half_life).fit(timed, dtype="float64")
    other = mg.TwoStep(**SETTINGS, trend=1, trend_half_life=longer).fit(days, dtype="float64")
    np.testing.assert_allclose(one.item_weights(), other.item_weights(), rtol=1e-12)


def test_items_with_recent_events_rise(timed):
    recent = timed.latest > 600
    late = np.bincount(timed.matrix.indices, recent, timed.n_items)
    counts = np.bincount(timed.matrix.indices, minlength=timed.n_items)
    rising, falling = (
        np.argmax(late / np.maximum(counts, 1)),
        np.argmin(np.where(counts > 0, late / np.maximum(counts, 1), 2)),
    )
    plain = mg.TwoStep(**SETTINGS).fit(timed).item_weights()
    ratio = np.abs(mg.TwoStep(**SETTINGS, trend=1, trend_half_life="5d").fit(timed).item_weights()).sum(0)
    ratio /= np.maximum(np.abs(plain).sum(0), 1e-12)
    assert ratio[rising] > ratio[falling]


def test_a_long_log_has_finite_factors_and_equal_times_none(timed):
    years = replace(timed, times=timed.times * 10**6, last_times=timed.last_times * 10**6)
    assert np.isfinite(mg.TwoStep(**SETTINGS, trend=3, trend_half_life="1h").fit(years).item_weights()).all()
    once = replace(timed, times=np.full(timed.n_events, 7), last_times=None)
    plain = mg.TwoStep(**SETTINGS).fit(once).item_weights()
    np.testing.assert_allclose(mg.TwoStep(**SETTINGS, trend=2).fit(once).item_weights(), plain, rtol=1e-6)


def test_it_is_stored(timed, tmp_path):
    model = mg.TwoStep(**SETTINGS, trend=0.5, trend_half_life="2d").fit(timed)
    model.save(tmp_path / "m.mono")
    loaded = mg.load(tmp_path / "m.mono")
    assert (loaded.trend, loaded.trend_half_life) == (0.5, "2d")
    assert (loaded.item_weights() == model.item_weights()).all()


def test_a_log_without_order_or_times_is_an_error(timed):
    blind = replace(timed, times=None, last_times=None, time_unit=None)
    for half_life, message in [
        (None, "trend needs the order of events, but this log has neither times nor an order"),
        ("2d", "trend_half_life = '2d' needs times"),
    ]:
        with pytest.raises(DataError, match=message):
            mg.TwoStep(trend=1, trend_half_life=half_life).fit(blind)
        with pytest.raises(DataError, match=message):
            mg.TwoStep(trend=1, trend_half_life=half_life).inputs(blind)  # before anything is computed
    with pytest.raises(DataError, match="only an order"):
        mg.TwoStep(trend=1, trend_half_life="2d").fit(ordered(timed))
    with pytest.raises(ParameterError, match="trend_half_life"):
        mg.TwoStep(trend=1, trend_half_life="soon")


def test_tune_measures_it_as_evaluate_does(timed):
    split = mg.splits.temporal(timed, share=0.2)
    runner = GroupRunner(Task(split, mg.evaluation.metrics.parse("ndcg@5"), "float64"))
    chosen = [Setting.of("two_step", SETTINGS | {"trend": trend}) for trend in (0.0, 0.5, 1.5)]
    (group,) = grouped(chosen)
    trials = runner.run(group)
    for setting, trial in zip(chosen, trials, strict=True):
        alone = mg.evaluate({"it": setting.make()}, split, "ndcg@5", fit={"dtype": "float64"}).value("it", "ndcg@5")
        assert trial.value == pytest.approx(alone, abs=1e-9)
    assert len({trial.value for trial in trials}) > 1


def test_many_events_are_summed_in_parts(timed, monkeypatch):
    whole = [trend.item_trends(timed, half_life) for half_life in ("2d", "3 events")]
    monkeypatch.setattr(trend, "SLAB", 7)
    for half_life, wanted in zip(("2d", "3 events"), whole, strict=True):
        np.testing.assert_allclose(trend.item_trends(timed, half_life), wanted, rtol=1e-12)


@pytest.mark.parametrize("model", [mg.TwoStep(trend=1, trend_half_life="60d"), mg.Popularity(half_life="60d")])
def test_a_late_time_that_alone_is_recent_is_a_warning(model):
    log = mg.sample()
    times = log.latest.copy()
    times[0] = 4_070_908_800  # 2099-01-01
    with pytest.warns(MonogramWarning, match=r"only 1 of .* events are recent: .* 2099-01-01"):
        model.fit(replace(log, times=times, last_times=None))
    model.fit(log)  # without a warning


def test_an_update_of_a_model_without_updates_names_the_refit(timed):
    model = mg.TwoStep(trend=1).fit(timed)
    with pytest.raises(AttributeError, match=r"TwoStep has no add_users: fit it again; models that have it: .*EASE"):
        model.add_users([("ann", 3)])
    assert not hasattr(model, "forget_users")
    with pytest.raises(AttributeError, match="'TwoStep' object has no attribute 'nothing'"):
        _ = model.nothing
