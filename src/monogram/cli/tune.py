"""`monogram tune`: search for the best hyperparameters, and write the model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.evaluate import split_log
from monogram.cli.flags import column_flags, model_flags
from monogram.cli.output import check_output, console, print_json, print_stderr, read_log, warnings_on_stderr
from monogram.cli.protocols import At, NTrain, Part, Protocol, ProtocolName, Repeats, Share, Users, protocol_arguments
from monogram.cli.shared_options import Json, Memory, Threads, complete_model
from monogram.errors import ParameterError


@model_flags
@column_flags
def command(
    log: Annotated[
        str, typer.Argument(help="File or folder of events; for the protocol public, an npz file with train and test.")
    ],
    parameters: dict[str, Any],
    columns: dict[str, Any],
    model: Annotated[
        str,
        typer.Option(
            "--model", help="Names of the models to search, separated by commas.", autocompletion=complete_model
        ),
    ] = "ease,edlae,dlae,deql",
    budget: Annotated[
        str, typer.Option("--budget", help="Budget of the search: a time (20m, 90s, 1h), or '200 settings'.")
    ] = "20m",
    metric: Annotated[str, typer.Option("--metric", help="Metric to maximise, such as ndcg@20.")] = "ndcg@20",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The model file to write.")] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option("--report", metavar="FILE", help="Report to write: .md or .html; may be repeated."),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option("--study", help="File of finished settings, from which an interrupted search resumes."),
    ] = None,
    protocol: ProtocolName = "holdout",
    share: Share = None,
    users: Users = None,
    at: At = None,
    part: Part = None,
    n_train: NTrain = None,
    repeats: Repeats = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the splits, the search and the bootstrap.")] = 1,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 or float64.")] = "float32",
    memory: Memory = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Find the best hyperparameters for a log, within a budget.

    A flag of a model fixes that parameter. The power of popularity (item-power) is searched only where the validation
    part is split by time. The validation part is split from train. The test part is used once, at the end, for the
    best setting refitted on train, which is the model that is written.
    """
    from monogram.evaluation import metrics
    from monogram.reports import writers
    from monogram.tuning import budget as budget_
    from monogram.tuning.search import tune

    names = [name.strip() for name in model.split(",") if name.strip()]
    splitter = Protocol(protocol, protocol_arguments(share, users, at, part, n_train, repeats), seed)
    reads_itself = splitter.reads_itself(log, columns)
    budget_.parse(budget)  # reports wrong options before the log is read
    metrics.parse(metric)
    for path in report or ():
        writers.check(path)
    files = [(output, "--output"), (study, "--study"), *((path, "--report") for path in report or ())]
    for number, (file, flag) in enumerate(files):
        if file is not None:
            check_output(file, log, flag=flag)
            if any(other is not None and file.absolute() == other.absolute() for other, _ in files[:number]):
                raise ParameterError(f"{file} was given twice, also with {flag}; give each file its own name")
    fixed = _fixed(names, parameters)
    source = log if reads_itself else read_log(log, columns)
    split = split_log(splitter, source)
    with live(metric) as shown, warnings_on_stderr():
        result = tune(
            None,
            names,
            protocol=split,
            validation=splitter.validation(source),
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
        result.model.save(output, metrics={f"{result.metric} on test": result.test.rows()[0]["value"]})
        print_stderr(f"wrote {output}")
    for path in report or ():
        written = result.report(path, command=shlex.join(["monogram", *sys.argv[1:]]))
        print_stderr("wrote " + ", ".join(map(str, written)))
    if json:
        print_json(
            {"protocol": splitter.document(), "output": None if output is None else str(output)} | result.document()
        )
    else:
        print(result, flush=True)


def _fixed(names: list[str], parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The parameters that are fixed, for each model that has them."""
    from monogram.models.registry import model_class

    defaults = {name: model_class(name)().params() for name in names}
    for parameter in parameters:
        if not any(parameter in known for known in defaults.values()):
            raise ParameterError(f"none of the models has --{parameter.replace('_', '-')}")
    return {
        name: {parameter: [value] for parameter, value in parameters.items() if parameter in known}
        for name, known in defaults.items()
    }


@contextmanager
def live(metric: str) -> Iterator[Callable[[Any], None] | None]:
    """A function that shows the best settings so far and the remaining budget; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live

    with Live(console=console(stderr=True), transient=True, auto_refresh=False) as shown:
        yield lambda state: shown.update(table(state, metric), refresh=True)


def planned(shown: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """A progress function that prints the plan first, and passes later states to `shown`."""
    first = iter([True])

    def progress(state: Any) -> None:
        if next(first, False):
            print_stderr(str(state.plan))
        elif shown is not None:
            shown(state)

    return progress


def table(state: Any, metric: str) -> Any:
    """The best settings so far, and the remaining budget, as a table of rich."""
    from rich.table import Table

    seconds = state.left.seconds
    limited_by_time = seconds != float("inf")
    left = f"{max(seconds, 0) / 60:.1f} min left" if limited_by_time else f"{state.left.settings:,.0f} settings left"
    drawn = Table(title=f"{state.tried:,} settings tried, {left}", box=None, title_justify="left", header_style="dim")
    drawn.add_column(metric, justify="right")
    drawn.add_column("setting")
    for trial in state.best:
        drawn.add_row(f"{trial.value:.4f}", repr(trial.setting.make()))
    return drawn
