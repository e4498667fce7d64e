"""The choice of the user, item, weight and time columns: named by the caller, or guessed and noted."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from monogram.errors import DataError, Message, Option, ParameterError

ORDER = "order"  # in place of a column of times: the rows stand in order

# Names of columns from the most to the least certain; within a level, names with "id" come first.
_USERS = (
    ("user",),
    ("u", "customer", "client", "visitor", "member", "account", "reviewer", "shopper", "buyer", "person"),
    ("author", "profile", "player", "listener", "reader", "subscriber", "username", "session", "userkey"),
)
_ITEMS = (
    ("item",),
    ("i", "product", "sku", "asin", "movie", "film", "song", "track", "artist", "book", "article", "business"),
    ("venue", "game", "anime", "show", "video", "news", "joke", "recipe", "content", "offer", "itemkey"),
    ("isbn", "title", "location", "poi", "place", "listing", "page", "url"),
)


@dataclass(frozen=True)
class ColumnNames:
    """The chosen columns, which of them were guessed, and whether rows without times stand in order."""

    user: str
    item: str
    weight: str | None = None
    time: str | None = None
    guessed: tuple[str, ...] = ()
    ordered: bool = False

    @property
    def names(self) -> list[str]:
        """Chosen columns, each once."""
        every = (self.user, self.item, self.weight, self.time)
        return list(dict.fromkeys(name for name in every if name is not None))

    @property
    def note(self) -> Message | None:
        """One line on the columns that were guessed, if any were."""
        if not self.guessed:
            return None
        chosen = {"user": self.user, "item": self.item}
        columns = ", ".join(f'{role} column "{chosen[role]}"' for role in self.guessed)
        pronoun = "it" if len(self.guessed) == 1 else "them"
        options = [part for role in self.guessed for part in (" and ", Option(role))][1:]
        return Message(f"{columns} (guessed; name {pronoun} with ", *options, ")")


def choose(
    columns: Sequence[str], label: str, user: str | None, item: str | None, weight: str | None, time: str | None
) -> ColumnNames:
    """Choose the columns: check the names that were given, guess user and item where they were not.

    The time "order" is the column of that name where there is one, else it declares that the rows stand in order.
    """
    _check_header(columns, label)
    ordered = time == ORDER and ORDER not in columns
    time = None if ordered else time
    for role, name in (("user", user), ("item", item), ("weight", weight), ("time", time)):
        if name is not None and name not in columns:
            raise DataError(_no_such(columns, label, role, name))
    taken = {name for name in (user, item, weight, time) if name is not None}
    free = [name for name in columns if name not in taken]
    guessed = tuple(role for role, name in (("user", user), ("item", item)) if name is None)
    user = _guess(free, columns, label, "user", _USERS) if user is None else user
    item = _guess(free, columns, label, "item", _ITEMS) if item is None else item
    roles = {"user": user, "item": item, "weight": weight, "time": time}
    named = {role: name for role, name in roles.items() if name is not None}
    if len(set(named.values())) < len(named):
        options = [part for role, name in named.items() for part in (", ", Option(role, f'"{name}"'))][1:]
        raise DataError(Message(f"{label}: every role needs its own column, got ", *options, "."))
    return ColumnNames(user, item, weight, time, guessed, ordered)


def notes_of_order(names: ColumnNames) -> list[str]:
    """What the time "order" was taken for."""
    if names.ordered:
        return ["rows are taken in their order, without times"]
    if names.time == ORDER:
        return ['times are those of the column "order"; rename the column to declare that rows stand in order']
    return []


def check_unit_of_order(names: ColumnNames, time_unit: str | None) -> None:
    """Refuse a unit where rows stand in order, without times."""
    if names.ordered and time_unit is not None:
        given = Option("time_unit", f'"{time_unit}"')
        raise ParameterError(Message(given, " is the unit of times, but rows in order have no times: leave it out"))


def listed(names: Sequence[str]) -> str:
    """Column names as a message lists them, at most 30."""
    shown = ", ".join(f'"{name}"' for name in names[:30])
    return shown + (f" and {len(names) - 30} more" if len(names) > 30 else "")


def _check_header(columns: Sequence[str], label: str) -> None:
    repeated = sorted({str(name) for name in columns if list(columns).count(name) > 1})
    if repeated:
        raise DataError(f"{label}: column {listed(repeated)} occurs more than once; give each column its own name.")


def _no_such(columns: Sequence[str], label: str, role: str, name: str) -> Message:
    near = difflib.get_close_matches(str(name), [str(n) for n in columns], n=1, cutoff=0.6)
    near = near or [str(n) for n in columns if _simplified(n) == _simplified(name)]
    hint = (" Did you mean ", Option(role, f'"{near[0]}"'), "?") if near else ()
    return Message(f"{label}: there is no column {name!r} for {role}; the columns are {listed(columns)}.", *hint)


def _simplified(name: object) -> str:
    return re.sub(r"[\s_\-.]+", "", str(name)).casefold()


def _rank(name: str, tiers: tuple[tuple[str, ...], ...]) -> tuple[int, int] | None:
    """Rank of a name as a guess (smaller is better); None when the name is not a candidate."""
    simple = _simplified(name)
    for level, nouns in enumerate(tiers):
        if any(simple in (noun + "id", "id" + noun) for noun in nouns):
            return level, 0
        if any(simple == noun for noun in nouns if len(noun) > 1):
            return level, 1
    return None


def _guess(
    free: Sequence[str], columns: Sequence[str], label: str, role: str, tiers: tuple[tuple[str, ...], ...]
) -> str:
    ranked = [(rank, name) for name in free if (rank := _rank(name, tiers)) is not None]
    best = [name for rank, name in ranked if rank == min(ranked, key=lambda pair: pair[0])[0]]
    if len(best) == 1:
        return best[0]
    why = f"{listed(best)} could each be the {role}" if best else f"no column looks like the {role}"
    example = (best or list(columns) or ["name"])[0]
    header = "" if best else " A file needs a header line with the column names."
    raise DataError(
        Message(
            f"{label}: {why}. The columns are {listed(columns)}; name the one to use, as in ",
            Option(role, f'"{example}"'),
            f".{header}",
        )
    )
