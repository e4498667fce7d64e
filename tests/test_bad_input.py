"""The table of docs/bad-input.md, row by row: each row has a test of its name."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram import cli
from monogram.cli.flags import flag_of
from monogram.data import files, gather, spill
from monogram.data.gather import Gatherer
from monogram.errors import DataError, MemoryBudgetError, ParameterError, StorageError, UnknownIdError, render

PAGE = Path(__file__).parents[1] / "docs" / "bad-input.md"
FIRST = re.findall(r"^\| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
ROWS = [row for row in FIRST if row != "what is given"]
builtins_open = io.open
GOOD = "user,item\n" + "".join(f"u{n % 12},i{n * 5 % 17}\n" for n in range(90))


def test_name(row: str) -> str:
    return "test_" + re.sub(r"\W+", "_", row.lower()).strip("_")


test_name.__test__ = False


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_the_table_has_a_test(row):
    assert test_name(row) in globals()


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "log.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def monogram(monkeypatch, capsys):
    """Run the program here; its exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["monogram", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(left.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def refused(monogram, write):
    """The error that a log is refused with, the same in Python and, in its own words, by the command."""

    def refuse(content: str | bytes, words: str, name: str = "log.csv") -> None:
        path = write(content, name)
        with pytest.raises(DataError, match=words) as caught:
            mg.read(path, quiet=True)
        code, out, err = monogram("fit", path, "-o", path.parent / "model.mono")
        assert (code, out) == (DataError.exit_code, "")
        assert render(caught.value, flag_of) in err
        assert not (path.parent / "model.mono").exists()

    return refuse


def test_missing_column(refused, write):
    refused("who,item\na,x\n", 'no column looks like the user. The columns are "who", "item"')
    with pytest.raises(DataError, match=r"no column .usr. for user.*Did you mean user=.user.\?"):
        mg.read(write("user,item\na,x\n"), user="usr")


def test_wrong_separator(refused, write):
    assert "delimiter ';' found in the header" in mg.read(write("user;item\na;x\n"), quiet=True).notes
    refused("user item\na x\n", 'no column looks like the user. The columns are "user item"')
    refused("user,item\na,x\n", 'no column looks like the user. The columns are "user,item"', "log.tsv")
    refused("user,item\na,x\nb;y\n", "row 2: the line has 1 columns where 2 are expected, got 'b;y'")


def test_empty_file(refused):
    refused("", "is empty: expected a header line and at least one row")
    refused("\n\n", "is empty")


def test_header_only(refused):
    refused("user,item\n", "has no rows: a log needs at least one user–item pair")
    refused("user,item", "has no rows")


@pytest.mark.parametrize("name", ["ease", "dlae", "edlae", "deql", "slim", "item_knn", "popularity"])
def test_one_user(name):
    from monogram.models.registry import MODELS

    model = MODELS[name]().fit([("ann", "tea"), ("ann", "jam")])
    assert len(model.recommend(["ann"])) == 0
    assert len(model.recommend(histories=[["tea"]])) == 1
    with pytest.raises(ParameterError, match="expected at least one and not all"):
        mg.splits.strong([("ann", "tea"), ("ann", "jam")])


@pytest.mark.parametrize("name", ["ease", "dlae", "edlae", "deql", "slim", "item_knn", "popularity"])
def test_one_item(name):
    from monogram.models.registry import MODELS

    model = MODELS[name]().fit([("ann", "tea"), ("bob", "tea")])
    assert len(model.recommend()) == 0
    assert [row["item"] for row in model.recommend(histories=[[]]).rows()] == ["tea"]
    with pytest.raises(DataError, match="leaves no event to test"):
        mg.splits.holdout([("ann", "tea"), ("bob", "tea")])


def test_a_user_with_everything():
    log = mg.read([("ann", one) for one in "abcd"] + [("bob", "a"), ("bob", "b")])
    table = mg.EASE(l2=1).fit(log).recommend(["ann", "bob"], k=3)
    assert {row["user"] for row in table.rows()} == {"bob"}
    assert table.unknown_users == table.empty == ()


def test_non_utf_8_bytes(refused, write):
    refused(b"user,item\na,x\nb\xff,y\n", r'row 2, column "user": the id is not UTF-8 text, got b.b\\xff')
    refused("benützer,item\na,x\n".encode("latin-1"), "header line is not UTF-8 text; save the file as UTF-8")
    refused(GOOD.encode("utf-16"), "UTF-8")
    log = mg.read(write(b"user,item\na,x\nb\xff,y\n"), quiet=True, on_error="skip")
    assert (log.n_events, log.skipped) == (1, 1)


def test_a_million_character_id(write, tmp_path):
    long = "x" * 10**6
    model = mg.EASE(l2=1).fit(mg.read(write(f"user,item\nann,{long}\nann,tea\nbob,tea\n"), quiet=True))
    assert model.recommend(["bob"]).rows()[0]["item"] == long
    assert len(repr(model.recommend(["bob"]))) < 1000
    model.save(tmp_path / "long.mono")
    assert mg.load(tmp_path / "long.mono").recommend(["bob"]).rows()[0]["item"] == long


def test_ids_that_differ_by_case_or_accents(write):
    ids = ["Caf\u00e9", "Cafe\u0301", "caf\u00e9", "Cafe"]
    log = mg.read(write("user,item\n" + "".join(f"ann,{one}\n" for one in ids)), quiet=True)
    assert set(log.items) == set(ids)
    rows = mg.EASE(l2=1).fit(log).recommend(histories=[[ids[0]]]).rows()
    assert {row["item"] for row in rows} == set(ids[1:])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, "", "  "])
