"""Flags that commands share: the models' parameters (from the dataclasses and nowhere else), and how a log is read."""

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
SWITCHES = {"on_error", "new_items"}


def flag_of(option: Option) -> str:
    """An option that a message of the library mentions, as it is written on the command line."""
    flag = OTHER_NAMES.get(option.name, "--" + option.name.replace("_", "-"))
    return f"{flag} {option.value}" if option.value and option.name not in SWITCHES else flag


READING: dict[str, Any] = {
    "user_column": _column("--user-column", "Column of the users; guessed when not given."),
    "item_column": _column("--item-column", "Column of the items; guessed when not given."),
    "weight_column": _column("--weight-column", "Column of weights; none when not given."),
    "time_column": _column("--time-column", "Column of times; none when not given."),
    "skip_bad_rows": Annotated[
        bool | None, typer.Option("--skip-bad-rows", help="Leave unreadable rows out, and count them.")
    ],
}


def column_flags(command: Command) -> Command:
    """Give a command the flags of how a log is read; it receives those set as `columns`, for `read_log`."""

    def gather(given: dict[str, Any]) -> dict[str, Any]:
        how = {"on_error": "skip"} if given.pop("skip_bad_rows") else {}
        return how | {name.removesuffix("_column"): value for name, value in given_only(given).items()}

    return _flagged(command, "columns", [_option(name, hint) for name, hint in READING.items()], gather)


def model_flags(command: Command) -> Command:
    """Give a command a flag for each parameter of any model; it receives those that were set as `parameters`."""
    from monogram.models.registry import MODELS

    fields: dict[str, list[tuple[str, Any]]] = {}
    taken = inspect.signature(command).parameters
    for name, kind in MODELS.items():
        for one in dataclasses.fields(kind):
            if one.name not in taken:  # --solver: see split_solver
                fields.setdefault(one.name, []).append((name, one))
    return _flagged(command, "parameters", [_flag(name, owners) for name, owners in fields.items()], given_only)


def given_only(values: dict[str, Any]) -> dict[str, Any]:
    """The values that were set."""
    return {name: value for name, value in values.items() if value is not None}


def _flagged(
    command: Command, into: str, extra: list[inspect.Parameter], gather: Callable[[dict[str, Any]], dict[str, Any]]
) -> Command:
    """The command with more flags, which it receives together in one argument."""

    def run(**given: Any) -> Any:
        gathered = gather({one.name: given.pop(one.name) for one in extra})
        return command(**given, **{into: gathered})

    hints = inspect.get_annotations(command, eval_str=True)
    own = [
        one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for one in inspect.signature(command).parameters.values()
        if one.name != into
    ]
    run.__signature__ = inspect.Signature([*own, *extra])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*own, *extra]}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, hint: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def _flag(name: str, owners: list[tuple[str, Any]]) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    default, text = owners[0][1].default, _help(name, owners)
    if isinstance(default, bool):
        hint: Any = Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=text, rich_help_panel="Model")]
    elif any(one.metadata.get("many") for _, one in owners):
        option = typer.Option(flag, help=text, rich_help_panel="Model", parser=numbers, metavar="FLOAT[,…]")
        hint = Annotated[Any, option]
    else:
        kind: Any = type(default) if isinstance(default, int | str) else float
        hint = Annotated[kind | None, typer.Option(flag, help=text, rich_help_panel="Model")]
    return _option(name, hint)


def _help(name: str, owners: list[tuple[str, Any]]) -> str:
    """What the parameter means, and to whom; where it means different things, each of them."""
    meanings: dict[str, list[tuple[str, Any]]] = {}
    for owner, one in owners:
        meanings.setdefault(one.metadata.get("help", name), []).append((owner, one))
    return "; ".join(
        f"{meaning} ({', '.join(owner for owner, _ in group)}; default {_defaults(group)})"
        for meaning, group in meanings.items()
    )


def _defaults(group: list[tuple[str, Any]]) -> str:
    return " or ".join(sorted({"none" if one.default is None else str(one.default) for _, one in group}))


def numbers(text: str) -> float | tuple[float, ...]:
    """One number, or several with commas between them."""
    try:
        found = tuple(float(one) for one in str(text).split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r}; expected a number, or numbers with commas between them") from None
    return found[0] if len(found) == 1 else found


Solver = Annotated[
    list[str] | None,
    typer.Option(
        "--solver",
        help="auto, primal or dual, for full-rank models disk or matrix_free; or the model's own, if it has a choice.",
    ),
]


KeepGram = Annotated[
    bool,
    typer.Option(
        "--keep-gram",
        help="Full-rank models: keep the Gram, a second square array, so that l2 and dropout can be changed later.",
    ),
]


def split_solver(name: str, given: list[str] | None, parameters: dict[str, Any]) -> str:
    """The solver of `fit`; one that is a parameter of the model goes to its parameters."""
    from monogram.models.registry import model_class

    shared = model_class(name).solvers
    fields = {one.name: one for one in dataclasses.fields(model_class(name))}
    own = fields["solver"].metadata["choices"] if "solver" in fields else ()
    chosen = "auto"
    for one in given or []:
        if one in own:
            parameters["solver"] = one
        elif one in shared:
            chosen = one
        else:
            choices = ", ".join((*shared, *own))
            raise ParameterError(f"--solver {one!r}; expected one of {choices}")
    return chosen


def fitting(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Those of the flags for several models that this one has."""
    from monogram.models.registry import model_class

    own = {one.name for one in dataclasses.fields(model_class(name))}
    return {one: value for one, value in parameters.items() if one in own}


def make(name: str, parameters: dict[str, Any]) -> Any:
    """A model from its name and the flags that were set."""
    from monogram.models.registry import model_class

    kind = model_class(name)
    own = {one.name for one in dataclasses.fields(kind)}
    strange = [one for one in parameters if one not in own]
    if strange:
        flags = ", ".join("--" + one.replace("_", "-") for one in sorted(own)) or "none"
        raise ParameterError(f"{name} has no --{strange[0].replace('_', '-')}; its flags are {flags}")
    return kind(**parameters)
