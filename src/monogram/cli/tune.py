"""`monogram tune`: the best setting for a log, and its model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.common import (
    Json,
    Memory,
    Threads,
    answer,
    names_of_models,
    not_over,
    read_log,
    screen,
    talk,
    telling,
)
from monogram.cli.evaluate import cut
from monogram.cli.flags import column_flags, model_flags
from monogram.cli.protocols import At, Part, Protocol, ProtocolName, Share, Users, given_flags
from monogram.errors import ParameterError


@model_flags
@column_flags
def command(
    log: Annotated[
        str, typer.Argument(help="File or folder of events; for the protocol public, an npz with both lists.")
    ],
    parameters: dict[str, Any],
    columns: dict[str, Any],
    model: Annotated[
        str, typer.Option("--model", help="Names of models to search, by commas.", autocompletion=names_of_models)
    ] = "ease,edlae,dlae,deql",
    budget: Annotated[
        str, typer.Option("--budget", help="Time of the search (20m, 90s, 1h), or '200 settings'.")
    ] = "20m",
    metric: Annotated[str, typer.Option("--metric", help="What is to be high, such as ndcg@20.")] = "ndcg@20",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The model file to write.")] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option("--report", metavar="FILE", help="Report to write: .md or .html; may be repeated."),
    ] = None,
    study: Annotated[
        Path | None, typer.Option("--study", help="File of finished settings: an interrupted search goes on from it.")
    ] = None,
    protocol: ProtocolName = "holdout",
    share: Share = None,
    users: Users = None,
    at: At = None,
    part: Part = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the cuts, the search and the bootstrap.")] = 1,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    memory: Memory = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Find the best setting for a log, within a budget.

    The flags of the models hold a parameter fixed. A power of popularity (item-power) is searched where the validation
    part is cut by time. The validation part is cut from train; the test part is read once,
    at the end, by the best setting refitted on train, which is the model that is written.
    """
    from monogram.evaluation import metrics
    from monogram.reports import writers
    from monogram.tuning import budget as budget_
    from monogram.tuning.search import tune

    names = [one.strip() for one in model.split(",") if one.strip()]
    way = Protocol(protocol, given_flags(share, users, at, part), seed)
    if way.reads_itself and columns:
        raise ParameterError(f"the protocol {protocol} reads fixed lists from an npz file: it has no columns to name")
    budget_.parse(budget)  # what is wrong, before reading
    metrics.parse(metric)
    for one in report or ():
        writers.check(one)
    files = [(output, "--output"), (study, "--study"), *((one, "--report") for one in report or ())]
    for number, (path, flag) in enumerate(files):
        if path is not None:
            not_over(path, log, flag=flag)
            if any(other is not None and path.absolute() == other.absolute() for other, _ in files[:number]):
                raise ParameterError(f"{path} was given twice, also with {flag}; give each file a name of its own")
    fixed = _fixed(names, parameters)
    source = log if way.reads_itself else read_log(log, columns)
    split = cut(way, source)
    with live(metric) as shown, telling():
        found = tune(
            None,
            names,
            protocol=split,
            validation=way.validation(source),
            metric=metric,
            budget=budget,
            space=fixed,
            study=study,
            seed=seed,
            dtype=dtype,
            memory=memory,
            threads=threads,
            progress=planned(shown),
        )
    if output is not None:
        found.model.save(output, metrics={f"{found.metric} on test": found.test.rows()[0]["value"]})
        talk(f"wrote {output}")
    for one in report or ():
        talk("wrote " + ", ".join(map(str, found.report(one, command=shlex.join(["monogram", *sys.argv[1:]])))))
    if json:
        answer({"protocol": way.document(), "output": None if output is None else str(output)} | found.document())
    else:
        print(found, flush=True)


def _fixed(names: list[str], parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters held fixed, by the models that have them."""
    from monogram.models.registry import model_class

    own = {name: model_class(name)().params() for name in names}
    for one in parameters:
        if not any(one in has for has in own.values()):
            raise ParameterError(f"none of the models has --{one.replace('_', '-')}")
    return {name: {one: [value] for one, value in parameters.items() if one in has} for name, has in own.items()}


@contextmanager
def live(metric: str) -> Iterator[Callable[[Any], None] | None]:
    """A table of the best so far with the time left, on terminals only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live

    with Live(console=screen(stderr=True), transient=True, auto_refresh=False) as shown:
        yield lambda state: shown.update(table(state, metric), refresh=True)


def planned(shown: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """Says the plan before the search starts; what follows is shown where there is a terminal."""
    first = iter([True])

    def progress(state: Any) -> None:
        if next(first, False):
            talk(str(state.plan))
        elif shown is not None:
            shown(state)

    return progress


def table(state: Any, metric: str) -> Any:
    """The best settings so far, and what is left of the budget."""
    from rich.table import Table

    left = state.left.seconds
    rest = f"{state.left.settings:,.0f} settings left" if left == float("inf") else f"{max(left, 0) / 60:.1f} min left"
    drawn = Table(title=f"{state.tried:,} settings tried, {rest}", box=None, title_justify="left", header_style="dim")
    drawn.add_column(metric, justify="right")
    drawn.add_column("setting")
    for trial in state.best:
        drawn.add_row(f"{trial.value:.4f}", repr(trial.setting.make()))
    return drawn
