"""`monogram demo`: the whole way on the embedded sample."""

from __future__ import annotations

import time
from typing import Any


def command() -> None:
    """The whole way on the embedded sample, in a few seconds."""
    from rich.console import Console

    import monogram as mg
    from monogram.data.sample import genres
    from monogram.models.registry import MODELS

    screen = Console(highlight=False)
    start = time.perf_counter()
    log = mg.sample()
    screen.print(f"[bold]A log[/]  {log.n_events:,} events of {log.n_users:,} users with {log.n_items:,} items")
    screen.print("\n[bold]A plan[/] for EASE, before anything is allocated")
    screen.print(str(mg.EASE().plan(log)), markup=False)

    screen.print("\n[bold]Five models[/] on the same log, one factorisation each")
    table = _table("model", "solver", "seconds", "residual")
    fitted = {}
    for name, kind in MODELS.items():
        model = fitted[name] = kind().fit(log)
        report = model.report_
        residual = "" if report.residual is None else f"{report.residual:.0e}"
        table.add_row(repr(model), report.solver, f"{sum(report.seconds.values()):.2f}", residual)
    screen.print(table)

    model, user, shelf = fitted["deql"], log.users[7], genres()
    screen.print(f"\n[bold]One user[/], {user}, has used")
    for item in list(model.history(user))[:8]:
        screen.print(f"  {item} ({shelf[item]})", markup=False)
    screen.print("\n[bold]and is offered[/], each with its reason")
    table = _table("rank", "item", "score", "mostly because of")
    for row in model.recommend([user], k=5).rows():
        reasons = model.explain(model.history(user), row["item"]).rows()[:2]
        because = ", ".join(f"{one['item']} ({one['share']:+.3f})" for one in reasons)
        table.add_row(str(row["rank"]), row["item"], f"{row['score']:.3f}", because)
    screen.print(table)
    screen.print(f"\nAll of it took {time.perf_counter() - start:.1f} s. Next: your own log, in Python:")
    screen.print('  import monogram as mg; mg.EASE(l2=100).fit("events.csv").recommend(k=10)', markup=False)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in ("rank", "seconds", "residual", "score") else "left")
    return table
