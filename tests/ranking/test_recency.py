"""The weights of a history by the age of its events: known users, lists, and events with times say the same."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.data.spans import Span
from monogram.errors import DataError, ParameterError
from monogram.ranking import (
    NO_RECENCY,
    Recency,
    given_histories,
    item_histories,
    known_users,
    merged_histories,
    training_histories,
)

ITEMS = [f"i{n}" for n in range(9)]
DAY = 86_400_000_000  # microseconds

RULES = st.one_of(
    st.builds(Recency, st.floats(0.1, 3), st.sampled_from(["1 event", "3 events"])),
    st.builds(Recency, st.floats(0.1, 3), st.sampled_from([1, 7.5])),
    st.builds(Recency, half_life=st.sampled_from(["2 events", 3, 0.25])),
)


@st.composite
def logs(draw):
    """A log with times, with ties where the order of the items breaks them."""
    users = draw(st.integers(1, 6))
    rows = [draw(st.lists(st.integers(0, 8), max_size=9, unique=True)) for _ in range(users)]
    rows[0] = rows[0] or [3]
    pairs = [(user, item) for user, row in enumerate(rows) for item in sorted(row)]
    weights = draw(st.lists(st.sampled_from([1.0, 1.0, 2.5]), min_size=len(pairs), max_size=len(pairs)))
    times = draw(st.lists(st.integers(0, 12), min_size=len(pairs), max_size=len(pairs)))
    indptr = np.cumsum([0, *map(len, rows)])
    matrix = sp.csr_array((np.float32(weights), [item for _, item in pairs], indptr), shape=(users, 9))
    merge = draw(st.sampled_from(["binary", "sum"]))
    times = np.array(times, draw(st.sampled_from([np.int64, np.float64])))
    return mg.Interactions.from_csr(matrix, items=ITEMS, times=times, merge=merge, time_unit="d")


def row_parts(histories, row):
    span = histories.span(row)
    return histories.items[span].tolist(), histories.weights[span].tolist()


def events(log, user):
    """A user's (item, weight, time), the oldest first."""
    span = slice(log.matrix.indptr[user], log.matrix.indptr[user + 1])
    order = np.argsort(log.latest[span], kind="stable")
    parts = (log.matrix.indices[span], log.matrix.data[span], log.latest[span])
    return [tuple(part.item() for part in event) for event in zip(*(part[order] for part in parts), strict=True)]


@given(log=logs(), rule=RULES, at=st.none() | st.integers(-3, 30))
def test_the_factor_of_each_event_is_that_of_its_age(log, rule, at):
    at = None if rule.span.in_events else at
    histories = known_users(None, log, rule, at)
    for user in range(log.n_users):
        mine = events(log, user)
        for place, (item, weight, time) in enumerate(mine):
            if rule.span.in_events:
                age = (len(mine) - 1 - place) / rule.span.amount
            else:
                age = max(0, (mine[-1][2] if at is None else at) - time) / rule.span.amount
            factor = 0.5**age if rule.half_life else (1 + age) ** -rule.power
            assert dict(zip(*row_parts(histories, user), strict=True))[item] == pytest.approx(weight * factor, rel=1e-6)
    np.testing.assert_array_equal(histories.items, log.matrix.indices)
    np.testing.assert_array_equal(histories.pointers, log.matrix.indptr)


