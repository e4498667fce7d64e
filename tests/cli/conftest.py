"""Shared by the commands' tests: a small model on disk, and the program called inside this process."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import monogram as mg
from monogram.cli import app

ITEMS = ["tea", "earl grey", "café, noir", 'the "big" one', ":cat:", "[bold]x", "42", "x" * 120]
USERS = ["ann", "bob smith", "élodie", "o'hara, jr", *(f"u{number:02}" for number in range(30))]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def program(monkeypatch, capsys):
    """Call the program as its script does; the exit code, stdout and stderr come back."""
    monkeypatch.setenv("MONOGRAM_DEBUG", "")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["monogram", *map(str, arguments)])
        capsys.readouterr()
        try:
            app.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(code, out, err)

    return call


@pytest.fixture(scope="session")
def pairs():
    rng = np.random.default_rng(3)
    used = rng.random((len(USERS), len(ITEMS))) < 0.45
    used[:, 0] |= ~used.any(axis=1)
    return [(USERS[user], ITEMS[item]) for user, item in np.argwhere(used)]


@pytest.fixture(scope="session")
def fitted(pairs):
    return mg.EASE(l2=2).fit(pairs)


@pytest.fixture(scope="session")
def saved(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "shop.mono"
    fitted.save(path)
    return path


@pytest.fixture
def shop(saved, tmp_path):
    """The model file, in a folder of its own for each test."""
    return shutil.copy(saved, tmp_path / "shop.mono")
