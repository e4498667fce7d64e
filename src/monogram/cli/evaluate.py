"""`monogram evaluate`: models on a log, by a named protocol."""

from __future__ import annotations

import dataclasses
import json as json_
import warnings
from typing import Annotated, Any

import typer

from monogram.cli.common import Json, Memory, Threads, answer, names_of_models, not_over, read_log, talk
from monogram.cli.flags import column_flags, fitting, make, model_flags
from monogram.cli.protocols import At, Part, Protocol, ProtocolName, Share, Users, given_flags
from monogram.cli.tables import Format, by_ending, write
from monogram.errors import MonogramWarning, ParameterError

FORMATS = ("table", "markdown", "csv", "json")


@model_flags
@column_flags
def command(
    log: Annotated[
        str, typer.Argument(help="File or folder of events; for the protocol public, an npz with both lists.")
    ],
    parameters: dict[str, Any],
    columns: dict[str, Any],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Names of models, by commas; settings of one alone as ease:l2=100.",
            autocompletion=names_of_models,
        ),
    ] = "ease,dlae,edlae,deql",
    protocol: ProtocolName = "holdout",
    metrics: Annotated[str | None, typer.Option("--metrics", help="Such as recall@20,ndcg@100.")] = None,
    share: Share = None,
    users: Users = None,
    at: At = None,
    part: Part = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the split and of the bootstrap.")] = 1,
    format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "table",
    per_user: Annotated[
        str | None,
        typer.Option("--per-user", metavar="FILE", help="Also write each user's values: .csv, .json or .parquet."),
    ] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="Also show whether the split is a random cut: test share by popularity.")
    ] = False,
    memory: Memory = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure models on a log, with intervals."""
    from monogram.evaluation.protocol import evaluate
    from monogram.evaluation.shift import shift as measured

    models = _models(model, parameters)
    form = _format(format, json)
    if shift and form not in ("table", "json"):
        raise ParameterError(
            f"--shift is a table of its own, which --format {form} has no place for; use table or json"
        )
    asked = _metrics(metrics)
    way = Protocol(protocol, given_flags(share, users, at, part), seed)
    if way.reads_itself and columns:
        raise ParameterError(f"the protocol {protocol} reads fixed lists from an npz file: it has no columns to name")
    files = [] if per_user is None else [(per_user, _ending(per_user, log))]
    split = cut(way, log if way.reads_itself else read_log(log, columns))
    result = evaluate(
        models,
        split,
        asked,
        per_user=bool(files),
        seed=seed,
        threads=threads,
        fit={"memory": memory},
        progress=lambda name: talk(f"measuring {name}"),
    )
    for path, ending in files:
        write(iter([result.users]), ending, path)
        talk(f"the values of each user are in {path}")
    show(form, way, split, result, measured(split) if shift else None)


def show(form: str, way: Protocol, split: Any, result: Any, shift: Any = None) -> None:
    """The result on stdout, then the shift where it was asked for; as JSON with the protocol and the split's audit."""
    if form == "json":
        audit = dataclasses.asdict(split.audit())
        more = {} if shift is None else {"shift": shift.document()}
        answer({"protocol": way.document(), "audit": audit, "results": result.rows()} | more)
        return
    forms = {"table": repr, "markdown": type(result).to_markdown, "csv": type(result).to_csv}
    print(forms[form](result).rstrip() + ("" if shift is None else f"\n\n{shift}"), flush=True)


def _models(text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Models by what they are called in --model: names by commas, settings of one alone after colons."""
    asked = [one.strip() for one in text.split(",") if one.strip()]
    if not asked:
        raise ParameterError("no model was named; expected --model with names by commas, such as ease,deql")
    if len(set(asked)) < len(asked):
        raise ParameterError(f"--model {text} names a model twice; give each settings, such as ease:l2=10,ease:l2=100")
    models = {one: _model(one, parameters) for one in asked}
    known = {name for one in models.values() for name in one.params()}
    for name in parameters:
        if name not in known:
            raise ParameterError(f"none of the models has --{name.replace('_', '-')}")
    return models


def _model(text: str, parameters: dict[str, Any]) -> Any:
    name, *settings = text.split(":")
    own: dict[str, Any] = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals:
            raise ParameterError(f"--model {text}: {one!r} is no setting; expected such as {name}:l2=100")
        key = key.strip().replace("-", "_")
        if key in own:
            raise ParameterError(f"--model {text} sets {key} twice")
        own[key] = _value(value.strip())
    return make(name, {**fitting(name, parameters), **own})


def _value(text: str) -> Any:
    """A number, true or false, or a text."""
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

    return None if text is None else [str(parse(one.strip())) for one in text.split(",")]


def _ending(path: str, log: str) -> Format:
    """The format of a file to write, looked at before any work is done."""
    ending = by_ending(path, "--per-user")
    not_over(path, log, flag="--per-user")
    return ending


def cut(way: Protocol, source: Any) -> Any:
    """The split; what is wrong with it is told."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", MonogramWarning)
        split = way.cut(source)
    talk(repr(split))
    for one in said:
        talk(f"warning: {one.message}")
    return split
