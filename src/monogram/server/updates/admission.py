"""What may be acknowledged: a change that could never be carried out is refused before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from monogram.engine.runtime import memory
from monogram.models.base import Recommender
from monogram.ranking import unknown_ids
from monogram.server.http.security import Refused
from monogram.server.updates.events import Change


@dataclass
class Ticket:
    """Changes on their way: who and what is new with them, who is to go; their number once they are stored."""

    users: set[str] = field(default_factory=set)
    items: set[str] = field(default_factory=set)
    going: set[str] = field(default_factory=set)
    seq: int | None = None
    failed: bool = False

    def stored(self, done: Future[int]) -> None:
        """Take the number, or the news that it came to nothing."""
        self.failed = done.cancelled() or done.exception() is not None
        self.seq = None if self.failed else done.result()


class Admission:
    """Looks at changes before they are stored, with all in mind that is on its way. For one thread."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def admit(self, changes: Sequence[Change], model: Recommender, applied: int) -> Ticket:
        """A ticket for changes to a model that has followed up to a number; `Refused` where they cannot be followed."""
        waiting = [one for one in self._tickets if not one.failed and (one.seq is None or one.seq > applied)]
        ticket = _ticket(changes, model)
        both = [*waiting, ticket]
        if ticket.items or ticket.users:
            _check_memory(model, both)
        if ticket.going:
            _check_left(model, both)
        self._tickets = both
        return ticket


def _ticket(changes: Sequence[Change], model: Recommender) -> Ticket:
    ticket, log = Ticket(), model.log_
    for change in changes:  # in their order: who goes may come again
        if change.item is None:
            ticket.going.add(change.user)
            ticket.users.discard(change.user)
        else:
            ticket.users.add(change.user)
            ticket.items.add(change.item)
    items = list(ticket.items)
    ticket.items = set(unknown_ids(items, log.items.index(items)))
    return ticket


def _check_memory(model: Recommender, tickets: list[Ticket]) -> None:
    """Refuse changes whose square array of weights, over items or users, would not fit beside the present one."""
    axis, log = model.weights_.square_axis, model.log_
    if axis is None:
        return
    ids, known = (log.items, log.n_items) if axis == "items" else (log.users, log.n_users)
    named = list(set().union(*(ticket.items if axis == "items" else ticket.users for ticket in tickets)))
    new = len(unknown_ids(named, ids.index(named)))
    if not new:
        return
    arrays = 1 if model._kept is None or model._kept.gram is None else 2  # a stored Gram grows, too
    needed = arrays * (known + new) ** 2 * np.dtype(model.report_.dtype).itemsize
    free = memory.parse(None)
    if needed > free:
        raise Refused(
            507, "no_room",
            f"with {new:,} new {axis} beside {known:,} the weights would take {memory.show(needed)}, but "
            f"{memory.show(free)} of memory is free; nothing was stored. Fit a larger log elsewhere, and reload",
        )  # fmt: skip


def _check_left(model: Recommender, tickets: list[Ticket]) -> None:
    going: set[str] = set()
    coming: set[str] = set()
    for one in tickets:
        going |= one.going
        coming = (coming - one.going) | one.users
    log = model.log_
    places = log.users.index(list(going))
    active = np.diff(log.matrix.indptr) > 0
    active[places[places >= 0]] = False
    if not coming and not active.any():
        raise Refused(
            409, "nobody_left",
            "without this user nobody is left to learn from, and nothing was stored; to forget them, stop the server "
            "and remove the model file and its events",
        )  # fmt: skip
