"""The models' parameters as flags: `--l2`, `--dropout`, … come from the dataclasses and nowhere else."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from monogram.errors import ParameterError


def model_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a flag for each parameter of any model; it receives those that were set as `parameters`."""
    from monogram.models.registry import MODELS

    fields: dict[str, list[tuple[str, Any]]] = {}
    for name, kind in MODELS.items():
        for one in dataclasses.fields(kind):
            fields.setdefault(one.name, []).append((name, one))

    def run(**given: Any) -> Any:
        parameters = {name: given.pop(name) for name in fields}
        return command(**given, parameters={name: value for name, value in parameters.items() if value is not None})

    own = [one for one in inspect.signature(command).parameters.values() if one.name != "parameters"]
    extra = [_flag(name, owners) for name, owners in fields.items()]
    hints = {
        name: hint for name, hint in inspect.get_annotations(command, eval_str=True).items() if name != "parameters"
    }
    hints |= {one.name: one.annotation for one in extra}
    parameters = [
        one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in [*own, *extra]
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__, run.__name__, run.__doc__ = hints, command.__name__, command.__doc__
    return run


def _flag(name: str, owners: list[tuple[str, Any]]) -> inspect.Parameter:
    first = owners[0][1]
    flag = "--" + name.replace("_", "-")
    defaults = sorted({str(one.default) for _, one in owners})
    models = ", ".join(owner for owner, _ in owners)
    text = f"{first.metadata.get('help', name)} ({models}; default {' or '.join(defaults)})"
    if isinstance(first.default, bool):
        hint: Any = Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=text, rich_help_panel="Model")]
    else:
        kind: Any = type(first.default) if isinstance(first.default, int | str) else float
        hint = Annotated[kind | None, typer.Option(flag, help=text, rich_help_panel="Model")]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def make(name: str, parameters: dict[str, Any], *, shared: bool = False) -> Any:
    """A model from its name and the flags that were set.

    With `shared` the flags are for several models, and one that this model does not have is left to the others.
    """
    from monogram.models.registry import model_class

    kind = model_class(name)
    own = {one.name for one in dataclasses.fields(kind)}
    strange = [one for one in parameters if one not in own]
    if strange and not shared:
        flags = ", ".join("--" + one.replace("_", "-") for one in sorted(own)) or "none"
        raise ParameterError(f"{name} has no --{strange[0].replace('_', '-')}; its flags are {flags}")
    return kind(**{one: value for one, value in parameters.items() if one in own})
