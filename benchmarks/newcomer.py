"""Benchmarks of the first steps of a new user: demo, help, a large CSV, an evaluation of five models.

    .venv/bin/python benchmarks/newcomer.py [start] [csv] [evaluate]

Each measurement runs in a separate process. MONOGRAM_DATA is the folder with gowalla.npz.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

ROWS, USERS, ITEMS = 10_000_000, 500_000, 100_000
READ = """
import sys, time
import monogram as mg
def status(key):
    return int(open("/proc/self/status").read().split(key + ":")[1].split()[0]) * 1024
mg.read([("a", "x"), ("b", "y")])
before, start = status("VmRSS"), time.perf_counter()
log = mg.read(sys.argv[1], quiet=True)
print(time.perf_counter() - start, status("VmHWM") - before, log.nbytes, log.n_events)
"""


def measured(command):
    """Seconds a process took, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stderr}")
    return time.perf_counter() - start, done.stdout


def show_start():
    monogram = [sys.executable, "-m", "monogram"]
    for name, arguments in (("demo", ["demo"]), ("--help", ["--help"]), ("fit --help", ["fit", "--help"])):
        best = min(measured([*monogram, *arguments])[0] for _ in range(3))
        print(f"| monogram {name} | {best:.2f} s |", flush=True)


def show_csv():
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.csv"
        schema = pa.schema([("user", pa.string()), ("item", pa.string()), ("stars", pa.int8())])
        with pyarrow.csv.CSVWriter(path, schema) as writer:
            for _ in range(10):
                number = ROWS // 10
                users = np.char.add("customer-", rng.integers(0, USERS, number).astype("U7"))
                items = np.char.add("sku-", (ITEMS * rng.random(number) ** 3).astype(int).astype("U7"))
                stars = pa.array(rng.integers(1, 6, number).astype(np.int8))
                writer.write_table(pa.table([pa.array(users.tolist()), pa.array(items.tolist()), stars], schema=schema))
        size = path.stat().st_size
        _, out = measured([sys.executable, "-c", READ, str(path)])
    seconds, peak, result, events = (float(one) for one in out.split())
    print(
        f"| CSV of {ROWS:,} rows, {size / 1e6:.0f} MB | {seconds:.1f} s, {ROWS / seconds / 1e6:.2f} M rows/s |", end=""
    )
    print(f" peak {peak / 1e6:.0f} MB above start, {peak / result:.2f} × the result; {events:,.0f} pairs |")


def show_evaluate():
    folder = Path(os.environ.get("MONOGRAM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / "gowalla.npz"
    if not path.exists():
        sys.exit("gowalla.npz was not found: set MONOGRAM_DATA to the folder that holds it")
    arguments = ["evaluate", str(path), "--protocol", "public", "--model", "ease,dlae,edlae,deql", "--l2", "80"]
    command = [sys.executable, "-m", "monogram", *arguments, "--dropout", "0.8", "--b", "0.1"]
    start, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        while process.poll() is None:  # a fit starts the process's own high-water mark anew: look from outside
            text = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(text.split("VmRSS:")[1].split()[0]) * 1024 if "VmRSS:" in text else 0)
            time.sleep(0.1)
        out.seek(0)
        print(out.read())
    print(
        f"| evaluate, full Gowalla, 5 models | {time.perf_counter() - start:.0f} s | process peak {peak / 1e9:.2f} GB |"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ["start", "csv", "evaluate"]:
        globals()[f"show_{name}"]()
