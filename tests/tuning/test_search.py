"""The search: the result of a plain loop, within its budget, resumed after an interruption."""

from __future__ import annotations

import importlib.util
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.data.parts import part_of
from monogram.engine.inverse import primal
from monogram.errors import DataError, MissingExtraError, MonogramWarning, NumericalError, ParameterError
from monogram.evaluation import protocol as protocol_
from monogram.tuning import group_runner, search, tpe

FAST = {"metric": "ndcg@5", "budget": "40 settings"}


@pytest.fixture
def without_tpe(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


def test_it_is_the_loop_a_person_would_write(log):
    split = mg.splits.holdout(log, seed=3)
    inner = mg.splits.holdout(split.train, share=0.1, seed=0)
    grid = {"l2": [1.0, 10.0, 100.0], "dropout": [0.2, 0.6], "b": [0.3, 1.5]}
    found = mg.tune(log, "deql", protocol=split, space={"deql": grid}, metric="ndcg@5", dtype="float64")
    tried = {
        json.dumps(row["parameters"]): row["value"] for row in found.rows() if row["model"] == "deql"
    }  # fmt: skip
    assert len(tried) == 12
    for key, value in tried.items():
        model = mg.DEQL(**json.loads(key))
        alone = mg.evaluate({"it": model}, inner, "ndcg@5", fit={"dtype": "float64"}).value("it", "ndcg@5")
        assert value == pytest.approx(alone, abs=1e-6)
    assert found.best["value"] == max(tried.values())
    assert found.model.params() == found.best["parameters"]
    ease = max((row for row in found.rows() if row["model"] == "ease"), key=lambda row: row["value"])
    test = mg.evaluate(
        {"deql": found.model, "ease": mg.EASE(**ease["parameters"])}, split, "ndcg@5", fit={"dtype": "float64"}
    )
    for name in ("deql", "ease", "popularity"):
        assert found.test.value(name, "ndcg@5") == pytest.approx(test.value(name, "ndcg@5"), abs=1e-6)
    assert found.differences["ease"].value == pytest.approx(test.compare("deql", "ease").value, abs=1e-6)


SPACES = {
    "deql": {"l2": [5, 50], "dropout": 0.3, "b": [0.5, 2]},
    "lrr": {"rank": [4], "l2": [5.0, 50.0]},
    "low_rank_edlae": {"rank": [4], "l2": [5.0], "dropout": [0.3], "solver": ["closed_form", "alternating"]},
    "item_knn": {"k": [5], "shrink": [1.0]},
}


@pytest.mark.parametrize("name", SPACES)
def test_another_test_part_changes_no_value_of_the_search(log, name):
    split = mg.splits.holdout(log, seed=3)
    order = np.random.default_rng(0).permutation(split.targets.n_users)
    other = replace(split, targets=part_of(split.targets, order, np.arange(split.targets.n_items)))
    how = {"space": {name: SPACES[name]}, "metric": "ndcg@5", "budget": "12 settings"}
    first, second = (mg.tune(None, name, protocol=one, **how) for one in (split, other))
    assert [(row["parameters"], row["value"]) for row in first.rows()] == [
        (row["parameters"], row["value"]) for row in second.rows()
    ]
    assert first.test.value(name, "ndcg@5") != second.test.value(name, "ndcg@5")


def test_the_test_part_is_read_once_by_each_model_at_the_end(log, monkeypatch):
    split, read, tried = mg.splits.holdout(log), [], []
    real, run = protocol_.measure, group_runner.GroupRunner.run

    def watched(rank, seen, on, *rest, **named):
        read.append(on is split)
        return real(rank, seen, on, *rest, **named)

    def counted(self, group):
        assert not any(read)
        tried.append(group)
        return run(self, group)

    monkeypatch.setattr(protocol_, "measure", watched)
    monkeypatch.setattr(group_runner.GroupRunner, "run", counted)
    mg.tune(log, "deql", protocol=split, **FAST)
    assert tried
    assert sum(read) == 3, "the best, EASE and popularity"


def test_finer_is_better_and_the_same_again(log):
    coarse = mg.tune(log, ["edlae", "deql"], metric="ndcg@5", budget="510 settings")
    fine = mg.tune(log, ["edlae", "deql"], metric="ndcg@5", budget="580 settings")
    again = mg.tune(log, ["edlae", "deql"], metric="ndcg@5", budget="580 settings")
    assert fine.best["value"] >= coarse.best["value"]
    assert [(row["parameters"], row["value"]) for row in fine.rows()] == [
        (row["parameters"], row["value"]) for row in again.rows()
    ]
    assert len(fine.rows()) > 300
    curve = fine.curve()
    assert [one["best"] for one in curve] == np.maximum.accumulate([one["value"] for one in curve]).tolist()


@pytest.mark.parametrize("number", [1, 7, 40])
def test_a_number_of_settings_is_kept(log, number):
    found = mg.tune(log, "deql", metric="ndcg@5", budget=f"{number} settings")
    assert len(found.rows()) == number
    assert found.best["model"] == "deql"
    assert {"ease", "popularity"} == set(found.differences)


def test_no_time_is_time_for_one_group(log):
    found = mg.tune(log, "deql", metric="ndcg@5", budget=1e-6)
    assert len(found.rows()) == 32  # every b


def test_interrupted_and_resumed_is_as_if_it_never_stopped(log, tmp_path, monkeypatch):
    path, real, runs = tmp_path / "study.jsonl", group_runner.GroupRunner.run, []

    def run(self, group):
        runs.append(len(group))
        if len(runs) == 4:
            raise KeyboardInterrupt
        return real(self, group)

    monkeypatch.setattr(group_runner.GroupRunner, "run", run)
    with pytest.raises(KeyboardInterrupt):
        mg.tune(log, "edlae", study=path, **FAST)
    finished = len(path.read_text().splitlines()) - 1
    assert finished == sum(runs[:3])
    resumed = mg.tune(log, "edlae", study=path, **FAST)
    assert sum(runs[4:]) == len(resumed.rows()) - finished
    whole = mg.tune(log, "edlae", **FAST)
    assert [row["parameters"] for row in resumed.rows()] == [row["parameters"] for row in whole.rows()]
    assert resumed.best["value"] == whole.best["value"]
    with pytest.raises(DataError, match="other data"):
        mg.tune(log, "edlae", study=path, seed=5, **FAST)
    with pytest.raises(DataError, match="it has metric = "):
        mg.tune(log, "edlae", study=path, metric="recall@5")


@pytest.mark.parametrize("group", [2, 6, 9, 13])
def test_interrupted_among_the_finer_steps(log, tmp_path, monkeypatch, group):
    how = {"space": {"edlae": {"dropout": [0.2, 0.5]}}, "metric": "ndcg@5", "budget": "26 settings"}
    whole, real, runs = mg.tune(log, "edlae", **how), group_runner.GroupRunner.run, []

    def run(self, part):
        runs.append(part)
        if len(runs) == group:
            raise KeyboardInterrupt
        return real(self, part)

    monkeypatch.setattr(group_runner.GroupRunner, "run", run)
    with pytest.raises(KeyboardInterrupt):
        mg.tune(log, "edlae", study=tmp_path / "study", **how)
    resumed = mg.tune(log, "edlae", study=tmp_path / "study", **how)
    assert [(row["parameters"], row["value"]) for row in resumed.rows()] == [
        (row["parameters"], row["value"]) for row in whole.rows()
    ]


def test_what_a_study_holds_of_another_search_is_counted_in(log, tmp_path):
    how = {"metric": "ndcg@5", "study": tmp_path / "study"}
    first = mg.tune(log, "edlae", budget="20 settings", **how)
    both = mg.tune(log, ["lrr", "edlae"], budget="30 settings", **how)
    assert len(both.rows()) == 30
    assert both.best["value"] >= first.best["value"]
    less = mg.tune(log, ["lrr", "edlae"], budget="3 settings", **how)
    assert len(less.rows()) == 30


def test_spectral_models_and_students(log):
    space = {"low_rank_dlae": {"rank": [4, 8], "dropout": 0.4}}
    found = mg.tune(log, ["lrr", "rg2", "low_rank_dlae", "popularity", "item_knn"], space=space, metric="ndcg@5",
                    budget="120 settings")  # fmt: skip
    assert {row["model"] for row in found.rows()} >= {"lrr", "rg2", "low_rank_dlae", "popularity", "item_knn"}
    assert all(row["value"] is not None for row in found.rows())


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="the extra tune is not installed")
@pytest.mark.filterwarnings("ignore")
def test_models_in_epochs_are_searched_by_optuna(log):
    space = {"wrmf": {"epochs": 2, "rank": 4}}
    found = mg.tune(log, "wrmf", space=space, metric="ndcg@5", budget="20 settings")
    tried = [row["parameters"] for row in found.rows() if row["model"] == "wrmf"]
    assert tried[0]["l2"] == mg.WRMF().l2
    assert len({(one["l2"], one["alpha"]) for one in tried}) == len(tried) > 3
    assert {one["epochs"] for one in tried} == {2}
    again = mg.tune(log, "wrmf", space=space, metric="ndcg@5", budget="20 settings")
    assert [row["parameters"] for row in again.rows()] == [row["parameters"] for row in found.rows()]


