"""Full-rank models fitted on disk equal those fitted in memory; their files, interruptions and memory."""

from __future__ import annotations

import errno
import gc
import json
import re
import subprocess
import sys

import numpy as np
import pytest

import monogram as mg
from monogram import store
from monogram.engine.inverse import disk as disk_
from monogram.engine.inverse import tile_store
from monogram.errors import MemoryBudgetError, NumericalError, ParameterError, StorageError

MODELS = [mg.EASE(l2=3), mg.DLAE(l2=3, dropout=0.2), mg.EDLAE(l2=3, dropout=0.2), mg.DEQL(l2=3, dropout=0.2, b=0.7)]


@pytest.fixture
def eights(monkeypatch):
    monkeypatch.setattr(disk_, "tile_size", lambda n, budget, itemsize: 8)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fit_on_disk_equals_the_fit_in_memory(eights, world, tmp_path, model, dtype):
    primal = type(model)(**model.params()).fit(world, solver="primal", dtype=dtype)
    actual = type(model)(**model.params()).fit(world, solver="disk", scratch=tmp_path, dtype=dtype)
    assert actual.report_.solver == "disk"
    assert actual.report_.residual < (1e-5 if dtype == "float32" else 1e-12)
    assert actual.report_.error < 1e-3
    close = {"atol": 1e-5 if dtype == "float32" else 1e-12}
    np.testing.assert_allclose(actual.item_weights(), primal.item_weights(), **close)
    one, other = ([row["score"] for row in fitted.recommend(k=5)] for fitted in (actual, primal))
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert {"gram", "factor", "invert", "weights"} <= set(actual.report_.seconds)


def test_the_files_of_a_fit_are_deleted_with_the_model(eights, world, tmp_path):
    model = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    weights = model.item_weights()
    (folder,) = tmp_path.iterdir()
    model.save(tmp_path / "a.mono")
    np.testing.assert_array_equal(mg.load(tmp_path / "a.mono").item_weights(), weights)
    assert folder.is_dir(), "in use"
    model.fit(world, solver="primal")
    gc.collect()
    assert not folder.exists(), "what was learned before is forgotten"


def test_a_fit_is_reused_after_a_failed_save(eights, world, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    model = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    weights = model.item_weights()
    with monkeypatch.context() as patch:
        patch.setattr(store.writer, "save_file", full)
        with pytest.raises(StorageError, match=r"No space left.*finished fit is in .*the same fit reuses it"):
            model.save(tmp_path / "a.mono")
    (folder,) = tmp_path.iterdir()
    del model
    gc.collect()
    before = (folder / tile_store.JOURNAL).read_bytes()
    again = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    assert (folder / tile_store.JOURNAL).read_bytes() == before, "nothing was done anew"
    np.testing.assert_array_equal(again.item_weights(), weights)
    again.save(tmp_path / "a.mono")
    del again
    gc.collect()
    assert [one.name for one in tmp_path.iterdir()] == ["a.mono"]


def test_an_interrupted_fit_resumes(eights, world, tmp_path):
    def stop(stage, amount):
        if stage == "invert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path, progress=stop)
    (folder,) = tmp_path.iterdir()
    before = (folder / tile_store.JOURNAL).read_bytes()
    model = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    assert (folder / tile_store.JOURNAL).read_bytes().startswith(before)
    (tmp_path / "other").mkdir()
    straight = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path / "other")
    np.testing.assert_array_equal(model.item_weights(), straight.item_weights())


LARGE = (80_000, 60_000, 10**6)


def test_the_disk_is_planned_when_nothing_fits_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("monogram.models.inverse.free", lambda _: 10**12)
    planned = mg.EASE().plan(LARGE, memory="6 GB", scratch=tmp_path)
    assert planned.chosen.solver == "disk"
    assert planned.fits
    assert planned.chosen.bytes <= 6e9
    assert planned.chosen.disk == pytest.approx(1.5 * 60_000**2 * 4, rel=0.1)
    assert [row["solver"] for row in planned.rows()] == ["primal", "dual", "disk", "local", "matrix_free"]
    assert [row["fits"] for row in planned.rows()] == [False, False, True, True, True]
    text = str(planned)
    assert "files" in text
    assert text.count("over budget") == 2
    assert "weights" in [stage for stage, _, _ in planned.chosen.stages]
    assert mg.EASE().plan(LARGE, memory="20 GB", scratch=tmp_path).chosen.solver == "primal"
    assert mg.EASE(l2=0).plan(LARGE, memory="6 GB", scratch=tmp_path).chosen.solver == "disk"


def test_no_files_unless_a_folder_was_named():
    planned = mg.EASE().plan(LARGE, memory="6 GB")
    assert planned.chosen.solver == "local"
    assert re.search(r"for the disk, with 2\d(\.\d)? GB of files, name a folder", planned.why)
    with pytest.raises(MemoryBudgetError, match=r"use the disk solver, with 2\d(\.\d)? GB of files in a folder"):
        mg.EASE().plan(LARGE, memory="6 GB", solver="primal").require()


