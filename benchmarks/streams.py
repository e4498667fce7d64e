"""A log larger than memory: seconds, events per second, and peak memory in addition to the result.

    PYTHONPATH=src python benchmarks/streams.py [--events 5000000] [--users 1000000] [--items 200000]
                                                 [--files 20] [--ids integer|string] [--weights] [--keep FOLDER]

A folder of Parquet files is written by one process (users and items by a power law) and read by another. The
recorded run is `--events 200000000 --files 200`. The peak is that of the resident size (VmHWM), minus the resident
size after imports and a small warm-up read. Rows beyond the limit of memory are written to a temporary file in TMPDIR.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 1_000_000


def zipf(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Indices below n, the k-th about as often as 1/k."""
    return np.minimum(np.exp(rng.random(size) * np.log(n + 1)) - 1, n - 1).astype(np.int64)


def names(prefix: str, codes: np.ndarray, ids: str) -> pa.Array:
    return pa.array(codes) if ids == "integer" else pa.array(np.char.add(prefix, codes.astype("U9")).tolist())


def write(folder: Path, given: argparse.Namespace) -> None:
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(given.users)
    cuts = np.linspace(0, given.events, given.files + 1).astype(np.int64)
    for number, rows in enumerate(np.diff(cuts)):
        tables = []
        for size in (min(GROUP, rows - start) for start in range(0, rows, GROUP)):
            users, items = shuffled[zipf(rng, given.users, size)], zipf(rng, given.items, size)
            columns = {"user": names("user-", users, given.ids), "item": names("item-", items, given.ids)}
            tables.append(pa.table({**columns, "weight": rng.integers(1, 6, size).astype(np.float32)}))
        pq.write_table(pa.concat_tables(tables), folder / f"{number:05}.parquet", row_group_size=GROUP)


def status(key: str) -> int:
    """Bytes the kernel reports for this process."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key + ":"))
    return int(line.split()[1]) * 1024


def measure(folder: Path, given: argparse.Namespace) -> None:
    from monogram.data import gather
    from monogram.data.readers import read

    with tempfile.TemporaryDirectory() as other:
        pq.write_table(pa.table({"user": ["a"], "item": ["x"], "weight": [1.0]}), Path(other) / "tiny.parquet")
        read(other, "user", "item", "weight", quiet=True)
    if given.whole is not None:
        gather.WHOLE = given.whole
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before, begun = status("VmRSS"), time.perf_counter()
    log = read(folder, "user", "item", "weight" if given.weights else None, quiet=True)
    seconds, extra = time.perf_counter() - begun, status("VmHWM") - before
    print(log)
    print(f"seconds {seconds:.1f}   events/s {given.events / seconds:,.0f}")
    beside = extra - log.nbytes
    print(f"result {log.nbytes / 1e6:,.0f} MB   peak {extra / 1e6:,.0f} MB   beside the result {beside / 1e6:,.0f} MB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--ids", choices=("integer", "string"), default="integer")
    parser.add_argument("--weights", action="store_true")
    parser.add_argument("--whole", type=int, help="bytes of rows held in memory before any is put aside")
    parser.add_argument("--keep", type=Path, help="write the log here, or read the one that is here")
    parser.add_argument("--step", choices=("write", "measure"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        {"write": write, "measure": measure}[given.step](given.keep, given)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return together(given.keep or Path(folder), sys.argv[1:])


def together(folder: Path, arguments: list[str]) -> int:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, *arguments, "--keep", str(folder)]
    if not any(folder.iterdir()):
        subprocess.run([*command, "--step", "write"], check=True)
    return subprocess.run([*command, "--step", "measure"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
