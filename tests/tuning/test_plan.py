"""The plan of a search is carried out, and a path has the values of its inverses."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.engine.inverse import dual, primal, ridge_path
from monogram.evaluation import protocol as protocol_
from monogram.evaluation.metrics import parse
from monogram.models.base import Recommender
from monogram.planning import inverse_costs
from monogram.tuning import group_runner, search
from monogram.tuning.budget import Budget
from monogram.tuning.group_runner import GroupRunner, Task, grouped, inverse_keys
from monogram.tuning.plan import plan
from monogram.tuning.settings import Setting

L2S = (2.0, 10.0, 50.0, 300.0)
RATIO = 0.02  # dropout/(1 − dropout) to l2


@pytest.fixture(scope="module")
def split(log):
    return mg.splits.strong(log, users=0.1)


@pytest.fixture
def cheap(monkeypatch):
    """An eigendecomposition that costs nothing: then every path is taken."""
    monkeypatch.setattr(inverse_costs, "EIGEN", {"float32": 0.0, "float64": 0.0})


@pytest.fixture
def made(monkeypatch):
    """How many inverses, decompositions and lone fits were made."""
    found = {"inverses": 0, "paths": 0, "fits": []}

    def counted(name, real):
        def call(*given, **more):
            found[name] += given[0].shape[1] > 2  # not what only compiles
            return real(*given, **more)

        return call

    for module, name in ((primal, "primal_inverse"), (dual, "dual_inverse")):
        monkeypatch.setattr(module, name, counted("inverses", getattr(module, name)))
    monkeypatch.setattr(ridge_path, "decompose", counted("paths", ridge_path.decompose))
    real = Recommender.fit

    def fit(self, source, **more):
        found["fits"].append(self.name)
        return real(self, source, **more)

    monkeypatch.setattr(Recommender, "fit", fit)
    return found


def on_a_path(ratio):
    """All four models, several b, one above a."""
    found = [Setting.of("ease", {"l2": l2}) for l2 in L2S] if ratio == 0 else []
    for l2 in L2S:
        both = {"l2": l2, "dropout": ratio * l2 / (1 + ratio * l2)}
        found += [Setting.of(name, both) for name in ("edlae", "dlae")]
        found += [Setting.of("deql", both | {"b": b}) for b in (0.2, 0.7, 1, 3)]
        found.append(Setting.of("deql", both | {"a": 0.5, "b": 2, "zero_diagonal": True}))
    return found


def tried(runner, groups, monkeypatch):
    """The value and the lists of every setting."""
    lists, real = [], group_runner.measure

    def watched(rank, *rest):
        def kept(*given):
            found = list(rank(*given))
            lists.extend(found)
            return found

        return real(kept, *rest)

    for module in (group_runner, protocol_):  # a path is ranked in the one, an inverse's heads in the other
        monkeypatch.setattr(module, "measure", watched)
    trials = [trial for group in groups for trial in runner.run(group)]
    for module in (group_runner, protocol_):
        monkeypatch.setattr(module, "measure", real)
    return {trial.setting: trial.value for trial in trials}, lists


@pytest.mark.parametrize(("dtype", "exact"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("ratio", [0, RATIO])
@pytest.mark.parametrize("protocol", ["strong", "holdout"])
def test_a_path_is_its_inverses(log, dtype, exact, ratio, protocol, cheap, made, monkeypatch):
    task = Task(mg.splits.PROTOCOLS[protocol](log), parse("ndcg@10"), dtype=dtype)
    settings = on_a_path(ratio)
    planned = plan(GroupRunner(task), settings, Budget())
    assert planned.counts() == {
        "settings": len(settings),
        "inverses": 0,
        "paths": 1,
        "spectra": 0,
        "students": 0,
        "sequences": 0,
        "alone": 0,
    }
    values, lists = tried(GroupRunner(task), planned.groups, monkeypatch)
    assert (made["inverses"], made["paths"]) == (0, 1)
    expected, others = tried(GroupRunner(task), grouped(settings), monkeypatch)
    assert (made["inverses"], made["paths"]) == (len(L2S), 1)
    assert values == pytest.approx(expected, abs=exact)
    assert len(lists) == len(others) == len(settings)
    by_group = [one for group in planned.groups for one in group]
    order = [one for part in grouped(settings) for one in part]
    assert set(by_group) == set(order)
    for one, other in zip(lists, others, strict=True):
        np.testing.assert_array_equal(one.items, other.items)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-3 if dtype == "float32" else 1e-9, atol=1e-6)


def test_it_is_not_taken_where_it_costs_more(split):
    planned = plan(GroupRunner(Task(split, parse("ndcg@5"))), on_a_path(0), Budget())
    (candidate,) = planned.candidates
    assert not candidate.taken
    assert planned.counts()["inverses"] == len(L2S)
    assert "ease, edlae, dlae, deql, 4 values of l2: 4 inverses, " in str(planned)
    assert "(one eigendecomposition: " in str(planned)


def test_it_is_not_taken_where_it_cannot_be(split, cheap, monkeypatch):
    settings = on_a_path(0)

    def paths(given=settings, left=Budget(), memory=None):  # noqa: B008 (frozen)
        planned = plan(GroupRunner(Task(split, parse("ndcg@5"), memory=memory)), given, left)
        return planned.counts()["paths"], str(planned)

    assert paths()[0] == 1
    assert paths(left=Budget(seconds=1e-9)) == (0, paths(left=Budget(seconds=1e-9))[1])
    assert "longer than the time left" in paths(left=Budget(seconds=1e-9))[1]
    memory = 10_000_000 + 12 * split.train.n_events + 60_000
    assert paths(memory=memory)[0] == 0
    assert ", but 10." in paths(memory=memory)[1]
    assert paths(memory=memory + 200_000)[0] == 1
    assert paths(given=settings[:1])[0] == 0
    assert paths(left=Budget(settings=1))[0] == 0
    monkeypatch.setattr(ridge_path, "LARGEST", 10)
    assert "at most 10 items" in paths()[1]
    monkeypatch.setattr(ridge_path, "LARGEST", 1000)
    monkeypatch.setattr(ridge_path, "COARSE", 1e12)
    assert "too coarse" in paths()[1]


def test_an_l2_too_small_for_it_keeps_its_inverse(split, cheap, monkeypatch):
    monkeypatch.setattr(ridge_path, "lowest", lambda *_, **__: 5.0)
    planned = plan(GroupRunner(Task(split, parse("ndcg@5"))), on_a_path(0), Budget())
    assert (planned.counts()["inverses"], planned.counts()["paths"]) == (1, 1)
    (alone,) = [step.group for step in planned.steps if step.way == "inverse"]
    assert inverse_keys(alone) == [(mg.GramRecipe(), mg.Penalties(2.0))]


def test_what_is_not_on_a_path(split, cheap):
    mixed = [
        *(Setting.of("ease", {"l2": l2}) for l2 in (0, 1, 2, 4)),
        Setting.of("low_rank_dlae", {"l2": 4, "dropout": 0, "rank": 3}),
        Setting.of("edlae", {"l2": 0, "dropout": 0.3}),
        Setting.of("edlae", {"l2": 10, "dropout": 0.5}),
        Setting.of("edlae", {"l2": 20, "dropout": 2 / 3}),  # the ratio of the one before
        Setting.of("edlae", {"l2": 30, "dropout": 0.75001}),  # not quite
    ]
    planned = plan(GroupRunner(Task(split, parse("ndcg@5"))), mixed, Budget())
    paths = [sorted(inverse_keys(step.group), key=repr) for step in planned.steps if step.way == "path"]
    plain = mg.GramRecipe()
    assert paths == [
        [(plain, mg.Penalties(1)), (plain, mg.Penalties(2))],
        [(plain, mg.Penalties(10, 0.5)), (plain, mg.Penalties(20, 2 / 3))],
    ]
    assert "dropout/(1 − dropout) = 0.1·l2" in str(planned)


def test_a_path_has_one_weighting_of_the_users(log, cheap, made, monkeypatch):
    task = Task(mg.splits.strong(log), parse("ndcg@10"), dtype="float64")
    settings = [
        Setting.of("tempered", {"l2": l2, "dropout": 0, "user_power": power, "item_power": t})
        for power in (0, 0.5)
        for l2 in L2S
        for t in (0, -0.3)
    ]
    planned = plan(GroupRunner(task), settings, Budget())
    assert planned.counts()["paths"] == 2
    assert "2 Grams are made as user_power changes, and kept" in str(planned)
    values, _ = tried(GroupRunner(task), planned.groups, monkeypatch)
    assert (made["inverses"], made["paths"]) == (0, 2)
    expected, _ = tried(GroupRunner(task), grouped(settings), monkeypatch)
    assert made["inverses"] == 2 * len(L2S)
    assert values == pytest.approx(expected, abs=1e-12)


def test_two_steps_are_on_no_path(log, cheap):
    """A path has the scores of one step."""
    settings = [Setting.of("two_step", {"l2": l2, "dropout": 0, "low_pass": low}) for l2 in L2S for low in (0, 1)]
    planned = plan(GroupRunner(Task(mg.splits.strong(log), parse("ndcg@10"))), settings, Budget())
    assert planned.candidates == ()
    count = planned.counts()
    assert (count["inverses"], count["alone"]) == (len(L2S), 0)
    assert f"{len(L2S)} inverses in all for two_step: primal" in str(planned)


def test_users_instead_of_items_keep_their_inverses(log, cheap):
    few = mg.splits.holdout(log.matrix[:20], share=0.1)
    planned = plan(GroupRunner(Task(few, parse("ndcg@5"))), on_a_path(0), Budget())
    assert {step.cost.solver for step in planned.steps} == {"dual"}
    assert planned.candidates == ()
    assert planned.gram == 0


MODELS = ["ease", "edlae", "deql", "low_rank_dlae", "lrr", "rg2", "popularity", "item_knn"]


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("budget", ["60 settings", "700 settings"])
@pytest.mark.filterwarnings("ignore")
def test_what_the_plan_says_is_done(log, taken, budget, made, monkeypatch):
    if taken:
        monkeypatch.setattr(inverse_costs, "EIGEN", {"float32": 0.0, "float64": 0.0})
    space = {
        "edlae": {"l2": [10, 20, 40], "dropout": [1 / 3, 0.5, 2 / 3]},
        "low_rank_dlae": {"rank": [3, 5], "dropout": 0.4},
    }
    monkeypatch.setattr(search.ModelSearch, "_finer", lambda *_: [])
    runners, real = [], search.GroupRunner

    def runner(task):
        runners.append(real(task))
        return runners[-1]

    monkeypatch.setattr(search, "GroupRunner", runner)
    monkeypatch.setattr(search, "finish", lambda study, *_: study)  # what follows the search fits too
    states = []
    study = mg.tune(log, MODELS, space=space, metric="ndcg@5", budget=budget, progress=states.append)
    count = study.plan.counts()
    assert states[0].tried == 0
    assert all(one.plan is study.plan for one in states)
    assert len(states) == 1 + len(study.plan.steps)
    assert count["settings"] == len(study.trials)
    assert count["paths"] == made["paths"] > (0 if taken else -1)
    assert count["inverses"] == made["inverses"] > 0
    assert count["alone"] == sum(name in ("popularity", "item_knn") for name in made["fits"])
    assert count["students"] == made["fits"].count("low_rank_dlae")
    assert count["spectra"] <= len(runners[0]._spectra)
    assert study.plan.gram == runners[0].inverses._gram.nbytes
    if budget == "700 settings":
        assert count["spectra"] == len(runners[0]._spectra) == 2


def test_it_is_kept_and_printed(log):
    found = mg.tune(log, "deql", metric="ndcg@5", budget="500 settings")
    for line in (
        "coarse grid: 485 settings",
        "ease, 5 values of l2: 5 inverses",
        "20 inverses in all for",
        "primal",
        "the Gram is",
    ):
        assert line in str(found.plan)
    assert "depends on what it finds" in str(found.plan)
