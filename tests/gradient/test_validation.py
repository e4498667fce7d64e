"""The validation part of early stopping: the latest events of each user where the log has an order, else random."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import monogram as mg
from monogram.cli.fit import FitProgress
from monogram.errors import DataError
from monogram.evaluation.metrics import parse
from monogram.evaluation.protocol import measure_weights
from monogram.planning.gradient_costs import TORCH

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.gradient import validation  # noqa: E402
from monogram.gradient.checkpoint import key_of  # noqa: E402

SMALL = {"rank": 4, "epochs": 6, "batch": 64, "patience": 9, "validation": 0.3, "metric": "ndcg@5"}
LATEST = "the latest 30% of each user's events ("
RANDOM = "a random 30% of each user's events (the log has no order)"


@pytest.fixture
def plain(world):
    return mg.Interactions.from_csr(world)


def ordered(log, seed=0, **kind):
    """The log with times, or an order, that do not follow the items."""
    permuted = np.random.default_rng(seed).permutation(log.n_events)
    return replace(log, **(kind or {"times": permuted}))


def matrices(split):
    return [part.matrix.toarray() for part in (split.train, split.histories, split.targets)]


@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.1, 0.25, 0.5, 0.9]), timed=st.booleans())
def test_no_held_out_event_is_before_one_of_the_same_user_in_train(seed, share, timed):
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array((rng.random((12, 15)) < 0.6).astype(np.float32))
    order = rng.permutation(matrix.nnz)
    log = mg.Interactions.from_csr(matrix, **{"times" if timed else "order": order})
    split = validation.cut(log, share, seed).split
    place = sp.csr_array((order + 1, matrix.indices, matrix.indptr), shape=matrix.shape).toarray()
    for user in range(12):
        events = np.flatnonzero(place[user])
        kept = np.flatnonzero(split.train.matrix.toarray()[user])
        held = np.setdiff1d(events, kept)
        assert len(held) == (max(1, int(share * len(events))) if len(events) >= 5 else 0)
        if len(held) and len(kept):
            assert place[user, held].min() > place[user, kept].max()


@pytest.mark.parametrize("kind", ["times", "order"])
def test_a_log_with_an_order_is_cut_as_the_latest(plain, kind):
    log = ordered(plain, **{kind: np.random.default_rng(1).permutation(plain.n_events)})
    part, expected = validation.cut(log, 0.3, 0), mg.splits.latest(log, 0.3)
    assert part.how == f"{LATEST}{part.split.histories.n_users:,} users)"
    for actual, wanted in zip(matrices(part.split), matrices(expected), strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_a_log_without_an_order_is_cut_at_random(plain):
    part, expected = validation.cut(plain, 0.3, 5), mg.splits.holdout(plain, 0.3, 5)
    assert part.how == RANDOM
    for actual, wanted in zip(matrices(part.split), matrices(expected), strict=True):
        np.testing.assert_array_equal(actual, wanted)
    assert validation.cut(plain, 0.125, 5).how.startswith("a random 12.5% of")


@pytest.mark.parametrize(("timed", "how"), [(True, LATEST), (False, RANDOM)])
def test_the_report_and_the_progress_say_which(plain, tmp_path, timed, how, capsys):
    heard = []

    class Watching:
        def __call__(self, stage, amount):
            return

        def validated(self, how):
            heard.append(how)

    fitted = mg.Factorization(**SMALL).fit(ordered(plain) if timed else plain, progress=Watching())
    said = fitted.report_.validation
    assert heard == [said]
    assert said.startswith(how)
    assert f", on {said}" in str(fitted.report_)
    fitted.save(tmp_path / "x.mono")
    assert mg.load(tmp_path / "x.mono").report_.validation == said
    FitProgress().validated(said)
    assert capsys.readouterr().err == f"early stopping is measured on {said}\n"
    unmeasured = mg.Factorization(**SMALL | {"patience": 0}).fit(plain)
    assert unmeasured.report_.validation == ""


def test_another_order_is_another_training(plain):
    first, second = (mg.Factorization(**SMALL).fit(ordered(plain, seed), threads=1) for seed in (1, 2))
    assert first.report_.metrics != second.report_.metrics
    own = {"dtype": "float32", "threads": 1, "device": "cpu"}
    keys = {key_of("x", {}, log, **own) for log in (plain, ordered(plain, 1), ordered(plain, 2), ordered(plain, 2))}
    assert len(keys) == 3, "a checkpoint is resumed only with the same order"


def test_the_metric_is_that_of_the_model_in_use(plain):
    """Histories of the validation users are weighted by the recency of the model, as in its lists."""
    log = ordered(plain)
    split = mg.splits.latest(log, 0.3)
    fitted = mg.ELSA(**SMALL | {"patience": 20, "epochs": 4, "recency": 0.9}).fit(log)
    short = mg.ELSA(**SMALL | {"patience": 0, "epochs": 1, "recency": 0.9}).fit(split.train)
    by_user, _ = measure_weights(short.weights_, split.train, split, (parse("ndcg@5"),), 1, short.recency_rule())
    assert fitted.report_.metrics[0] == pytest.approx(by_user[:, 0].mean(), abs=1e-12)
    unweighted, _ = measure_weights(short.weights_, split.train, split, (parse("ndcg@5"),), 1)
    assert unweighted[:, 0].mean() != pytest.approx(by_user[:, 0].mean(), abs=1e-6)


def test_a_recency_without_an_order_is_refused(plain):
    with pytest.raises(DataError, match="recency"):
        mg.ELSA(**SMALL | {"recency": 0.5}).fit(plain)


def test_histories_too_short_to_cut():
    """Four events of a user are not cut by `latest`; the error says what to do."""
    events = [(user, item) for user in range(6) for item in range(user, user + 4)]
    with pytest.raises(DataError, match=r"users with fewer than five events.*patience=0"):
        mg.Factorization(**SMALL).fit(mg.Interactions.from_csr(*_timed(events)))


MANY = {
    "pairs": (mg.Factorization, {"batch": 65_536}),
    "all items": (mg.Factorization, {"loss": "softmax", "batch": 1000}),
    "rows": (mg.ELSA, {"batch": 1024}),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", MANY)
def test_a_fit_with_validation_stays_within_its_plan(name):
    """Of a log with two million events, which outweigh the vectors; beside the fixed share of torch."""
    rng, (kind, parameters) = np.random.default_rng(0), MANY[name]
    items = np.arange(0, 5000, 50) + rng.integers(0, 50, (20_000, 100))
    matrix = sp.csr_array((np.ones(items.size, np.float32), items.ravel(), np.arange(0, items.size + 1, 100)))
    log = mg.Interactions.from_csr(matrix, order=rng.permutation(matrix.nnz))
    kind(**parameters, rank=8, epochs=1).fit(mg.sample(), threads=1)  # torch loads parts of itself at first use
    gc.collect()
    report = kind(**parameters, rank=8, epochs=1, patience=1, seconds=0.1).fit(log, threads=1).report_
    arrays = report.planned_bytes - TORCH
    assert arrays / 5 < report.peak_bytes < arrays
    plain = kind(**parameters, rank=8, epochs=1).plan(log).chosen.bytes
    assert report.planned_bytes - plain >= 64 * log.n_events


def _timed(events):
    rows, columns = np.array(events).T
    matrix = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)))
    return matrix, None, None, np.arange(len(rows))
