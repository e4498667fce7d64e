"""`monogram demo`: plan, fit, evaluate, recommend and explain on the embedded sample."""

from __future__ import annotations

import time
from typing import Any

from monogram.cli import output
from monogram.cli.output import print_json
from monogram.cli.shared_options import Json

NEXT = """  monogram fit events.csv -o shop.mono --model deql --l2 100
  monogram recommend shop.mono --user ann -k 10
  monogram evaluate events.csv --model ease,edlae,deql --protocol holdout"""


def command(json: Json = False) -> None:
    """A tour on the embedded sample, in a few seconds."""
    import monogram as mg
    from monogram.models.registry import MODELS

    console = output.console(stderr=json)
    start = time.perf_counter()
    log = mg.sample()
    console.print(f"[bold]Log[/]  {log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    console.print("\n[bold]Plan[/] of a fit of EASE, before anything is allocated")
    console.print(str(mg.EASE().plan(log)), markup=False)

    kinds = {name: kind for name, kind in MODELS.items() if not kind.needs_torch}
    console.print(f"\n[bold]{len(kinds)} models[/] fitted on 80% of each user's events")
    train, test = mg.splits.holdout(log)
    models = {name: kind().fit(train) for name, kind in kinds.items()}
    table = _table("model", "solver", "seconds", "residual")
    for model in models.values():
        report = model.report_
        residual = "" if report.residual is None else f"{report.residual:.0e}"
        table.add_row(repr(model), report.solver, f"{sum(report.seconds.values()):.2f}", residual)
    console.print(table)

    console.print("\n[bold]Evaluation[/] on the 20% held out: full ranking, mean [95% interval]")
    result = mg.evaluate(models, test)
    console.print(repr(result), markup=False)
    gap = result.compare("deql", "ease")
    console.print(f"deql − ease, same users: {gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]", markup=False)

    _one_user(console, models["deql"], log.users[7])
    console.print(f"\nTotal time {time.perf_counter() - start:.1f} s. Next, your own log:")
    console.print(NEXT, markup=False)
    if json:
        lists = models["deql"].recommend([log.users[7]], k=5)
        print_json({"evaluation": result.rows(), "recommendations": lists.rows()})


def _one_user(console: Any, model: Any, user: Any) -> None:
    """A history, its recommendations, and their explanations."""
    from monogram.data.sample import genres

    genre_of, history = genres(), model.history(user)
    console.print(f"\n[bold]One user[/], {user}, with a history of {len(history)} items")
    for item in history:
        console.print(f"  {item} ({genre_of[item]})", markup=False)
    console.print("\n[bold]Recommendations[/], each with its explanation")
    table = _table("rank", "item", "score", "mostly because of")
    for row in model.recommend([user], k=5).rows():
        reasons = model.explain(history, row["item"]).rows()[:2]
        because = ", ".join(f"{reason['item']} ({reason['share']:+.3f})" for reason in reasons)
        table.add_row(str(row["rank"]), row["item"], f"{row['score']:.3f}", because)
    console.print(table)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in ("rank", "seconds", "residual", "score") else "left")
    return table
