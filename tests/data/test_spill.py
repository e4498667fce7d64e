"""Logs larger than memory: rows spilled to disk give the same log, and no file remains."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monogram.data import gather, progress, spill
from monogram.data.readers import read
from monogram.errors import DataError, StorageError

SRC = Path(__file__).parents[2] / "src"

rows = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.integers(-2, 4),
        st.floats(0, 2.0**99, width=32),
        st.one_of(st.integers(0, 9), st.integers(2**53, 2**53 + 9)),
    ),
    min_size=1,
    max_size=30,
).filter(lambda found: any(row[2] for row in found))


def table(found: list[tuple]) -> pa.Table:
    return pa.table(dict(zip(("user", "item", "w", "t"), map(list, zip(*found, strict=True)), strict=True)))


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Memory for a few rows only, many shards, and a temporary folder of its own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))

    def limit(whole: int = 40, block: int = 40, shard: int = 64, batch: int = 3) -> Path:
        monkeypatch.setattr(gather, "WHOLE", whole)
        monkeypatch.setattr(gather, "BLOCK", block)
        monkeypatch.setattr(spill, "SHARD_BYTES", shard)
        monkeypatch.setattr(spill, "MERGE_ROWS", shard)
        monkeypatch.setattr("monogram.data.parquet.BATCH_ROWS", batch)
        return scratch

    return limit


@pytest.fixture
def spills(monkeypatch):
    """Counts how often rows are spilled."""
    found: list[int] = []
    add = spill.Spill.add

    def counting(self, rows):
        found.append(len(rows))
        add(self, rows)

    monkeypatch.setattr(spill.Spill, "add", counting)
    return found


@given(
    found=rows,
    merge=st.sampled_from([None, "sum", "binary"]),
    roles=st.sampled_from([(), ("w",), ("t",), ("w", "t")]),
    sizes=st.tuples(st.integers(1, 200), st.integers(1, 200), st.integers(1, 400), st.integers(1, 20)),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_spilled_log_is_the_same(tmp_path_factory, monkeypatch, found, merge, roles, sizes, write, same):
    path = write(tmp_path_factory.mktemp("log") / "a.parquet", table(found), row_group_size=7)
    names = {"weight": "w", "time": "t"}
    options = {role: name for role, name in names.items() if name in roles}
    held = read(path, **options, merge=merge, quiet=True)
    with monkeypatch.context() as patch:
        for module, name, size in zip(
            (gather, gather, spill, spill), ("WHOLE", "BLOCK", "SHARD_BYTES", "MERGE_ROWS"), sizes, strict=True
        ):
            patch.setattr(module, name, size)
        patch.setattr("monogram.data.parquet.BATCH_ROWS", 3)
        same(read(path, **options, merge=merge, quiet=True), held)


@pytest.mark.parametrize("merge", ["sum", "binary"])
@pytest.mark.parametrize("ids", ["string", "integer"])
def test_many_rows_many_files(tmp_path, tiny, spills, merge, ids, write, same):
    rng = np.random.default_rng(5)
    size = 20_000
    users, items = rng.integers(0, 700, size) ** 2, rng.zipf(1.3, size) % 90
    columns = {
        "user": [f"u{x}" for x in users] if ids == "string" else users,
        "item": items,
        "w": rng.random(size, dtype=np.float32) * 10.0 ** rng.integers(-6, 9, size),
        "t": rng.integers(0, 10**6, size),
    }
    whole = pa.table(columns)
    for number in range(20):
        write(tmp_path / "log" / f"part={number % 3}" / f"{number}.parquet", whole.slice(number * 1000, 1000))
    held = read(write(tmp_path / "whole.parquet", whole), "user", "item", "w", "t", merge=merge)
    assert spills == []
    tiny(10_000, 8_000, 20_000, 100)
    same(read(tmp_path / "log", "user", "item", "w", "t", merge=merge), held)
    assert len(spills) > 10


def test_text_and_pairs_are_spilled_too(tmp_path, tiny, spills, monkeypatch, same):
    monkeypatch.setattr("monogram.data.files.CSV_BLOCK", 512)
    monkeypatch.setattr("monogram.data.frames._PAIRS", 50)
    pairs = [(n % 37, n * n % 11) for n in range(2000)]
    path = tmp_path / "log.csv"
    path.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs))
    held = read(path, quiet=True), read(pairs)
    tiny(800, 800)
    same(read(path, quiet=True), held[0])
    before = len(spills)
    same(read(pairs), held[1])
    assert 0 < before < len(spills)


def test_times_may_turn_to_floats_after_some_are_spilled(tmp_path, tiny, spills, write, same):
    times = [2**53 + 1, 5, 7, 8, 2.5, 1.0, 2.0**60, 9.5]
    users = list("aabbccaa")
    folder = tmp_path / "log"
    for number, (user, time) in enumerate(zip(users, times, strict=True)):
        write(folder / f"{number}.parquet", {"user": [user], "item": ["x"], "t": [time]})
    held = read(folder, time="t", quiet=True)
    tiny(16, 16)
    same(read(folder, time="t", quiet=True), held)
    assert len(spills) > 3
    assert held.times.tolist() == [5.0, 7.0, 1.0]


def test_ids_may_outgrow_their_type_after_some_are_spilled(tmp_path, tiny, spills, write, same):
    folder = tmp_path / "log"
    for number in range(5):
        write(folder / f"{number}.parquet", {"user": [number, 7, number * 9], "item": ["x", "y", "z"]})
    big = pa.array([2**64 - 1, 7, 2**63], pa.uint64())
    write(folder / "5.parquet", {"user": big, "item": ["x", "y", "z"]})
    held = read(folder, quiet=True)
    tiny()
    same(read(folder, quiet=True), held)
    assert list(held.users)[-2:] == [2**63, 2**64 - 1]
    assert len(spills) > 2
    write(folder / "6.parquet", {"user": [-1], "item": ["x"]})
    with pytest.raises(DataError, match="64-bit"):
        read(folder, quiet=True)


def test_bad_rows_are_counted_once_and_named(tmp_path, tiny, spills, write):
    folder = tmp_path / "log"
    for number in range(6):
        write(folder / f"{number}.parquet", {"user": ["a", None, "b"], "item": ["x", "y", "z"], "w": [1.0, 2.0, 0.0]})
    tiny(16, 16)
    log = read(folder, weight="w", on_error="skip", quiet=True)
    assert (log.skipped, log.n_events, log.n_users) == (6, 1, 1)
    assert "5 repeated rows merged (weights added)" in log.notes
    assert "6 rows with weight 0 left out" in log.notes
    write(folder / "0.parquet", {"user": ["a"] * 9, "item": list("abcdefghi"), "w": [1.0] * 9})
    with pytest.raises(DataError, match=r'1\.parquet, row 2, column "user": the id is missing'):
        read(folder, weight="w", quiet=True)
    assert spills


def test_sums_that_overflow_are_named(tmp_path, tiny, write):
    path = write(tmp_path / "a.parquet", {"user": ["a"] * 20, "item": ["x"] * 20, "w": [3e38] * 20})
    tiny()
    with pytest.raises(DataError, match="user 'a' and item 'x' is inf"):
        read(path, weight="w", quiet=True)


# -- the temporary file is deleted, however the reading ends -----------------------------------------------------


@pytest.fixture
def log(tmp_path, write):
    columns = {"user": [f"u{n % 50}" for n in range(600)], "item": [n % 7 for n in range(600)]}
    for number in range(6):
        write(tmp_path / "log" / f"{number}.parquet", pa.table(columns).slice(number * 100, 100))
    return tmp_path / "log"


def test_no_space_on_the_disk(log, tiny, monkeypatch):
    scratch = tiny()

    def full(self, left):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spill.SpillFile, "_put", full)
    words = rf"written to {scratch}: No space left on device \(up to 0\.\d MB are needed, .* are free\).*TMPDIR"
    with pytest.raises(StorageError, match=words):
        read(log, quiet=True)
    assert list(scratch.iterdir()) == []


def test_no_folder_for_spilled_rows(log, tiny, monkeypatch):
    scratch = tiny()
    monkeypatch.setenv("TMPDIR", str(scratch / "none"))
    with pytest.raises(StorageError, match=r"cannot be written to .*none: No such file or directory.*TMPDIR"):
        read(log, quiet=True)


def test_rows_that_cannot_be_read_back(log, tiny, monkeypatch):
    scratch = tiny()
    read_ = spill.SpillFile.read

    def cut(self, segment):
        self._file.truncate(segment.start + 1)
        return read_(self, segment)

    monkeypatch.setattr(spill.SpillFile, "read", cut)
    with pytest.raises(StorageError, match=rf"temporary file in {scratch} cannot be read: .*truncated.*TMPDIR"):
        read(log, quiet=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_real_full_disk(log, tiny, monkeypatch):
    tiny()
    full = lambda **_: Path("/dev/full").open("r+b", buffering=0)  # noqa: E731, SIM115
    monkeypatch.setattr(spill.tempfile, "TemporaryFile", full)
    with pytest.raises(StorageError, match="No space left on device"):
        read(log, quiet=True)


@pytest.mark.parametrize("stage", ["add", "_pairs"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_an_interrupted_read_leaves_nothing(log, tiny, monkeypatch, stage, error):
    scratch, files = tiny(), []
    begin = spill.SpillFile.__init__

    def remember(self, need):
        begin(self, need)
        files.append(self._file)

    def stop(*_):
        raise error

    monkeypatch.setattr(spill.SpillFile, "__init__", remember)
    monkeypatch.setattr(spill.Spill, stage, stop)
    with pytest.raises(error):
        read(log, quiet=True)
    assert [file.closed for file in files] == [True]
    assert list(scratch.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_leaves_nothing(log, tmp_path, number):
    (tmp_path / "scratch").mkdir()
    code = """
        import sys, time
        from monogram.data import gather, spill
        from monogram.data.readers import read
        gather.WHOLE = gather.BLOCK = 40
        add = spill.Spill.add
        def adding(self, rows):
            add(self, rows)
            print(self._file_of_rows.end, flush=True)
            time.sleep(60)
        spill.Spill.add = adding
        read(sys.argv[1], quiet=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(log)]
    settings = os.environ | {"TMPDIR": str(tmp_path / "scratch"), "PYTHONPATH": str(SRC)}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert int(process.stdout.readline()) > 0
        process.send_signal(number)
        assert process.wait(timeout=30) != 0
    assert list((tmp_path / "scratch").iterdir()) == []


