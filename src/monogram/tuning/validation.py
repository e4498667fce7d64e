"""The test part of a search, and the validation part: train is cut as the test part was cut."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from monogram.data.sessions import validation_sessions
from monogram.data.splits import PROTOCOLS, Split, holdout, latest, leave_last, strong, temporal
from monogram.errors import DataError, MonogramWarning, ParameterError, one_of

SHARE = 0.1  # of each user's events, or of the users, or of the time
SHARE_OF_LATEST = 0.2  # of each user's events, as in the test part of the public lists
OWN = {
    "ratio811": "the validation tenth of each user's events that the protocol defines",
    "sessions": "the latest tenth of the training sessions: every prefix predicts its next item, as in the test part",
}


@dataclass(frozen=True)
class Validation:
    """The split of train on which settings are compared, and how it was chosen, as a phrase."""

    split: Split
    how: str


def split_of(log: Any, protocol: Any, seed: int) -> Split:
    """The split of a protocol: a name, a function of the log, or a Split."""
    if isinstance(protocol, str):
        if protocol not in PROTOCOLS:
            raise ParameterError(f"there is no protocol {protocol!r}; {one_of(protocol, PROTOCOLS)}")
        function = PROTOCOLS[protocol]
        seeded = "seed" in inspect.signature(function).parameters
        protocol = function(log, seed=seed) if seeded else function(log)
    elif callable(protocol):
        protocol = protocol(log)
    if not isinstance(protocol, Split):
        raise ParameterError(f"protocol is a {type(protocol).__name__}; expected a name, a function or a Split")
    return protocol


def validation_of(log: Any, protocol: Any, split: Split, given: Any, seed: int) -> Validation:
    """The validation part for a test split.

    Parameters
    ----------
    log, protocol, given, seed : as for `tune`; `given` is its `validation`
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MonogramWarning)  # the same warning was raised for the test part
        if given is not None:
            if given == "sessions" == split.protocol:
                return Validation(validation_sessions(split), OWN["sessions"])
            own = given if isinstance(given, Split) else split_of(split.train, given, seed)
            of_protocol = isinstance(given, Split) and own.protocol == split.protocol
            return Validation(own, OWN.get(own.protocol, "given") if of_protocol else f"given ({own.protocol})")
        if isinstance(protocol, str) and protocol in OWN:
            seeded = {"seed": seed} if protocol == "ratio811" else {}
            return Validation(PROTOCOLS[protocol](log, part="validation", **seeded), OWN[protocol])
        function, how = _function(split, seed)
        try:
            return Validation(function(split.train), how)
        except DataError as error:
            raise DataError(
                f"no validation part can be split off from train: {error}; give one with validation="
            ) from error


def _function(split: Split, seed: int) -> tuple[Callable[[Any], Split], str]:
    """How train is cut, by the protocol of the test part."""
    ends = f"the latest {SHARE_OF_LATEST:.0%} of each user's events in train"
    if split.protocol == "latest" or (split.protocol == "public" and split.train.has_order):
        why = "as the test part" if split.protocol == "latest" else "as the public lists were cut; train has an order"
        return lambda train: latest(train, share=SHARE_OF_LATEST), f"{ends}, {why}"
    by_protocol: dict[str, tuple[Callable[[Any], Split], str]] = {
        "temporal": (
            lambda train: temporal(train, share=SHARE),
            f"the latest {SHARE:.0%} of the events in train, split at one time, as the test part",
        ),
        "strong": (
            lambda train: strong(train, users=SHARE, seed=seed),
            f"{SHARE:.0%} of the users of train, held out as those of the test part",
        ),
        "leave_last": (leave_last, "the last event of each user in train, as the test part"),
        "sessions": (lambda _: validation_sessions(split), OWN["sessions"]),
    }
    if split.protocol in by_protocol:
        return by_protocol[split.protocol]
    why = "; the train list has no order" if split.protocol == "public" else ""
    return lambda train: holdout(
        train, share=SHARE, seed=seed
    ), f"a random {SHARE:.0%} of each user's events in train{why}"
