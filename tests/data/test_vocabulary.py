"""External ids go in and come out as they were."""

from __future__ import annotations

import pickle
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monogram.data import vocabulary
from monogram.data.hashed import Hashed
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, ParameterError

UUIDS = [uuid.UUID(int=n) for n in (3, 1, 2**127)]
KINDS = [
    (["007", "7", "é à", " x "], "string"),
    ([5, -3, 2**63 - 1], "integer"),
    ([0, 2**64 - 1], "integer"),
    (UUIDS, "uuid"),
]
STRANGERS = [None, 1.5, float("nan"), [1], {}, (), b"x", True, object(), 2**70, -(2**70), "\ud800", "nobody"]

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
some_ids = st.one_of(
    st.lists(texts, unique=True, max_size=20),
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=20),
    st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=20),
    st.lists(st.uuids(), unique=True, max_size=20),
)


@pytest.mark.parametrize(("ids", "kind"), KINDS)
def test_ids_come_back_as_they_were(ids, kind):
    known = Vocabulary(ids)
    assert known.kind == kind
    assert list(known) == ids == known.ids(range(len(ids)))
    assert [type(x) for x in known] == [type(x) for x in ids]
    assert [known[i] for i in range(len(ids))] == ids
    assert known[-1] == ids[-1]
    assert known.index(ids).tolist() == list(range(len(ids)))
    assert all(x in known for x in ids)
    assert known.nbytes > 0


@pytest.fixture(params=["by a dictionary", "all at once", "by hashes", "by a scan"])
def way(request, monkeypatch):
    """The ways to look ids up, which differ by how many there are."""
    if request.param != "by a dictionary":
        monkeypatch.setattr(vocabulary, "DICTIONARY_LIMIT", 0)
    if request.param in ("by hashes", "by a scan"):
        monkeypatch.setattr(vocabulary, "SMALL_QUERY", 0)
        monkeypatch.setattr(vocabulary, "QUERIES_BEFORE_INDEX", 0 if request.param == "by hashes" else 1000)


@pytest.mark.parametrize(("ids", "kind"), KINDS)
@pytest.mark.usefixtures("way")
def test_strangers_are_unknown(ids, kind):
    known = Vocabulary(ids)
    assert known.index(STRANGERS).tolist() == [-1] * len(STRANGERS)
    assert known.index([*STRANGERS, ids[1]]).tolist()[-1] == 1
    assert known.index([]).tolist() == []
    assert known.index([]).dtype == np.int64


@pytest.mark.usefixtures("way")
def test_spelling_of_a_query():
    numbers = Vocabulary([42, 7])
    assert numbers.index(["42", "042", "+42", " 42", "4_2", np.int8(7), np.str_("7"), "٤٢"]).tolist() == [
        0, -1, -1, -1, -1, 1, 1, -1,
    ]  # fmt: skip
    assert Vocabulary(["42", "x"]).index([42, np.int64(42), True, "x", 42.0]).tolist() == [0, 0, -1, 1, -1]
    written = [str(UUIDS[0]), str(UUIDS[0]).upper(), UUIDS[0].hex, "z" * 36]
    assert Vocabulary(UUIDS).index(written).tolist() == [0, 0, -1, -1]


@given(some_ids, some_ids)
def test_hashes_find_what_a_dictionary_finds(ids, others):
    known = Vocabulary(ids)
    keys = [vocabulary.KEYS[known.kind](one) for one in [*ids, *others]]  # as ids are stored: 0 finds "0"
    assert Hashed(known._array).index(keys).tolist() == known.index([*ids, *others]).tolist()


@given(some_ids, some_ids)
def test_a_scan_finds_what_a_dictionary_finds(ids, others):
    known = Vocabulary(ids)
    keys = [vocabulary.KEYS[known.kind](one) for one in [*others, *ids, *ids]]
    lookup = vocabulary._scan(keys, known._array)
    assert vocabulary._looked_up(keys, lookup).tolist() == vocabulary._looked_up(keys, known._dictionary()).tolist()


def test_a_dictionary_is_built_when_small_queries_go_on():
    known = Vocabulary.range(1000)
    found = [(known.index([7, -7, 7]).tolist(), known._lookup is None) for _ in range(4)]
    assert found == [([7, -1, 7], True), ([7, -1, 7], True), ([7, -1, 7], False), ([7, -1, 7], False)]


def test_ids_with_equal_hashes_are_distinguished():
    turn = 2**61 - 1  # hash(n) of an integer is n modulo this
    ids = [5, 5 + turn, 5 + 2 * turn]
    assert len({hash(one) for one in ids}) == 1
    assert Hashed(Vocabulary(ids)._array).index([ids[2], 5, ids[1], 5 - turn]).tolist() == [2, 0, 1, -1]