def test_without_optuna_the_command_that_installs_it_is_named(log, without_tpe):
    with pytest.raises(MissingExtraError, match=r"pip install 'monogram\[tune\]'"):
        mg.tune(log, "wrmf", **FAST)
    with pytest.raises(MissingExtraError):
        mg.tune(log, "rg2", space={"rg2": {"solver": "als"}}, **FAST)


def test_what_is_trained_in_epochs(log):
    space = search.spaces.space
    for name, given, expected in (
        ("wrmf", {}, True),
        ("slim", {}, False),
        ("deql", {}, False),
        ("low_rank_edlae", {"solver": ["closed_form"]}, False),
        ("low_rank_edlae", {"solver": ["closed_form", "admm"]}, True),
    ):
        assert tpe.trained_in_epochs(name, space(name, log, None, given)) is expected


@pytest.mark.parametrize("protocol", ["holdout", "strong", "ratio811", "temporal", "latest", "leave_last", "sessions"])
@pytest.mark.filterwarnings("ignore")
def test_every_protocol(log, protocol):
    found = mg.tune(log, "ease", protocol=protocol, **FAST)
    assert found.test.protocol == protocol
    other = mg.tune(log, "ease", protocol=lambda one: mg.splits.holdout(one, seed=0), **FAST)
    assert (other.best["value"] == found.best["value"]) == (protocol == "holdout")


