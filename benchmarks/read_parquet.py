"""Reading a large Parquet log: seconds, rows per second, and memory in addition to the result.

    PYTHONPATH=src python benchmarks/read_parquet.py [--rows 10000000] [--ids string|integer] [--weights]
                                                      [--users 500000] [--items 100000]

The log is written by one process and read by another, so that only reading is measured: the peak resident
size (VmHWM) minus the resident size after imports and a small warm-up read, compared with the bytes of the result.
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

GROUP, LIMIT = 1_000_000, 3.0


def skewed(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Indices below n, few of them often and most of them seldom."""
    return np.minimum((n ** rng.random(size) - 1) * n / (n - 1), n - 1).astype(np.int64)


def names(prefix: str, codes: np.ndarray, ids: str) -> pa.Array:
    if ids == "integer":
        return pa.array(codes * 7 + 1_000)
    return pa.array(np.char.add(prefix, codes.astype("U8")).tolist(), pa.string())


def write(path: Path, rows: int, ids: str, n_users: int, n_items: int) -> None:
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(n_users)
    schema = pa.schema([("customer", type_of(ids)), ("sku", type_of(ids)), ("amount", pa.float32())])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, rows, GROUP):
            size = min(GROUP, rows - start)
            users = shuffled[(n_users * rng.random(size) ** 2).astype(np.int64)]
            items = skewed(rng, n_items, size)
            amounts = rng.integers(1, 6, size).astype(np.float32)
            columns = [names("customer-", users, ids), names("sku-", items, ids), pa.array(amounts)]
            file.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)


def type_of(ids: str) -> pa.DataType:
    return pa.int64() if ids == "integer" else pa.string()


def status(key: str) -> int:
    """Bytes the kernel reports for this process."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(key + ":"))
    return int(line.split()[1]) * 1024


def measure(path: Path, weights: bool) -> None:
    from monogram.data.readers import read

    tiny = path.with_name("tiny.parquet")
    pq.write_table(pa.table({"customer": ["a", "b"], "sku": ["x", "y"], "amount": [1.0, 2.0]}), tiny)
    weight = "amount" if weights else None
    read(tiny, "customer", "sku", weight, quiet=True)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before, begun = status("VmRSS"), time.perf_counter()
    log = read(path, "customer", "sku", weight, quiet=True)
    seconds = time.perf_counter() - begun
    extra, rows = status("VmHWM") - before, pq.read_metadata(path).num_rows
    print(log)
    print(f"seconds {seconds:.2f}   rows/s {rows / seconds:,.0f}")
    print(f"result {log.nbytes / 2**20:.1f} MiB   peak extra {extra / 2**20:.1f} MiB")
    print(f"ratio {extra / log.nbytes:.2f} (must be below {LIMIT})")
    sys.exit(extra >= LIMIT * log.nbytes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ids", choices=("string", "integer"), default="string")
    parser.add_argument("--weights", action="store_true")
    parser.add_argument("--users", type=int, default=500_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--step", choices=("write", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step == "write":
        write(given.file, given.rows, given.ids, given.users, given.items)
    elif given.step == "measure":
        measure(given.file, given.weights)
    else:
        return together(sys.argv[1:])
    return 0


def together(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *arguments, "--file", str(Path(folder) / "log.parquet")]
        subprocess.run([*command, "--step", "write"], check=True)
        return subprocess.run([*command, "--step", "measure"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
