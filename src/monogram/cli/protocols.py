"""The protocols as flags: what each one's function takes, and nothing else."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from monogram.cli.flags import given_only
from monogram.data import options
from monogram.data.splits import PROTOCOLS
from monogram.errors import ParameterError, one_of


def names_of_protocols(incomplete: str) -> list[str]:
    """What a shell offers for a protocol."""
    return [name for name in PROTOCOLS if name.startswith(incomplete)]


ProtocolName = Annotated[
    str, typer.Option("--protocol", help=f"One of {', '.join(PROTOCOLS)}.", autocompletion=names_of_protocols)
]
Share = Annotated[
    float | None, typer.Option("--share", help="Share of events held back (holdout, strong, temporal; 0.2).")
]
Users = Annotated[
    str | None, typer.Option("--users", help="How many users are held out, or their share (strong; 0.2).")
]
At = Annotated[
    str | None, typer.Option("--at", help="Moment of the cut: a date such as 2025-06-01, or a number (temporal).")
]
Part = Annotated[str | None, typer.Option("--part", help="test or validation (ratio811; test).")]


def given_flags(share: float | None, users: str | None, at: str | None, part: str | None) -> dict[str, Any]:
    """The flags of the protocols by the name of the argument."""
    return {"share": share, "users": number_or((int, float), users), "at": number_or((int, float), at), "part": part}


class Protocol:
    """A named way to cut a log, with the arguments it was given.

    Parameters
    ----------
    name : one of `monogram.splits`
    given : values of flags by the name of the argument, None where a flag was not set
    seed : of the split, where it has one
    """

    def __init__(self, name: str, given: dict[str, Any], seed: int) -> None:
        if name not in PROTOCOLS:
            raise ParameterError(f"there is no protocol {name!r}; {one_of(name, PROTOCOLS)}")
        self.name, self._cut = name, PROTOCOLS[name]
        defaults = {one.name: one.default for one in list(inspect.signature(self._cut).parameters.values())[1:]}
        own = given_only(given)
        check_flags(name, own, defaults)
        checks = {"share": options.check_share, "users": options.check_users, "part": options.check_part}
        for one, check in (checks | {"at": options.moment}).items():
            if one in own:
                check(own[one])
        options.check_seed(seed)
        self.arguments = defaults | own | ({"seed": seed} if "seed" in defaults else {})

    @property
    def reads_itself(self) -> bool:
        """Whether it takes the file, not a log: fixed lists."""
        return self._cut.__name__ == "public"

    def cut(self, log: Any) -> Any:
        """The split."""
        return self._cut(log, **self.arguments)

    def validation(self, log: Any) -> Any:
        """The validation part that the protocol itself has beside its test part; None where it has none."""
        return self._cut(log, **self.arguments | {"part": "validation"}) if "part" in self.arguments else None

    def document(self) -> dict[str, Any]:
        """Name and arguments, for JSON."""
        return {"name": self.name, "arguments": self.arguments}


def check_flags(name: str, options: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Refuse a flag that the protocol does not have, and two that contradict each other."""
    own = [f"--{one}" for one in defaults if one != "seed"]
    for one in options:
        if one not in defaults:
            has = f"its own flags are {', '.join(own)}" if own else "its cut is fixed"
            raise ParameterError(f"the protocol {name} has no --{one}: {has}")
    if "at" in options and "share" in options:
        raise ParameterError(
            "--at and --share were both given; expected one of them: the moment, or the share after it"
        )


def number_or(kinds: tuple[Callable[[str], Any], ...], text: str | None) -> Any:
    """A text as the first kind of number it can be, or as it is."""
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
