"""Stored events as a log: the times and the order that the log of the model has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.data.interactions import Interactions
from monogram.ranking.requests import user_histories
from monogram.server.http import schemas
from monogram.server.http.routes import _change
from monogram.server.updates.event_log import as_log
from monogram.server.updates.events import UNKNOWN, EventStore, LogChange
from monogram.server.updates.refresh import changed

DAY = 86_400.0
ONES = sp.csr_array(np.eye(2, dtype=np.float32))


def log_with(**timing):
    return Interactions.from_csr(ONES, ["ann", "bob"], ["tea", "jam"], **timing)


def test_events_of_a_log_without_order_have_none():
    log = as_log([LogChange("zoe", "tea", time=5.0, received=1e9)], log_with())
    assert not log.has_order


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.none() | st.integers(0, 9), st.integers(100, 105)),
        min_size=1,
    )
)
def test_repeats_have_their_first_and_last_time_and_their_last_place(rows):
    events = [LogChange(user, item, 2.0, time, seq, received) for seq, (user, item, time, received) in enumerate(rows)]
    known = log_with(times=[1, 2], time_unit="s")
    log = as_log(events, known)
    placed = as_log(events, log_with(order=[0, 0]))
    assert (log.times.dtype, log.time_unit, log.merge) == (known.times.dtype, "s", known.merge)
    latest, ranks = {}, {}
    assert log.n_events == len({row[:2] for row in rows})
    for user, item in {row[:2] for row in rows}:
        row, column = log.users.index([user])[0], log.items.index([item])[0]
        [entry] = [
            place for place in range(*log.matrix.indptr[row : row + 2]) if log.matrix.indices[place] == column
        ]  # fmt: skip
        times = [at if at is not None else received for u, i, at, received in rows if (u, i) == (user, item)]
        assert (log.times[entry], log.last_times[entry]) == (min(times), max(times))
        last = max(place for place, one in enumerate(rows) if one[:2] == (user, item))
        assert placed.order[entry] == last
        latest[user, item] = (max(times), last)
        ranks[user, item] = log.order[entry]
    assert sorted(latest, key=latest.get) == sorted(ranks, key=ranks.get), "ties are in the order of arrival"
    assert placed.times is None


@pytest.mark.parametrize(("unit", "expected"), [("s", 30 * DAY), ("us", 30e6 * DAY), ("d", 30.0), ("ms", 30e3 * DAY)])
def test_an_event_without_a_time_has_that_of_its_arrival_in_the_unit_of_the_log(unit, expected):
    log = as_log([LogChange("zoe", "tea", received=30 * DAY)], log_with(times=[1, 2], time_unit=unit))
    assert log.times.tolist() == [expected]


def test_where_the_unit_is_not_known_the_arrival_is_the_latest_time():
    log = as_log([LogChange("zoe", "tea", received=1e9), LogChange("zoe", "jam", time=7)], log_with(times=[10, 40]))
    assert dict(zip(log.matrix.indices.tolist(), log.times.tolist(), strict=True)) == {0: 40, 1: 7}


@pytest.mark.parametrize(("time", "number"), [(1e308, 2.0**62), (-1e308, -(2.0**62)), (2.6, 2.6)])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_any_stored_time_can_be_applied(time, number, dtype):
    """Events that an earlier version stored may have any number as their time."""
    log = as_log([LogChange("zoe", "tea", time=time)], log_with(times=np.array([10, 40], dtype), time_unit="s"))
    assert log.times.dtype == dtype
    assert log.times.tolist() == [number if dtype is np.float64 else round(number)]


@pytest.mark.parametrize(
    ("stored", "unit", "time", "expected"),
    [
        ("s", "us", 2.5, 2_500_000), ("us", "s", 3_000_000.0, 3), ("d", "h", 1.5, 36), ("ns", "ms", 5e6, 5),
        ("s", "s", 7.0, 7), (None, "us", 7.0, 7), ("", None, 7.0, 7),
    ],
)  # fmt: skip
def test_a_stored_time_is_converted_into_the_unit_of_a_later_model(stored, unit, time, expected):
    event = LogChange("zoe", "tea", time=time, received=1e9, unit=stored)
    log = as_log([event], log_with(times=[1, 2], time_unit=unit))
    assert log.times.tolist() == [expected]


@pytest.mark.parametrize(("stored", "unit"), [("s", None), ("", "s"), ("", "us")])
def test_times_of_an_unknown_unit_are_refused(stored, unit):
    events = [LogChange("zoe", "jam", received=1e9), LogChange("zoe", "tea", time=5.0, seq=8, unit=stored)]
    with pytest.raises(mg.errors.DataError, match=r"1 stored events, the first of them number 8.*unknown unit"):
        as_log(events, log_with(times=[1, 2], time_unit=unit))
    assert as_log(events, log_with(order=[0, 0])).n_events == 2


@pytest.mark.parametrize("unit", ["us", "h"])
def test_a_stored_event_has_the_same_age_in_a_model_of_another_unit(unit):
    stored = (
        LogChange("zoe", "jam", time=20 * DAY, seq=1, unit="s"),
        LogChange("zoe", "tea", time=50 * DAY, seq=2, unit="s"),
    )
    days = np.array([1, 2]) * DAY * (1e6 if unit == "us" else 1 / 3600)
    model = mg.EASE(l2=2, half_life="30d").fit(log_with(times=days, time_unit=unit))
    rows = user_histories(["zoe"], changed(model, stored, 1)[0].log_, model.recency_rule())
    weights = dict(zip(rows.matrix.indices.tolist(), rows.matrix.data.tolist(), strict=True))
    assert weights == {1: pytest.approx(0.5), 0: 1}


@pytest.mark.parametrize(("time", "timing", "unit"), [
    ("2026-01-01", {"times": [1, 2], "time_unit": "d"}, "d"), (5, {"times": [1, 2]}, UNKNOWN), (None, {}, None),
    ("2026-01-01", {}, "us"), (5, {}, UNKNOWN), (1.5e9, {}, "s"),
    (1.5e9, {"times": [1_000_000_000, 1_500_000_000]}, "s"),
])  # fmt: skip
def test_an_event_is_stored_with_the_unit_of_its_time(time, timing, unit):
    assert _change(schemas.Event("zoe", "tea", time=time), log_with(**timing), 0).unit == unit


def test_the_unit_of_a_time_is_stored_with_it(tmp_path):
    """Also in a table of an earlier version, whose events are in the unit of the log to which they are added."""
    store = EventStore(str(tmp_path / "events.db"))
    store.write([[LogChange("ann", "tea", time=5.0, unit="s"), LogChange("ann", "jam")]])
    assert [change.unit for change in store.since(0)] == ["s", None]
    store._writes.run("ALTER TABLE monogram_events DROP COLUMN unit")
    store.close()
    again = EventStore(str(tmp_path / "events.db"))
    again.write([[LogChange("bob", "tea", time=6.0, unit="")]])
    assert [(change.user, change.time, change.unit) for change in again.since(0)] == [
        ("ann", 5.0, None), ("ann", None, None), ("bob", 6.0, "")
    ]  # fmt: skip
    again.close()


def read(rows, ordered):
    columns = dict(zip(("user", "item", "when"), map(list, zip(*rows, strict=True)), strict=True))
    if ordered:
        del columns["when"]
        return mg.read(pa.table(columns), time="order", quiet=True)
    return mg.read(pa.table(columns), time="when", time_unit="s", quiet=True)


@pytest.mark.parametrize("ordered", [False, True], ids=["times", "order"])
@pytest.mark.parametrize("half_life", [None, "100s"])
def test_recency_after_events_is_that_of_a_fit_on_all_events(ordered, half_life):
    """Late events that the server learns of now have their place by their time; without a time they are the latest."""
    if ordered and half_life is not None:
        half_life = "3 events"
    rng = np.random.default_rng(5)
    rows = [(f"u{user}", f"i{item}", int(rng.integers(1000))) for user in range(12) for item in rng.permutation(8)[:4]]
    new = [
        ("u0", "i7", 20),
        ("u0", "i6", None),
        ("zoe", "i1", None),
        ("zoe", "i2", None),
        ("u0", "i7", 990),
        ("u3", "new", 1),
    ]
    changes = [LogChange(user, item, 1.0, time, seq, 1005.0) for seq, (user, item, time) in enumerate(new, 1)]
    model = mg.EASE(l2=2, recency=0.0 if half_life else 0.7, half_life=half_life).fit(read(rows, ordered))
    updated, _ = changed(model, changes, 1)
    everything = [*rows, *((user, item, 1005 if time is None else time) for user, item, time in new)]
    fitted = mg.EASE(**model.params()).fit(read(everything, ordered))
    items = sorted(fitted.log_.items)
    for user in fitted.log_.users:
        mine, theirs = (one.explain(item="i1", user=user) for one in (updated, fitted))
        assert dict(zip(dict(mine.shares), mine.weights, strict=True)) == pytest.approx(
            dict(zip(dict(theirs.shares), theirs.weights, strict=True)), rel=1e-6
        )
        scores = [{row["item"]: row["score"] for row in one.recommend([user], k=9)} for one in (updated, fitted)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert sorted(updated.log_.items) == items


def test_a_store_has_the_time_of_arrival(tmp_path):
    store = EventStore(str(tmp_path / "events.db"))
    store.write([[LogChange("ann", "tea"), LogChange("ann", "jam", time=3.5)]])
    first, second = store.since(0)
    assert first.received == second.received > 1.7e9
    assert (first.time, second.time) == (None, 3.5)
    store.close()
