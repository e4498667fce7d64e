"""The study file keeps every finished trial through crashes."""

from __future__ import annotations

import json

import pytest

import monogram as mg
from monogram.errors import DataError, StorageError
from monogram.tuning.settings import Setting, Trial
from monogram.tuning.study import Study, fingerprint

ABOUT = {"version": "1", "metric": "ndcg@5", "data": "abc"}
TRIALS = [Trial(Setting.of("ease", {"l2": l2}), value, 0.5, "") for l2, value in ((1, 0.1), (2, None), (3, 0.3))]


def test_what_was_added_is_there_again(tmp_path):
    path = tmp_path / "study.jsonl"
    first = Study(ABOUT, path)
    first.add(TRIALS[:2])
    first.add(TRIALS[2:])
    again = Study(ABOUT, path)
    assert again.trials == TRIALS
    assert TRIALS[0].setting in again
    assert again.seconds == 1.5
    assert again.best() == TRIALS[2]
    assert len(path.read_text().splitlines()) == 4


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_half_a_line_is_cut_off(tmp_path, cut):
    path = tmp_path / "study.jsonl"
    Study(ABOUT, path).add(TRIALS)
    path.write_bytes(path.read_bytes()[:-cut])
    again = Study(ABOUT, path)
    assert again.trials == TRIALS[:2]
    again.add(TRIALS[2:])
    assert Study(ABOUT, path).trials == TRIALS


def test_a_search_that_comes_by_again_meets_its_trials(tmp_path):
    path = tmp_path / "study.jsonl"
    Study(ABOUT, path).add(TRIALS)
    before, again = path.read_bytes(), Study(ABOUT, path)
    again.rewind()
    assert (again.trials, again.tried, again.seconds) == ([], 3, 1.5)
    assert TRIALS[1].setting not in again
    assert again.ahead("ease") == TRIALS[0].setting
    assert again.ahead("deql") is None
    assert again.replay([TRIALS[1].setting, Setting.of("ease", {"l2": 9})]) == [TRIALS[1]]
    assert again.trials == [TRIALS[1]]
    assert TRIALS[1].setting in again
    again.forward()
    assert again.trials == [TRIALS[1], TRIALS[0], TRIALS[2]]
    assert (again.tried, again.seconds) == (3, 1.5)
    assert path.read_bytes() == before


def test_what_was_seen_in_training_is_there_again(tmp_path):
    path = tmp_path / "study.jsonl"
    setting = Setting.of("wrmf", {})
    trials = [Trial(setting, None, 0.5, "", ((1, 0.1), (2, 0.3)), True), Trial(setting, 0.4, 0.5, "", ((1, 0.2),))]
    Study(ABOUT, path).add(trials)
    assert Study(ABOUT, path).trials == trials


def test_an_empty_file_is_a_new_study(tmp_path):
    path = tmp_path / "study.jsonl"
    path.write_text('{"stu')
    Study(ABOUT, path).add(TRIALS)
    assert Study(ABOUT, path).trials == TRIALS


@pytest.mark.parametrize(
    ("other", "words"),
    [({"data": "xyz"}, "other data"), ({"metric": "recall@5"}, "it has metric = 'recall@5', not 'ndcg@5'")],
)
def test_the_study_of_something_else_is_refused(tmp_path, other, words):
    path = tmp_path / "study.jsonl"
    Study(ABOUT | other, path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=words):
        Study(ABOUT, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["user,item\n1,2\n", '{"a": 1}\n', '{"study": 1}\n{"model": "ease"}\n', "[1]\n"])
def test_a_file_that_is_no_study_is_left_alone(tmp_path, text):
    path = tmp_path / "events.csv"
    path.write_text(text)
    with pytest.raises(DataError, match="study"):
        Study(ABOUT, path)
    assert path.read_text() == text


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        Study(ABOUT, tmp_path / "no" / "study.jsonl")
    with pytest.raises(StorageError, match="cannot be read"):
        Study(ABOUT, tmp_path)


def test_lines_are_plain_json(tmp_path):
    path = tmp_path / "study.jsonl"
    Study(ABOUT, path).add(TRIALS)
    assert json.loads(path.read_text().splitlines()[1]) == {
        "model": "ease", "parameters": mg.EASE(l2=1.0).params(), "value": 0.1, "seconds": 0.5, "note": "",
    }  # fmt: skip


def test_a_fingerprint_is_of_the_data(log):
    one, same, other = (mg.splits.holdout(log, seed=seed) for seed in (1, 1, 2))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


@pytest.mark.parametrize("held", [b"line one\nline two precious", b"no line at all", b"{}\n{", b"\x00\xff model\n\x00"])
def test_a_file_that_is_no_study_is_left_as_it_is(tmp_path, held):
    path = tmp_path / "precious"
    path.write_bytes(held)
    with pytest.raises(DataError, match="give another file"):
        Study({"data": "x"}, path)
    assert path.read_bytes() == held


def test_an_incomplete_header_is_written_again(tmp_path):
    whole = Study({"data": "x"}, tmp_path / "whole").path.read_bytes()
    for size in range(len(whole)):
        path = tmp_path / "part"
        path.write_bytes(whole[:size])
        Study({"data": "x"}, path)
        assert path.read_bytes() == whole
