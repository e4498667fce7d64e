"""The validation part is cut as the test part was cut, and the result says how."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import monogram as mg
from monogram.tuning.study import fingerprint
from monogram.tuning.validation import split_of, validation_of

FAST = {"metric": "ndcg@5", "budget": "3 settings", "space": {"ease": {"l2": [10.0]}}}


def equal(first: mg.splits.Split, second: mg.splits.Split) -> bool:
    return first.protocol == second.protocol and fingerprint(first) == fingerprint(second)


def lists(log, folder, ordered: bool):
    """A file of public lists: the latest fifth of each user is the test part."""
    split = mg.splits.latest(log)
    arrays = {"shape": log.matrix.shape}
    for part, source in (("train", split.train), ("test", mg.splits.latest(log).targets)):
        rows = {user: [] for user in log.users}
        for number, user in enumerate(source.users):
            own = slice(source.matrix.indptr[number], source.matrix.indptr[number + 1])
            order = np.argsort(source.positions[own]) if ordered else slice(None)
            rows[user] = source.matrix.indices[own][order].tolist()
        arrays[f"{part}_indptr"] = np.cumsum([0, *map(len, rows.values())])
        arrays[f"{part}_indices"] = np.concatenate(list(rows.values())).astype(int)
    np.savez(folder / "lists.npz", **arrays)
    return folder / "lists.npz"


@pytest.fixture(scope="module")
def shuffled(log):
    """The log with times that do not follow the items."""
    return replace(log, times=np.random.default_rng(1).permutation(log.n_events))


def test_latest_is_cut_from_the_latest_events_of_train(shuffled):
    split = mg.splits.latest(shuffled)
    chosen = validation_of(shuffled, "latest", split, None, 0)
    assert equal(chosen.split, mg.splits.latest(split.train))
    assert chosen.how == "the latest 20% of each user's events in train, as the test part"


@pytest.mark.parametrize("ordered", [True, False])
def test_public_lists_are_cut_by_their_order_where_they_have_one(shuffled, tmp_path, ordered):
    split = mg.splits.public(lists(shuffled, tmp_path, ordered))
    assert split.train.has_order is ordered
    chosen = validation_of(None, split, split, None, 3)
    wanted = mg.splits.latest(split.train) if ordered else mg.splits.holdout(split.train, share=0.1, seed=3)
    assert equal(chosen.split, wanted)
    assert ("as the public lists were cut" in chosen.how) is ordered
    assert ("the train list has no order" in chosen.how) is not ordered


def test_sessions_are_validated_on_the_latest_sessions(shuffled, tmp_path):
    rng = np.random.default_rng(0)
    users = np.sort(rng.integers(0, 40, 200))
    np.savez(tmp_path / "s.npz", user=users, item=rng.integers(0, 9, 200), n_train_users=30, shape=[40, 9])
    split = split_of(tmp_path / "s.npz", "sessions", 0)
    chosen = validation_of(tmp_path / "s.npz", "sessions", split, None, 0)
    assert equal(chosen.split, mg.splits.sessions(tmp_path / "s.npz", part="validation"))
    assert "latest tenth of the training sessions" in chosen.how
    assert not chosen.split.exclude_seen
    for given in (None, "sessions"):  # of a ready split, which keeps the repeats that train has merged
        of_split = validation_of(None, split, split, given, 0)
        assert equal(of_split.split, chosen.split)
        assert of_split.how == chosen.how
    assert not equal(chosen.split, mg.splits.sessions(split.train, share=0.1))
    merged = mg.splits.sessions(mg.read(tmp_path / "s.npz", time="order", quiet=True), n_train=30)
    assert equal(validation_of(None, merged, merged, None, 0).split, mg.splits.sessions(merged.train, share=0.1))
    command = validation_of(None, split, split, chosen.split, 0)
    assert command.how == chosen.how


def test_the_result_says_how(shuffled, tmp_path):
    found = mg.tune(shuffled, "ease", protocol="latest", **FAST)
    how = "the latest 20% of each user's events in train, as the test part"
    assert found.validation == how
    assert found.document()["validation"] == how
    assert how in repr(found)
    found.report(tmp_path / "report.md")
    assert how in (tmp_path / "report.md").read_text(encoding="utf-8")
    json.dumps(found.document())
    given = mg.tune(shuffled, "ease", protocol="latest", validation=mg.splits.holdout, **FAST)
    assert given.validation == "given (holdout); decay and recency are not searched on it"


def test_another_order_is_other_data(shuffled):
    split = mg.splits.latest(shuffled)
    times = shuffled.times.max() - shuffled.times
    other = replace(split, train=replace(split.train, times=times[: split.train.n_events]))
    assert fingerprint(other) != fingerprint(split)
    assert fingerprint(replace(split)) == fingerprint(split)


def test_a_power_of_popularity_is_searched_on_the_latest_events(shuffled, recwarn):
    space = {"tempered": {"l2": 10, "dropout": 0.3, "user_power": 0.5}}
    found = mg.tune(shuffled, "tempered", protocol="latest", metric="ndcg@5", budget="30 settings", space=space)
    powers = {row["parameters"]["item_power"] for row in found.rows() if row["model"] == "tempered"}
    assert len(powers) > 3
    assert not recwarn.list
