"""The split protocols as flags: each protocol takes the arguments of its function in `monogram.splits`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.flags import without_none
from monogram.data import options
from monogram.data.moments import check_moment
from monogram.data.splits import PROTOCOLS
from monogram.errors import ParameterError, one_of


def complete_protocol(incomplete: str) -> list[str]:
    """Shell completion of a protocol."""
    return [name for name in PROTOCOLS if name.startswith(incomplete)]


ProtocolName = Annotated[
    str, typer.Option("--protocol", help=f"One of {', '.join(PROTOCOLS)}.", autocompletion=complete_protocol)
]
Share = Annotated[
    float | None,
    typer.Option("--share", help="Share held out (holdout, strong, temporal, latest, sessions; default 0.2)."),
]
Users = Annotated[str | None, typer.Option("--users", help="Number or share of users held out (strong; default 0.2).")]
At = Annotated[
    str | None, typer.Option("--at", help="Time of the cut: a date such as 2025-06-01, or a number (temporal).")
]
Part = Annotated[str | None, typer.Option("--part", help="test or validation (ratio811, sessions; default test).")]
NTrain = Annotated[int | None, typer.Option("--n-train", help="Number of training sessions (sessions).")]

Repeats = Annotated[
    bool | None,
    typer.Option(
        "--repeats/--no-repeats", help="Whether the next item may be one of the session (sessions; default yes)."
    ),
]


def protocol_arguments(
    share: float | None,
    users: str | None,
    at: str | None,
    part: str | None,
    n_train: int | None = None,
    repeats: bool | None = None,
) -> dict[str, Any]:
    """The values of the protocols' flags, by the names of the arguments."""
    return {
        "share": share,
        "users": number_or_text((int, float), users),
        "at": number_or_text((int, float), at),
        "part": part,
        "n_train": n_train,
        "repeats": repeats,
    }


class Protocol:
    """A split protocol and its arguments.

    Parameters
    ----------
    name : one of `monogram.splits`
    values : values of the flags by the names of the arguments, None where a flag was not set
    seed : seed of the split, where it is random
    """

    def __init__(self, name: str, values: dict[str, Any], seed: int) -> None:
        if name not in PROTOCOLS:
            raise ParameterError(f"there is no protocol {name!r}; {one_of(name, PROTOCOLS)}")
        self.name, self._split = name, PROTOCOLS[name]
        defaults = {
            argument.name: argument.default for argument in list(inspect.signature(self._split).parameters.values())[1:]
        }
        chosen = without_none(values)
        check_flags(name, chosen, defaults)
        checks = {"share": options.check_share, "users": options.check_users, "part": options.check_part}
        for argument, check in (checks | {"at": check_moment}).items():
            if argument in chosen:
                check(chosen[argument])
        options.check_seed(seed)
        self.arguments = defaults | chosen | ({"seed": seed} if "seed" in defaults else {})

    def reads_itself(self, log: str, columns: dict[str, Any]) -> bool:
        """Whether the protocol reads the file itself: fixed lists of train and test, or the rows of sessions.

        ParameterError where columns are named of fixed lists.
        """
        if self._split.__name__ == "public" and columns:
            raise ParameterError(
                f"the protocol {self.name} reads fixed lists from an npz file: it has no columns to name"
            )
        named = {name for name, value in columns.items() if (name, value) != ("time", "order")}  # the rows are in order
        rows = self.name == "sessions" and not named and Path(log).suffix.lower() == ".npz"
        return rows or self._split.__name__ == "public"

    def split(self, log: Any) -> Any:
        """Split a log."""
        return self._split(log, **self.arguments)

    def validation(self, log: Any) -> Any:
        """The validation split that the protocol defines beside its test split, or None."""
        return self._split(log, **self.arguments | {"part": "validation"}) if "part" in self.arguments else None

    def document(self) -> dict[str, Any]:
        """Name and arguments as JSON values."""
        return {"name": self.name, "arguments": self.arguments}


def check_flags(name: str, options: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Refuse a flag that the protocol does not have, and flags that contradict each other."""
    flags = [f"--{argument.replace('_', '-')}" for argument in defaults if argument != "seed"]
    for argument in options:
        if argument not in defaults:
            has = f"its own flags are {', '.join(flags)}" if flags else "its split is fixed"
            raise ParameterError(f"the protocol {name} has no --{argument.replace('_', '-')}: {has}")
    if "at" in options and "share" in options:
        raise ParameterError(
            "--at and --share were both given; expected one of them: the time of the cut, or the share after it"
        )


def number_or_text(kinds: tuple[Callable[[str], Any], ...], text: str | None) -> Any:
    """The text as the first of the kinds of numbers that it can be parsed as, else the text."""
    if text is None:
        return None
    for kind in kinds:
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return text
