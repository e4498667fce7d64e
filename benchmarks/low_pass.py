"""The effect of the low-pass filter of TwoStep, starting from the settings of the study in tempered.py.

Weight and rank of the filter are chosen by ndcg@20 on the validation part of the study, together with `second` (from
0.3 below the study's value to 0.1 above) and, on small data sets, l2 (the study's value, its half and its double);
item_power only where both parts are split by the order of events. Then the choice is measured on the test part, once,
and compared with TwoStep at the study's setting. All choices of one l2 are ranked from one factorisation. The results
of a data set are cached in --cache.

    python benchmarks/low_pass.py --data DIR -o docs/study/low_pass.md --cache FOLDER [--sets gowalla,yelp2018]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from searching import CHOOSING, LARGE, METRICS, POWERS, RESAMPLES, SETS, Point, Set, command, options

import monogram as mg
from monogram.data.splits import Split
from monogram.engine.gram import user_weights
from monogram.evaluation import metrics, statistics
from monogram.evaluation.protocol import measure
from monogram.models.context import FitOptions
from monogram.models.inverse import item_counts
from monogram.models.two_step import directions
from monogram.reports import writers
from monogram.reports.blocks import Block, Grid, Heading, Text
from monogram.reproduce.cache import Cache
from monogram.weights import Mixture, Mixtures

RANKS = (128, 256, 512)
WEIGHTS = (0.1, 0.2, 0.4, 0.8, 1.6)
SECONDS = (0, -0.1, -0.2, -0.3, 0.1)  # from the study's
L2 = (1, 0.5, 2)  # times the study's
THREADS = 2


@dataclass(frozen=True)
class Choice(Point):
    """A setting of TwoStep with a low-pass part."""

    low_pass: float = 0.0
    rank: int = 0
    item_power: float = 0.0

    @property
    def step(self) -> dict[str, float]:
        """What its factorisation depends on."""
        return {"user_power": self.user_power, "l2": self.l2, "dropout": self.dropout}

    def __str__(self) -> str:
        low = f", low_pass {self.low_pass:g}, rank {self.rank}" if self.low_pass else ""
        power = f", t {self.item_power:g}" if self.item_power else ""
        return f"α {self.user_power:g}, l2 {self.l2:g}, dropout {self.dropout:g}, second {self.second:g}{low}{power}"


STUDY = {  # docs/study/numbers.md
    "gowalla": Choice(0.5, 20, 0.3, 0.9),
    "yelp2018": Choice(0.5, 40, 0.1, 0.9),
    "ml-1m": Choice(0.75, 80, 0.2, 0.8),
    "amazon-video-games": Choice(0.375, 80, 0, 0.7),
    "lastfm-2k": Choice(0, 20, 0, 1),
    "citeulike-a": Choice(0.25, 10, 0.2, 0.8),
}


class Part:
    """A part of a data set, with the directions of its log, and the first step that was fitted last."""

    def __init__(self, solver: str, split: Split) -> None:
        self.solver, self.split = solver, split
        self.vectors = directions(split.train, max(RANKS), FitOptions(threads=THREADS))
        self._held: tuple[Any, Any] = None, None

    def by_user(self, choices: list[Choice]) -> list[Any]:
        """The metrics of each user by choices of one factorisation."""
        log, held = self.split.train, self._first(choices[0])
        counts = item_counts(log.matrix)
        mixtures = [
            Mixture(one.second, one.low_pass, one.rank, user_weights.popularity(counts, one.item_power)[None])
            for one in choices
        ]
        asked = tuple(metrics.parse(each) for each in METRICS)
        found = measure(
            lambda rows, rules, k: held.heads(mixtures, rows, rules, k, THREADS), log, self.split, asked, len(choices)
        )
        for one, (values, _) in zip(choices, found, strict=True):
            recall, ndcg = values.mean(0)
            print(f"  {one}: {recall:.4f} {ndcg:.4f}", flush=True)
        return [values for values, _ in found]

    def _first(self, choice: Choice) -> Mixtures:
        if self._held[0] != choice.step:
            self._held = None, None  # its memory
            weights: Any = mg.Tempered(**choice.step).fit(self.split.train, solver=self.solver).weights_
            self._held = choice.step, Mixtures(weights, self.vectors)
        found: Mixtures = self._held[1]
        return found


def tried(part: Part, choices: list[Choice]) -> dict[Choice, Any]:
    """The metrics of each user by choices, those of one factorisation together."""
    found: dict[Choice, Any] = {}
    for _, group in groupby(choices, key=lambda one: one.step):
        alike = list(group)
        found |= dict(zip(alike, part.by_user(alike), strict=True))
    return found


def grid(data: Set) -> list[Choice]:
    """What is chosen from; the first is the study's."""
    start = STUDY[data.name]
    low = [(0.0, 0), *((weight, rank) for rank in RANKS for weight in WEIGHTS)]
    seconds = [round(start.second + by, 1) for by in SECONDS if start.second + by < 1.05]
    return [
        replace(start, l2=start.l2 * by, second=second, low_pass=weight, rank=rank)
        for by in (L2 if data.side <= LARGE else L2[:1])
        for second in seconds
        for weight, rank in low
    ]


