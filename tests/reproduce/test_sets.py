"""From the name of a data set to a split, or to the message on missing files."""

from __future__ import annotations

import numpy as np
import pytest

from monogram.errors import DataError
from monogram.reproduce import sets
from monogram.reproduce.sets import Preparation


def write_log(path, users=60, items=20):
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((users, items)) < 0.6)
    rating = rng.integers(1, 6, len(user))
    np.savez(
        path, user=user.astype(np.int32), item=item.astype(np.int32), rating=rating, shape=np.array([users, items])
    )
    return user, item, rating


def test_the_strong_protocol_holds_out_two_groups(tmp_path, monkeypatch):
    user, _, rating = write_log(tmp_path / "ml-1m.npz")
    monkeypatch.setitem(sets.PREPARATIONS, ("strong", "ml-1m"), Preparation(rating=4, users=3, held_out=10))
    place = sets.find("ml-1m", tmp_path, "strong")
    test, validation = (place.split(part) for part in ("test", "validation"))
    liked = np.bincount(user[rating >= 4], minlength=60)
    assert test.train.n_users == int((liked >= 3).sum()) - 20
    assert test.train.merge == "binary"
    assert (test.train.matrix != validation.train.matrix).nnz == 0
    groups = [set(one.histories.users) for one in (test, validation)]
    assert not groups[0] & groups[1]
    assert not (groups[0] | groups[1]) & set(test.train.users)
    assert sum(map(len, groups)) <= 20


def test_the_ratio_protocol_has_both_parts(tmp_path, monkeypatch):
    write_log(tmp_path / "ml-1m.npz")
    place = sets.find("ml-1m", tmp_path, "ratio811")
    assert place.preparation == Preparation(rating=3, users=5, items=5)
    test, validation = (place.split(part) for part in ("test", "validation"))
    assert test.hidden is not None
    assert validation.hidden is None
    assert place.document("test") != place.document("validation")


def test_lists_and_their_checksum(folder):
    place = sets.find("gowalla", folder, "lightgcn")
    assert place.split("test").protocol == "public"
    before = place.checksum()
    assert before == place.checksum()
    with place.path.open("ab") as file:
        file.write(b"x")
    assert before != place.checksum()


def test_a_set_in_its_own_format_is_read_by_its_own_code(tmp_path):
    (tmp_path / "gowalla").mkdir()
    (tmp_path / "gowalla" / "train.txt").write_text("0 0 1\n1 1 2\n2 0 2\n")
    (tmp_path / "gowalla" / "test.txt").write_text("0 2\n1 0\n")
    split = sets.find("gowalla", tmp_path, "lightgcn").split("test")
    assert (split.train.n_users, split.targets.n_events) == (3, 2)
    assert not (tmp_path / "gowalla.npz").exists(), "nothing is written among the data"
    place = sets.find("gowalla", tmp_path, "lightgcn")
    before = place.checksum()
    (tmp_path / "gowalla" / "test.txt").write_text("0 2\n1 0\n2 1\n")
    assert place.checksum() != before, "the test list counts"
    (tmp_path / "gowalla" / "test.txt").unlink()
    with pytest.raises(DataError, match="gowalla cannot be read"):
        place.split("test")


@pytest.mark.parametrize("protocol", ["strong", "ratio811"])
def test_ml_1m_in_its_own_format_is_prepared_as_its_npz_is(tmp_path, monkeypatch, protocol):
    raw, packed = tmp_path / "raw", tmp_path / "packed"
    (raw / "ml-1m").mkdir(parents=True)
    packed.mkdir()
    rows = zip(*write_log(packed / "ml-1m.npz"), strict=True)
    text = "".join(f"{u}::{i}::{r}::978300760\n" for u, i, r in rows)
    (raw / "ml-1m" / "ratings.dat").write_text(text, encoding="latin-1")
    monkeypatch.setitem(sets.PREPARATIONS, ("strong", "ml-1m"), Preparation(rating=4, users=5, held_out=10))
    first, second = (sets.find("ml-1m", where, protocol)._log() for where in (raw, packed))
    assert first.n_events == second.n_events
    assert (first.n_users, first.n_items, first.merge) == (second.n_users, second.n_items, second.merge)
    (raw / "ml-1m" / "ratings.dat").write_text("1::2\n")
    with pytest.raises(DataError, match="user::item::rating::time"):
        sets.find("ml-1m", raw, protocol)._log()


def test_what_is_missing_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("MONOGRAM_DATA", raising=False)
    assert sets.find("ml-20m", None, "strong") is None
    (tmp_path / "ml-20m.zip").touch()
    assert sets.find("ml-20m", tmp_path, "strong") is None, "it must be unpacked first"
    assert "monogram data download ml-20m" in sets.missing("ml-20m")
    assert "ml-20m/ratings.csv" in sets.missing("ml-20m")
    assert "by hand from" in sets.missing("gowalla")


def test_a_folder_has_a_checksum_too(tmp_path):
    (tmp_path / "netflix" / "training_set").mkdir(parents=True)
    (tmp_path / "netflix" / "training_set" / "mv_1.txt").write_text("1:\n")
    place = sets.find("netflix", tmp_path, "strong")
    assert place.path.is_dir()
    assert len(place.checksum()) == 64


def test_the_stand_in_on_real_data(public_data):
    place = sets.find("ml-1m", public_data, "strong")
    if place is None:
        pytest.skip("ml-1m is not in the data folder")
    split = place.split("test")
    assert split.train.n_events > 300_000
