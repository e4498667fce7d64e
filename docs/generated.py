"""Parts of the pages that are generated from the code: help of the commands, parameters of the models, errors.

A line such as `<!-- generated: commands -->` in a page is replaced by the part of that name.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

MARK = re.compile(r"<!-- generated: (\w+) -->")


def fill(page: str) -> str:
    """Replace the markers in the text of a page by the generated parts."""
    return MARK.sub(lambda mark: PARTS[mark[1]](), page)


def commands() -> str:
    """The help of every command, as the program prints it."""
    from typer.testing import CliRunner

    from monogram.cli.app import COMMANDS, app

    parts = []
    for name in COMMANDS:
        parts.append(f"## monogram {name}\n")
        for words in _calls(name):
            shown = CliRunner().invoke(app, [*words, "--help"], prog_name="monogram", env={"COLUMNS": "100"})
            if shown.exit_code != 0:
                raise RuntimeError(f"monogram {' '.join(words)} --help failed: {shown.output} {shown.exception}")
            parts.append(f"```text\n{shown.stdout.strip()}\n```\n")
    return "\n".join(parts)


def _calls(name: str) -> Iterator[list[str]]:
    """A command, and the commands inside it when it is a group."""
    yield [name]
    command = importlib.import_module(f"monogram.cli.{name}").command
    for subcommand in getattr(command, "registered_commands", []):
        yield [name, subcommand.name or subcommand.callback.__name__.replace("_", "-")]


def models() -> str:
    """A table of parameters for each model."""
    from monogram.models.registry import MODELS

    return "\n".join(_model(name, kind) for name, kind in MODELS.items())


def _model(name: str, kind: Any) -> str:
    lines = [f"## {kind.__name__}\n", f"In commands: `--model {name}`.\n"]
    fields = dataclasses.fields(kind)
    if not fields:
        return "\n".join([*lines, "It has no parameters.\n"])
    lines += ["| parameter | flag | default | range | meaning |", "|---|---|---|---|---|"]
    for field in fields:
        flag = "--" + field.name.replace("_", "-")
        lines.append(f"| `{field.name}` | `{flag}` | {field.default} | {_range(field)} | {field.metadata['help']} |")
    return "\n".join(lines) + "\n"


def _range(field: Any) -> str:
    if isinstance(field.default, bool):
        return "True or False"
    if field.metadata["choices"]:
        return " or ".join(f"`{choice}`" for choice in field.metadata["choices"])
    low, high = field.metadata["low"], field.metadata["high"]
    if high == math.inf:
        return f"at least {low:g}"
    return f"{low:g} to {'below ' if field.metadata['below'] else ''}{high:g}"


def classes() -> str:
    """The reference of each model class."""
    from monogram.models.builtin import BUILTIN

    names = [path.partition(":")[2] for path in BUILTIN.values()]
    return "\n".join(["```{eval-rst}", *(f".. autoclass:: monogram.{name}" for name in names), "```"]) + "\n"


def errors() -> str:
    """The kinds of errors, with their exit codes."""
    from monogram import errors as module

    kinds = [
        kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, module.MonogramError)
    ]
    lines = ["| exit code | error | when |", "|---:|---|---|"]
    lines += [
        f"| {kind.exit_code} | `{kind.__name__}` | {(kind.__doc__ or '').strip()} |"
        for kind in sorted(kinds, key=lambda kind: kind.exit_code)
    ]
    return "\n".join(lines) + "\n"


PARTS: dict[str, Callable[[], str]] = {"commands": commands, "models": models, "classes": classes, "errors": errors}
