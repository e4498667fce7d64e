"""Flags made from the models' dataclasses, and the flags that say how a log is read."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from monogram.errors import Option, ParameterError

Command = Callable[..., Any]


def _column(flag: str, text: str) -> Any:
    return Annotated[str | None, typer.Option(flag, help=text)]


# Options of the library whose flag has another name, and those that are switches, without a value.
OTHER_NAMES = {name: f"--{name}-column" for name in ("user", "item", "weight", "time")} | {
    "on_error": "--skip-bad-rows"
}
SWITCHES = {"on_error", "new_items", "expand", "keep_gram"}
# Values of options that are a switch of their own.
VALUES = {("time", '"order"'): "--time-order"}


def flag_of(option: Option) -> str:
    """An option that a message of the library mentions, as it is written on the command line."""
    if (option.name, option.value) in VALUES:
        return VALUES[option.name, option.value]
    flag = OTHER_NAMES.get(option.name, "--" + option.name.replace("_", "-"))
    return f"{flag} {option.value}" if option.value and option.name not in SWITCHES else flag


READING: dict[str, Any] = {
    "user_column": _column("--user-column", "Column of the users; by default guessed from the names."),
    "item_column": _column("--item-column", "Column of the items; by default guessed from the names."),
    "weight_column": _column("--weight-column", "Column of the weights; by default none."),
    "time_column": _column("--time-column", "Column of the times; by default none."),
    "time_order": Annotated[
        bool | None, typer.Option("--time-order", help="The rows stand in order, the oldest first, without times.")
    ],
    "time_unit": _column("--time-unit", "Unit of times that are numbers: ns, us, ms, s, min, h or d."),
    "skip_bad_rows": Annotated[
        bool | None, typer.Option("--skip-bad-rows", help="Skip rows that cannot be read, and count them.")
    ],
}


def column_flags(command: Command) -> Command:
    """Add the flags for reading a log to a command; it receives the values that were set as `columns`."""

    def gather(values: dict[str, Any]) -> dict[str, Any]:
        options = {"on_error": "skip"} if values.pop("skip_bad_rows") else {}
        if values.pop("time_order"):
            if values["time_column"] is not None:
                raise ParameterError("--time-column and --time-order were both given; expected one of them")
            options["time"] = "order"
        return options | {name.removesuffix("_column"): value for name, value in without_none(values).items()}

    return _flagged(command, "columns", [_option(name, hint) for name, hint in READING.items()], gather)


def model_flags(command: Command) -> Command:
    """Add a flag for each parameter of any model; the command receives the values that were set as `parameters`."""
    from monogram.models.registry import MODELS

    fields: dict[str, list[tuple[str, Any]]] = {}
    taken = inspect.signature(command).parameters
    for name, kind in MODELS.items():
        for parameter in dataclasses.fields(kind):
            if parameter.name not in taken:  # --solver: see split_solver
                fields.setdefault(parameter.name, []).append((name, parameter))
    return _flagged(command, "parameters", [_flag(name, owners) for name, owners in fields.items()], without_none)


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """The values that are not None: the flags that were set."""
    return {name: value for name, value in values.items() if value is not None}


def _flagged(
    command: Command, into: str, extra: list[inspect.Parameter], gather: Callable[[dict[str, Any]], dict[str, Any]]
) -> Command:
    """The command with additional flags, which it receives in one argument named `into`."""

    def run(**values: Any) -> Any:
        gathered = gather({flag.name: values.pop(flag.name) for flag in extra})
        return command(**values, **{into: gathered})

    hints = inspect.get_annotations(command, eval_str=True)
    arguments = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != into
    ]
    run.__signature__ = inspect.Signature([*arguments, *extra])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*arguments, *extra]}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, hint: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def _flag(name: str, owners: list[tuple[str, Any]]) -> inspect.Parameter:
    from monogram.models.parameters import whole

    flag = "--" + name.replace("_", "-")
    default, text = owners[0][1].default, _help(name, owners)
    if isinstance(default, bool):
        hint: Any = Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=text, rich_help_panel="Model")]
    elif any(parameter.metadata.get("many") for _, parameter in owners):
        option = typer.Option(flag, help=text, rich_help_panel="Model", parser=numbers, metavar="FLOAT[,…]")
        hint = Annotated[Any, option]
    else:
        spans = owners[0][1].metadata.get("span")
        kind: Any = type(default) if isinstance(default, int | str) else str if spans else float
        if default is None and whole(owners[0][1]):
            kind = int
        hint = Annotated[kind | None, typer.Option(flag, help=text, rich_help_panel="Model")]
    return _option(name, hint)


def _help(name: str, owners: list[tuple[str, Any]]) -> str:
    """The meaning of a parameter, its models and defaults; several where models give it different meanings."""
    meanings: dict[str, list[tuple[str, Any]]] = {}
    for model, parameter in owners:
        meanings.setdefault(parameter.metadata.get("help", name), []).append((model, parameter))
    groups = sorted(meanings.items(), key=lambda named: len(named[1]))
    return "; ".join(
        f"{meaning} ({_models(group, len(owners))}; default {_defaults(group)})" for meaning, group in groups
    )


def _models(group: list[tuple[str, Any]], owners: int) -> str:
    """The models of a group: by name, unless they are all, or all others of a parameter that most models have."""
    from monogram.models.registry import MODELS

    if len(group) == len(MODELS):
        return "all models"
    return (
        "all other models"
        if owners == len(MODELS) and 2 * len(group) > owners
        else ", ".join(name for name, _ in group)
    )


def _defaults(group: list[tuple[str, Any]]) -> str:
    return " or ".join(
        sorted({"none" if parameter.default is None else str(parameter.default) for _, parameter in group})
    )


def numbers(text: str) -> float | tuple[float, ...]:
    """One number, or several separated by commas."""
    try:
        values = tuple(float(number) for number in str(text).split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a number, or numbers separated by commas") from None
    return values[0] if len(values) == 1 else values


Solver = Annotated[
    list[str] | None,
    typer.Option(
        "--solver",
        help="auto, primal or dual; full-rank models: also disk, local, matrix_free; or a solver of the model itself.",
    ),
]


Neighbours = Annotated[
    int | None,
    typer.Option("--neighbours", help="Solver local: items that each item is regressed on, at most; by default 300."),
]


KeepGram = Annotated[
    bool,
    typer.Option(
        "--keep-gram",
        help="Full-rank models: also store the Gram matrix, so that l2 and dropout can be changed later.",
    ),
]


Expand = Annotated[
    bool,
    typer.Option(
        "--expand",
        help="Full-rank models and two_step: after a dual fit write the expanded weights to the file; the model "
        "then answers as quickly as a primal one.",
    ),
]


def split_solver(name: str, solvers: list[str] | None, parameters: dict[str, Any]) -> str:
    """The solver of `fit`; a value of the model's own parameter `solver` goes to `parameters`."""
    from monogram.models.registry import model_class

    shared = model_class(name).solvers
    fields = {parameter.name: parameter for parameter in dataclasses.fields(model_class(name))}
    model_solvers = fields["solver"].metadata["choices"] if "solver" in fields else ()
    chosen = "auto"
    for solver in solvers or []:
        if solver in model_solvers:
            parameters["solver"] = solver
        elif solver in shared:
            chosen = solver
        else:
            choices = ", ".join((*shared, *model_solvers))
            raise ParameterError(f"--solver {solver!r}; expected one of {choices}")
    return chosen


def own_parameters(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that the model has, of those set for several models."""
    from monogram.models.registry import model_class

    names = {parameter.name for parameter in dataclasses.fields(model_class(name))}
    return {parameter: value for parameter, value in parameters.items() if parameter in names}


def make_model(name: str, parameters: dict[str, Any]) -> Any:
    """A model from its name and the flags that were set."""
    from monogram.models.registry import model_class

    kind = model_class(name)
    names = {parameter.name for parameter in dataclasses.fields(kind)}
    unknown = [parameter for parameter in parameters if parameter not in names]
    if unknown:
        flags = ", ".join("--" + parameter.replace("_", "-") for parameter in sorted(names)) or "none"
        raise ParameterError(f"{name} has no --{unknown[0].replace('_', '-')}; its flags are {flags}")
    return kind(**parameters)
