"""Small data sets with known answers."""

from __future__ import annotations

from typing import Any

from monogram.data.interactions import Interactions
from monogram.data.readers import read

TEA = ("assam", "darjeeling", "oolong", "sencha", "thé à la menthe")
TOOLS = ("chisel", "mallet", "plane", "rasp", "saw with a fine blade")


def two_tastes(users: int = 24) -> tuple[Interactions, list[str], str]:
    """Users who like tea and users who like tools, each with one item missing.

    Returns
    -------
    log, history, answer
        Every personalised model must rank the answer first for this history.
    """
    events: list[tuple[Any, Any]] = []
    for number in range(users):
        taste = TEA if number % 2 == 0 else TOOLS
        missing = taste[number // 2 % len(taste)]
        events += [(f"user {number:02d}", item) for item in taste if item != missing]
    events += [(f"user {number:02d}", "gift card") for number in range(0, users, 3)]
    return read(events), [item for item in TOOLS if item != "rasp"], "rasp"
