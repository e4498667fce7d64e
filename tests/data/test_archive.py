"""NumPy archives: splits, logs of indices, and archives that cannot be read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from monogram.data.interactions import Interactions
from monogram.data.readers import read
from monogram.errors import DataError


def as_dicts(log: Interactions) -> dict:
    return {user: log.history(user) for user in log.users}


def save(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def split_file(folder: Path, **more: object) -> Path:
    arrays = {
        "train_indptr": [0, 2, 3, 3], "train_indices": [0, 2, 1], "test_indptr": [0, 1, 1, 2],
        "test_indices": [1, 3], "shape": [3, 4],
    }  # fmt: skip
    np.savez(folder / "split.npz", **{k: np.asarray(v) for k, v in {**arrays, **more}.items()})
    return folder / "split.npz"


def log_file(folder: Path, **more: object) -> Path:
    arrays = {"user": [0, 2, 0], "item": [1, 0, 1], "rating": [4.0, 3.0, 1.0], "timestamp": [7, 8, 9], "shape": [4, 3]}
    np.savez_compressed(folder / "log.npz", **{k: np.asarray(v) for k, v in {**arrays, **more}.items()})
    return folder / "log.npz"


def test_npz_split(tmp_path):
    train, test = read(split_file(tmp_path)), read(split_file(tmp_path), part="test")
    assert train.matrix.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert test.matrix.toarray().tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert train.users == test.users
    assert train.items == test.items
    assert train.merge == "binary"
    assert list(read(split_file(tmp_path, item_ids=["d", "c", "b", "a"])).items) == ["d", "c", "b", "a"]


def test_npz_log(tmp_path):
    log = read(log_file(tmp_path, item_ids=[30, 20, 10]), weight="rating", time="timestamp")
    assert as_dicts(log) == {0: {20: 5.0}, 1: {}, 2: {30: 3.0}, 3: {}}
    assert list(log.items) == [30, 20, 10]
    assert log.times.tolist() == [7, 8]
    assert read(log_file(tmp_path)).matrix.data.tolist() == [1, 1]
    log = read(log_file(tmp_path, rating=[0, 3, 1]), weight="rating")
    assert "1 row with weight 0 left out" in log.notes
    assert log.matrix.data.tolist() == [1, 3]


def test_rows_of_a_split_that_are_not_sorted_are_in_order(tmp_path):
    path = split_file(tmp_path, train_indices=[2, 0, 1])
    train = read(path)
    assert train.matrix.toarray().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert train.positions.tolist() == [1, 0, 0]
    assert train.times is None
    assert any("taken in their order" in note for note in train.notes)
    assert not read(path, part="test").has_order
    assert not read(split_file(tmp_path)).has_order
    repeated = read(split_file(tmp_path, train_indptr=[0, 3, 4, 4], train_indices=[2, 0, 2, 1]), merge="sum")
    assert repeated.matrix.data.tolist() == [1, 2, 1]
    assert repeated.positions.tolist() == [0, 1, 0]


def sessions_file(folder: Path, **more: object) -> Path:
    arrays = {"user": [0, 0, 0, 1, 1], "item": [2, 0, 2, 1, 0], "n_train_users": 1, "shape": [2, 3]}
    np.savez(folder / "sessions.npz", **{k: np.asarray(v) for k, v in {**arrays, **more}.items()})
    return folder / "sessions.npz"


def test_a_log_of_sessions_is_in_order(tmp_path):
    log = read(sessions_file(tmp_path))
    assert log.positions.tolist() == [0, 1, 1, 0]  # 0 before the second 2; 1 before 0
    assert any("a log of sessions" in note for note in log.notes)
    assert not read(sessions_file(tmp_path, item=[0, 1, 2, 0, 1])).has_order
    timed = read(sessions_file(tmp_path, timestamp=[5, 4, 3, 2, 1]), time="timestamp", time_unit="s")
    assert timed.positions.tolist() == [0, 1, 0, 1]
    assert timed.time_unit == "s"


def test_rows_of_an_npz_log_may_be_in_order(tmp_path):
    log = read(log_file(tmp_path, user=[0, 0, 0], item=[1, 0, 1]), time="order")
    assert (log.times, log.positions.tolist()) == (None, [0, 1])
    named = read(log_file(tmp_path, order=[3, 2, 1]), time="order")
    assert named.times.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("more", "given", "words"),
    [
        ({"user": [0, 9, 0]}, {}, 'row 2, column "user": the index is outside 0 … 3, got 9'),
        ({"item": [0, 1, -1]}, {}, 'row 3, column "item": the index is outside'),
        ({"rating": [1, 1, -5]}, {"weight": "rating"}, 'row 3, column "rating": the weight is negative'),
        ({"user": [0, 1]}, {}, "same length"),
        ({"user": [0.5, 1, 1]}, {}, "expected one dimension"),
        ({"shape": [0, 3]}, {}, "at least 1"),
        ({"shape": [4]}, {}, "shape must be"),
        ({"item_ids": [1, 2]}, {}, "item_ids has 2 ids"),
        ({"item_ids": [1, 2, 2]}, {}, "occurs 2 times"),
        ({"user": np.array([0, 1, None], dtype=object)}, {}, "cannot be read"),
        ({"user": [], "item": [], "rating": []}, {}, "expected one dimension|no rows"),
        ({}, {"weight": "stars"}, "no array 'stars'"),
        ({}, {"part": "test"}, "no part 'test'"),
    ],
)
def test_bad_npz_logs(tmp_path, more, given, words):
    with pytest.raises(DataError, match=words):
        read(log_file(tmp_path, **more), **given)


def test_npz_skip(tmp_path):
    log = read(log_file(tmp_path, user=[0, 9, 0]), on_error="skip")
    assert (log.skipped, log.n_events, log.n_users) == (1, 1, 4)


@pytest.mark.parametrize(
    "more",
    [{"train_indices": [0, 9, 1]}, {"train_indptr": [0, 2, 1, 3]}, {"train_indptr": [0, 3]}, {"train_indices": [0, 1]}],
)
def test_bad_npz_splits(tmp_path, more):
    with pytest.raises(DataError):
        read(split_file(tmp_path, **more))
    with pytest.raises(DataError, match="no weight"):
        read(split_file(tmp_path), weight="rating")


def test_cut_npz(tmp_path):
    data = log_file(tmp_path).read_bytes()
    with pytest.raises(DataError):
        read(save(tmp_path, "cut.npz", data[:-100]))
    with pytest.raises(DataError):
        read(save(tmp_path, "bent.npz", split_file(tmp_path).read_bytes().replace(b"NUMPY", b"NUMPX")))
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    with pytest.raises(DataError):
        read(save(tmp_path, "one.npz", buffer.getvalue()))


def test_the_rows_of_a_split_may_be_declared_to_be_in_order(tmp_path):
    train = read(split_file(tmp_path), time="order")
    assert (train.times, train.positions.tolist()) == (None, [0, 1, 0])
    assert any("declared to be in order" in note for note in train.notes)
    assert read(split_file(tmp_path, train_indices=[2, 0, 1]), time="order").positions.tolist() == [1, 0, 0]
    assert read(split_file(tmp_path), part="test", time="order").has_order
    with pytest.raises(DataError, match="no weight or time"):
        read(split_file(tmp_path), time="timestamp")
