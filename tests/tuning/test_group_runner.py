"""Settings that share a computation have the values of separate fits."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.inverse import primal
from monogram.engine.inverse.local import LocalRegression
from monogram.errors import MemoryBudgetError
from monogram.evaluation.metrics import parse
from monogram.evaluation.protocol import measure_weights
from monogram.models import sparse
from monogram.models.context import FitOptions
from monogram.models.registry import MODELS
from monogram.planning import inverse_costs
from monogram.planning.size import measure
from monogram.tuning import shared_inverses
from monogram.tuning.budget import Budget
from monogram.tuning.group_runner import GroupRunner, Task, grouped
from monogram.tuning.plan import plan
from monogram.tuning.settings import Setting, Trial, best_of

SETTINGS = {
    "ease": [{"l2": 5}, {"l2": 50}],
    "dlae": [{"l2": 5, "dropout": 0.4}, {"l2": 50, "dropout": 0.4}],
    "edlae": [{"l2": 5, "dropout": 0.4}, {"l2": 5, "dropout": 0}],
    "rdlae": [{"l2": 5, "dropout": 0.4, "relax": relax} for relax in (0, 0.1, 1)],
    "deql": [{"l2": 5, "dropout": 0.4, "b": b} for b in (0.1, 0.7, 2)]
    + [{"l2": 50, "dropout": 0.4, "b": 0.7, "zero_diagonal": True}],
    "tempered": [{"l2": 5, "dropout": 0.4, "user_power": power} for power in (0, 0.5, 1)]
    + [{"l2": 5, "dropout": 0.4, "item_power": power, "b": 0.4} for power in (-0.5, 0.2)],
    "two_step": [{"l2": 5, "dropout": 0.4, "second": second} for second in (0.3, 1)]
    + [{"l2": 5, "dropout": 0.4, "low_pass": low, "rank": rank} for low, rank in ((0.5, 4), (2, 6), (0.2, 900))]
    + [{"l2": 5, "dropout": 0.4, "low_pass": 0.5, "rank": 4, "item_power": power} for power in (-0.5, 0.2)]
    + [{"l2": 5, "dropout": 0.4, "low_pass": 0.5, "rank": 4, "low_pass_power": power} for power in (-0.4, 0.3)]
    + [{"l2": 5, "dropout": 0.4, "user_power": 0, "low_pass": 0.5, "rank": 4}],
    "low_rank_dlae": [{"l2": 5, "dropout": 0.4, "rank": rank} for rank in (3, 9)],
    "low_rank_edlae": [
        {"l2": 5, "dropout": 0.4, "rank": 9, "solver": solver} for solver in ("closed_form", "svd", "alternating")
    ]
    + [{"l2": 5, "dropout": 0.4, "rank": 4}],
    "regularized_pca": [{"rank": 5, "l2": 1}, {"rank": 12, "l2": 3}],
    "dropout_mf": [{"keep": 0.99}, {"keep": 0.9}],
    "nuclear_power": [{"l2": 0.01}, {"l2": 3, "power": 1}],
    "wlae": [{"rank": 6, "weights": 4}],
    "vlae": [{"rank": 6, "weights": 2}, {"rank": 8, "scale": 3}],
    "lrr": [{"rank": 6, "l2": 10}, {"rank": 12, "l2": 10}],
    "rg2": [{"rank": 6, "l2": 0.1}, {"rank": 12, "l2": 0.3}, {"l2": 0.3, "solver": "als", "tolerance": 0.01}],
    "wrmf": [{"rank": 4, "epochs": 3}],
    "factorization": [{"rank": 4, "epochs": 2, "batch": 4096}],
    "sgl": [{"rank": 4, "epochs": 1, "batch": 4096, "layers": 1}],
    "dgcf": [{"rank": 4, "epochs": 1, "batch": 4096, "intents": 2}],
    "pin_sage": [{"rank": 4, "epochs": 1, "batch": 4096, "neighbours": 4}],
    "simplex": [{"rank": 4, "epochs": 1, "batch": 4096, "negatives": 5}],
    "light_gcn": [{"rank": 4, "epochs": 2, "batch": 4096, "layers": 1}],
    "cdae": [{"rank": 4, "epochs": 2}],
    "elsa": [{"rank": 4, "epochs": 2}],
    "linear_autoencoder": [{"rank": 4, "epochs": 2}],
    "mult_dae": [{"rank": 4, "epochs": 2}],
    "mult_vae": [{"rank": 4, "hidden": 8, "epochs": 2}],
    "slim": [{"l1": 1, "l2": 5, "tolerance": 1e-6}, {"l1": 8, "l2": 5, "tolerance": 1e-6}, {"l1": 1, "l2": 20}],
    "item_knn": [{"k": 10}],
    "slist": [{"l2": 5, "alpha": 0.3}],
    "expected_quadratic": [{"l2": 5}, {"l2": 5, "zero_diagonal": True}],
    "popularity": [{}],
}  # fmt: skip


@pytest.fixture(scope="module")
def split(log):
    return mg.splits.holdout(log, share=0.1)


def settings(*names):
    return [Setting.of(name, one) for name in names or SETTINGS for one in SETTINGS[name]]


def alone(setting, split, metric="ndcg@5"):
    return mg.evaluate({"it": setting.make()}, split, metric, fit={"dtype": "float64"}).value("it", metric)


def test_every_model_is_tried_here():
    assert set(SETTINGS) == set(MODELS)


@pytest.mark.filterwarnings("ignore:low_pass changes no list")
def test_shared_is_alone(split):
    task = Task(split, parse("ndcg@5"), dtype="float64")
    runner, groups = GroupRunner(task), grouped(settings())
    trials = [trial for group in groups for trial in runner.run(group)]
    assert {trial.setting for trial in trials} == set(settings())
    for trial in trials:
        assert trial.value == pytest.approx(alone(trial.setting, split), abs=1e-6), trial
        assert trial.seconds > 0


TIMED = {
    "ease": [{"l2": 5}, {"l2": 50}],
    "edlae": [{"l2": 5, "dropout": 0.4}],
    "tempered": [{"l2": 5, "dropout": 0.4, "user_power": 0.5}],
    "two_step": [{"l2": 5, "dropout": 0.4, "second": second} for second in (0.3, 1)],
    "low_rank_dlae": [{"l2": 5, "dropout": 0.4, "rank": 3}],
    "regularized_pca": [{"rank": 5, "l2": 1}],
    "lrr": [{"rank": 6, "l2": 10}],
}


def timed_settings():
    kernels = [{}, {"decay": 0.4}, {"decay": 1.1, "decay_unit": "3d", "floor": 0.2}]
    return [Setting.of(name, one | kernel) for kernel in kernels for name, rows in TIMED.items() for one in rows]


@pytest.fixture(scope="module")
def timed_split(split):
    matrix = split.train.matrix
    times = 1.5e9 + 86_400.0 * np.random.default_rng(0).integers(0, 60, matrix.nnz)
    return mg.splits.holdout(mg.Interactions.from_csr(matrix, times=times, time_unit="s"), share=0.1)


def test_groups_share_what_has_equal_kernels_alone(timed_split):
    runner = GroupRunner(Task(timed_split, parse("ndcg@5"), dtype="float64"))
    for group in grouped(timed_settings()):
        recipes = {setting.make().formula().recipe for setting in group if hasattr(setting.make(), "formula")}
        assert len(recipes) <= 1
        for trial in runner.run(group):
            assert trial.value == pytest.approx(alone(trial.setting, timed_split), abs=1e-6), trial
    assert len(runner._spectra) == 3


def test_a_path_with_a_time_kernel_is_many_fits(timed_split):
    several = [Setting.of("ease", {"l2": l2, "decay": 0.8, "decay_unit": "2d"}) for l2 in (3, 10, 30, 100)]
    runner = GroupRunner(Task(timed_split, parse("ndcg@5"), dtype="float64"))
    for trial in runner.run(several):
        assert trial.value == pytest.approx(alone(trial.setting, timed_split), abs=1e-6), trial


def test_local_regressions_of_a_search_have_the_time_kernel(timed_split, monkeypatch):
    model = Setting.of("edlae", {"l2": 5, "dropout": 0.4, "decay": 0.8, "decay_unit": "2d"})
    runner = GroupRunner(Task(timed_split, parse("ndcg@5"), dtype="float64"))
    monkeypatch.setattr(runner.inverses, "local_models", list)
    (trial,) = runner.run([model])
    expected = model.make().fit(timed_split.train, dtype="float64", solver="local")
    measured = mg.evaluate({"it": expected}, timed_split, "ndcg@5").value("it", "ndcg@5")
    assert trial.value == pytest.approx(measured, abs=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_shared_is_alone_in_the_dual(split):
    wide = mg.splits.holdout(split.train.matrix[:25], share=0.1)
    runner = GroupRunner(Task(wide, parse("ndcg@5"), dtype="float64"))
    for trial in runner.run(grouped(settings("dlae", "edlae", "deql", "low_rank_dlae"))[0]):
        assert trial.value == pytest.approx(alone(trial.setting, wide), abs=1e-6), trial
    for group in grouped(settings("tempered", "two_step")):
        for trial in runner.run(group):
            assert trial.value == pytest.approx(alone(trial.setting, wide), abs=1e-6), trial
    assert runner.inverses._gram is None


@pytest.fixture
def made(monkeypatch):
    """How often something was made, but for what only compiles."""
    found = Counter()

    def count(module, name):
        real = getattr(module, name)

        def call(data, *given, **more):
            found[name] += getattr(data, "matrix", data).shape[1] > 2
            return real(data, *given, **more)

        monkeypatch.setattr(module, name, call)

    count(primal, "primal_inverse")
    count(shared_inverses, "gram")
    count(shared_inverses, "directions")
    return found


def test_one_inverse_for_each_pair_and_one_gram_for_all(split, made):
    runner = GroupRunner(Task(split, parse("recall@5")))
    groups = grouped(settings("ease", "dlae", "edlae", "deql", "low_rank_dlae", "low_rank_edlae"))
    assert len(groups) == 4  # (5, 0), (50, 0), (5, 0.4), (50, 0.4)
    for group in groups:
        runner.run(group)
    assert made == {"primal_inverse": 4, "gram": 1}
    groups = grouped(settings("edlae", "tempered"))
    assert len(groups) == 4  # (5, 0.4), (5, 0); with a user_power of 0.5 and 1: that of 0 is with the first
    for group in groups:
        runner.run(group)
    assert made == {"primal_inverse": 8, "gram": 3}


def test_slim_of_one_l2_makes_one_gram_and_fits_the_highest_l1_first(split, monkeypatch):
    made, order, real = [], [], sparse.slim.slim
    rows = sparse.sparse_rows
    monkeypatch.setattr(sparse, "sparse_rows", lambda x, **more: made.append(x.shape[1] > 2) or rows(x, **more))
    monkeypatch.setattr(sparse.slim, "slim", lambda s, how, **more: order.append((s.n, how.l1)) or real(s, how, **more))
    (group,) = grouped(Setting.of("slim", {"l1": l1, "l2": 5}) for l1 in (1, 8, 4))
    trials = GroupRunner(Task(split, parse("recall@5"))).run(group)
    assert [trial.setting.parameters["l1"] for trial in trials] == [1, 8, 4]
    assert sum(made) == 1
    assert [l1 for n, l1 in order if n > 2] == [8, 4, 1]


def test_a_slim_that_fails_leaves_the_values_of_the_others(split, monkeypatch):
    real = sparse.slim.slim

    def fails(rows, problem, **more):
        if problem.l1 == 1:
            raise MemoryBudgetError("too many weights")
        return real(rows, problem, **more)

    (group,) = grouped(Setting.of("slim", {"l1": l1, "l2": 5}) for l1 in (1, 8))
    runner = GroupRunner(Task(split, parse("recall@5")))
    runner.run(group)  # compiles
    monkeypatch.setattr(sparse.slim, "slim", fails)
    monkeypatch.setattr(mg.SLIM, "_warm", lambda self, options: None)
    low, high = runner.run(group)
    assert low.value is None
    assert high.value is not None
    assert "l1=1.0" in low.note
    assert "too many weights" in low.note


def test_two_steps_share_an_inverse_a_gram_and_their_directions(split, made):
    runner = GroupRunner(Task(split, parse("recall@5")))
    groups = grouped(settings("two_step"))
    assert [len(group) for group in groups] == [9, 1]  # another user_power is another inverse
    for group in groups:
        runner.run(group)
    assert made == {"primal_inverse": 2, "gram": 2, "directions": 1}


def test_two_steps_that_do_not_fit_in_memory_compute_nothing(split, made):
    runner = GroupRunner(Task(split, parse("recall@5"), memory=1_000_000))
    trials = runner.run(grouped(settings("two_step"))[0])
    assert {trial.value for trial in trials} == {None}
    assert "needs" in trials[0].note
    assert not made["directions"]


def test_a_rank_that_does_not_fit_in_memory_leaves_the_others(split):
    runner = GroupRunner(Task(split, parse("recall@5"), memory=tight(split, 0.5), threads=2))
    how = {"l2": 5, "dropout": 0.4}
    low = [{}, {"low_pass": 1, "rank": 4}, {"low_pass": 1, "rank": 30}]
    trials = runner.run([Setting.of("two_step", how | one) for one in low])
    assert [trial.value is None for trial in trials] == [False, False, True]
    assert "rank 30 was not tried" in trials[2].note


def tight(split, power):
    """The memory that TwoStep needs with a rank of 4, and no more."""
    model = mg.TwoStep(l2=5, dropout=0.4, user_power=power, low_pass=1, rank=4)
    return model.plan_size(measure(split.train.matrix), FitOptions(budget=10**12, threads=2)).chosen.bytes


@pytest.mark.parametrize("power", [0, 0.5])
def test_a_gram_is_dropped_where_the_next_group_needs_its_memory(split, power):
    """The product of TwoStep does not fit in memory beside the Gram of EASE."""
    runner = GroupRunner(Task(split, parse("recall@5"), memory=tight(split, power), threads=2))
    how = {"l2": 5, "dropout": 0.4, "user_power": power, "low_pass": 1, "rank": 4}
    planned = plan(GroupRunner(runner.task), [Setting.of("ease", {"l2": 5}), Setting.of("two_step", how)], Budget())
    assert [step.cost.bytes <= runner.inverses.budget() for step in planned.steps] == [True, True]
    kept = []
    for group in planned.groups:
        (trial,) = runner.run(group)
        assert trial.value is not None, trial.note
        kept.append(runner.inverses.gram_recipe is not None)
    assert kept == [True, False]


def test_a_gram_that_does_not_fit_in_memory_is_not_kept(split):
    group = grouped(settings("ease"))[0]
    runner = GroupRunner(
        Task(split, parse("ndcg@5"), dtype="float64", memory=10_000_000 + 12 * split.train.n_events + 40_000)
    )
    assert runner.run(group)[0].value == pytest.approx(alone(group[0], split), abs=1e-6)
    assert runner.inverses._gram is None


def test_what_fails_has_no_value_and_says_why(split):
    singular = sp.csr_array(np.tile(split.train.matrix.toarray()[:3], (4, 1)))
    runner = GroupRunner(Task(mg.splits.holdout(singular, share=0.2), parse("ndcg@5")))
    (trial,) = runner.run([Setting.of("ease", {"l2": 0})])
    assert trial.value is None
    assert trial.note


def test_what_is_warned_of_is_in_the_note(split):
    (trial,) = GroupRunner(Task(split, parse("ndcg@5"))).run([Setting.of("regularized_pca", {"l2": 1e9})])
    assert "no direction passes the filter" in trial.note


def test_a_setting_has_one_spelling():
    assert Setting.of("ease", {}) == Setting.of("ease", {"l2": 100})
    assert Setting.of("wlae", {"rank": 2, "weights": [1, 2]}).make().params()["weights"] == (1.0, 2.0)


def test_the_best_is_the_first_of_equals():
    one, two, three = (
        Trial(Setting.of("ease", {"l2": l2}), value, 0.1) for l2, value in ((1, 0.5), (2, 0.5), (3, None))
    )
    assert best_of([three, one, two]) is one
    assert best_of([three]) is None
    assert best_of([one], {"deql"}) is None


def test_where_no_inverse_fits_models_share_local_regressions(monkeypatch):
    """The values are those of local fits, and there is one local fit for each group."""
    rng = np.random.default_rng(0)
    matrix = sp.csr_array((rng.random((500, 300)) < 0.05).astype(np.float32))
    split = mg.splits.holdout(mg.Interactions.from_csr(matrix), seed=1)
    settings = [
        Setting.of("edlae", {"l2": 50.0, "dropout": 0.3}),
        Setting.of("deql", {"l2": 50.0, "dropout": 0.3, "a": 1.0, "b": 0.7, "zero_diagonal": False}),
        Setting.of("low_rank_edlae", {"l2": 50.0, "dropout": 0.3, "rank": 5}),
        *(
            Setting.of(
                "two_step",
                {"l2": 50.0, "dropout": 0.3, "second": second, "user_power": 0.0, "low_pass": low_pass, "rank": 8},
            )
            for second, low_pass in ((0.5, 0.0), (0.9, 0.2))
        ),
    ]
    monkeypatch.setattr(inverse_costs, "dense", functools.partial(large, inverse_costs.dense))
    fits = []
    original = LocalRegression.columns
    monkeypatch.setattr(
        LocalRegression, "columns", lambda self, items, *rest: fits.append(len(items)) or original(self, items, *rest)
    )
    runner = GroupRunner(Task(split, parse("ndcg@10"), memory="1 GB"))
    groups = grouped(settings)
    assert [len(group) for group in groups] == [3, 2]
    trials = [trial for group in groups for trial in runner.run(group)]
    assert fits.count(300) == 2
    student = trials.pop(2)
    assert student.value is None
    assert "low_rank_edlae: not tried, because no inverse fits in memory" in student.note
    del settings[2]
    for setting, value in zip(settings, [trial.value for trial in trials], strict=True):
        model = setting.make().fit(split.train, solver="local")
        expected, _ = measure_weights(model.weights_, split.train, split, (parse("ndcg@10"),), 1)
        assert value == pytest.approx(expected.mean(), abs=1e-9)


def large(function, *arguments, **options):
    """A dense inverse that does not fit in memory."""
    return dataclasses.replace(function(*arguments, **options), bytes=10**12)


RECENCIES = [{}, {"recency": 0.5}, {"recency": 1.5}, {"half_life": "2 events"}]
AGED = {
    "ease": [{"l2": 5}],
    "deql": [{"l2": 5, "dropout": 0.4, "b": b} for b in (0.1, 0.7)],
    "two_step": [{"l2": 5, "dropout": 0.4, "second": second, "low_pass": 0.5, "rank": 4} for second in (0.3, 1)],
    "low_rank_dlae": [{"l2": 5, "dropout": 0.4, "rank": 3}],
    "lrr": [{"rank": 6, "l2": 10}],
    "slim": [{"l1": 1, "l2": 5, "tolerance": 1e-6}, {"l1": 8, "l2": 5, "tolerance": 1e-6}],
    "item_knn": [{"k": 10}],
}


@pytest.fixture(scope="module")
def latest(log):
    return mg.splits.latest(log)


def aged(name):
    return [Setting.of(name, own | recency) for own in AGED[name] for recency in RECENCIES]


@pytest.mark.parametrize("name", AGED)
def test_settings_of_several_recencies_have_the_values_of_separate_fits(latest, name):
    groups = grouped(aged(name))
    assert len(groups) == 1, "they share a computation"
    values = {}
    for trial in GroupRunner(Task(latest, parse("ndcg@5"), dtype="float64")).run(groups[0]):
        values[trial.setting] = trial.value
        assert trial.value == pytest.approx(alone(trial.setting, latest), abs=1e-6), trial
    assert len(set(values.values())) > len(AGED[name]), "recency changes lists"


def test_settings_of_several_recencies_have_the_values_of_separate_fits_on_a_path(latest):
    settings_ = [Setting.of("ease", {"l2": l2} | recency) for l2 in (5, 20, 80) for recency in RECENCIES]
    for trial in GroupRunner(Task(latest, parse("ndcg@5"), dtype="float64")).run(settings_):
        assert trial.value == pytest.approx(alone(trial.setting, latest), abs=1e-6), trial


@pytest.mark.parametrize("decay", [0, 0.6])
def test_recency_with_local_regressions(latest, decay, monkeypatch):
    monkeypatch.setattr(shared_inverses.SharedInverses, "local_models", lambda self, models: models)
    made, real = [], LocalRegression.__init__
    monkeypatch.setattr(LocalRegression, "__init__", lambda self, *a, **k: made.append(1) or real(self, *a, **k))
    own = {"l2": 5, "dropout": 0.4, "decay": decay, "user_power": 0}
    names = ("edlae", "two_step")
    several = [
        Setting.of(name, {k: v for k, v in own.items() if name == "two_step" or k != "user_power"} | recency)
        for name in names
        for recency in RECENCIES
    ]
    runner = GroupRunner(Task(latest, parse("ndcg@5")))
    for group in grouped(several):
        before = len(made)
        for trial in runner.run(group):
            model = trial.setting.make().fit(latest.train, solver="local")
            assert trial.value == pytest.approx(mg.evaluate({"it": model}, latest, "ndcg@5").value("it", "ndcg@5"))
        assert len(made) > before


def test_one_fit_serves_all_recencies(latest, made):
    runner = GroupRunner(Task(latest, parse("ndcg@5")))
    for group in grouped(aged("ease") + aged("deql")):
        runner.run(group)
    assert made["primal_inverse"] == 2, "one for each pair of l2 and dropout"
    fits, real = [], mg.ItemKNN._fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.ItemKNN, "_fit", lambda *given: fits.append(1) or real(*given))
        runner.run(aged("item_knn"))
    assert len(fits) == 1


@pytest.mark.parametrize("solver", ["auto", "local"])
def test_two_steps_that_recommend_items_again(latest, solver, monkeypatch):
    again = dataclasses.replace(latest, exclude_seen=False)
    if solver == "local":
        monkeypatch.setattr(shared_inverses.SharedInverses, "local_models", lambda self, models: models)
    own = {"l2": 5, "dropout": 0.4, "recency": 0.5}
    several = [Setting.of("two_step", own | {"repeat": r, "item_power": t}) for r in (0, 0.02, 2) for t in (0, 0.3)]
    groups = grouped(several)
    assert len(groups) == 1
    values = []
    for trial in GroupRunner(Task(again, parse("ndcg@5"), dtype="float64")).run(groups[0]):
        model = trial.setting.make().fit(again.train, solver=solver, dtype="float64")
        values.append(mg.evaluate({"it": model}, again, "ndcg@5").value("it", "ndcg@5"))
        assert trial.value == pytest.approx(values[-1], abs=1e-6)
    assert len(set(values)) > 2, "repeat and item_power change lists"


def test_lists_with_items_of_the_history_are_those_of_separate_fits(latest):
    """There the diagonal of the weights counts, which scores through column factors leave out."""
    again = dataclasses.replace(latest, exclude_seen=False)
    several = [Setting.of("ease", {"l2": l2, "repeat": 0.5}) for l2 in (5, 20, 80)]
    several += [Setting.of(name, {"l2": 5, "dropout": 0.4}) for name in ("dlae", "deql")]
    runner = GroupRunner(Task(again, parse("ndcg@5"), dtype="float64"))
    assert not plan(runner, several, Budget()).candidates
    for group in grouped(several):
        for trial in runner.run(group):
            assert trial.value == pytest.approx(alone(trial.setting, again), abs=1e-6), trial
