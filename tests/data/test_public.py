"""The list of public data sets: complete, findable, and its reading code runs."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from monogram.data import public
from monogram.errors import ParameterError

# Users and items with just enough events; beside them, in each file, some with too few or rated too low.
ROWS = [*((user, item, 5) for user in (1, 2) for item in range(5)), (1, 60, 3.5), (3, 1, 5)]
CORE = [(user, item, 3) for user in range(5) for item in range(5)]
MANY = [(user, item, 1) for user in range(200) for item in range(20)]
# What each file looks like, small; and what reading it must find: users, items, events.
SMALL = {
    "ml-100k": ("1\t10\t5\t881250949\n1\t20\t1\t881250949\n2\t10\t3\t881250949\n", (2, 2, 3)),
    "ml-1m": ("1::10::5::978300760\n1::20::3::978302109\n2::10::4::978301968\n", (2, 1, 2)),
    "ml-10m": (
        "".join(f"{user}::{item}::{stars}::838985046\n" for user, item, stars in [*CORE, (7, 99, 5), (1, 98, 2.5)]),
        (5, 5, 25),
    ),
    "ml-20m": (
        "userId,movieId,rating,timestamp\n" + "".join(f"{user},{item},{stars},1\n" for user, item, stars in ROWS),
        (2, 5, 10),
    ),
    "msd": ("".join(f"b{user}\tS{item}\t{plays}\n" for user, item, plays in [*MANY, (0, 99, 1)]), (200, 20, 4_000)),
    "amazon-electronics": (
        "".join(
            json.dumps({"reviewerID": f"A{user}", "asin": f"B{item}", "overall": stars, "reviewText": "“fine”"}) + "\n"
            for user, item, stars in [*CORE, (1, 98, 2.0)]
        ),
        (5, 5, 25),
    ),
    "steam": (
        "".join(f"{{u'username': u'ü{user}', u'product_id': u'{item}'}}\n" for user, item, _ in [*CORE, (7, 0, 1)]),
        (5, 5, 25),
    ),
}
LISTED = ("gowalla", "yelp2018", "amazon-book")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MONOGRAM_DATA", str(tmp_path))
    return tmp_path


def place(folder, name, text):
    path = folder / public.get(name).files[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode()
    path.write_bytes(packed)
    return path


def test_the_sets_of_the_papers_are_there():
    assert {*SMALL, *LISTED, "netflix"} == set(public.DATA_SETS)
    for name, one in public.DATA_SETS.items():
        assert one.name == name
        assert one.source.startswith("http")
        assert one.users > 0
        assert one.items > 0
        assert 0 < one.events <= one.users * one.items
        assert one.protocol in (None, "strong", "lightgcn", "ratio811")


def test_what_can_be_downloaded_has_a_checksum():
    for one in public.DATA_SETS.values():
        assert (one.url is None) == (one.md5 is None)
        if one.url is not None:
            assert one.url.startswith("https://")
            assert re.fullmatch("[0-9a-f]{32}", one.md5)
            assert one.url.rsplit("/", 1)[-1] in one.files


def test_an_unknown_name():
    with pytest.raises(ParameterError, match="did you mean ml-20m"):
        public.get("ML-20M")
    with pytest.raises(ParameterError, match="expected one of ml-100k"):
        public.get("zzz")


def test_finding_a_copy(here, monkeypatch):
    assert public.find("gowalla") is None
    (here / "gowalla.npz").touch()
    assert public.find("gowalla") == here / "gowalla.npz"
    assert public.find("gowalla", here / "elsewhere") is None
    monkeypatch.delenv("MONOGRAM_DATA")
    assert public.folder() is None
    assert public.find("gowalla") is None


@pytest.mark.parametrize("name", SMALL)
def test_the_reading_code_of_a_log(here, name):
    text, expected = SMALL[name]
    place(here, name, text)
    assert public.find(name) is not None
    names = {}
    exec(public.get(name).reading, names)
    log = names["log"]
    assert (log.n_users, log.n_items, log.n_events) == expected


def test_the_reading_code_of_netflix(here):
    folder = here / "netflix" / "training_set"
    folder.mkdir(parents=True)
    for movie in range(1, 6):
        rows = f"{movie}:\n10,3,2005-09-06\n11,{3 + movie % 2},2005-05-13\n12,5,2005-05-13\n"
        (folder / f"mv_000000{movie}.txt").write_text(rows)
    names = {}
    exec(public.get("netflix").reading, names)
    assert list(names["log"].users) == ["12"]
    assert names["log"].history("12") == dict.fromkeys("12345", 1.0)
    assert public.find("netflix") == folder


@pytest.mark.parametrize("name", LISTED)
def test_the_reading_code_of_the_lists(here, name):
    place(here, name, "0 10 9 2\n1 3\n2 0 1 11\n")
    (here / name / "test.txt").write_text("0 1 \n1 \n")
    names = {}
    exec(public.get(name).reading, names)
    split = names["split"]
    assert (split.train.n_users, split.train.n_items, split.train.n_events) == (3, 12, 7)
    assert split.train.history(0) == {2: 1.0, 9: 1.0, 10: 1.0}
    assert split.targets.history(0) == {1: 1.0}
