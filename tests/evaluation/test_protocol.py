"""The evaluation as a whole against one done by hand through the public table."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import MonogramWarning, ParameterError
from monogram.evaluation import protocol
from monogram.evaluation.metrics import BY_USER


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(4)
    taste = rng.standard_normal((150, 4)) @ rng.standard_normal((4, 80))
    matrix = sp.csr_array((taste > np.quantile(taste, 0.75)).astype(np.float32))
    return mg.splits.holdout(mg.Interactions.from_csr(matrix, items=[f"i{n}" for n in range(80)]), share=0.3)


def by_hand(model, split, k):
    """Recall by the public interface alone."""
    rows = model.recommend(split.histories.users, k=k).rows()
    lists: dict = {}
    for row in rows:
        lists.setdefault(row["user"], []).append(row["item"])
    return [
        len(set(lists.get(u, [])) & set(split.targets.history(u))) / len(split.targets.history(u))
        for u in split.targets.users
    ]


def test_the_mean_is_that_of_the_lists(split, monkeypatch):
    monkeypatch.setattr(protocol, "BATCH", 17)
    model = mg.EASE(l2=5).fit(split.train)
    result = mg.evaluate(model, split, ["recall@5", "recall@10"], per_user=True)
    assert result.value("ease", "recall@5") == pytest.approx(np.mean(by_hand(model, split, 5)), abs=1e-12)
    mine = result.users.filter(np.array(result.users["model"].to_pylist()) == "ease")
    np.testing.assert_allclose(mine["recall@10"].to_numpy(), by_hand(model, split, 10), atol=1e-12)
    assert mine["user"].to_pylist() == list(split.histories.users)


def test_an_unfitted_model_is_fitted_on_train_and_popularity_is_the_floor(split):
    model, told = mg.EASE(l2=5), []
    result = mg.evaluate(model, split, fit={"dtype": "float64"}, progress=told.append)
    rows = result.rows()
    assert told == ["ease", "popularity"]
    assert "weights_" not in model.__dict__, "one model in memory at a time"
    assert [row["model"] for row in rows] == ["ease"] * 2 + ["popularity"] * 2
    assert list(rows[0]) == ["model", "metric", "value", "low", "high", "users"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert result.value("ease", "recall@20") > result.value("popularity", "recall@20")
    assert {row["users"] for row in rows} == {split.targets.n_users}


def test_several_models_and_their_names(split):
    result = mg.evaluate([mg.EASE(l2=1), mg.EASE(l2=9), mg.Popularity()], split, "recall@5")
    assert [row["model"] for row in result.rows()] == ["EASE(l2=1.0)", "EASE(l2=9.0)", "popularity"]
    twice = mg.evaluate([mg.EASE(l2=1), mg.EASE(l2=1)], split, "recall@5")
    assert len({row["model"] for row in twice.rows()}) == 3
    named = mg.evaluate({"ours": mg.EASE(l2=1)}, split, "recall@5")
    assert [row["model"] for row in named.rows()] == ["ours", "popularity"]


def test_paired_comparison(split):
    result = mg.evaluate(mg.EASE(l2=5), split, ["recall@10", "coverage@10"])
    found = result.compare("ease", "popularity", "recall@10")
    gap = result.value("ease", "recall@10") - result.value("popularity", "recall@10")
    assert found.value == pytest.approx(gap, abs=1e-12)
    assert found.low < found.value < found.high
    assert result.compare("popularity", "ease").value == pytest.approx(-gap, abs=1e-12)
    for call in (
        lambda: result.compare("ease", "nobody"),
        lambda: result.compare("ease", "popularity", "coverage@10"),
        lambda: result.value("ease", "recall@99"),
    ):
        with pytest.raises(ParameterError):
            call()


def test_metrics_of_the_catalogue_have_no_interval(split):
    rows = mg.evaluate(mg.EASE(l2=5), split, ["coverage@5", "gini@5"]).rows()
    assert all(row["low"] is None and row["high"] is None for row in rows)
    coverage = {row["model"]: row["value"] for row in rows if row["metric"] == "coverage@5"}
    assert coverage["ease"] > coverage["popularity"]


def test_it_goes_to_every_form(split):
    result = mg.evaluate(mg.EASE(l2=5), split, ["recall@5", "gini@5"])
    rows = result.rows()
    assert json.loads(result.to_json()) == rows
    assert result.to_arrow().to_pylist() == rows
    read = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert [float(one["value"]) for one in read] == [row["value"] for row in rows]
    assert result.to_markdown().startswith("| model | recall@5 | gini@5 |\n|---|---:|---:|\n| ease |")
    assert "holdout" in repr(result)
    assert "[" in repr(result)


def test_hidden_items_are_not_offered(split):
    data = mg.sample()
    cut = mg.splits.ratio811(data, seed=2)
    shown = mg.evaluate(mg.EASE(l2=100), cut, "recall@10")
    without = mg.splits.Split(cut.protocol, cut.train, cut.histories, cut.targets)
    open_ = mg.evaluate(mg.EASE(l2=100), without, "recall@10")
    assert shown.value("ease", "recall@10") > open_.value("ease", "recall@10"), "validation items took places"


def test_a_model_with_other_items_is_aligned_by_their_ids(split):
    order = np.random.default_rng(0).permutation(split.train.n_items)
    ids = list(split.train.items)
    other = mg.Interactions.from_csr(
        split.train.matrix[:, order], users=list(split.train.users), items=[ids[k] for k in order]
    )
    same = mg.evaluate(mg.EASE(l2=5).fit(split.train), split, "recall@10")
    moved = mg.evaluate(mg.EASE(l2=5).fit(other), split, "recall@10")
    assert moved.value("ease", "recall@10") == pytest.approx(same.value("ease", "recall@10"), abs=0.01)
    fewer = mg.Interactions.from_csr(split.train.matrix[:, :20], users=list(split.train.users), items=ids[:20])
    part = mg.evaluate(mg.EASE(l2=5).fit(fewer), split, "recall@10")
    assert 0 < part.value("ease", "recall@10") < same.value("ease", "recall@10"), "what it cannot give is a miss"
    stranger = mg.EASE(l2=5).fit(mg.sample())
    with pytest.raises(ParameterError, match="none of the items"):
        mg.evaluate(stranger, split)


def test_k_above_the_catalogue(split):
    result = mg.evaluate(mg.EASE(l2=5), split, ["recall@500", "precision@500", "novelty@500"])
    assert result.value("ease", "recall@500") == 1.0
    assert result.value("ease", "precision@500") < 0.2


@pytest.mark.parametrize(("metrics", "text"), [(["recal@5"], "recal@5"), ([], "at least one"), ("recall", "recall")])
def test_metrics_that_are_not_there(split, metrics, text):
    with pytest.raises(ParameterError, match=text):
        mg.evaluate(mg.EASE(l2=5), split, metrics)


def test_a_log_is_not_a_split(split):
    with pytest.raises(ParameterError, match=r"splits\.holdout"):
        mg.evaluate(mg.EASE(l2=5), split.train)


def test_each_protocol_reports_what_its_papers_report():
    data = mg.sample()
    strong = mg.evaluate(mg.EASE(l2=100), mg.splits.strong(data))
    assert [row["metric"] for row in strong.rows()[:3]] == ["recall_capped@20", "recall_capped@50", "ndcg@100"]


def test_a_model_that_learned_from_the_test_is_told():
    train, test = mg.splits.holdout(mg.sample())
    whole = mg.EASE(l2=100).fit(mg.sample())
    with pytest.warns(MonogramWarning, match="was fitted on"):
        mg.evaluate(whole, test)
    mg.evaluate(mg.EASE(l2=100).fit(train), test)  # warnings are errors here


def test_a_model_of_the_users_called_popularity_stays(split):
    rows = mg.evaluate({"popularity": mg.EASE(l2=5)}, split, "recall@5").rows()
    assert [row["model"] for row in rows] == ["popularity", "popularity (floor)"]


@pytest.mark.parametrize("models", [{"x": 3}, mg.EASE, "ease", 7, [mg.EASE(l2=5), None]])
def test_what_is_not_a_model_is_refused(split, models):
    with pytest.raises(ParameterError, match="not a model"):
        mg.evaluate(models, split)


def test_a_huge_k_takes_no_memory(split):
    result = mg.evaluate(mg.EASE(l2=5), split, [f"{name}@900000000" for name in BY_USER])
    assert result.value("ease", "recall@900000000") == 1.0
    assert 0 < result.value("ease", "ndcg@900000000") <= 1


def test_forms_do_not_depend_on_the_data(split):
    only = mg.evaluate({"a|b": mg.EASE(l2=5)}, split, "coverage@5")
    assert str(only.to_arrow().schema.field("low").type) == "double"
    assert "a\\|b" in only.to_markdown()
    with pytest.raises(ParameterError, match="by user"):
        only.compare("a|b", "popularity")