def test_progress_of_both_stages(log, tiny, monkeypatch, capsys):
    tiny()
    monkeypatch.setattr(progress, "DELAY", -1.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    read(log, "user", "item")
    printed = capsys.readouterr().err
    assert "reading" in printed
    assert "merging" in printed


# -- memory ----------------------------------------------------------------------------------------------------

PEAK = """
    import sys
    from monogram.data import gather, spill
    from monogram.data.readers import read
    from monogram.engine.runtime.memory import Peak
    read(sys.argv[2], "user", "item", "w", "t")
    gather.WHOLE, gather.BLOCK, spill.SHARD_BYTES = int(sys.argv[3]), 2**22, 2**22
    with Peak() as peak:
        log = read(sys.argv[1], "user", "item", "w", "t")
    print(log.n_events, log.nbytes, peak.bytes)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is not measurable here")
def test_memory_follows_the_result_not_the_rows(tmp_path, write):
    rng = np.random.default_rng(1)
    size, files = 250_000, 20
    for number in range(files):
        users, items = rng.integers(0, 1000, size), rng.integers(0, 40, size)
        columns = {"user": users, "item": items, "w": rng.integers(1, 6, size), "t": rng.integers(0, 10**9, size)}
        write(tmp_path / "log" / f"{number}.parquet", columns)
    tiny = write(tmp_path / "tiny.parquet", {"user": [1], "item": [1], "w": [1], "t": [1]})
    code = textwrap.dedent(PEAK)
    peaks = []
    for whole in (2**22, 2**30):
        command = [sys.executable, "-c", code, str(tmp_path / "log"), str(tiny), str(whole)]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(SRC)}, capture_output=True, check=True)
        events, result, peak = map(int, done.stdout.split())
        assert events == 40_000
        peaks.append(peak - result)
    assert peaks[0] < 60e6
    assert peaks[1] > 100e6  # 20 bytes for each of 5 million rows