@given(log=logs(), rule=RULES, seed=st.integers(0, 5), at=st.none() | st.integers(-3, 30))
def test_known_users_lists_and_events_with_times_have_equal_bits(log, rule, seed, at):
    at = None if rule.span.in_events else at
    users = list(range(log.n_users))
    known = known_users(users, log, rule, at)
    rows, random = range(log.n_users), np.random.default_rng(seed)

    def same(histories):
        assert [row_parts(histories, row) for row in rows] == [row_parts(known, row) for row in rows]
        assert histories.weights.dtype == np.float32

    same(known_users(None, log, rule, at))
    same(training_histories(np.arange(log.n_users), log, rule, at))
    same(given_histories(log, log, rule, at))
    timed = [[{"item": ITEMS[i], "time": t, "weight": w} for i, w, t in events(log, user)] for user in users]
    same(given_histories(timed, log, rule, at))
    if rule.span.in_events:
        same(given_histories([log.history(user) for user in log.users], log, rule))
        same(given_histories([{ITEMS[i]: w for i, w, _ in events(log, user)} for user in users], log, rule))
    if (log.matrix.data == 1).all():
        same(given_histories([[(ITEMS[i], t) for i, _, t in events(log, user)] for user in users], log, rule, at))
        if rule.span.in_events:
            same(given_histories([[ITEMS[i] for i, _, _ in events(log, user)] for user in users], log, rule))
    if all(len(np.unique(log.latest[slice(*log.matrix.indptr[u : u + 2])])) == len(timed[u]) for u in users):
        same(given_histories([[event[n] for n in random.permutation(len(event))] for event in timed], log, rule, at))


@given(log=logs(), rule=RULES, factor=st.sampled_from([0.5, 2, 4]))
def test_doubling_all_ages_and_the_span_changes_nothing(log, rule, factor):
    if rule.span.in_events:
        return
    other = Recency(rule.power, Span(rule.unit.amount * factor, rule.unit.unit)) if rule.half_life is None else Recency(
        half_life=Span(rule.half_life.amount * factor, rule.half_life.unit)
    )  # fmt: skip
    scaled = mg.Interactions(log.matrix, log.users, log.items, log.latest * factor, log.merge, time_unit="d")
    np.testing.assert_array_equal(known_users(None, log, rule).weights, known_users(None, scaled, other).weights)


@given(log=logs())
def test_without_recency_the_rows_are_the_arrays_of_the_log(log):
    assert known_users(None, log).matrix is log.matrix
    assert known_users(None, log, NO_RECENCY, at=3).matrix is log.matrix
    for row in range(log.n_users):
        assert row_parts(known_users([row], log), 0) == row_parts(known_users(None, log), row)


def timed_log(times=None, **options):
    dense = np.ones((2, 3), np.float32)
    times = [0, 1, 3, 5, 5, 4] if times is None else times
    return mg.Interactions.from_csr(sp.csr_array(dense), items=["a", "b", "c"], times=np.array(times), **options)


def test_many_users_are_few_users():
    random = np.random.default_rng(0)
    matrix = sp.csr_array((random.random((400, 20)) < 0.3).astype(np.float32))
    log = mg.Interactions.from_csr(matrix, times=random.integers(0, 50, matrix.nnz), time_unit="h")
    for rule in (Recency(0.7), Recency(half_life="1d")):
        many = training_histories(np.arange(400)[::-1], log, rule)
        few = [training_histories(np.array([row]), log, rule) for row in range(399, -1, -1)]
        assert [row_parts(many, row) for row in range(400)] == [row_parts(history, 0) for history in few]


def test_repeats_count_at_their_last_place_and_unknown_items_not_at_all():
    log, rule = timed_log(), Recency(1.0)
    weights = given_histories([["a", "b", "x", "a", "y"]], log, rule).weights
    np.testing.assert_allclose(weights, [1, 1 / 2])
    weights = given_histories([[("a", 9), ("b", 3), ("a", 1), ("x", 20)]], log, rule).weights
    np.testing.assert_allclose(weights, [1, 1 / 2])
    weights = given_histories([{"a": 1.0, "b": 0.0, "c": 2.0}], log, rule).weights
    np.testing.assert_allclose(weights, [1 / 2, 1])
    weights = given_histories([[("a", 9), ("b", 3), ("a", 1), ("x", 20)]], log, Recency(1.0, 2)).weights
    np.testing.assert_allclose(weights, [1, 1 / 4])
    added = mg.Interactions.from_csr(log.matrix, items=["a", "b", "c"], times=log.times, merge="sum")
    event = [{"item": "a", "time": 1, "weight": 2.0}, {"item": "b", "time": 2}, {"item": "a", "time": 0}]
    np.testing.assert_allclose(given_histories([event], added, rule).weights, [3 / 2, 1])