def test_a_validation_of_ones_own(log):
    split = mg.splits.holdout(log, seed=0)
    inner = mg.splits.holdout(split.train, share=0.1, seed=0)
    values = {
        mg.tune(log, "ease", protocol=split, validation=one, **FAST).best["value"]
        for one in (None, inner, lambda train: mg.splits.holdout(train, share=0.1, seed=0))
    }
    assert len(values) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"models": []}, "no model"),
        ({"models": ["easy"]}, "did you mean ease"),
        ({"metric": "coverage@5"}, "one of the catalogue"),
        ({"metric": "ndcg"}, "recall@20"),
        ({"budget": "soon"}, "20m"),
        ({"protocol": "weak"}, "there is no protocol"),
        ({"protocol": 3}, "a name, a function or a Split"),
        ({"seed": -1}, "seed"),
        ({"dtype": "float16"}, "dtype"),
        ({"space": {"deql": {}}}, "not one of the models searched"),
        ({"space": {"ease": {"b": 1}}}, "no parameter 'b'"),
    ],
)
def test_what_is_wrong_is_said(log, given, words):
    with pytest.raises(ParameterError, match=words):
        mg.tune(log, **({"models": "ease"} | FAST | given))


def test_where_nothing_can_be_fitted_it_says_why(log):
    few = mg.Interactions.from_csr(log.matrix[:20])  # fewer users than items: the Gram is singular
    with pytest.raises(NumericalError, match="none of the settings"):
        mg.tune(few, "dlae", space={"dlae": {"l2": 0, "dropout": 0}}, **FAST)


