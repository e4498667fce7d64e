"""The study of Tempered and TwoStep: the effect of user_power, item_power and a second step on six data sets.

For each data set the parameters of EDLAE, Tempered and TwoStep are searched on a validation part, one at a time, until
none of them gets better by a step. Then every user_power in steps of 1/8 is measured with every item_power in steps of
.05, on the validation part and on the test part. On large data sets the search uses a sample of the users, split in the
same way; then one more round of steps of each parameter uses all users. The results of every factorisation are cached
in --cache, so that an interrupted run resumes.

    python benchmarks/tempered.py --data DIR -o docs/study/numbers.md --cache FOLDER [--sets gowalla,ml-1m]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from searching import (
    ALPHAS,
    ASKED,
    CHOOSING,
    METRICS,
    POWERS,
    SAMPLE,
    SETS,
    Outcome,
    Point,
    against,
    command,
    examined,
    options,
)

import monogram as mg
from monogram import plots
from monogram.evaluation import statistics
from monogram.reports import writers
from monogram.reports.blocks import Block, Grid, Heading, Items, Picture, Text
from monogram.reproduce.cache import Cache


def shown(value: dict[str, Any], metric: int) -> str:
    return f"{value['mean'][metric]:.4f} [{value['low'][metric]:.4f}, {value['high'][metric]:.4f}]"


def in_words(point: Point, power: float) -> str:
    second = f", second {point.second:g}" if point.second else ""
    return f"α {point.user_power:g}, t {power:g}, l2 {point.l2:g}, dropout {point.dropout:g}{second}"


def lines(one: Outcome) -> Iterator[tuple[str, Point, float]]:
    """What the table tells of a data set."""
    for label, point in (("EDLAE", one.edlae), ("Tempered", one.tempered), ("TwoStep", one.two_step)):
        yield f"{label}, chosen on validation", point, 0.0
        if one.powers[point]:
            yield f"{label}, chosen on validation, t too", point, one.powers[point]
    for what, asked in (("Tempered, best α and t", [one.tempered, *one.grid]), ("TwoStep, best t", [one.two_step])):
        tried = [(point, power) for point in asked for power in POWERS]
        yield f"{what} on test", *max(tried, key=lambda pair: one.study.value("test", *pair))


def main_table(outcomes: list[Outcome]) -> Grid:
    rows = []
    for one in outcomes:
        baseline = np.array(one.study.measured("test", one.edlae)["by_user"])
        for label, point, t in lines(one):
            found = one.study.measured("test", point)
            value = found["values"][POWERS.index(t)]
            relative = value["mean"][CHOOSING] / baseline[:, CHOOSING].mean() - 1
            apart = f"{relative:+.1%}" if t or point != one.edlae else ""
            if t:
                by, low, high = found["apart"][POWERS.index(t)]
                apart += f" (against t 0: {by:+.1f}% [{low:+.1f}, {high:+.1f}])"
            elif point != one.edlae:
                difference = statistics.paired(np.array(found["by_user"])[:, CHOOSING], baseline[:, CHOOSING])
                apart += f" ({difference.value:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}])"
            ours, theirs = [shown(value, 0), shown(value, 1)], ["", ""]
            if "on test" in label:
                ours, theirs = theirs, ours
            rows.append([one.study.data.name, label, in_words(point, t), *ours, *theirs, apart])
    validation, test = (
        tuple(f"{metric}, {how}" for metric in METRICS) for how in ("chosen on validation", "best on test")
    )
    headers = ["data", "what", "setting", *validation, *test, "ndcg@20 against EDLAE's (paired)"]
    return Grid("On the test parts, with 95% intervals over users", headers, rows)


def costs(outcomes: list[Outcome]) -> Grid:
    rows = []
    for one in outcomes:
        log, points = one.study.data.test.train, one.study.points
        for name, wanted in (("Tempered", False), ("TwoStep", True)):
            chosen = [(part, found) for (part, point), found in points.items() if bool(point.second) == wanted]
            whole = [found for part, found in chosen if part != "sample" and found["fit"]]
            if not whole:
                continue
            sampled = sum(part == "sample" and bool(found["fit"]) for part, found in chosen)
            fits, ranked = ([found[what] for found in whole] for what in ("fit", "ranked"))
            solvers = ", ".join(sorted({found["solver"] for found in whole}))
            size = f"{log.n_users:,} × {log.n_items:,}, {log.n_events:,}"
            rows.append([
                one.study.data.name, size, name, solvers, str(len(whole)), str(sampled),
                f"{np.median(fits):.1f}", f"{max(found['peak'] or 0 for found in whole) / 1e9:.2f}",
                f"{np.median(ranked):.1f}",
            ])  # fmt: skip
    totals = [str(sum(int(row[at]) for row in rows)) for at in (4, 5)]
    rows.append(["all", "", "", "", *totals, "", "", ""])
    headers = [
        "data", "users × items, events of train", "model", "solver", "factorisations", "on a sample", "seconds a fit",
        "peak GB", "seconds to rank",
    ]  # fmt: skip
    return Grid("What it cost", headers, rows, frozenset({4, 5, 6, 7, 8}))


def shifts(outcomes: list[Outcome]) -> Grid:
    rows = []
    for one in outcomes:
        found = {
            part: mg.shift(split)
            for part, split in (("validation", one.study.data.validation), ("test", one.study.data.test))
        }
        for part, shift in found.items():
            ends = [f"{shift.deciles[at]['ratio']:.2f}" for at in (0, 4, 9)]
            rows.append([one.study.data.name, part, f"{shift.dispersion:.2f} ± {shift.spread:.2f}", *ends])
    headers = ["data", "part", "dispersion (random cut: 1)", "least popular decile", "fifth", "most popular"]
    return Grid("Whether the parts are random cuts", headers, rows, frozenset({2, 3, 4, 5}))


def pictures(one: Outcome) -> Iterator[Picture]:
    """The change against the power 0, so that both parts have one scale; the intervals are paired."""
    name, study, shown_as = one.study.data.name, one.study, f"change of {METRICS[1]}, %"
    curves: dict[str, list[dict[str, Any]]] = {"user_power": [], "item_power": []}
    for part in ("test", "validation"):
        by_user = [study.measured(part, point)["by_user"] for point in one.grid]
        ends = [("user_power", alpha, against(row, by_user[0])) for alpha, row in zip(ALPHAS, by_user, strict=True)]
        held = study.measured(part, one.tempered)["apart"]
        ends += [("item_power", power, row) for power, row in zip(POWERS, held, strict=True)]
        for axis, at, (value, low, high) in ends:
            curves[axis].append({axis: at, shown_as: value, "low": low, "high": high, "model": f"{part} part"})
    for axis, rows in curves.items():
        figure = plots.against(rows, shown_as, x=axis, title=name)
        yield Picture(f"{name}-{axis}", f"Change of {METRICS[1]} of {name} against {axis}", plots.picture(figure))


def report(outcomes: list[Outcome], made_by: str) -> list[Block]:
    sampled = [one.study.data.name for one in outcomes if one.study.data.searched_on == "sample"]
    coarse = [one.study.data.name for one in outcomes if one.study.data.alphas != ALPHAS]
    blocks: list[Block] = [
        Heading(1, f"Tempered and TwoStep on {len(outcomes)} data sets: the numbers"),
        Text("Made with this command:"), Text(made_by, code=True),
        Text(
            "α is user_power: a user of |I| events weighs |I|^(−α). t is item_power: scores are multiplied by "
            "popularity to the power t. Settings are chosen by ndcg@20 on a validation part, one parameter at a time; "
            "t only where both parts are cut by the order of each user's events, since a random cut cannot see "
            "popularity shift. What is best on the test part itself is what many papers report: it is no result, and "
            "shows what is left to gain. The best α is sought at the l2 and dropout of the search."
        ),
    ]  # fmt: skip
    if sampled:
        text = f"On {', '.join(sampled)} the search was on {SAMPLE:,} users, cut in the same way"
        blocks.append(Text(f"{text}; then every parameter of each model was walked once more on all of them."))
    if coarse:
        text = f"On {', '.join(coarse)} the α of TwoStep was searched in steps of 1/4, and the validation part"
        blocks.append(Text(f"{text} asks about {ASKED:,} users; all are learned from."))
    blocks += [
        main_table(outcomes), Heading(2, "Seconds, memory, factorisations"), costs(outcomes),
        Heading(2, "Are the parts random cuts?"),
        Text(
            "The dispersion of the items' shares of the held-back events (see mg.shift), and how often items of the "
            "least, of middle and of the greatest popularity are held back, relative to a random cut."
        ),
        shifts(outcomes), Heading(2, "Against the powers"),
        Text(
            "The change of ndcg@20 against the power 0, in per cent of it, with paired 95% intervals over users: "
            "user_power at t = 0, at the l2 and dropout of the search (on the sample, where there is one); item_power "
            "at what was chosen."
        ),
        Items([f"{one.study.data.name}: {one.study.data.about}" for one in outcomes]),
    ]  # fmt: skip
    for one in outcomes:
        blocks += [Heading(3, one.study.data.name), *pictures(one)]
    return blocks


def main() -> None:
    given = options(__doc__, SETS)
    outcomes = [examined(SETS[name](given.data / f"{name}.npz"), Cache(given.cache)) for name in given.sets]
    for path in writers.write(report(outcomes, command("tempered.py", given)), given.output):
        print(path)


if __name__ == "__main__":
    main()
