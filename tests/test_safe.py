"""Durable writes: complete files, temporary names, one implementation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import monogram
from monogram.errors import StorageError
from monogram.safe import append, atomic_replace, leftovers, make_folder, whole_file

SOURCE = Path(monogram.__file__).parent


def test_a_failed_block_leaves_the_former_file(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("former")
    with pytest.raises(TypeError), whole_file(path) as file:
        file.writelines([b"half", "not bytes"])
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_and_its_folder_are_flushed_before_and_after_the_rename(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: steps.append("fsync") or fsync(number))
    monkeypatch.setattr(Path, "replace", lambda *paths: steps.append("rename") or replace(*paths))
    with whole_file(tmp_path / "a") as file:
        file.write(b"text")
    assert steps == ["fsync", "rename", "fsync"]
    assert (tmp_path / "a").read_bytes() == b"text"


def test_a_check_that_raises_cancels_the_rename(tmp_path):
    def check():
        raise StorageError("replaced meanwhile")

    path = tmp_path / "a"
    with pytest.raises(StorageError, match="replaced meanwhile"), atomic_replace(path, check=check) as temporary:
        temporary.write_bytes(b"text")
    assert list(tmp_path.iterdir()) == []


def test_leftovers_are_those_of_the_mark(tmp_path):
    path = tmp_path / "shop.mono"
    with atomic_replace(path, mark="serve-") as marked, atomic_replace(path) as plain:
        assert leftovers(path, "serve-") == [marked]
        assert leftovers(path, "") == [plain]


def test_append_creates_and_continues_a_file(tmp_path):
    append(tmp_path / "a", b"one\n")
    append(tmp_path / "a", b"two\n")
    assert (tmp_path / "a").read_bytes() == b"one\ntwo\n"


def test_a_folder_below_a_file_cannot_be_created(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(StorageError, match=r"cannot be created: .*; name another folder"):
        make_folder(tmp_path / "a" / "b", "name another folder")


def test_no_other_module_implements_durable_writes():
    own = {SOURCE / "safe.py", *(SOURCE / "engine" / "inverse").glob("*.py")}
    assert [path for path in SOURCE.rglob("*.py") if "os.fsync" in path.read_text() and path not in own] == []