def test_a_weight_never_becomes_0():
    log = timed_log([0, 10**9, 10**12, 0, 0, 0])
    weights = known_users([0], log, Recency(half_life=1)).weights
    assert (weights > 0).all()
    model = mg.EASE(l2=1, half_life=1).fit(log)
    assert len(model.recommend([0])) == 0, "all items are in the history"


def test_dates_and_numbers_are_the_same_times():
    days = np.array([0, 1, 3, 5, 6, 4]) * DAY + 1_700_000_000_000_000
    log = timed_log(days.astype("datetime64[us]"))
    rule, at = Recency(half_life="1d"), int(days.max()) + DAY
    wanted = known_users([0], log, rule, at).weights
    np.testing.assert_allclose(wanted, 0.5 ** np.array([7, 6, 4]), rtol=1e-6)
    moment = datetime.fromtimestamp(at / 1e6, UTC)
    for form in (moment, moment.replace(tzinfo=None), moment.isoformat(), np.datetime64(at, "us")):
        np.testing.assert_array_equal(known_users([0], log, rule, form).weights, wanted)
    dated = [[(item, np.datetime64(int(day), "us")) for item, day in zip("abc", days[:3], strict=True)]]
    np.testing.assert_array_equal(given_histories(dated, log, rule, at).weights, wanted)
    for unit, scale in (("s", 1e6), ("ms", 1e3), (None, 1e6)):  # of numbers; without a unit Unix times are recognised
        other = timed_log((days / scale).astype(np.int64), time_unit=unit)
        np.testing.assert_allclose(known_users([0], other, rule, moment).weights, wanted, rtol=1e-6)
        np.testing.assert_allclose(given_histories(dated, other, rule, moment).weights, wanted, rtol=1e-6)
        np.testing.assert_allclose(given_histories(log, other, rule, moment).weights[:3], wanted, rtol=1e-6)


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_a_datetime64_of_any_unit_is_a_date(unit):
    days = np.array(["2025-01-01", "2025-01-02", "2025-01-04"] * 2, f"datetime64[{unit}]")
    log, rule, at = timed_log(days), Recency(half_life="1d"), np.datetime64("2025-01-05", unit)
    for asked in (at, np.array(at)):
        np.testing.assert_allclose(known_users([0], log, rule, asked).weights, 0.5 ** np.array([4, 3, 1]))
    dated = [list(zip("abc", days[:3], strict=True))]
    np.testing.assert_allclose(given_histories(dated, log, rule, at).weights, 0.5 ** np.array([4, 3, 1]))
    np.testing.assert_allclose(given_histories(dated, log, rule).weights, 0.5 ** np.array([3, 2, 0]))


def test_numbers_that_are_no_times_of_a_log_of_dates_are_refused():
    log = timed_log(np.array(["2025-01-01", "2025-01-02", "2025-01-04"] * 2, "datetime64[D]"))
    for rule in (Recency(half_life="1d"), NO_RECENCY):
        with pytest.raises(ParameterError, match="at = 20250201, but the log's times are"):
            known_users([0], log, rule, 20250201)
    with pytest.raises(ParameterError, match="history 0 has the time 1736467200, but"):
        given_histories([[("a", 1_736_467_200)]], log, Recency(half_life="1d"))
    with pytest.raises(ParameterError, match="history 1 has the time 5, but"):
        given_histories(timed_log([1_735_700_000_000_000] * 3 + [5] * 3), log, Recency(half_life="1d"))


