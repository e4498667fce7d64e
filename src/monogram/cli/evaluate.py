"""`monogram evaluate`: models on a log, by a named protocol."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from monogram.cli.common import (
    ItemColumn,
    Json,
    Memory,
    SkipBad,
    Threads,
    TimeColumn,
    UserColumn,
    WeightColumn,
    names_of_models,
    read_log,
    talk,
)
from monogram.cli.flags import make, model_flags
from monogram.errors import MonogramWarning, ParameterError

PROTOCOLS = ("holdout", "strong", "ratio811", "temporal", "leave_last", "public")
FORMATS = ("table", "markdown", "csv", "json")


def _protocols(incomplete: str) -> list[str]:
    return [name for name in PROTOCOLS if name.startswith(incomplete)]


@model_flags
def command(
    log: Annotated[str, typer.Argument(help="File with the events; for the protocol public, an npz with both lists.")],
    parameters: dict[str, Any],
    model: Annotated[
        str, typer.Option("--model", help="Names of models, by commas.", autocompletion=names_of_models)
    ] = "ease,dlae,edlae,deql",
    protocol: Annotated[
        str, typer.Option("--protocol", help=f"One of {', '.join(PROTOCOLS)}.", autocompletion=_protocols)
    ] = "holdout",
    metrics: Annotated[str | None, typer.Option("--metrics", help="Such as recall@20,ndcg@100.")] = None,
    share: Annotated[float | None, typer.Option("--share", help="Share of events held back (0.2).")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the split and of the bootstrap.")] = 1,
    format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "table",
    memory: Memory = None,
    threads: Threads = None,
    user_column: UserColumn = None,
    item_column: ItemColumn = None,
    weight_column: WeightColumn = None,
    time_column: TimeColumn = None,
    skip_bad_rows: SkipBad = False,
    json: Json = False,
) -> None:
    """Measure models on a log, with intervals."""
    from monogram.evaluation.metrics import parse
    from monogram.evaluation.protocol import evaluate
    from monogram.evaluation.result import Evaluation

    names = [name.strip() for name in model.split(",") if name.strip()]
    if not names:
        raise ParameterError("no model was named; expected --model with names by commas, such as ease,deql")
    models = [make(name, parameters, shared=True) for name in names]
    _unused(parameters, models)
    if len(set(names)) < len(names):
        raise ParameterError(f"--model {model} names a model twice; compare settings in Python, with mg.evaluate")
    if json and format != "table":
        raise ParameterError(f"--json and --format {format} were both given; expected one of them")
    if format not in FORMATS:
        raise ParameterError(f"--format {format}; expected one of {', '.join(FORMATS)}")
    asked = None if metrics is None else [str(parse(one.strip())) for one in metrics.split(",")]
    cut = _cut(protocol, share, seed)
    columns = (user_column, item_column, weight_column, time_column, skip_bad_rows)
    source = log if protocol in ("public", "lightgcn") else read_log(log, *columns)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", MonogramWarning)
        split = cut(source)
    talk(repr(split))
    for one in said:
        talk(f"warning: {one.message}")
    result = evaluate(
        {one.name: one for one in models},
        split,
        asked,
        seed=seed,
        threads=threads,
        fit={"memory": memory},
        progress=lambda name: talk(f"measuring {name}"),
    )
    forms = {"table": repr, "markdown": Evaluation.to_markdown, "csv": Evaluation.to_csv, "json": Evaluation.to_json}
    print(forms["json" if json else format](result).rstrip(), flush=True)


def _cut(protocol: str, share: float | None, seed: int) -> Callable[[Any], Any]:
    """The function that splits, with the options it has."""
    from monogram.data import splits
    from monogram.data.options import check_seed, check_share

    protocol = {"lightgcn": "public"}.get(protocol, protocol)  # the papers' name for the fixed lists
    if protocol not in PROTOCOLS:
        raise ParameterError(f"there is no protocol {protocol!r}; expected one of {', '.join(PROTOCOLS)}")
    check_seed(seed)
    options: dict[str, Any] = {} if protocol in ("temporal", "leave_last", "public") else {"seed": seed}
    if share is not None:
        if protocol not in ("holdout", "strong", "temporal"):
            raise ParameterError(f"the protocol {protocol} has no --share: its cut is fixed")
        check_share(share)
        options["share"] = share
    return lambda log: getattr(splits, protocol)(log, **options)


def _unused(parameters: dict[str, Any], models: list[Any]) -> None:
    known = {name for one in models for name in one.params()}
    for name in parameters:
        if name not in known:
            raise ParameterError(f"none of the models has --{name.replace('_', '-')}")
