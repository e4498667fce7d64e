"""`monogram evaluate`: evaluate models on a log, by a named protocol."""

from __future__ import annotations

import dataclasses
import json as json_
import warnings
from typing import Annotated, Any

import typer

from monogram.cli.flags import column_flags, make_model, model_flags, own_parameters
from monogram.cli.output import check_output, print_json, print_stderr, read_log
from monogram.cli.protocols import At, NTrain, Part, Protocol, ProtocolName, Repeats, Share, Users, protocol_arguments
from monogram.cli.shared_options import Json, Memory, Threads, complete_model
from monogram.cli.table_formats import Format, format_of_name, write
from monogram.errors import MonogramWarning, ParameterError

FORMATS = ("table", "markdown", "csv", "json")


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
            "--model",
            help="Names of models, separated by commas; parameters of one model as in ease:l2=100.",
            autocompletion=complete_model,
        ),
    ] = "ease,dlae,edlae,deql",
    protocol: ProtocolName = "holdout",
    metrics: Annotated[str | None, typer.Option("--metrics", help="Metrics, such as recall@20,ndcg@100.")] = None,
    share: Share = None,
    users: Users = None,
    at: At = None,
    part: Part = None,
    n_train: NTrain = None,
    repeats: Repeats = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the split and of the bootstrap.")] = 1,
    format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "table",
    per_user: Annotated[
        str | None,
        typer.Option("--per-user", metavar="FILE", help="Also write the values of each user: .csv, .json or .parquet."),
    ] = None,
    shift: Annotated[
        bool,
        typer.Option("--shift", help="Also show the share of test events by item popularity: is the split random?"),
    ] = False,
    memory: Memory = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Evaluate models on a log, with confidence intervals."""
    from monogram.evaluation.protocol import evaluate
    from monogram.evaluation.shift import shift as shift_of

    models = _models(model, parameters)
    form = _format(format, json)
    if shift and form not in ("table", "json"):
        raise ParameterError(f"--shift prints a second table, which --format {form} cannot hold; use table or json")
    metric_names = _metrics(metrics)
    splitter = Protocol(protocol, protocol_arguments(share, users, at, part, n_train, repeats), seed)
    reads_itself = splitter.reads_itself(log, columns)
    files = [] if per_user is None else [(per_user, _ending(per_user, log))]
    split = split_log(splitter, log if reads_itself else read_log(log, columns))
    result = evaluate(
        models,
        split,
        metric_names,
        per_user=bool(files),
        seed=seed,
        threads=threads,
        fit={"memory": memory},
        progress=lambda name: print_stderr(f"evaluating {name}"),
    )
    for path, ending in files:
        write(iter([result.users]), ending, path)
        print_stderr(f"the values of each user are in {path}")
    show(form, splitter, split, result, shift_of(split) if shift else None)


def show(form: str, splitter: Protocol, split: Any, result: Any, shift: Any = None) -> None:
    """Print the result, then the shift where it is given; as JSON with the protocol and the audit of the split."""
    if form == "json":
        audit = dataclasses.asdict(split.audit())
        more = {} if shift is None else {"shift": shift.document()}
        print_json({"protocol": splitter.document(), "audit": audit, "results": result.rows()} | more)
        return
    forms = {"table": repr, "markdown": type(result).to_markdown, "csv": type(result).to_csv}
    print(forms[form](result).rstrip() + ("" if shift is None else f"\n\n{shift}"), flush=True)


def _models(text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Models by their texts in --model: names separated by commas, parameters of one model after colons."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ParameterError("no model was named; expected --model with names separated by commas, such as ease,deql")
    if len(set(names)) < len(names):
        raise ParameterError(
            f"--model {text} names a model twice; give each its own parameters, such as ease:l2=10,ease:l2=100"
        )
    models = {name: _model(name, parameters) for name in names}
    known = {name for model in models.values() for name in model.params()}
    for name in parameters:
        if name not in known:
            raise ParameterError(f"none of the models has --{name.replace('_', '-')}")
    return models


def _model(text: str, parameters: dict[str, Any]) -> Any:
    name, *settings = text.split(":")
    after_colons: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ParameterError(
                f"--model {text}: {setting!r} is not a parameter with a value; expected text such as {name}:l2=100"
            )
        key = key.strip().replace("-", "_")
        if key in after_colons:
            raise ParameterError(f"--model {text} sets {key} twice")
        after_colons[key] = _value(value.strip())
    return make_model(name, {**own_parameters(name, parameters), **after_colons})


def _value(text: str) -> Any:
    """A number, a boolean, or the text itself."""
    try:
        return json_.loads(text)
    except ValueError:
        return text


def _format(form: str, json: bool) -> str:
    if json and form not in ("table", "json"):
        raise ParameterError(f"--json and --format {form} were both given; expected one of them")
    if form not in FORMATS:
        raise ParameterError(f"--format {form}; expected one of {', '.join(FORMATS)}")
    return "json" if json else form


def _metrics(text: str | None) -> list[str] | None:
    from monogram.evaluation.metrics import parse

    return None if text is None else [str(parse(name.strip())) for name in text.split(",")]


def _ending(path: str, log: str) -> Format:
    """The format of a file to write; a path that cannot be written is refused before any work is done."""
    ending = format_of_name(path, "--per-user")
    check_output(path, log, flag="--per-user")
    return ending


def split_log(splitter: Protocol, source: Any) -> Any:
    """Split a log; the audit and the warnings go to stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MonogramWarning)
        split = splitter.split(source)
    print_stderr(repr(split))
    for warning in caught:
        print_stderr(f"warning: {warning.message}")
    return split
