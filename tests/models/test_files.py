"""Model files: bit-equal after loading; a damaged or forged file is an error and never runs code."""

from __future__ import annotations

import dataclasses
import json
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram import store
from monogram.errors import ModelFileError, ParameterError, StorageError
from monogram.models.full_rank import FullRank
from monogram.models.registry import MODELS


def tiny(solver="primal", model=None):
    dense = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]], np.float32)
    log = mg.Interactions.from_csr(sp.csr_array(dense), users=["ann", "bœb", "c d"], items=[3, 1, 4, 15])
    return (model or mg.DEQL(l2=2, dropout=0.25, b=0.5)).fit(log, solver=solver)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "solver"),
    [
        (name, solver)
        for name, kind in MODELS.items()
        for solver in ("primal", "dual", "local")
        if issubclass(kind, FullRank)
    ]
    + [(name, "auto") for name, kind in MODELS.items() if not issubclass(kind, FullRank)],
)
def test_a_loaded_model_is_bit_equal(tmp_path, world, name, solver, dtype):
    log = mg.Interactions.from_csr(world, order=np.arange(world.nnz))
    model = MODELS[name]().fit(log, solver=solver, dtype=dtype)
    model.save(tmp_path / "x.mono")
    for verify in (True, False):
        loaded = mg.load(tmp_path / "x.mono", verify=verify)
        assert type(loaded) is type(model)
        assert loaded.params() == model.params()
        assert loaded.recommend(k=25).to_arrow().equals(model.recommend(k=25).to_arrow())
        new = [[1, 2, 3], [24], []]
        np.testing.assert_array_equal(loaded.score(new), model.score(new))
        np.testing.assert_array_equal(loaded.item_weights(), model.item_weights())


@contextmanager
def flipped(path, place, bits):
    """Bits of one byte are flipped, in place: a file that is truncated and written again is flushed to disk."""

    def flip():
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ bits]))

    flip()
    yield
    flip()


@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("flip", [0x01, 0x20, 0xFF])
def test_every_byte_of_the_header_flipped_is_an_error_or_the_same_model(tmp_path, solver, flip):
    model = tiny(solver)
    path = tmp_path / "x.mono"
    model.save(path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    rows = model.recommend(k=4).rows()
    errors = 0
    for place in range(header):
        with flipped(path, place, flip):
            try:
                loaded = mg.load(path)
            except ModelFileError:
                errors += 1
            else:
                assert loaded.params() == model.params()
                assert loaded.recommend(k=4).rows() == rows
    assert errors > 0.9 * header
    assert path.read_bytes() == whole


@pytest.mark.parametrize("solver", ["primal", "dual"])
def test_every_flipped_byte_of_the_arrays_is_an_error(tmp_path, solver):
    path = tmp_path / "x.mono"
    tiny(solver).save(path)
    whole = path.read_bytes()
    for place in range(8 + int.from_bytes(whole[:8], "little"), len(whole), 7):
        with flipped(path, place, 0x10), pytest.raises(ModelFileError):
            mg.load(path)
    assert path.read_bytes() == whole


def forged(path, change):
    """A file with a right checksum and wrong contents."""
    stored = store.load(path)
    header, tensors = json.loads(json.dumps(stored.header)), {k: np.array(v) for k, v in stored.tensors.items()}
    change(header, tensors)
    store.save(path, header, tensors)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda h, t: h.update(model="os.system"), "is not registered"),
        (lambda h, t: h.update(model=["ease"]), "complete model"),
        (lambda h, t: h.pop("model"), "complete model"),
        (lambda h, t: h["parameters"].update(l2=-5), "l2"),
        (lambda h, t: h["parameters"].update(surprise=1), "surprise"),
        (lambda h, t: h.update(parameters=None), "complete model"),
        (lambda h, t: h.update(weights="pickle"), "pickle"),
        (lambda h, t: h.update(merge="often"), "merge"),
        (lambda h, t: h.update(users=7), "complete model"),
        (lambda h, t: h.update(users=2**70), "complete model"),
        (lambda h, t: h.update(items=-1), "complete model"),
        (lambda h, t: h.update(report={}), "complete model"),
        (lambda h, t: t.pop("weights.weights"), "weights"),
        (lambda h, t: t.update({"weights.weights": np.zeros((2, 2), np.float32)}), "shape"),
        (lambda h, t: t.pop("log.items"), "complete model"),
        (lambda h, t: t.update({"log.items": np.array([0, 1, 1, 2, 0, 2, 99], np.int32)}), "complete model"),
        (lambda h, t: t.update({"log.items": np.array([1, 0, 1, 2, 0, 2, 3], np.int32)}), "canonical"),
        (lambda h, t: t.update({"log.pointers": np.array([0, 9, 4, 7], np.int32)}), "complete model"),
        (lambda h, t: t.update({"log.weights": t["log.weights"].astype(np.float64)}), "canonical"),
        (lambda h, t: t.update({"users": np.frombuffer(b"not arrow", np.uint8)}), "complete model"),
        (lambda h, t: t.pop("items"), "complete model"),
        (lambda h, t: np.put(t["weights.weights"], 5, np.nan), "complete model .*'weights' that is not finite"),
        (lambda h, t: np.put(t["weights.weights"], 15, -np.inf), "complete model .*'weights' that is not finite"),
        (lambda h, t: h["report"].update(seconds=3), "complete model .*seconds"),
        (lambda h, t: h["report"].update(seconds={"gram": "long"}), "complete model .*number"),
        (lambda h, t: h["report"].update(device=[1]), "complete model .*text"),
        (lambda h, t: h["report"].update(metric=7), "complete model .*text"),
        (lambda h, t: h["report"].update(note={}), "complete model .*text"),
        (lambda h, t: h["report"].update(residual="small"), "complete model .*number"),
        (lambda h, t: h["report"].update(unit=-1.0), "complete model .*factor of the user"),
        (lambda h, t: h["report"].update(unit="1"), "complete model .*factor of the user"),
        (lambda h, t: h["report"].update(neighbours=-5), "complete model .*number of candidates"),
        (lambda h, t: h.update(report=[]), "complete model"),
    ],
)
def test_a_forged_file_is_an_error(tmp_path, change, text):
    path = tmp_path / "x.mono"
    tiny().save(path)
    forged(path, change)
    with pytest.raises(ModelFileError, match=text):
        mg.load(path)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("log.weights", value) for value in (np.nan, np.inf, -1, 0)),
        *((f"weights.{name}", value) for name in ("penalties", "roots") for value in (np.nan, np.inf, -1, 0)),
        *((f"weights.{name}", value) for name in ("scale", "own") for value in (np.nan, -np.inf)),
    ],
)
def test_a_forged_vector_is_an_error(tmp_path, name, value, verify):
    path = tmp_path / "x.mono"
    tiny("dual").save(path)
    forged(path, lambda h, t: np.put(t[name], 1, value))
    with pytest.raises(ModelFileError, match=r"does not contain a complete model .*(finite|above 0)"):
        mg.load(path, verify=verify)


