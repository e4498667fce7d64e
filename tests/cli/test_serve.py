"""`monogram serve` refuses what is unsafe or wrong before it listens; what it does then is in tests/server."""

from __future__ import annotations

import builtins
import socket

import pytest

import monogram as mg


def test_others_can_reach_it_only_with_a_key(program, shop, monkeypatch):
    monkeypatch.delenv("MONOGRAM_KEY", raising=False)
    done = program("serve", shop, "--host", "0.0.0.0")
    assert done.code == 2
    assert "--key-file" in done.err
    monkeypatch.setenv("MONOGRAM_KEY", "short")
    assert program("serve", shop, "--host", "0.0.0.0").code == 2


def test_a_key_is_no_flag(program, shop):
    assert program("serve", shop, "--key", "x" * 20).code == 2


def test_bad_files_and_ports_are_refused_at_once(program, shop, tmp_path):
    (tmp_path / "bad.mono").write_bytes(b"nothing")
    assert program("serve", tmp_path / "bad.mono", "--port", 0).code == 6
    assert program("serve", tmp_path / "none.mono", "--port", 0).code == 6
    assert program("serve", shop, "--port", 0, "--items", tmp_path / "none.csv").code == 3
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = program("serve", shop, "--port", taken.getsockname()[1])
    assert done.code == 2
    assert "cannot listen" in done.err


def test_updates_are_for_one_full_rank_model_in_one_process(program, shop, pairs, tmp_path):
    assert program("serve", shop, "--updates", "--workers", 2).code == 2
    assert program("serve", shop, f"b={shop}", "--updates").code == 2
    done = program("serve", shop, "--events", tmp_path / "x.db")
    assert done.code == 2
    assert "--updates" in done.err
    mg.Popularity().fit(pairs).save(tmp_path / "popular.mono")
    done = program("serve", tmp_path / "popular.mono", "--port", 0, "--updates")
    assert done.code == 2
    assert "cannot be changed without a refit; models that can: EASE" in done.err


def test_without_the_extra_the_command_that_installs_it_is_named(program, shop, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name == "fastapi":
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    done = program("serve", shop)
    assert done.code == 9
    assert "pip install 'monogram[serve]'" in done.err


def test_the_help_names_no_port_of_others(program):
    assert program("serve", "--help").code == 0


@pytest.fixture(autouse=True)
def logging_as_it_was():
    import logging

    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)