def examined(data: Set, cache: Cache) -> dict[str, Any]:
    """What was chosen on the validation part, and what it is worth on the test part."""
    source = {"study": "low_pass", "data": data.name, "choices": [str(one) for one in grid(data)]}
    kept = cache.get(source)
    if kept is not None:
        return kept
    print(f"{data.name}, validation part", flush=True)
    part, start = Part(data.solver, data.validation), STUDY[data.name]
    value = {one: float(found[:, CHOOSING].mean()) for one, found in tried(part, grid(data)).items()}
    pairs = [(start, max(value, key=lambda one: value[one]))]
    if data.by_time:
        moved = {one: _with_power(part, one, value) for one in dict.fromkeys(pairs[0])}
        pairs.append((moved[pairs[0][0]], moved[pairs[0][1]]))
    del part  # its memory
    print(f"{data.name}, test part", flush=True)
    part = Part(data.solver, data.test)
    found = tried(part, sorted({one for pair in pairs for one in pair}, key=lambda one: one.l2))
    rows = [row for pair in pairs for row in _rows(pair, value, found)]
    kept = {"rows": rows}
    cache.put(source, kept)
    return kept


def _with_power(part: Part, choice: Choice, value: dict[Choice, float]) -> Choice:
    """The choice with the best power of popularity; what was measured is noted."""
    found = tried(part, [replace(choice, item_power=power) for power in POWERS])
    value |= {one: float(by_user[:, CHOOSING].mean()) for one, by_user in found.items()}
    return max(found, key=lambda one: value[one])


def _rows(pair: tuple[Choice, Choice], value: dict[Choice, float], found: dict[Choice, Any]) -> list[dict[str, Any]]:
    """Of the study's setting, and of one with a low-pass part beside it."""
    rows = []
    for one in pair:
        low, high = statistics.interval(statistics.bootstrap(found[one], resamples=RESAMPLES))
        ends = list(zip(found[one].mean(0).tolist(), low.tolist(), high.tolist(), strict=True))
        rows.append({"setting": str(one), "validation": value[one], "test": ends})
    apart = [statistics.paired(found[pair[1]][:, at], found[pair[0]][:, at]) for at in range(len(METRICS))]
    rows[1]["apart"] = [(one.value, one.low, one.high) for one in apart]
    return rows


def report(found: dict[str, dict[str, Any]], made_by: str) -> list[Block]:
    numbers = []
    for name, one in found.items():
        for above, row in zip([None, *one["rows"]], one["rows"], strict=False):
            if above and row["setting"] == above["setting"]:
                numbers.append([name, "no other: the same is the best on validation", *[""] * 5])
                continue
            ends = [f"{value:.4f} [{low:.4f}, {high:.4f}]" for value, low, high in row["test"]]
            apart = [f"{value:+.4f} [{low:+.4f}, {high:+.4f}]" for value, low, high in row.get("apart", [])]
            numbers.append([name, row["setting"], f"{row['validation']:.4f}", *ends, *(apart or ["", ""])])
    recall, ndcg = METRICS
    headers = [
        "data", "setting", f"{ndcg}, validation", f"{recall}, test", f"{ndcg}, test",
        f"{recall}, against the row above (paired)", f"{ndcg}, against the row above (paired)",
    ]  # fmt: skip
    return [
        Heading(1, f"A low-pass part beside two steps on {len(found)} data sets: the numbers"),
        Text("Made with this command:"), Text(made_by, code=True),
        Text(
            f"Of each pair of rows the first is TwoStep with the setting of the study; the second is the best by "
            f"{ndcg} on the validation part of: second from three tenths below the study's to a tenth above; low_pass "
            f"0, {', '.join(f'{one:g}' for one in WEIGHTS)}; rank {', '.join(map(str, RANKS))}; with at most {LARGE:,} "
            "users or items l2 that of the study, half of it and twice of it. This run read the test part for these "
            "rows alone. t is item_power: where both parts are cut by the order of each user's events it is chosen on "
            "validation, too, in a second pair."
        ),
        Grid("With 95% intervals over users", headers, numbers, frozenset({2})),
    ]  # fmt: skip


def main() -> None:
    given = options(__doc__, STUDY)
    found = {name: examined(SETS[name](given.data / f"{name}.npz"), Cache(given.cache)) for name in given.sets}
    for path in writers.write(report(found, command("low_pass.py", given)), given.output):
        print(path)


if __name__ == "__main__":
    main()
