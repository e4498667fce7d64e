"""`monogram demo`: the whole way on the embedded sample."""

from __future__ import annotations

import time
from typing import Any

from monogram.cli import common
from monogram.cli.common import Json, answer

NEXT = """  monogram fit events.csv -o shop.mono --model deql --l2 100
  monogram recommend shop.mono --user ann -k 10
  monogram evaluate events.csv --model ease,edlae,deql --protocol holdout"""


def command(json: Json = False) -> None:
    """The whole way on the embedded sample, in a few seconds."""
    import monogram as mg
    from monogram.models.registry import MODELS

    screen = common.screen(stderr=json)
    start = time.perf_counter()
    log = mg.sample()
    screen.print(f"[bold]A log[/]  {log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    screen.print("\n[bold]A plan[/] for EASE, before anything is allocated")
    screen.print(str(mg.EASE().plan(log)), markup=False)

    screen.print("\n[bold]Five models[/] on 80% of each user's events, one factorisation each")
    train, test = mg.splits.holdout(log)
    models = {name: kind().fit(train) for name, kind in MODELS.items()}
    table = _table("model", "solver", "seconds", "residual")
    for model in models.values():
        report = model.report_
        residual = "" if report.residual is None else f"{report.residual:.0e}"
        table.add_row(repr(model), report.solver, f"{sum(report.seconds.values()):.2f}", residual)
    screen.print(table)

    screen.print("\n[bold]Measured[/] on the 20% held back: full ranking, mean [95% interval]")
    result = mg.evaluate(models, test)
    screen.print(repr(result), markup=False)
    gap = result.compare("deql", "ease")
    screen.print(f"deql − ease, same users: {gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]", markup=False)

    _one_user(screen, models["deql"], log.users[7])
    screen.print(f"\nAll of it took {time.perf_counter() - start:.1f} s. Next, your own log:")
    screen.print(NEXT, markup=False)
    if json:
        answer({"evaluation": result.rows(), "recommendations": models["deql"].recommend([log.users[7]], k=5).rows()})


def _one_user(screen: Any, model: Any, user: Any) -> None:
    """A history, what is offered for it, and why."""
    from monogram.data.sample import genres

    shelf, history = genres(), model.history(user)
    screen.print(f"\n[bold]One user[/], {user}, has used {len(history)} items")
    for item in history:
        screen.print(f"  {item} ({shelf[item]})", markup=False)
    screen.print("\n[bold]and is offered[/], each with its reason")
    table = _table("rank", "item", "score", "mostly because of")
    for row in model.recommend([user], k=5).rows():
        reasons = model.explain(history, row["item"]).rows()[:2]
        because = ", ".join(f"{one['item']} ({one['share']:+.3f})" for one in reasons)
        table.add_row(str(row["rank"]), row["item"], f"{row['score']:.3f}", because)
    screen.print(table)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in ("rank", "seconds", "residual", "score") else "left")
    return table
