"""Tiles on disk: the inverse in memory to rounding, whatever the tiles; killed and resumed, the same bits."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.inverse import disk as disk_
from monogram.engine.inverse import tile_store, tiled_cholesky
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.disk import disk_inverse
from monogram.engine.inverse.primal import primal_inverse
from monogram.engine.linalg.triangular import (
    add_lower,
    clear_above,
    lower_times,
    mirror_below,
    solve_left,
    solve_right,
    times_lower,
)
from monogram.errors import NumericalError, StorageError


def setting(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((2 * n, n), density=min(1.0, 8 / n), rng=rng, dtype=np.float32, format="csr")
    matrix.sort_indices()
    return matrix, rng.uniform(0.5, 4, n)


def tile_bytes(tile: int, dtype) -> int:
    return tiled_cholesky.HELD * tile * tile * np.dtype(dtype).itemsize


@pytest.fixture
def small(monkeypatch):
    """Tiles of any side, as the budget allows."""

    def tile_size(n: int, budget: int, itemsize: int) -> int:
        return max(1, int((budget / (tiled_cholesky.HELD * itemsize)) ** 0.5))

    monkeypatch.setattr(disk_, "tile_size", tile_size)


def everything(found):
    """All that comes out: the columns, and the weights."""
    n = found.tiles.n
    whole = found.columns(np.arange(n))
    scale = np.linspace(0.5, 2, n)
    return whole, np.array(found.into_weights(scale, np.linspace(-1, 1, n), 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "tile"), [(1, 4), (5, 1), (37, 8), (40, 8), (41, 40), (40, 64), (200, 65), (300, 130)])
def test_tiles_give_what_memory_gives(small, tmp_path, n, tile, dtype):
    matrix, penalties = setting(n)
    ticks = []
    found = disk_inverse(matrix, penalties, folder=tmp_path, budget=tile_bytes(tile, dtype), dtype=dtype, threads=2,
                 stage=lambda stage, amount: ticks.append((stage, amount)))  # fmt: skip
    expected = primal_inverse(matrix, penalties, dtype=dtype)
    bound = 1e-5 if dtype == np.float32 else 1e-13
    assert found.tiles.tile == tile
    assert found.dtype == dtype
    np.testing.assert_allclose(found.diagonal, expected.diagonal, rtol=bound)
    np.testing.assert_allclose(found.columns(np.arange(n)), expected.columns(np.arange(n)), atol=bound)
    certified = certificate(matrix, penalties, found)
    assert certified[0] < bound
    scale, diagonal = np.linspace(0.5, 2, n), np.linspace(-1, 1, n)
    made = found.into_weights(scale, diagonal, 2)
    np.testing.assert_allclose(made, expected.into_weights(scale, diagonal, 1), atol=2 * bound)
    assert made.flags.c_contiguous
    assert sum(amount for stage, amount in ticks if stage == "gram") == n
    assert sum(amount for stage, amount in ticks if stage == "weights") == n
    folder = found.tiles.folder
    assert folder.is_dir()
    del made, found
    assert not folder.exists(), "gone with the model"


def test_weighted_data(small, tmp_path):
    matrix, penalties = setting(30)
    data = scale_rows(matrix, np.linspace(0.5, 3, 60))
    found = disk_inverse(data, penalties, folder=tmp_path, budget=tile_bytes(11, np.float64), dtype=np.float64)
    expected = primal_inverse(data, penalties, dtype=np.float64).columns(np.arange(30))
    np.testing.assert_allclose(found.columns(np.arange(30)), expected, atol=1e-13)
    block = np.random.default_rng(0).random((30, 3))
    np.testing.assert_allclose(found.times(block), expected @ block, atol=1e-13)
    np.testing.assert_allclose(
        found.times_off_diagonal(block), (expected - np.diag(np.diag(expected))) @ block, atol=1e-13
    )
    np.testing.assert_allclose(found.columns(np.arange(30)), expected, atol=1e-13, err_msg="as before")


@pytest.mark.parametrize("size", [1, 63, 150, 700])
def test_products_with_triangles(size):
    rng = np.random.default_rng(size)
    lower = np.asfortranarray(np.tril(rng.random((size, size))) + size * np.eye(size))
    block = np.asfortranarray(rng.random((size, size)))
    for work, expected in (
        (lambda out: solve_right(lower, out), block @ np.linalg.inv(lower).T),
        (lambda out: solve_left(lower, out), np.linalg.inv(lower) @ block),
        (lambda out: times_lower(out, block, lower), block + block @ lower),
        (lambda out: lower_times(out, lower, block), block + lower.T @ block),
    ):
        out = block.copy(order="F")
        work(out)
        np.testing.assert_allclose(out, expected, rtol=1e-10)
    for transpose, expected in ((b"NT", block @ lower.T), (b"TN", block.T @ lower)):
        out = np.zeros((size, size), order="F")
        add_lower(out, block, lower, alpha=2.0, transpose=transpose)
        np.testing.assert_allclose(np.tril(out), 2 * np.tril(expected), rtol=1e-10)
    whole = np.empty((size, size))
    mirror_below(block, whole)
    np.testing.assert_array_equal(whole, np.tril(block) + np.tril(block, -1).T)
    clear_above(block)
    np.testing.assert_array_equal(block, np.tril(block))


class Killed(BaseException):
    """As a signal that nobody catches."""


def test_stopped_at_any_write_it_ends_with_the_same_bits(small, tmp_path, monkeypatch):
    matrix, penalties = setting(23)
    how = {"folder": tmp_path, "budget": tile_bytes(8, np.float32)}
    whole = everything(disk_inverse(matrix, penalties, **how))
    real_put, real_line = tile_store.put, tile_store._line
    left = 0

    def put(file, position, values):
        nonlocal left
        left -= 1
        if left == 0:
            real_put(file, position, np.full(max(1, values.size // 2), np.nan, values.dtype))
            raise Killed
        real_put(file, position, values)

    def line(file, entry):
        nonlocal left
        left -= 1
        if left == 0:
            file.write(json.dumps(entry).encode()[: len(str(entry)) // 2])
            raise Killed
        real_line(file, entry)

    monkeypatch.setattr(tile_store, "put", put)
    monkeypatch.setattr(disk_, "put", put)
    monkeypatch.setattr(tile_store, "_line", line)
    stops, at = 0, 1
    while True:
        left = at
        try:
            everything(disk_inverse(matrix, penalties, **how))
            break
        except Killed:
            stops += 1
        left = 0
        for one, other in zip(everything(disk_inverse(matrix, penalties, **how)), whole, strict=True):
            np.testing.assert_array_equal(one, other)
        assert not list(tmp_path.iterdir())
        at += 1
    assert stops > 60, "every write of every stage"


def test_stopped_again_and_again_it_still_ends(small, tmp_path, monkeypatch):
    """Each run gets one tile further."""
    matrix, penalties = setting(23)
    how = {"folder": tmp_path, "budget": tile_bytes(8, np.float32)}
    whole = everything(disk_inverse(matrix, penalties, **how))
    real, left = tile_store.TileJournal.add, 0

    def add(self, entry):
        nonlocal left
        real(self, entry)
        left -= 1
        if left == 0:
            raise Killed

    monkeypatch.setattr(tile_store.TileJournal, "add", add)
    found, runs = None, 0
    while found is None:
        left = 1
        try:
            found = everything(disk_inverse(matrix, penalties, **how))
        except Killed:
            runs += 1
    assert runs == 3 + 6 * 3 + 4, "three columns of the Gram, three stages of six tiles, a head and three rows"
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)


SLOW = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_tiled_cholesky import setting, tile_bytes, np, tiled_cholesky
from monogram.engine.inverse import disk as disk_
disk_.tile_size = lambda n, budget, itemsize: 50
matrix, penalties = setting(300)
def stage(name, amount):
    print(name, flush=True)
    time.sleep(0.02)
disk_.disk_inverse(matrix, penalties, folder=Path({folder!r}), budget=tile_bytes(50, np.float32), stage=stage)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("lines", [3, 20, 45])
def test_a_process_that_was_killed(monkeypatch, tmp_path, lines):
    monkeypatch.setattr(disk_, "tile_size", lambda n, budget, itemsize: 50)
    matrix, penalties = setting(300)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    script = SLOW.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "a"))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        for _ in range(lines):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    (folder,) = (tmp_path / "a").iterdir()
    before = len((folder / tile_store.JOURNAL).read_bytes().splitlines())
    assert before > (1 if lines > 3 else 0)
    resumed = disk_inverse(matrix, penalties, folder=tmp_path / "a", budget=tile_bytes(50, np.float32))
    assert resumed.tiles.folder == folder
    straight = disk_inverse(matrix, penalties, folder=tmp_path / "b", budget=tile_bytes(50, np.float32))
    for one, other in zip(everything(resumed), everything(straight), strict=True):
        np.testing.assert_array_equal(one, other)


def halted(matrix, penalties, after: int, **how) -> Path:
    """A fit that stopped after some tiles; its folder."""

    def stage(name, amount):
        nonlocal after
        after -= 1
        if after == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        disk_inverse(matrix, penalties, stage=stage, **how)
    (folder,) = how["folder"].iterdir()
    return folder


def broken_line(folder):
    text = (folder / tile_store.JOURNAL).read_text().splitlines(keepends=True)
    (folder / tile_store.JOURNAL).write_text("".join([*text[:2], '{"stage"\n', *text[3:]]))


def wrong_line(folder):
    with (folder / tile_store.JOURNAL).open("a") as file:
        file.write('{"stage":"factor","tiles":[[[0,0],999]]}\n')


def foreign(folder):
    text = (folder / tile_store.JOURNAL).read_text().splitlines(keepends=True)
    first = json.loads(text[0])
    (folder / tile_store.JOURNAL).write_text(json.dumps(first | {"mark": "0" * 64}) + "\n" + "".join(text[1:]))


def cut(folder):
    os.truncate(folder / tile_store.TILES, 100)


def no_weights(folder):
    (folder / tile_store.WEIGHTS).unlink()


@pytest.mark.parametrize("damage", [broken_line, wrong_line, foreign, cut, no_weights])
def test_what_cannot_be_trusted_is_begun_anew_and_said(small, tmp_path, damage):
    matrix, penalties = setting(40)
    how = {"folder": tmp_path, "budget": tile_bytes(8, np.float32)}
    whole = everything(disk_inverse(matrix, penalties, **how))
    damage(halted(matrix, penalties, 25, **how))
    reasons = []
    found = disk_inverse(matrix, penalties, restarted=reasons.append, **how)
    assert "cannot be resumed from" in reasons.pop()
    for one, other in zip(everything(found), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_budget_goes_on_with_the_tiles_that_are_there(small, tmp_path):
    matrix, penalties = setting(40)
    halted(matrix, penalties, 25, folder=tmp_path, budget=tile_bytes(8, np.float32))
    assert disk_inverse(matrix, penalties, folder=tmp_path, budget=tile_bytes(16, np.float32)).tiles.tile == 8
    reasons, how = [], {"folder": tmp_path, "budget": tile_bytes(5, np.float32)}
    assert disk_inverse(matrix, penalties, restarted=reasons.append, **how).tiles.tile == 5
    assert "another fit" in reasons.pop()


def test_other_data_has_another_folder(small, tmp_path):
    matrix, penalties = setting(20)
    how = {"folder": tmp_path, "budget": tile_bytes(8, np.float32)}
    marks = {
        tiled_cholesky.fingerprint(one, two, dtype)
        for one, two, dtype in (
            (matrix, penalties, np.float32),
            (matrix, penalties + 1, np.float32),
            (matrix * 2, penalties, np.float32),
            (matrix, penalties, np.float64),
        )
    }
    assert len(marks) == 4
    one, two = (disk_inverse(matrix, penalties, **how) for _ in range(2))
    second = two.tiles.folder
    assert one.tiles.folder != second, "the first is still in use"
    one.scratch.remove()
    two.scratch.release()
    assert disk_inverse(matrix, penalties, **how).tiles.folder == second, "what was begun is found under any number"


def test_another_head_replaces_the_weights(small, tmp_path):
    matrix, penalties = setting(20)
    how = {"folder": tmp_path, "budget": tile_bytes(8, np.float32)}
    one = np.ones(20)
    first = disk_inverse(matrix, penalties, **how)
    plain = first.into_weights(one, one, 1)
    first.scratch.keep_files = True
    kept = np.array(plain)
    del plain, first
    again = disk_inverse(matrix, penalties, **how)
    np.testing.assert_array_equal(again.into_weights(2 * one, one, 1) - np.eye(20), 2 * (kept - np.eye(20)))


def test_a_full_disk(small, tmp_path, monkeypatch):
    matrix, penalties = setting(40)
    how = {"folder": tmp_path, "budget": tile_bytes(8, np.float32)}
    whole = everything(disk_inverse(matrix, penalties, **how))
    real, left = tile_store.put, 40

    def put(file, position, values):
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, position, values)

    monkeypatch.setattr(tile_store, "put", put)
    with pytest.raises(StorageError, match=r"No space left on device.*needs 10.5 kB in .*the same fit resumes from it"):
        disk_inverse(matrix, penalties, **how)
    (folder,) = tmp_path.iterdir()
    done = (folder / tile_store.JOURNAL).read_bytes()
    assert done.count(b"factor") > 3
    left = 10**9
    found = disk_inverse(matrix, penalties, **how)
    assert (folder / tile_store.JOURNAL).read_bytes().startswith(done), "it went on"
    for one, other in zip(everything(found), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_too_little_space_is_reported_before_anything_is_written(small, tmp_path, monkeypatch):
    matrix, penalties = setting(40)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6, 5000))
    with pytest.raises(StorageError, match=r"needs 10.5 kB in .* 5 kB free; nothing was written"):
        disk_inverse(matrix, penalties, folder=tmp_path, budget=tile_bytes(8, np.float32))
    assert not list(tmp_path.iterdir())


def test_no_folder_and_one_that_cannot_be_written_to(tmp_path, monkeypatch):
    matrix, penalties = setting(5)
    with pytest.raises(StorageError, match="make it first"):
        disk_inverse(matrix, penalties, folder=tmp_path / "none", budget=10**6)

    def mkdir(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(StorageError, match=r"Read-only file system$"):
        disk_inverse(matrix, penalties, folder=tmp_path, budget=10**6)


def test_a_folder_in_which_nothing_can_be_locked(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    matrix, penalties = setting(5)
    with pytest.raises(StorageError, match="No locks available"):
        disk_inverse(matrix, penalties, folder=tmp_path, budget=10**6)


def test_a_file_that_is_cut_short_while_it_is_used(small, tmp_path):
    matrix, penalties = setting(40)

    def stage(name, amount):
        if name == "factor":
            os.truncate(next(tmp_path.iterdir()) / tile_store.TILES, 300)

    with pytest.raises(StorageError, match="cut short"):
        disk_inverse(matrix, penalties, folder=tmp_path, budget=tile_bytes(8, np.float32), stage=stage)


def test_a_matrix_that_has_no_root_leaves_nothing(small, tmp_path):
    matrix, penalties = setting(40)
    with pytest.raises(NumericalError, match=r"rows 25 to 32 of 40\)$"):
        disk_inverse(
            matrix, np.where(np.arange(40) == 30, -1e4, penalties), folder=tmp_path, budget=tile_bytes(8, np.float32)
        )
    assert not list(tmp_path.iterdir())


def test_the_side_of_the_tiles_follows_the_budget():
    for n, budget in ((60_000, 6 * 10**9), (6000, 50 * 10**6), (150_000, 2 * 10**9), (3000, 10**12)):
        tile = tiled_cholesky.tile_size(n, budget, 4)
        assert tile % 64 == 0
        assert tile <= tiled_cholesky.LARGEST
        assert tiled_cholesky.HELD * tile**2 * 4 <= budget
        assert -(-n // tile) * tile < n * 1.1, "the last is not a sliver"
    assert tiled_cholesky.tile_size(60_000, 6 * 10**9, 4) > 7000


MEASURE = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_tiled_cholesky import setting, np
from monogram.engine.runtime import memory
from monogram.engine.gram.user_weights import scale_rows
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.primal import primal_inverse
from monogram.engine.inverse.disk import disk_inverse
matrix, penalties = setting({n})
folder = Path({folder!r})
disk_inverse(*setting(300), folder=folder, budget=10**6).into_weights(np.ones(300), np.ones(300), 1)
with memory.Peak() as peak:
    found = disk_inverse(matrix, penalties, folder=folder, budget={budget})
    made = found.into_weights(np.ones({n}), np.ones({n}), 1)
print(json.dumps([peak.bytes, found.tiles.count]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak can be reset on Linux only")
def test_memory_stays_in_the_budget(tmp_path):
    """The square is 64 MB."""
    n, budget = 4000, 12 * 10**6
    script = MEASURE.format(tests=str(Path(__file__).parent), n=n, folder=str(tmp_path), budget=budget)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peak, count = json.loads(done.stdout)
    assert count >= 5
    assert peak < budget + 10**7, "the tiles, and the workspace every plan has"