def test_a_disk_with_too_little_space_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("monogram.models.inverse.free", lambda _: 10**9)
    instead = mg.EASE().plan(LARGE, memory="6 GB", scratch=tmp_path)
    assert instead.chosen.solver == "local"
    assert "the disk has 1 GB free, not 2" in instead.why
    planned = mg.EASE().plan(LARGE, memory="6 GB", scratch=tmp_path, solver="disk")
    assert not planned.fits
    assert "disk too small" in str(planned)
    with pytest.raises(StorageError, match=r"needs 2\d(\.\d)? GB on the disk, which has 1 GB free"):
        planned.require()


def test_files_of_an_interrupted_fit_count_as_free_space(tmp_path):
    bare = disk_.free(tmp_path)
    (tmp_path / "monogram-0").mkdir()
    with (tmp_path / "monogram-0" / tile_store.TILES).open("wb") as file:
        file.truncate(10**12)  # a hole: it takes nothing
    assert disk_.free(tmp_path) > bare + 10**11
    with pytest.raises(StorageError, match="cannot hold the files"):
        disk_.free(tmp_path / "none")


def test_only_full_rank_models_have_the_disk_solver(world, tmp_path):
    for model in (mg.LowRankDLAE(rank=2), mg.Popularity(), mg.LRR(rank=2), mg.SLIM()):
        with pytest.raises(ParameterError, match="expected 'auto', 'primal' or 'dual'"):
            model.fit(world, solver="disk", scratch=tmp_path)


def test_a_fit_on_disk_by_the_command_line(tmp_path):
    rows = "".join(f"u{n % 13},i{n * 7 % 30}\n" for n in range(150))
    (tmp_path / "log.csv").write_text("user,item\n" + rows, encoding="utf-8")
    command = [sys.executable, "-m", "monogram", "fit", tmp_path / "log.csv", "-o", tmp_path / "a.mono", "--json"]
    done = subprocess.run([*command, "--solver", "disk"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["solver"] == "disk"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.mono", "log.csv"]
    done = subprocess.run(
        [*command, "--solver", "disk", "--scratch", tmp_path / "none"], capture_output=True, text=True
    )
    assert done.returncode == 10
    assert "none" in done.stderr


MEASURE = """
import json, resource, sys
import numpy as np, scipy.sparse as sp
import monogram as mg
from monogram.engine.runtime import memory
def anonymous():
    text = open("/proc/self/status").read()
    return int(text.split("RssAnon:")[1].split()[0]) * 1024
matrix = sp.random_array((6000, 4000), density=0.002, rng=np.random.default_rng(0), dtype=np.float32, format="csr")
log = mg.Interactions.from_csr(matrix)
small = mg.Interactions.from_csr(log.matrix[:1000, :400] + sp.eye_array(1000, 400, dtype=np.float32))
first = mg.EASE(l2=3).fit(small, solver="disk", scratch=sys.argv[1])  # compile, what follows too
first.save(sys.argv[1] + "/a.mono")
first.recommend(list(small.users), k=10)
model = mg.EASE(l2=3).fit(log, solver="disk", scratch=sys.argv[1], memory="30 MB")
before = anonymous()
model.save(sys.argv[1] + "/a.mono")
saved = anonymous() - before
model.recommend(list(log.users)[:1000], k=10)
print(json.dumps([model.report_.peak_bytes, model.report_.planned_bytes, saved, anonymous() - before]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read as Linux tells it")
def test_fit_save_and_ranking_do_not_load_the_square_array(tmp_path):
    """It has 64 MB; mapped pages of a file can be dropped, what counts is the rest."""
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, planned, saved, ranked = json.loads(done.stdout)
    assert planned <= 30e6
    assert peak <= 30e6
    assert saved < 20e6
    assert ranked < 30e6


def test_updates_equal_those_of_the_model_in_memory(eights, world, tmp_path):
    """The weights are mapped from a file and stay there: the changed ones are in memory."""
    gone = [0, 1]
    actual = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path).forget_users(gone)
    primal = mg.EASE(l2=3).fit(world, solver="primal").forget_users(gone)
    np.testing.assert_allclose(actual.item_weights(), primal.item_weights(), atol=1e-5)
    assert actual.report_.changes == 1
    gc.collect()
    assert list(tmp_path.iterdir()) == [], "the files go with the weights they held"


def test_damaged_tiles_are_deleted(eights, world, tmp_path):
    def stop(stage, amount):
        if stage == "invert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path, progress=stop)
    (file,) = tmp_path.glob(f"*/{tile_store.TILES}")
    file.write_bytes(np.full(file.stat().st_size // 4, np.nan, np.float32).tobytes())
    with pytest.raises(NumericalError, match="fit again"):
        mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    expected = mg.EASE(l2=3).fit(world, solver="primal").item_weights()
    actual = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    np.testing.assert_allclose(actual.item_weights(), expected, atol=1e-5)


def test_an_update_without_memory_for_a_copy_is_refused(eights, world, tmp_path):
    model = mg.EASE(l2=3).fit(world, solver="disk", scratch=tmp_path)
    with pytest.raises(MemoryBudgetError, match=r"for new arrays .*fit again on the changed log"):
        model.forget_users([0], memory=2000)
    assert model.report_.solver == "disk"
    assert model.forget_users([0]).report_.solver == "primal"
