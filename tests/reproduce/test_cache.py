"""The cache stores results by their source."""

from __future__ import annotations

import pytest

from monogram.errors import StorageError
from monogram.reproduce import cache as cache_
from monogram.reproduce.cache import Cache, default_folder


def test_what_is_kept_comes_back(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "a" / "b")
    source = {"data": "abc", "parameters": {"l2": 1.0, "weights": (1.0, 2.0)}}
    assert cache.get(source) is None
    assert not cache.folder.exists(), "looking makes nothing"
    cache.put(source, {"value": 0.1 + 0.2})
    assert cache.get(source) == {"value": 0.1 + 0.2}
    assert cache.get({**source, "data": "abd"}) is None
    assert len(list(cache.folder.iterdir())) == 1
    monkeypatch.setattr(cache_, "__version__", "999")
    assert cache.get(source) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"source": 1}', '{"source": {}, "result": {}}', "\xff"])
def test_a_broken_file_is_no_result(tmp_path, text):
    cache = Cache(tmp_path)
    cache.put({"x": 1}, {"y": 2})
    (path,) = tmp_path.iterdir()
    path.write_bytes(text.encode("latin-1"))
    assert cache.get({"x": 1}) is None
    cache.put({"x": 1}, {"y": 3})
    assert cache.get({"x": 1}) == {"y": 3}


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="--cache"):
        Cache(tmp_path / "file" / "cache").put({}, {})


@pytest.mark.parametrize(
    ("system", "end"), [("linux", ".cache"), ("darwin", "Library/Caches"), ("win32", "AppData/Local")]
)
def test_where_each_system_keeps_such_things(monkeypatch, system, end):
    monkeypatch.setattr(cache_.sys, "platform", system)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert default_folder().as_posix().endswith(f"{end}/monogram/reproduce")