def test_times_serve_a_log_without_them():
    log = mg.Interactions.from_csr(sp.csr_array(np.ones((2, 3), np.float32)), items=["a", "b", "c"])
    history = [("a", "2024-01-01"), ("b", "2024-01-03")]
    np.testing.assert_allclose(given_histories([history], log, Recency(half_life="1d")).weights, [0.25, 1])
    np.testing.assert_allclose(given_histories([["a", "b"]], log, Recency(1.0)).weights, [0.5, 1])


@pytest.mark.parametrize(
    ("histories", "text"),
    [
        ([{"a", "b"}], "history 0 is a set, which has no order"),
        ([["a"], [("a", 1), "b"]], "history 1 has items with times and items without"),
        ([["a", {"item": "b", "time": 2}]], "history 0 has items with times and items without"),
        ([[{"item": "a"}]], "history 0 holds {'item': 'a'}; expected .*times"),
        ([[{"item": "a", "time": 1, "wieght": 2}]], "history 0 holds"),
        ([[{"item": "a", "time": 1, "weight": -2}]], "gives a the weight -2"),
        ([[("a", "yesterday")]], "history 0 has the time 'yesterday'; expected a date"),
        ([[("a", None)]], "history 0 has the time None"),
        ([[("a", float("nan"))]], "history 0 has the time nan"),
        ([[("a", 2**70)]], "history 0 has the time"),
        ([[(["a"], 1)]], "history 0 holds .'a'."),
    ],
)
def test_a_wrong_history_is_named(histories, text):
    with pytest.raises(ParameterError, match=text):
        given_histories(histories, timed_log(), Recency(1.0))


def test_a_set_is_a_history_where_ages_do_not_count():
    assert len(given_histories([{"a", "b"}], timed_log()).items) == 2


def test_what_a_recency_needs_is_named():
    plain = mg.Interactions.from_csr(sp.csr_array(np.ones((2, 3), np.float32)))
    ordered = mg.Interactions.from_csr(plain.matrix, order=np.arange(6))
    with pytest.raises(DataError, match="neither times nor an order"):
        known_users([0], plain, Recency(1.0))
    with pytest.raises(DataError, match="neither times nor an order"):
        given_histories(plain, timed_log(), Recency(1.0))
    with pytest.raises(DataError, match="has no times"):
        known_users([0], ordered, Recency(half_life="1d"))
    with pytest.raises(ParameterError, match=r"measured in time .1d., but history 1 has no times.*item, time"):
        given_histories([[("a", 1)], ["b"]], timed_log(time_unit="d"), Recency(half_life="1d"))
    assert len(given_histories([[]], timed_log(time_unit="d"), Recency(half_life="1d"))) == 1
    with pytest.raises(DataError, match="unit of this log's times is not known"):
        known_users([0], timed_log(), Recency(half_life="1d"))


def test_at_has_no_meaning_for_ages_in_events():
    log = timed_log(time_unit="d")
    with pytest.raises(ParameterError, match="at = 3, but the age of an event is a number of events"):
        known_users([0], log, Recency(1.0), at=3)
    with pytest.raises(ParameterError, match="at = 'soon'; expected a date"):
        known_users([0], log, at="soon")
    with pytest.raises(ParameterError, match=r"at = .*a date, but the times of the log are numbers in an unknown unit"):
        known_users([0], timed_log(), Recency(1.0, 2), at="2025-01-01")


def test_an_event_after_at_has_age_0():
    weights = known_users([0], timed_log(), Recency(1.0, 1), at=1).weights
    np.testing.assert_allclose(weights, [1 / 2, 1, 1])


def test_plain_tuples_and_single_items():
    log, rule = timed_log(), Recency(1.0)
    np.testing.assert_allclose(merged_histories([(["a", "b"], None, [2, 1])], log, rule).weights, [1, 1 / 2])
    np.testing.assert_allclose(item_histories(["a"], log).weights, [1])