def test_a_forged_inverse_is_an_error_when_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "x.mono"
    tiny("dual").save(path)
    forged(path, lambda h, t: np.put(t["weights.inverse"], 8, np.nan))
    assert mg.load(path, verify=False).name == "deql"
    for block in (1, 3, 4, 6, 9, 1 << 20):
        monkeypatch.setattr("monogram.models.files._BLOCK", block)
        with pytest.raises(ModelFileError, match=r"does not contain a complete model .*'inverse'"):
            mg.load(path)


@pytest.mark.parametrize("verify", [True, False])
def test_forged_popularity_is_an_error(tmp_path, verify):
    path = tmp_path / "x.mono"
    tiny(model=mg.Popularity()).save(path)
    forged(path, lambda h, t: np.put(t["weights.scores"], 0, np.nan))
    with pytest.raises(ModelFileError, match=r"does not contain a complete model .*'scores'"):
        mg.load(path, verify=verify)


def test_weights_of_a_foreign_type_are_refused(tmp_path):
    path = tmp_path / "x.mono"
    tiny().save(path)
    forged(path, lambda h, t: t.update({"weights.weights": t["weights.weights"].astype(np.int32)}))
    with pytest.raises(ModelFileError, match="int32"):
        mg.load(path)


def test_saving_over_the_file_a_model_is_loaded_from(tmp_path):
    path = tmp_path / "x.mono"
    tiny().save(path)
    loaded = mg.load(path)
    before = loaded.recommend(k=2).rows()
    tiny(model=mg.EASE(l2=50)).save(path)
    assert loaded.recommend(k=2).rows() == before
    assert mg.load(path).name == "ease"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StorageError, match="nowhere"):
        tiny().save(tmp_path / "nowhere" / "x.mono")


def test_ids_of_every_kind_survive(tmp_path):
    model = tiny()
    model.save(tmp_path / "x.mono")
    rows = mg.load(tmp_path / "x.mono").recommend(["bœb", "c d"], k=9).rows()
    assert [(row["user"], row["item"]) for row in rows[:1]] == [("bœb", rows[0]["item"])]
    assert {row["item"] for row in rows} <= {3, 1, 4, 15}


def test_metrics_are_stored_in_the_file(tmp_path, world):
    model = mg.EASE(l2=2).fit(world)
    model.save(tmp_path / "a.mono", metrics={"ndcg@20 on test": 0.25})
    assert store.read_header(tmp_path / "a.mono")["metrics"] == {"ndcg@20 on test": 0.25}
    assert mg.load(tmp_path / "a.mono").params() == model.params()
    for wrong in ({"ndcg": float("nan")}, {3: 0.5}, {"ndcg": "high"}):
        with pytest.raises(ParameterError, match="expected finite numbers by name"):
            model.save(tmp_path / "b.mono", metrics=wrong)
    assert not (tmp_path / "b.mono").exists()


