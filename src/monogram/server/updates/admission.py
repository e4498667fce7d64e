"""Admission of changes: a change that could never be applied is refused before it is stored and acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from monogram.engine.runtime import memory
from monogram.models.base import Recommender
from monogram.ranking import unknown_ids
from monogram.server.http.security import Refused
from monogram.server.updates.events import LogChange


@dataclass
class Ticket:
    """Admitted changes that the model does not have yet.

    Attributes
    ----------
    users : users with events
    items : items that the model did not know
    forgotten : users to forget
    seq : number of the last change, once it is stored
    failed : whether the changes could not be stored
    """

    users: set[str] = field(default_factory=set)
    items: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    seq: int | None = None
    failed: bool = False

    def stored(self, done: Future[int]) -> None:
        """Record the result of storing the changes; a callback of the future."""
        self.failed = done.cancelled() or done.exception() is not None
        self.seq = None if self.failed else done.result()


class Admission:
    """Checks changes together with the admitted ones that the model does not have yet. Used by one thread."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def admit(self, changes: Sequence[LogChange], model: Recommender, applied: int) -> Ticket:
        """Admit changes to a model that has the events up to number `applied`, or raise `Refused`."""
        pending = [
            ticket for ticket in self._tickets if not ticket.failed and (ticket.seq is None or ticket.seq > applied)
        ]
        ticket = _ticket(changes, model)
        tickets = [*pending, ticket]
        if ticket.items or ticket.users:
            _check_memory(model, tickets)
        if ticket.forgotten:
            _check_users_remain(model, tickets)
        self._tickets = tickets
        return ticket


def _ticket(changes: Sequence[LogChange], model: Recommender) -> Ticket:
    ticket, log = Ticket(), model.log_
    for change in changes:  # in order: a forgotten user may have new events later
        if change.item is None:
            ticket.forgotten.add(change.user)
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
    state = model.weights_.update_state
    arrays = 1 if state is None or state.gram is None else 2  # a stored Gram grows, too
    needed = arrays * (known + new) ** 2 * np.dtype(model.report_.dtype).itemsize
    free = memory.parse(None)
    if needed > free:
        raise Refused(
            507, "no_room",
            f"with {new:,} new {axis} beside {known:,} the weights would take {memory.show(needed)}, but "
            f"{memory.show(free)} of memory is free; nothing was stored. Fit a larger log elsewhere, and reload",
        )  # fmt: skip


def _check_users_remain(model: Recommender, tickets: list[Ticket]) -> None:
    """Refuse to forget the last user with a history."""
    forgotten: set[str] = set()
    added: set[str] = set()
    for ticket in tickets:
        forgotten |= ticket.forgotten
        added = (added - ticket.forgotten) | ticket.users
    log = model.log_
    index = log.users.index(list(forgotten))
    active = np.diff(log.matrix.indptr) > 0
    active[index[index >= 0]] = False
    if not added and not active.any():
        raise Refused(
            409, "nobody_left",
            "this is the last user with a history, and a model needs one; nothing was stored. To forget this user, "
            "stop the server and remove the model file and its events",
        )  # fmt: skip
