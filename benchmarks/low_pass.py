"""What the low-pass part of TwoStep is worth beside its two steps, at the settings that the study found for them.

Its weight and rank are chosen by ndcg@20 on the validation part of the study; the best is then measured on the test
part, once, beside TwoStep without it. One factorisation and one spectrum serve all of a part.

    python benchmarks/low_pass.py --data DIR [--sets gowalla,yelp2018]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from searching import CHOOSING, METRICS, SETS, Set

import monogram as mg
from monogram.data.splits import Split
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure_heads
from monogram.weights import Twice

STUDY: dict[str, dict[str, float]] = {  # docs/study/numbers.md
    "gowalla": {"user_power": 0.5, "l2": 20, "dropout": 0.3, "second": 0.9},
    "yelp2018": {"user_power": 0.5, "l2": 40, "dropout": 0.1, "second": 0.9},
    "ml-1m": {"user_power": 0.75, "l2": 80, "dropout": 0.2, "second": 0.8},
    "lastfm-2k": {"user_power": 0, "l2": 20, "dropout": 0, "second": 1},
    "citeulike-a": {"user_power": 0.25, "l2": 10, "dropout": 0.2, "second": 0.8},
    "amazon-video-games": {"user_power": 0.375, "l2": 80, "dropout": 0, "second": 0.7},
}
RANKS = (128, 256, 512)
WEIGHTS = (0.1, 0.2, 0.4, 0.8)
Choice = tuple[float, int]  # low_pass, rank


class Part:
    """A part of a data set, with the model fitted to it once."""

    def __init__(self, name: str, split: Split) -> None:
        start = time.perf_counter()
        model = mg.TwoStep(**STUDY[name], low_pass=1, rank=max(RANKS)).fit(split.train, solver="dual")
        seconds, report = time.perf_counter() - start, model.report_
        print(f"  fit {seconds:.0f} s ({report.seconds.get('spectrum', 0):.0f} s the spectrum)", end="")
        print(f", {(report.peak_bytes or 0) / 1e9:.2f} GB, error {report.error:.0e}", flush=True)
        self.split, self.weights = split, model.weights_

    def by_user(self, choice: Choice) -> Any:
        """The metrics of each user; the leading directions of the fit are those of a lower rank."""
        low_pass, rank = choice
        held: Any = self.weights
        basis = np.sqrt(low_pass) * held.basis[:, :rank] if low_pass else None
        one = Twice(held.first, held.share, held.factors, basis)
        asked, theta = tuple(metrics.parse(each) for each in METRICS), np.ones((1, self.split.train.n_items))
        start = time.perf_counter()
        found, _ = measure_heads(one, theta, self.split.train, self.split, asked, 2)[0]
        recall, ndcg = found.mean(0)
        seconds = time.perf_counter() - start
        print(f"  low_pass {low_pass:g}, rank {rank}: {recall:.4f} {ndcg:.4f} ({seconds:.0f} s)", flush=True)
        return found


def measured(data: Set) -> None:
    print(f"{data.name}, validation part")
    choices: list[Choice] = [(0.0, 0), *((weight, rank) for rank in RANKS for weight in WEIGHTS)]
    part = Part(data.name, data.validation)
    best = max(choices, key=lambda choice: float(part.by_user(choice)[:, CHOOSING].mean()))
    del part  # its memory
    print(f"{data.name}, test part, with the best of them")
    part = Part(data.name, data.test)
    without, found = part.by_user((0.0, 0)), part.by_user(best)
    for at, metric in enumerate(METRICS):
        apart = statistics.paired(found[:, at], without[:, at])
        print(f"  {metric}: {apart.value:+.4f} [{apart.low:+.4f}, {apart.high:+.4f}] against none")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    options.add_argument("--sets", default=",".join(STUDY), help="names, with commas")
    given = options.parse_args()
    names = given.sets.split(",")
    if unknown := set(names) - set(STUDY):
        options.error(f"--sets: {', '.join(sorted(unknown))} is not among {', '.join(STUDY)}")
    for name in names:
        measured(SETS[name](given.data / f"{name}.npz"))


if __name__ == "__main__":
    main()