def timed_log(times=(9, 3, 5, 5, 1, 2, 8), last_times=None, order=None, unit="s"):
    dense = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]], np.float32)
    log = mg.Interactions.from_csr(sp.csr_array(dense))
    arrays = {"times": times, "last_times": last_times}
    arrays = {name: None if values is None else np.array(values) for name, values in arrays.items()}
    order = None if order is None else np.array(order, np.int32)
    return dataclasses.replace(log, **arrays, order=order, time_unit=unit)


LAST = (9, 4, 5, 5, 7, 2, 8)
ORDER = (1, 0, 1, 0, 2, 0, 1)


@pytest.mark.parametrize(
    "log",
    [
        timed_log(),
        timed_log(last_times=LAST),
        timed_log(last_times=LAST, order=ORDER, unit=None),
        timed_log(np.linspace(0, 1, 7)),
        timed_log(None, order=ORDER, unit=None),
        timed_log(None, unit=None),
    ],
)
def test_a_loaded_log_has_its_times_and_its_order(tmp_path, log):
    mg.EASE(l2=2).fit(log).save(tmp_path / "x.mono")
    loaded = mg.load(tmp_path / "x.mono").log_
    assert loaded.time_unit == log.time_unit
    for name in ("times", "last_times", "order"):
        before, after = getattr(log, name), getattr(loaded, name)
        assert (before is None) == (after is None)
        if before is not None:
            assert after.dtype == before.dtype
            np.testing.assert_array_equal(after, before)
    stored = store.load(tmp_path / "x.mono").tensors
    assert {name for name in stored if name in ("log.times", "log.last_times", "log.order")} == {
        f"log.{name}" for name in ("times", "last_times", "order") if getattr(log, name) is not None
    }
    assert loaded.has_order == log.has_order
    if log.has_order:
        assert loaded.positions.tolist() == log.positions.tolist()


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("times", np.arange(6), "times are not 7"),
        ("times", np.arange(7, dtype=np.int32), "times are not 7"),
        ("times", np.array([np.nan] * 7), "times are not 7"),
        ("times", np.arange(14).reshape(7, 2), "times are not 7"),
        ("last_times", np.array([np.inf] * 7), "last_times are not 7"),
        ("last_times", np.zeros(7, np.int64), "last time before the first"),
        ("order", np.arange(7), "order of events"),
        ("order", np.arange(8, dtype=np.int32), "order of events"),
        ("order", -np.ones(7, np.int32), "order of events"),
        ("unit", "years", "time_unit"),
        ("unit", 7, "time_unit"),
    ],
)
def test_forged_times_are_an_error(tmp_path, name, values, words, verify):
    path = tmp_path / "x.mono"
    mg.EASE(l2=2).fit(timed_log(last_times=LAST, order=ORDER)).save(path)
    stored = store.load(path)
    header, tensors = dict(stored.header), {key: np.array(array) for key, array in stored.tensors.items()}
    if name == "unit":
        header["time_unit"] = values
    else:
        tensors[f"log.{name}"] = values
    store.save(path, header, tensors)
    with pytest.raises(ModelFileError, match=words):
        mg.load(path, verify=verify)


def test_last_times_without_times_are_an_error(tmp_path):
    path = tmp_path / "x.mono"
    mg.EASE(l2=2).fit(timed_log(last_times=LAST)).save(path)
    stored = store.load(path)
    tensors = {key: np.array(array) for key, array in stored.tensors.items() if key != "log.times"}
    store.save(path, dict(stored.header), tensors)
    with pytest.raises(ModelFileError, match="last time before the first"):
        mg.load(path)


def test_a_file_holds_times_last_times_order_and_unit(tmp_path):
    rows = {"user": list("aaabba"), "item": list("zyxyxz"), "t": [1, 1, 4, 2, 2, 9]}
    log = mg.read(pa.table(rows), time="t", time_unit="d", quiet=True)
    assert log.last_times is not None
    assert log.order is not None
    model = mg.EASE(l2=2, half_life="3d").fit(log)
    model.save(tmp_path / "x.mono")
    loaded = mg.load(tmp_path / "x.mono")
    for name in ("times", "last_times", "order"):
        values, wanted = getattr(loaded.log_, name), getattr(log, name)
        assert values.dtype == wanted.dtype
        np.testing.assert_array_equal(values, wanted)
    assert loaded.log_.time_unit == "d"
    assert loaded.log_.history("a") == log.history("a")
    lists = [one.recommend(["a", "b"], exclude_seen=False).to_arrow() for one in (loaded, model)]
    assert lists[0].equals(lists[1])
