"""How long a short command takes, beside the imports that it cannot avoid.

    .venv/bin/python benchmarks/start.py [--rounds 10] [--before FOLDER]

Each measurement is a new process; the rounds alternate between the commands, and the best of all rounds counts. CPU
seconds are user and system time, which vary less on a busy machine. FOLDER is the `src` of another version of Monogram,
whose commands are measured in the same rounds; --python names another interpreter for them. The model files are fitted
by this version on the sample.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import monogram as mg

REFERENCE = ["-c", "import numpy, scipy.sparse"]
MODELS = {
    "dense": (mg.EASE(l2=100), {"solver": "primal"}),
    "sparse": (mg.ItemKNN(), {}),
    "dual": (mg.EASE(l2=100), {"solver": "dual"}),
    "factors": (mg.RegularizedPCA(rank=16), {}),
    "fold_in": (mg.WRMF(rank=16), {}),
}


def fitted(folder: Path) -> dict[str, list[str]]:
    """The command `recommend` for a model of each kind of weights."""
    log, commands = mg.sample(), {}
    for kind, (model, options) in MODELS.items():
        path = folder / f"{kind}.mono"
        model.fit(log, **options).save(path)
        commands[f"recommend --user, {kind}"] = ["-m", "monogram", "recommend", str(path), "--user", str(log.users[0])]
    return commands


def seconds(python: str, source: str | None, arguments: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": source}
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, *arguments], env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--before", metavar="FOLDER")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    versions = {"now": (sys.executable, None)}
    if options.before or options.python != sys.executable:
        versions = {"before": (options.python, options.before)} | versions
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "import monogram": ["-c", "import monogram"],
            "--help": ["-m", "monogram", "--help"],
            "recommend --help": ["-m", "monogram", "recommend", "--help"],
            "fit --help": ["-m", "monogram", "fit", "--help"],
        } | fitted(Path(folder))
        runs = {("reference", ""): (sys.executable, None, REFERENCE)}
        runs |= {(name, version): (*place, arguments) for name, arguments in commands.items()
                 for version, place in versions.items()}  # fmt: skip
        best = dict.fromkeys(runs, (float("inf"), float("inf")))
        for run in runs.values():  # once without measuring: files in memory, kernels in their cache
            seconds(*run)
        for _ in range(options.rounds):
            for key, run in runs.items():
                best[key] = tuple(map(min, best[key], seconds(*run)))
    reference = best["reference", ""]
    print("| command | version | wall s | CPU s | CPU, times the reference |\n|---|---|---:|---:|---:|")
    for (name, version), (wall, cpu) in best.items():
        shown = f"python {REFERENCE[0]} '{REFERENCE[1]}'" if name == "reference" else name
        print(f"| {shown} | {version} | {wall:.3f} | {cpu:.3f} | {cpu / reference[1]:.2f} |")


if __name__ == "__main__":
    main()
