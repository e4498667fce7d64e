"""A fit or a change stopped by a signal in any of its stages: nothing is lost, and it can be begun again."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import monogram as mg
from monogram.engine.inverse import disk
from monogram.models.report import ReportBuilder

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

STAGES = {
    "primal": ["plan", "gram", "factor", "invert", "residual", "weights"],
    "dual": ["gram", "factor", "invert", "diagonal", "weights"],
    "disk": ["gram", "factor", "invert", "residual", "weights"],
    "matrix_free": ["transpose", "diagonal", "residual", "weights"],
}
SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]


@contextmanager
def stopped_at(wanted: str, number: int):
    """Inside, this process gets a signal when a stage is first reported."""
    tick, sent = ReportBuilder.tick, []

    def ticked(self, stage, amount=0.0):
        tick(self, stage, amount)
        if stage == wanted and not sent:
            sent.append(stage)
            os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReportBuilder, "tick", ticked)
        yield
    assert sent, f"there was no stage {wanted}"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\n" + "".join(f"u{n % 31},i{n * 7 % 40}\n" for n in range(400)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize(("solver", "stage"), [(solver, stage) for solver in STAGES for stage in STAGES[solver]])
def test_a_fit_stopped_in_any_stage(program, log, tmp_path, monkeypatch, solver, stage, number, code):
    monkeypatch.setattr(disk, "tile_size", lambda n, budget, itemsize: 8)
    output = tmp_path / "a.mono"
    output.write_bytes(b"as it was")
    command = ("fit", log, "-o", output, "--solver", solver, "--model", "edlae")
    with stopped_at(stage, number):
        stopped = program(*command)
    assert stopped.code == code
    assert ("the same command goes on from there" in stopped.err) == (solver == "disk")
    assert output.read_bytes() == b"as it was"
    left = [one.name for one in tmp_path.iterdir() if one not in (output, log)]
    assert [name[:9] for name in left] == (["monogram-"] if solver == "disk" else []), "what it can go on from"
    assert program(*command).code == 0
    straight = mg.EDLAE().fit(mg.read(log, quiet=True), solver=solver, scratch=tmp_path if solver == "disk" else None)
    np.testing.assert_array_equal(mg.load(output).score([["i1", "i7"]]), straight.score([["i1", "i7"]]))


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("stage", ["change", "residual", "weights"])
def test_a_change_stopped_in_any_stage(program, shop, stage, number, code):
    before = Path(shop).read_bytes()
    with stopped_at(stage, number):
        assert program("update", shop, "--forget", "ann", "-o", shop).code == code
    assert Path(shop).read_bytes() == before
    assert [one.name for one in Path(shop).parent.iterdir()] == ["shop.mono"]
    assert program("update", shop, "--forget", "ann", "-o", shop).code == 0
    assert "ann" not in mg.load(shop).log_.users
