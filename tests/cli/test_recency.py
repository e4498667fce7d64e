"""Histories in order, times, and the parameters of time on the command line."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import monogram as mg

ITEMS = ["tea", "earl grey", "café, noir", "jam", "honey", "cup"]
HISTORY = '"café, noir",tea,jam'
DATES = "2026-01-05,2026-02-01,2026-03-02"


def rows():
    rng = np.random.default_rng(0)
    return [
        (f"u{user}", item, np.datetime64("2026-01-01") + int(rng.integers(90)))
        for user in range(25)
        for item in rng.permutation(ITEMS)[: rng.integers(2, 6)]
    ]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """A log with a column of dates."""
    path = tmp_path_factory.mktemp("log") / "events.csv"
    lines = [f'{user},"{item}",{when}\n' for user, item, when in rows()]
    path.write_text("user,item,when\n" + "".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def log(events):
    return mg.read(events, time="when", quiet=True)


@pytest.fixture
def fit(program, events, tmp_path):
    """Fit a model to the log by the command."""

    def run(*arguments, time=("--time-column", "when")):
        path = tmp_path / "model.mono"
        done = program("fit", events, "-o", path, "--l2", 2, *time, *arguments)
        assert done.code == 0, done.err
        return path

    return run


def scores(text):
    return [(str(row["user"]), row["item"], pytest.approx(row["score"], abs=1e-6)) for row in json.loads(text)]


def listed(recommendations):
    return [(str(row["user"]), row["item"], row["score"]) for row in recommendations]


@pytest.mark.parametrize(
    ("flags", "parameters"),
    [
        (["--half-life", "30d"], {"half_life": "30d"}),
        (["--recency", 0.8], {"recency": 0.8}),
        (["--recency", 0.8, "--recency-unit", "7d"], {"recency": 0.8, "recency_unit": "7d"}),
        (["--decay", 0.6, "--decay-unit", "1w", "--floor", 0.1], {"decay": 0.6, "decay_unit": "7d", "floor": 0.1}),
    ],
)
def test_a_fit_with_times(program, fit, log, flags, parameters):
    path = fit(*flags)
    model = mg.EASE(l2=2, **parameters).fit(log)
    assert mg.load(path).params() == model.params()
    users = ("--user", "u1", "--user", "u2", "--json")
    assert scores(program("recommend", path, *users).out) == listed(model.recommend(["u1", "u2"]))
    everyone = program("recommend", path, "--json").out
    assert scores(everyone) == listed(model.recommend())
    shown = program("inspect", path).out
    assert any(line.split() == ["order", "of", "events", "by", "times,", "in", "us"] for line in shown.splitlines())
    for name, value in parameters.items():
        assert any(line.split() == [name, *str(value).split()] for line in shown.splitlines())


def test_a_log_in_order_without_times(program, fit, log):
    path = fit("--decay", 0.6, "--recency", 0.8, time=("--time-order",))
    columns = {"user": [row[0] for row in rows()], "item": [row[1] for row in rows()]}
    ordered = mg.read(pa.table(columns), time="order", quiet=True)
    model = mg.EASE(l2=2, decay=0.6, recency=0.8).fit(ordered)
    assert scores(program("recommend", path, "--user", "u1", "--json").out) == listed(model.recommend(["u1"]))
    assert "by rows" in program("inspect", path).out


def test_a_history_is_in_order(program, fit, log):
    path = fit("--recency", 0.8)
    model = mg.EASE(l2=2, recency=0.8).fit(log)
    for text, history in ((HISTORY, ["café, noir", "tea", "jam"]), ("jam,tea", ["jam", "tea"])):
        done = program("recommend", path, "--history", text, "--json")
        assert scores(done.out) == listed(model.recommend(histories=[history]))


def test_a_history_with_times_and_the_time_of_asking(program, fit, log):
    path = fit("--half-life", "30d")
    model = mg.EASE(l2=2, half_life="30d").fit(log)
    history = list(zip(["café, noir", "tea", "jam"], DATES.split(","), strict=True))
    given = ("--history", HISTORY, "--times", DATES)
    for at in ("2026-06-01", "2026-06-01T00:00:00Z", "1780272000000000"):
        done = program("recommend", path, *given, "--at", at, "--json")
        assert scores(done.out) == listed(model.recommend(histories=[history], at="2026-06-01"))
        done = program("recommend", path, "--user", "u3", "--at", at, "--json")
        assert scores(done.out) == listed(model.recommend(["u3"], at="2026-06-01"))
    two = program("recommend", path, *given, "--history", "tea", "--times", "2026-05-01", "--json")
    assert scores(two.out) == listed(model.recommend(histories=[history, [("tea", "2026-05-01")]]))


@pytest.mark.parametrize("asked", [("--user", "u3"), ("--history", HISTORY, "--times", DATES)])
def test_an_explanation_has_the_weight_of_each_event(program, fit, log, asked):
    path = fit("--half-life", "30d")
    model = mg.EASE(l2=2, half_life="30d").fit(log)
    history = list(zip(["café, noir", "tea", "jam"], DATES.split(","), strict=True))
    who = {"user": "u3"} if asked[0] == "--user" else {"history": history}
    expected = model.explain(item="cup", at="2026-06-01", **who)
    done = program("explain", path, "cup", *asked, "--at", "2026-06-01", "--json")
    shares = {row["item"]: (row["share"], row["weight"]) for row in json.loads(done.out)["shares"]}
    assert shares == {row["item"]: pytest.approx((row["share"], row["weight"]), abs=1e-6) for row in expected.rows()}
    assert len({weight for _, weight in shares.values()}) > 1
    table = program("explain", path, "cup", *asked, "--at", "2026-06-01").out.splitlines()
    assert table[0].split() == ["item", "weight", "share"]
    assert f"{expected.rows()[0]['weight']:.4f}" in table[1]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--half-life", "3 foo"], "half_life = '3 foo'; expected a duration such as '7d'"),
        (["--half-life", "-3d"], "half_life = '-3d'"),
        (["--half-life", "3d", "--recency", 1], "recency = 1 and half_life = '3d' were both given"),
        (["--recency-unit", "soon"], "recency_unit = 'soon'; expected a duration"),
        (["--recency", "-1"], "recency = -1.0; expected a number of at least 0"),
        (["--decay-unit", "0d"], "decay_unit = '0d'"),
        (["--floor", 1], "floor = 1.0; expected a number of at least 0 and below 1"),
        (["--half-live", "3d"], "--half-life"),
    ],
)
def test_a_wrong_parameter_is_named_before_the_log_is_read(program, tmp_path, flags, words):
    done = program("fit", tmp_path / "no such log.csv", "-o", tmp_path / "model.mono", *flags)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize("command", ["fit", "plan", "evaluate", "tune"])
def test_the_help_has_the_parameters_of_every_model_once(program, command):
    text = " ".join(program(command, "--help").out.replace("│", " ").split())
    for flag in ("--recency", "--recency-unit", "--half-life", "--decay", "--decay-unit", "--floor", "--time-order"):
        assert f"{flag} " in text
    assert "in place of recency (all other models; default none)" in text


def test_a_plan_with_decay_names_a_solver_that_has_it(program, events):
    done = program("plan", events, "--time-column", "when", "--decay", 0.6, "--json")
    assert done.code == 0
    assert json.loads(done.out)["chosen"] != "dual"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--history", "tea,jam", "--times", "2026-01-01"], "has 1 times for 2 items of --history 'tea,jam'"),
        (["--history", "tea", "--history", "jam", "--times", "5"], "--times was given 1 times and --history 2 times"),
        (["--user", "u1", "--times", "5"], "--times was given without --history"),
        (["--history", "tea", "--times", "yesterday"], "history 0 has the time 'yesterday'; expected a date such as"),
        (["--user", "u1", "--at", "soon"], "at = 'soon'; expected a date such as"),
        (["--user", "u1", "--at", "nan"], "at = 'nan'; expected a date such as"),
        (["--history", "tea,jam"], "add --times with one for each item: --times 2026-05-01,2026-05-02"),
    ],
)
def test_wrong_times_are_refused(program, fit, arguments, words):
    done = program("recommend", fit("--half-life", "30d"), *arguments, "--json")
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_a_log_without_order_is_refused_with_the_flags_that_name_it(program, events, tmp_path):
    done = program("fit", events, "-o", tmp_path / "model.mono", "--decay", 0.6)
    assert done.code == 3
    assert "--time-column" in done.err
    assert "--time-order" in done.err