def test_few_questions_to_many_ids_are_prepared_for_when_they_go_on(monkeypatch):
    monkeypatch.setattr(vocabulary, "DICTIONARY_LIMIT", 0)
    known = Vocabulary.range(1000)
    found = [(known.index([7, -7]).tolist(), known._hashed is None) for _ in range(4)]
    assert found == [([7, -1], True), ([7, -1], True), ([7, -1], False), ([7, -1], False)]
    assert known.index(list(range(500))).tolist() == list(range(500))


def test_index_takes_arrays_and_vocabularies():
    numbers = Vocabulary([10, 20, 30])
    assert numbers.index(np.array([30, 5], dtype=np.int16)).tolist() == [2, -1]
    assert numbers.index(np.array([30, 5], dtype=np.uint64)).tolist() == [2, -1]
    assert numbers.index(pa.array([20, None])).tolist() == [1, -1]
    assert numbers.index(Vocabulary([30, 40])).tolist() == [2, -1]
    assert numbers.index(x for x in (10, "20")).tolist() == [0, 1]
    assert Vocabulary(["a"]).index(np.array(["b", "a"])).tolist() == [-1, 0]
    assert Vocabulary(UUIDS).index(Vocabulary(UUIDS).take([1])).tolist() == [1]
    with pytest.raises(ParameterError, match=r"write \['ann'\]"):
        Vocabulary(["ann"]).index("ann")


@pytest.mark.parametrize(
    "ids",
    [
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.chunked_array([["a"], ["b"]]),
        pd.Series(["a", "b"]),
        pl.Series(["a", "b"]),
        ("a", "b"),
        (x for x in "ab"),
        Vocabulary(["a", "b"]),
    ],
)
def test_any_sequence(ids):
    assert Vocabulary(ids) == Vocabulary(["a", "b"])


def test_take_is_arrow():
    assert Vocabulary(["a", "b"]).take([1]).type == pa.string()
    assert Vocabulary([1, 2]).take(np.array([1])).to_pylist() == [2]
    assert Vocabulary(UUIDS).take([0]).type == pa.uuid()
    assert Vocabulary(UUIDS).take([2, 0]).to_pylist() == [UUIDS[2], UUIDS[0]]
    with pytest.raises(IndexError):
        Vocabulary(["a"]).take([1])
    with pytest.raises(IndexError):
        Vocabulary(["a"])[1]


def test_range():
    assert list(Vocabulary.range(3)) == [0, 1, 2]
    assert len(Vocabulary.range(0)) == 0


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "a"], "'a' occurs 2 times"),
        ([1, 2, 2], "2 occurs 2 times"),
        ([UUIDS[0]] * 3, "occurs 3 times"),
        (["a", None], "position 1"),
        (pa.array([None, "a"]), "position 0"),
        (["a", 1], "one kind"),
        ([1, UUIDS[0]], "one kind"),
        ([1.5], "float"),
        ([True], "bool"),
        ([[1]], "list"),
        (pa.array([1.5]), "double"),
        (pa.array([True]), "bool"),
        (pa.array([b"x"]), "binary"),
        ([-1, 2**64 - 1], "64 bits"),
        ([2**65], "64 bits"),
        (["\ud800"], "UTF-8"),
        ("ab", "single value"),
    ],
)
def test_bad_ids_are_refused(ids, words):
    with pytest.raises(DataError, match=words):
        Vocabulary(ids)


@given(some_ids)
def test_bytes_round_trip(ids):
    known = Vocabulary(ids)
    again = Vocabulary.from_bytes(known.to_bytes())
    assert again == known
    assert list(again) == ids
    assert pickle.loads(pickle.dumps(known)) == known
    assert known.index(ids).tolist() == list(range(len(ids)))


@pytest.mark.parametrize("data", [b"", b"nonsense" * 10, b"\xff\xff\xff\xff" * 8, "text", None])
def test_malformed_bytes(data):
    with pytest.raises(DataError, match="stored vocabulary"):
        Vocabulary.from_bytes(data)


def test_cut_or_foreign_bytes():
    data = Vocabulary(["a", "b"] + [str(n) for n in range(100)]).to_bytes()
    with pytest.raises(DataError):
        Vocabulary.from_bytes(data[: len(data) // 2])
    for table in (pa.table({"x": [1], "y": [2]}), pa.table({"id": ["a", "a"]}), pa.table({"id": [1.5]})):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        with pytest.raises(DataError):
            Vocabulary.from_bytes(sink.getvalue().to_pybytes())


def test_equality_and_immutability():
    known = Vocabulary(["a", "b"])
    assert known != Vocabulary(["b", "a"])
    assert known != ["a", "b"]
    assert Vocabulary([1]) != Vocabulary(["1"])
    assert hash(known) == hash(Vocabulary(["a", "b"]))
    with pytest.raises(AttributeError):
        known.kind = "integer"
    with pytest.raises(AttributeError):
        known.other = 1
    assert "2 string ids: 'a', 'b'" in repr(known)