def test_nan_ids(missing, refused, write):
    frame = pd.DataFrame({"user": ["ann", missing, "bob"], "item": ["x", "y", "z"]}, dtype=object)
    with pytest.raises(DataError, match=r'row 2, column "user": the id is missing'):
        mg.read(frame, quiet=True)
    assert mg.read(frame, quiet=True, on_error="skip").skipped == 1
    refused("user,item\nann,x\n ,y\n", r'row 2, column "user": the id is missing, got . ')
    assert list(mg.read(write("user,item\nann,x\nNaN,y\n"), quiet=True).users) == ["NaN", "ann"]


def test_weights_of_0():
    log = mg.read([("ann", "tea", 1), ("bob", "jam", 0), ("ann", "jam", 0)])
    assert (list(log.users), list(log.items)) == (["ann"], ["tea"])
    assert "2 rows with weight 0 left out" in log.notes
    with pytest.raises(DataError, match="none of the 1 rows can be used: 1 of weight 0"):
        mg.read([("ann", "tea", 0)])


@pytest.mark.parametrize("change", ["append", "cut", "replace"])
def test_input_file_changing_while_read(change, write, monkeypatch):
    """Rows of JSON are read a block at a time, so that what was read when is known."""
    line = '{"user": "u%04d", "item": "i%d"}\n'
    path = write("".join(line % (n, n % 7) for n in range(2000)), "log.jsonl")
    monkeypatch.setattr(files, "JSON_BLOCK", 4096)
    add, batches = Gatherer.add, []

    def changing(self, batch):
        batches.append(batch)
        if len(batches) == 2 and change == "append":
            path.write_bytes(path.read_bytes() + (line % (9999, 0)).encode())
        elif len(batches) == 2 and change == "cut":
            os.truncate(path, path.stat().st_size // 2 + 5)
        elif len(batches) == 2:
            path.with_name("new").write_text(line % (9999, 0))
            path.with_name("new").replace(path)
        add(self, batch)

    monkeypatch.setattr(Gatherer, "add", changing)
    with pytest.raises(DataError, match=r"changed while it was read|row 1,001: the line is not JSON"):
        mg.read(path, quiet=True)
    half = write("user,item\nann,green tea\nbob,green te", "half.csv")  # what a cut leaves
    assert list(mg.read(half, quiet=True).items) == ["green te", "green tea"]


def test_a_folder_with_a_bad_file(tmp_path):
    with pytest.raises(DataError, match=r"is a folder without .parquet files"):
        mg.read(tmp_path)
    good = pa.table({"user": ["ann", "bob"], "item": ["tea", "tea"]})
    pq.write_table(good, tmp_path / "a.parquet")
    pq.write_table(good.slice(0, 0), tmp_path / "b.parquet")
    assert mg.read(tmp_path, quiet=True).n_events == 2  # a file without rows is none
    content = (tmp_path / "a.parquet").read_bytes()
    for broken in (b"", b"text", content[: len(content) // 2], content[:-3]):
        (tmp_path / "b.parquet").write_bytes(broken)
        with pytest.raises(DataError, match=r"b\.parquet is not readable as Parquet"):
            mg.read(tmp_path, quiet=True, on_error="skip")
    pq.write_table(good.drop_columns(["item"]), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet has no column 'item', unlike .*a\.parquet"):
        mg.read(tmp_path, quiet=True)
    pq.write_table(pa.table({"user": [1], "item": ["tea"]}), tmp_path / "b.parquet")
    with pytest.raises(
        DataError, match=r'b\.parquet, row 1, column "user": the id is integer where the ids before are'
    ):
        mg.read(tmp_path, quiet=True)
    assert mg.read(tmp_path, quiet=True, on_error="skip").skipped == 1


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "shop.mono"
    mg.EASE(l2=1).fit([("ann", "tea"), ("ann", "jam"), ("bob", "tea"), ("bob", "oat")]).save(path)
    return path


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True])
def test_k_of_0(k, model_file, monogram):
    model = mg.load(model_file)
    for ask in (lambda: model.recommend(k=k), lambda: model.similar("tea", k=k)):
        with pytest.raises(ParameterError, match=r"k = .*; expected a whole number of at least 1"):
            ask()
    if k == 0 and k is not False:
        for words in (["recommend", model_file, "-k", 0], ["similar", model_file, "tea", "-k", 0]):
            code, out, err = monogram(*words)
            assert (code, out) == (2, "")
            assert "k = 0; expected a whole number of at least 1" in err


def test_k_above_the_catalogue(model_file, monogram):
    rows = mg.load(model_file).recommend(["ann"], histories=None, k=10**12).rows()
    assert [row["item"] for row in rows] == ["oat"]
    code, out, _ = monogram("recommend", model_file, "--user", "ann", "-k", 10**12, "--json")
    assert code == 0
    assert [row["item"] for row in json.loads(out)] == ["oat"]


def test_unknown_model(monogram, tmp_path):
    for words in (["fit", "none.csv", "-o", tmp_path / "m.mono"], ["evaluate", "none.csv"], ["plan", "none.csv"]):
        code, out, err = monogram(*words, "--model", "eaze")
        assert (code, out) == (2, "")
        assert "there is no model 'eaze'; expected one of ease, dlae, " in err
        assert "did you mean ease?" in err


def test_unknown_flag(monogram, tmp_path):
    code, out, err = monogram("fit", "none.csv", "-o", tmp_path / "m.mono", "--l3", 5)
    assert (code, out) == (2, "")
    assert "No such option: --l3" in err
    assert "--l2" in err
    code, out, err = monogram("fit", "none.csv", "-o", tmp_path / "m.mono", "--model", "ease", "--dropout", 0.3)
    assert (code, out) == (2, "")
    assert "ease has no --dropout; its flags are --" in err
    assert "--l2" in err
    code, out, err = monogram("evaluate", "none.csv", "--protocol", "temporal", "--users", 5)
    assert (code, out) == (2, "")
    assert "the protocol temporal has no --users: its own flags are --at, --share" in err


def test_unknown_items_in_a_history(monogram, model_file):
    code, out, err = monogram("recommend", model_file, "--history", "tea, jam ,rye", "--json")
    assert code == 0
    assert {row["item"] for row in json.loads(out)} == {"jam", "oat"}
    assert "left out: 'jam ', 'rye'; ids in --history are separated by commas" in err
    assert "Did you mean 'jam'" in err


DATED = "user,item,when\n" + "".join(f"u{n % 12},i{n * 5 % 17},2026-01-{1 + n % 28:02}\n" for n in range(90))


@pytest.fixture
def by_days(write):
    """A model that measures ages in days, and its file."""
    model = mg.EASE(l2=1, half_life="7d").fit(mg.read(write(DATED, "dated.csv"), time="when", quiet=True))
    path = write("", "days.mono")
    model.save(path)
    return model, path


def test_a_history_with_times_for_some_of_its_events(by_days, monogram):
    model, path = by_days
    with pytest.raises(ParameterError, match="history 1 has items with times and items without"):
        model.recommend(histories=[["i1"], [("i1", "2026-01-05"), "i2"]])
    code, out, err = monogram("recommend", path, "--history", "i1,i2", "--times", "2026-01-05")
    assert (code, out) == (2, "")
    assert "has 1 times for 2 items" in err


@pytest.mark.parametrize("time", ["soon", float("nan"), float("inf"), 2**63, "2026-02-30", None])
def test_a_time_that_is_no_time(time, by_days, monogram):
    model, path = by_days
    with pytest.raises(ParameterError, match=r"history 0 has the time .*; expected a date such as"):
        model.recommend(histories=[[("i1", time)]])
    if time is not None:
        with pytest.raises(ParameterError, match=r"at = .*; expected a date such as"):
            model.recommend(["u1"], at=time)
        code, out, err = monogram("recommend", path, "--user", "u1", "--at", time)
        assert (code, out) == (2, "")
        assert "expected a date such as" in err


def test_a_history_without_times_where_ages_are_measured_in_time(by_days):
    model, _ = by_days
    with pytest.raises(ParameterError, match=r"measured in time .7d., but history 0 has no times; give its events as"):
        model.recommend(histories=[["i1", "i2"]])
    assert len(model.recommend(["u1"]))


def test_a_recency_where_the_log_has_no_order(write, monogram):
    path = write("", "shop.mono")
    model = mg.EASE(l2=1, recency=1).fit(mg.read(write(GOOD), quiet=True))
    model.save(path)
    with pytest.raises(DataError, match='time="order"'):
        model.recommend(["u1"])
    code, out, err = monogram("recommend", path, "--user", "u1")
    assert (code, out) == (3, "")
    assert "--time-order" in err
    assert len(model.recommend(histories=[["i1", "i5"]]))


@pytest.mark.parametrize("name", ["half_life", "recency_unit", "decay_unit"])
@pytest.mark.parametrize("span", ["3 foo", "-1d", "0", "", "nan"])
def test_a_half_life_that_cannot_be_read(name, span, monogram, tmp_path):
    with pytest.raises(ParameterError, match=f"{name} = '{span}'; expected a duration such as '7d'"):
        mg.EASE(**{name: span})
    flag = "--" + name.replace("_", "-")
    code, out, err = monogram("fit", "no such log.csv", "-o", tmp_path / "model.mono", f"{flag}={span}")
    assert (code, out) == (2, "")
    assert "expected a duration such as '7d'" in err
    with pytest.raises(ParameterError, match="both given"):
        mg.EASE(half_life="3d", recency=1)


def dated(write):
    return mg.read(
        write("user,item,t\nann,tea,2025-01-01\nann,jam,2025-01-03\nbob,tea,2025-01-02\n"), time="t", quiet=True
    )


def test_a_span_without_a_unit_on_dates(write):
    for parameters in ({"half_life": 30}, {"recency": 1, "recency_unit": 30}, {"decay": 1, "decay_unit": 30}):
        with pytest.raises(ParameterError, match=r"30 is a span of time without a unit .*'30d' for days"):
            mg.EASE(**parameters).fit(dated(write))


def test_a_number_given_for_a_date(write):
    model = mg.EASE(half_life="30d").fit(dated(write))
    with pytest.raises(ParameterError, match=r"at = 20250201, .* unit us since 1970"):
        model.recommend(["ann"], at=20250201)
    with pytest.raises(ParameterError, match=r"history 0 has the time 1736467200, .* unit us since 1970"):
        model.recommend(histories=[[("tea", 1_736_467_200)]])


def test_an_update_without_times(write):
    model = mg.EASE(half_life="30d").fit(dated(write))
    with pytest.raises(DataError, match=r"half_life = '30d', but the new events have no times"):
        model.add_users([("zoe", "tea")])
    assert model.log_.n_users == 2
    other = mg.EASE().fit(dated(write)).add_users([("zoe", "tea")])
    assert "the times of all events were dropped" in other.report_.note


@pytest.fixture
def unchanged(model_file, monogram):
    """A change that is refused: the error in Python and by the command; the model and its file stay."""
    former, model = model_file.read_bytes(), mg.load(model_file)
    before = model.item_weights()

    def refuse(kind, words, call, *arguments) -> None:
        with pytest.raises(kind, match=words):
            call(model)
        np.testing.assert_array_equal(model.item_weights(), before)
        assert list(model.log_.users) == ["ann", "bob"]
        if arguments:
            code, out, err = monogram("update", model_file, *arguments, "-o", model_file)
            assert (code, out) == (kind.exit_code, "")
            assert re.search(words, err)
        assert model_file.read_bytes() == former

    return refuse


def test_users_to_forget_who_are_not_there(unchanged):
    unchanged(UnknownIdError, "1 of the users to forget.*'eve'", lambda m: m.forget_users(["ann", "eve"]),
              "--forget", "ann,eve")  # fmt: skip


def test_everyone_to_forget(unchanged):
    unchanged(DataError, "none of the log's 4 events is left", lambda m: m.forget_users(["ann", "bob"]),
              "--forget", "ann,bob")  # fmt: skip


def test_items_the_model_does_not_know(unchanged, write, model_file, monogram, tmp_path):
    log = write("user,item\neve,rye\neve,tea\n")
    unchanged(UnknownIdError, "items this model does not know: 'rye'.*new[_-]items",
              lambda m: m.add_users(mg.read(log, quiet=True)), "--add", log)  # fmt: skip
    assert monogram("update", model_file, "--add", log, "--new-items", "-o", tmp_path / "new.mono")[0] == 0
    assert "rye" in mg.load(tmp_path / "new.mono").log_.items


def test_items_to_add_that_are_there_already(unchanged):
    unchanged(ParameterError, "in the catalogue already: 'tea'", lambda m: m.add_items(["rye", "tea"]))
    unchanged(DataError, "'rye' occurs 2 times", lambda m: m.add_items(["rye", "rye"]))


def test_ids_of_another_kind(unchanged):
    unchanged(DataError, "string", lambda m: m.add_users([(uuid.UUID(int=5), "tea")]))


def test_users_to_add_and_to_forget_at_once(monogram, model_file, write):
    former = model_file.read_bytes()
    log = write("user,item\nann,oat\n")
    code, out, err = monogram("update", model_file, "--add", log, "--forget", "ann", "-o", model_file)
    assert (code, out) == (ParameterError.exit_code, "")
    assert "'ann' would be forgotten and added in one command" in err
    assert model_file.read_bytes() == former


def test_a_change_of_a_model_that_is_no_inverse(monogram, model_file, tmp_path):
    small = mg.load(model_file).prune(2)
    with pytest.raises(ParameterError, match="was pruned"):
        small.forget_users("ann")
    path = tmp_path / "popular.mono"
    mg.Popularity().fit([("ann", "tea"), ("bob", "jam")]).save(path)
    former = path.read_bytes()
    code, out, err = monogram("update", path, "--forget", "ann", "-o", path)
    assert (code, out) == (ParameterError.exit_code, "")
    assert "models that can: EASE" in err
    assert path.read_bytes() == former


def test_a_change_over_its_memory(unchanged):
    unchanged(MemoryBudgetError, "may use 1", lambda m: m.forget_users("ann", memory="1 kB"),
              "--forget", "ann", "--memory", "1 kB")  # fmt: skip


def test_output_folder_missing(monogram, model_file, tmp_path):
    code, out, err = monogram("fit", "none.csv", "-o", tmp_path / "nowhere" / "m.mono")
    assert (code, out) == (StorageError.exit_code, "")
    assert "nowhere" in err
    code, out, err = monogram("recommend", model_file, "-o", tmp_path / "nowhere" / "r.csv")
    assert (code, out) == (StorageError.exit_code, "")
    assert "nowhere" in err
    with pytest.raises(StorageError, match="there is no folder"):
        mg.load(model_file).save(tmp_path / "nowhere" / "m.mono")
    assert not (tmp_path / "nowhere").exists()


def fail_to_open(monkeypatch, folder, reason):
    """No file can be made in the folder: what a read-only one does to everyone but root."""
    real = os.open

    def refuse(path, flags, *rest, **more):
        if flags & os.O_CREAT and Path(path).parent == folder:
            raise OSError(reason, os.strerror(reason))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(io, "open", lambda *a, **k: builtins_open(*a, **({"opener": os.open} | k)))


def test_output_folder_read_only(monogram, model_file, write, tmp_path, monkeypatch):
    log, former = write(GOOD), model_file.read_bytes()
    fail_to_open(monkeypatch, tmp_path, errno.EROFS)
    for words in (["fit", log, "-o", model_file], ["recommend", model_file, "-o", tmp_path / "r.csv"]):
        code, out, err = monogram(*words)
        assert (code, out) == (StorageError.exit_code, "")
        assert "Read-only file system" in err
    assert model_file.read_bytes() == former
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log.csv", "shop.mono"]


def test_disk_full(monogram, model_file, write, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    log, former = write(GOOD), model_file.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)  # after the writing, before the renaming
    for words in (["fit", log, "-o", model_file], ["recommend", model_file, "-o", tmp_path / "r.csv"]):
        code, out, err = monogram(*words)
        assert (code, out) == (StorageError.exit_code, "")
        assert "No space left on device" in err
    assert model_file.read_bytes() == former
    assert sorted(one.name for one in tmp_path.iterdir()) == ["log.csv", "shop.mono"]


def test_no_disk_space_for_a_log_larger_than_memory(write, tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "WHOLE", 100)
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill.SpillFile, "_put", full)
    log = write(GOOD)
    with pytest.raises(StorageError, match=r"written to .*: No space left on device \(.* are needed, .*TMPDIR"):
        mg.read(log, quiet=True)
    assert [one.name for one in tmp_path.iterdir()] == ["log.csv"]


def test_an_output_folder_with_other_things_in_it(monogram, write, tmp_path):
    monogram("fit", write(GOOD), "-o", tmp_path / "model.mono")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "notes.txt").write_text("mine")
    code, _, err = monogram("recommend", tmp_path / "model.mono", "-o", tmp_path / "lists")
    assert code == StorageError.exit_code
    assert "holds notes.txt; name an empty or a new folder" in err
    assert [one.name for one in (tmp_path / "lists").iterdir()] == ["notes.txt"]


def test_a_cluster_that_is_not_there(monogram, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from monogram.cluster import client

    monkeypatch.setattr(client, "CONNECTING", 0.5)
    code, out, err = monogram("fit", tmp_path / "no.csv", "-o", tmp_path / "a.mono", "--cluster", "tcp://127.0.0.1:9")
    assert (code, out) == (11, "")
    assert "there is no scheduler at tcp://127.0.0.1:9" in err
