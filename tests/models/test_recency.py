"""The recency of a model, wherever histories are ranked, scored, explained or written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram.errors import DataError, ParameterError, StorageError, UnknownIdError

ITEMS = [f"i{n}" for n in range(25)]
USERS = [f"u{n}" for n in range(60)]
RULES = [{"recency": 0.8}, {"recency": 0.8, "recency_unit": "6h"}, {"half_life": "2d"}, {"half_life": "3 events"}]


@pytest.fixture
def log(world):
    world = mg.Interactions.from_csr(world).matrix
    times = np.random.default_rng(3).integers(0, 400, world.nnz)  # hours, with ties
    return mg.Interactions.from_csr(world, users=USERS, items=ITEMS, times=times, time_unit="h")


def weighted(log, rule, at=None):
    """The factors by hand, as a dense array of users and items."""
    out = np.zeros(log.matrix.shape)
    for user in range(log.n_users):
        span = slice(log.matrix.indptr[user], log.matrix.indptr[user + 1])
        times, items = log.times[span], log.matrix.indices[span]
        ranks = np.argsort(np.argsort(times, kind="stable"))
        if not len(times):
            continue
        ages = {"events": len(times) - 1 - ranks, "h": (times.max() if at is None else at) - times}
        if "half_life" in rule:
            age = ages["h"] / 48 if rule["half_life"] == "2d" else ages["events"] / 3
            out[user, items] = 0.5**age
        else:
            age = ages["h"] / 6 if "recency_unit" in rule else ages["events"]
            out[user, items] = (1 + age) ** -rule["recency"]
    return out


def lists(recommendations):
    by_user = {}
    for row in recommendations.rows():
        by_user.setdefault(row["user"], []).append((row["item"], row["score"]))
    return list(by_user.values())


def timed_histories(log):
    histories = []
    for user in range(log.n_users):
        span = slice(log.matrix.indptr[user], log.matrix.indptr[user + 1])
        pairs = [(ITEMS[item], int(time)) for item, time in zip(log.matrix.indices[span], log.times[span], strict=True)]
        histories.append(sorted(pairs, key=lambda pair: pair[1]))
    return histories


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_scores_are_those_of_the_weighted_histories(log, rule, solver):
    plain, model = mg.EASE(l2=3).fit(log, solver=solver), mg.EASE(l2=3, **rule).fit(log, solver=solver)
    w = plain.item_weights()
    np.testing.assert_array_equal(w, model.item_weights())
    wanted = weighted(log, rule) @ w
    np.testing.assert_allclose(model.score(timed_histories(log)), wanted, atol=2e-5)
    for row in model.recommend(["u3", "u7"], k=6).rows():
        assert row["score"] == pytest.approx(wanted[int(row["user"][1:]), int(row["item"][1:])], abs=2e-5)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(
    "make", [mg.EASE, mg.TwoStep, mg.DropoutMF, mg.ItemKNN, lambda **rule: mg.LowRankDLAE(rank=5, **rule)]
)
def test_a_known_user_is_a_list_with_times(log, make, rule):
    model = make(**rule).fit(log)
    known = lists(model.recommend(k=9))
    assert lists(model.recommend(histories=timed_histories(log), k=9)) == known
    if model.recency_rule().span.in_events:
        assert (
            lists(model.recommend(histories=[[item for item, _ in row] for row in timed_histories(log)], k=9)) == known
        )
        assert lists(model.recommend(histories=[model.history(user) for user in USERS], k=9)) == known


def test_recency_0_is_the_model_without_it(log, world):
    timed = mg.EASE(l2=3, recency=0).fit(log).recommend(k=7)
    assert timed.to_arrow().equals(
        mg.EASE(l2=3).fit(mg.Interactions.from_csr(world, users=USERS, items=ITEMS)).recommend(k=7).to_arrow()
    )
    assert mg.EASE(l2=3).fit(log).recommend(k=7, at=5).to_arrow().equals(timed.to_arrow()), "at has no effect"


def test_a_later_time_of_asking_only_scales_a_half_life(log):
    model = mg.EASE(l2=3, half_life="2d").fit(log, dtype="float64")
    history = timed_histories(log)[3]
    times = [time for _, time in history]
    now, later = (model.score([history], at=max(times) + hours) for hours in (0, 48))
    np.testing.assert_allclose(now, model.score([history]), rtol=1e-12)
    np.testing.assert_allclose(later, now / 2, rtol=1e-5, atol=1e-9)
    other = mg.EASE(l2=3, recency=0.8, recency_unit="6h").fit(log, dtype="float64")
    wanted = weighted(log, RULES[1], at=450)[3] @ other.item_weights()
    np.testing.assert_allclose(other.score([history], at=450)[0], wanted, rtol=1e-5, atol=1e-7)
    assert lists(other.recommend(["u3"], at=450)) == lists(other.recommend(histories=[history], at=450))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_shares_sum_to_the_score_and_show_the_weights(log, rule):
    model = mg.EASE(l2=3, **rule).fit(log, dtype="float64")
    history, dense = timed_histories(log)[3], weighted(log, rule)[3]
    for explanation in (model.explain(history, "i9"), model.explain(user="u3", item="i9")):
        assert explanation.score == pytest.approx(model.score([history], ["i9"])[0, 0], rel=1e-9)
        wanted = [dense[int(item[1:])] for item, _ in explanation.shares]
        np.testing.assert_allclose(explanation.weights, wanted, rtol=1e-6)
        for row in explanation.rows():
            weight = dict(zip([item for item, _ in explanation.shares], explanation.weights, strict=True))[row["item"]]
            assert row["weight"] == weight
            assert row["share"] == pytest.approx(weight * model.item_weights()[int(row["item"][1:]), 9], rel=1e-9)
    assert "(weight 1)" in str(explanation)


def test_weights_of_1_are_not_printed(log):
    explanation = mg.EASE(l2=3).fit(log).explain(["i3", "i4"], "i9")
    assert "weight" not in str(explanation)
    assert [row["weight"] for row in explanation.rows()] == [1.0, 1.0]
    base = mg.Popularity().fit(log).explain(["i3"], "i9")
    assert base.rows()[0]["weight"] is None


def test_what_is_explained_is_a_history_or_a_user(log):
    model = mg.EASE(l2=3).fit(log)
    with pytest.raises(ParameterError, match="neither a history nor a user was given"):
        model.explain(item="i3")
    with pytest.raises(ParameterError, match="both a history and a user were given"):
        model.explain(["i4"], "i3", user="u1")
    with pytest.raises(UnknownIdError, match="user 'nobody' is not one of the 60 users"):
        model.explain(user="nobody", item="i3")


def test_the_history_of_a_user_is_in_order(log):
    model = mg.EASE(l2=3).fit(log)
    assert [list(model.history(user)) for user in USERS] == [[item for item, _ in row] for row in timed_histories(log)]


def test_similar_items_are_not_weighted(log):
    plain, model = mg.EASE(l2=3).fit(log), mg.EASE(l2=3, half_life="1d").fit(log)
    assert model.similar(ITEMS).to_arrow().equals(plain.similar(ITEMS).to_arrow())


@pytest.mark.parametrize("options", [{}, {"at": 450}])
def test_the_lists_of_all_users_in_files(log, options, tmp_path):
    model = mg.EASE(l2=3, half_life="2d").fit(log)
    model.recommend_all(tmp_path / "all", k=4, batch=7, **options)
    table = pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / "all").iterdir()))
    assert table.equals(model.recommend(k=4, **options).to_arrow())


@pytest.mark.parametrize("change", ["recency", "at", "order"])
def test_files_of_another_recency_are_not_resumed(log, change, tmp_path):
    def stop(stage, users):
        raise KeyboardInterrupt

    model = mg.EASE(l2=3, half_life="2d").fit(log)
    with pytest.raises(KeyboardInterrupt):
        model.recommend_all(tmp_path, k=4, batch=7, at=450, progress=stop)
    if change == "recency":
        model = mg.EASE(l2=3, half_life="1d").fit(log)
    elif change == "order":
        other = mg.Interactions.from_csr(log.matrix, users=USERS, items=ITEMS, times=log.times + 1, time_unit="h")
        model = mg.EASE(l2=3, half_life="2d").fit(other)
    with pytest.raises(StorageError, match="parts of another request"):
        model.recommend_all(tmp_path, k=4, batch=7, at=451 if change == "at" else 450)


def test_pruning_compares_the_lists_that_users_get(log):
    model = mg.EASE(l2=3, recency=2).fit(log)
    pruned = model.prune(4)
    mine, theirs = (lists(each.recommend(k=20)) for each in (model, pruned))
    overlap = [len({i for i, _ in a} & {i for i, _ in b}) / len(a) for a, b in zip(mine, theirs, strict=True)]
    assert pruned.pruning_.overlap == pytest.approx(np.mean([share for n, share in enumerate(overlap) if n != 5]))


def test_a_log_without_order_serves_lists_only(world):
    model = mg.EASE(l2=3, recency=0.5).fit(world)
    assert len(model.recommend(histories=[[3, 4]], k=2)) == 2
    with pytest.raises(DataError, match="neither times nor an order"):
        model.recommend([3])


@pytest.mark.parametrize(("parameters", "what"), [({"half_life": "30d"}, "times"), ({"recency": 1}, "order")])
def test_an_update_that_would_drop_the_times_that_a_recency_needs_is_refused(parameters, what):
    model = mg.EASE(l2=100, **parameters).fit(mg.sample())
    with pytest.raises(DataError, match=f"the new events have no {what}: read them with time=.*not changed") as caught:
        model.add_users([("zoe", "The Cobalt Lighthouse")])
    assert '"order"' not in str(caught.value)
    assert next(iter(parameters)) in str(caught.value)
    assert len(model.recommend(["ivan-0001"])) == 10


def test_an_update_notes_that_it_drops_times():
    model = mg.EASE(l2=100).fit(mg.sample()).add_users([("zoe", "The Cobalt Lighthouse")])
    assert "the times of all events were dropped" in model.report_.note
    assert "dropped" not in model.add_users([("yan", "The Cobalt Lighthouse")]).report_.note


def dates():
    sample = mg.sample()
    return replace(sample, times=sample.times * 10**6, time_unit="us")


@pytest.mark.parametrize(
    "model",
    [
        mg.EASE(half_life=30),
        mg.ItemKNN(half_life="30"),
        mg.EASE(recency=1, recency_unit=30),
        mg.EASE(decay=1, decay_unit=30),
        mg.SLIST(training_half_life=30),
        mg.Popularity(half_life=30),
    ],
    ids=repr,
)
def test_a_span_without_a_unit_is_refused_where_the_times_are_dates(model):
    with pytest.raises(ParameterError, match=r"30 is a span of time without a unit .*'30d' for days"):
        model.fit(dates())


def test_a_half_life_on_a_log_without_times(log):
    plain = replace(log, times=None, time_unit=None)
    with pytest.warns(
        mg.errors.MonogramWarning, match="half_life = '3d' .* has no times: known users cannot be ranked"
    ):
        model = mg.EASE(half_life="3d").fit(plain)
    assert len(model.recommend(histories=[[(ITEMS[0], "2025-01-01")]]))
    _, split = mg.splits.holdout(plain)
    for parameters, words in (({"half_life": "3d"}, "half_life = '3d'"), ({"recency": 0.5}, "recency = 0.5")):
        with pytest.raises(DataError, match=f"{words} .*events of test users"):
            mg.evaluate(mg.EASE(**parameters), split, progress=lambda name: pytest.fail("fitted"))
        space = {"ease": {name: [value] for name, value in parameters.items()}}
        with pytest.raises(DataError, match=f"{words} .*events of test users"):
            mg.tune(plain, models="ease", space=space, budget="2 settings", progress=lambda state: pytest.fail("ran"))