def test_it_prints_and_goes_into_json(log):
    states = []
    found = mg.tune(log, "deql", metric="ndcg@5", budget="520 settings", progress=states.append)
    text = repr(found)
    for word in ("DEQL(", "on test", "difference to ease", "difference to popularity", "ndcg@5", "settings in"):
        assert word in text
    document = json.loads(json.dumps(found.document()))
    assert document["best"] == found.best
    assert set(document["differences"]) == {"ease", "popularity"}
    assert states[-1].tried == len(found.rows())
    assert states[-1].best[0].value == found.best["value"]
    assert states[-1].left.settings == 520 - len(found.rows())


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="the extra tune is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [1, 5])
def test_a_short_search_tries_what_was_asked_for(log, number):
    found = mg.tune(log, "wrmf", space={"wrmf": {"epochs": 2, "rank": 4}}, metric="ndcg@5", budget=f"{number} settings")
    tried = [row["model"] for row in found.rows()]
    assert found.best["model"] == "wrmf"
    assert tried.count("wrmf") == -(-number // 2)


@pytest.mark.filterwarnings("ignore")
def test_values_that_are_all_given_are_all_tried(log):
    space = {"rank": [4, 8, 16], "l2": [0.01], "alpha": [3.0, 10.0], "epochs": [2]}
    found = mg.tune(log, "wrmf", space={"wrmf": space}, metric="ndcg@5", budget="40 settings")
    tried = {(row["parameters"]["rank"], row["parameters"]["alpha"]) for row in found.rows() if row["model"] == "wrmf"}
    assert tried == {(rank, alpha) for rank in (4, 8, 16) for alpha in (3.0, 10.0)}


def test_a_study_of_another_space_does_not_give_the_best(log, tmp_path):
    how = {"metric": "ndcg@5", "study": tmp_path / "study"}
    mg.tune(log, "deql", budget="70 settings", **how)
    found = mg.tune(log, "deql", budget="80 settings", space={"deql": {"b": [2.5]}}, **how)
    assert found.best["parameters"]["b"] == 2.5


@pytest.mark.filterwarnings("ignore:leave_last")
def test_a_log_too_small_to_validate(log):
    few = mg.Interactions.from_csr(log.matrix[:5])
    one_each = mg.splits.leave_last(mg.Interactions.from_csr(_first_two(few.matrix), times=np.arange(10)))
    with pytest.raises(DataError, match="no validation part can be split off from train"):
        mg.tune(None, "ease", protocol=one_each, metric="ndcg@5", budget="2 settings")


def _first_two(matrix):
    """Two events of each user: one is left when the last is taken."""
    rows = [matrix.indices[matrix.indptr[u] : matrix.indptr[u] + 2] for u in range(matrix.shape[0])]
    indices = np.concatenate(rows)
    return sp.csr_array((np.ones(len(indices), np.float32), indices, 2 * np.arange(len(rows) + 1)), shape=matrix.shape)


def powers(found, name):
    return {row["parameters"][name] for row in found.rows() if row["model"] == "tempered"}


SMALL = {"metric": "ndcg@5", "budget": "400 settings", "dtype": "float64"}
HELD = {"l2": 10, "dropout": 0.3, "decay": 0, "recency": 0}


@pytest.mark.parametrize("given", ["protocol", "validation"])
def test_a_power_of_popularity_is_searched_where_the_cut_sees_it_shift(log, given, monkeypatch):
    """By time, or on a part of one's own; every power of popularity from the inverse of its user_power."""
    inner = replace(mg.splits.holdout(log, share=0.1), protocol="what the shop saw next")
    how = {"protocol": "temporal"} if given == "protocol" else {"protocol": "holdout", "validation": inner}
    made = []
    real = primal.primal_inverse
    monkeypatch.setattr(primal, "primal_inverse", lambda *a, **b: made.append(a[0].shape) or real(*a, **b))
    found = mg.tune(log, "tempered", space={"tempered": HELD}, **how, **SMALL)
    assert {-0.4, -0.05, 0.0, 0.05, 0.4} <= powers(found, "item_power")
    assert {0.0, 0.5, 1.0} < powers(found, "user_power")
    tried = len([row for row in found.rows() if row["model"] == "tempered"])
    assert tried > 5 * len([one for one in made if one[1] > 2])
    cut = inner if given == "validation" else mg.splits.temporal(mg.splits.temporal(log).train, share=0.1)
    best = mg.evaluate(mg.Tempered(**found.best["parameters"]), cut, "ndcg@5", fit={"dtype": "float64"})
    assert best.value("tempered", "ndcg@5") == pytest.approx(found.best["value"], abs=1e-9)


@pytest.mark.parametrize("protocol", ["holdout", "strong", "ratio811", "leave_last"])
def test_another_cut_leaves_it_and_says_why(log, protocol):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = mg.tune(log, "tempered", space={"tempered": HELD}, protocol=protocol, **SMALL)
    (text,) = [str(one.message) for one in said if "item_power" in str(one.message)]
    assert "stays at 0:" in text
    assert f"{protocol!r}, " in text
    assert "cannot measure a shift in popularity" in text
    assert powers(found, "item_power") == {0.0}
    assert len(powers(found, "user_power")) > 2


def test_powers_that_are_given_are_tried(log):
    one = {"space": {"tempered": HELD | {"item_power": 0.1, "user_power": [0.25, 0.5]}}, **SMALL}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mg.tune(log, "tempered", **one)  # one value is no search
    assert powers(found, "item_power") == {0.1}
    assert powers(found, "user_power") == {0.25, 0.5}
    several = {"space": {"tempered": HELD | {"item_power": [-0.1, 0.1], "user_power": 0.5}}, **SMALL}
    with pytest.warns(MonogramWarning, match="item_power of tempered is searched as given.*cannot measure a shift"):
        found = mg.tune(log, "tempered", **several)
    assert powers(found, "item_power") == {-0.1, 0.1}


def drifting(users=150, seed=0):
    """A log in which the next item is near the latest ones, and far from the oldest."""
    rng = np.random.default_rng(seed)
    rows, times = [], []
    for _ in range(users):
        places = (rng.integers(60) + np.cumsum(rng.integers(-2, 5, 14))) % 60
        items = np.unique(places, return_index=True)
        rows.append(items[0])
        times.append(items[1])
    indptr = np.cumsum([0, *map(len, rows)])
    items = np.concatenate(rows)
    matrix = sp.csr_array((np.ones(len(items), np.float32), items, indptr), shape=(users, 60))
    return mg.Interactions.from_csr(matrix, times=np.concatenate(times))


def test_decay_and_recency_are_searched_on_the_latest_events(monkeypatch):
    made = []
    real = primal.primal_inverse
    monkeypatch.setattr(primal, "primal_inverse", lambda *a, **b: made.append(a[0].shape) or real(*a, **b))
    log = drifting()
    tuning = mg.tune(log, "edlae", protocol="latest", metric="ndcg@5", budget="150 settings", dtype="float64")
    best = tuning.best["parameters"]
    assert best["recency"] > 0, "the log is made so"
    trials = [row["parameters"] for row in tuning.rows() if row["model"] == "edlae"]
    assert {0.3, 0.6, 0.9} <= {one["decay"] for one in trials}
    still = [row for row in tuning.rows() if row["parameters"]["recency"] == 0]
    assert tuning.best["value"] > max(row["value"] for row in still)
    assert "2 Grams" in str(tuning.plan) or "Grams are made as decay changes" in str(tuning.plan)
    validation = mg.splits.latest(mg.splits.latest(log).train)
    alone = mg.evaluate(mg.EDLAE(**best), validation, "ndcg@5", fit={"dtype": "float64"})
    assert alone.value("edlae", "ndcg@5") == pytest.approx(tuning.best["value"], abs=1e-9)
    assert tuning.model.recency == best["recency"]


def test_a_random_part_cannot_measure_the_order(log):
    tuning = mg.tune(log, "ease", metric="ndcg@5", budget="8 settings")
    assert tuning.validation.endswith("; decay and recency are not searched on it")
    assert {
        (row["parameters"]["decay"], row["parameters"]["recency"])
        for row in tuning.rows()
        if "decay" in row["parameters"]
    } == {(0, 0)}
    own = {"item_knn": {"recency": [0, 0.5]}}
    with pytest.warns(MonogramWarning, match="recency of item_knn is searched as given: the validation part"):
        tuning = mg.tune(log, "item_knn", metric="ndcg@5", budget="8 settings", space=own)
    assert {row["parameters"]["recency"] for row in tuning.rows() if row["model"] == "item_knn"} == {0, 0.5}


def test_a_log_without_order_has_no_such_axes():
    log = mg.Interactions.from_csr(drifting().matrix)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuning = mg.tune(log, "ease", metric="ndcg@5", budget="8 settings")
    assert {row["parameters"].get("recency") for row in tuning.rows()} == {0.0}
