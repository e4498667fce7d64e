"""Weights + rules (seen, allow, deny) → recommendations. Ids come in and go out; indices stay here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.vocabulary import Vocabulary
from monogram.engine import parallel
from monogram.engine.topk import Eligible
from monogram.errors import MissingExtraError, ParameterError
from monogram.weights import Weights

Rule = Iterable[Any] | None


@dataclass(frozen=True)
class Histories:
    """A batch of histories as a CSR matrix, what they are called, and what was not known in them."""

    matrix: Any
    labels: Any  # one a row: ids, or positions
    unknown_users: tuple[Any, ...] = ()
    unknown_items: tuple[Any, ...] = ()


class Recommendations:
    """A table of ranked items: columns user, rank, item, score (for `similar`: item, rank, similar, score).

    Attributes
    ----------
    unknown_users, unknown_items : tuple
        Ids in the request that the model does not know; they were left out.
    empty : tuple
        Users (or positions) without one known item in their history: their scores hold no information.
    """

    def __init__(
        self, table: Any, *, unknown_users: tuple[Any, ...], unknown_items: tuple[Any, ...], empty: tuple[Any, ...]
    ) -> None:
        self._table = table
        self.unknown_users, self.unknown_items, self.empty = unknown_users, unknown_items, empty

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a row."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def to_arrow(self) -> Any:
        """The table as a `pyarrow.Table`."""
        return self._table

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`."""
        _need("pandas")
        return self._table.to_pandas()

    def to_polars(self) -> Any:
        """The table as a `polars.DataFrame`."""
        _need("polars")
        import polars
        import pyarrow as pa

        plain = [  # polars has no UUID: as text
            pa.array([str(value) for value in column.to_pylist()]) if column.type == pa.uuid() else column
            for column in self._table.columns
        ]
        return polars.from_arrow(pa.table(plain, names=self._table.column_names))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        shown, most = Table(box=None, pad_edge=False), 40
        for name in self._table.column_names:
            shown.add_column(name, justify="right" if name in ("rank", "score") else "left")
        for row in self._table.slice(0, most).to_pylist():
            shown.add_row(*[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()])
        console = Console(width=100, color_system=None, highlight=False, markup=False)
        with console.capture() as capture:
            console.print(shown)
        lines = [capture.get().rstrip()]
        if len(self) > most:
            lines.append(f"… {len(self) - most:,} more rows")
        for what, ids in (
            ("unknown users", self.unknown_users),
            ("unknown items", self.unknown_items),
            ("nothing known in the history of", self.empty),
        ):
            if ids:
                lines.append(f"{what}: {_few(ids)}")
        return "\n".join(lines)


def known_users(users: Rule, log: Interactions) -> Histories:
    """The training histories of users by id, or of all."""
    if users is None:
        return Histories(log.matrix, log.users.take(np.arange(log.n_users)))
    asked = id_list(users)
    index = log.users.index(asked)
    at = index[index >= 0]
    unknown = tuple(one for one, place in zip(asked, index, strict=True) if place < 0)
    return Histories(log.matrix[at], log.users.take(at), unknown_users=unknown)


def given_histories(histories: Any, log: Interactions) -> Histories:
    """Histories by what they hold: lists of item ids, or mappings from item id to weight."""
    if isinstance(histories, Interactions):
        histories = [histories.history(user) for user in histories.users]
    if isinstance(histories, str | Mapping) or not isinstance(histories, Iterable):
        raise ParameterError(f"histories = {_short(histories)}; expected a list of histories, each a list of item ids")
    histories = list(histories)
    rows = [_history(one, position, log) for position, one in enumerate(histories)]
    pointers = np.cumsum([0] + [len(items) for items, _, _ in rows])
    indices = np.concatenate([np.zeros(0, np.int64)] + [items for items, _, _ in rows])
    data = np.concatenate([np.zeros(0, np.float32)] + [values for _, values, _ in rows])
    matrix = sp.csr_array(
        (data, indices.astype(log.matrix.indices.dtype), pointers), shape=(len(rows), log.n_items), dtype=np.float32
    )
    unknown = dict.fromkeys(one for _, _, missing in rows for one in missing)
    return Histories(matrix, np.arange(len(rows)), unknown_items=tuple(unknown))


def recommend(
    weights: Weights,
    asked: Histories,
    items: Vocabulary,
    *,
    k: int,
    allow: Rule = None,
    deny: Rule = None,
    exclude_seen: bool = True,
    threads: int | None = None,
    names: tuple[str, str] = ("user", "item"),
) -> Recommendations:
    """Rank: for each history the k best of the items it may get."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ParameterError(f"k = {k!r}; expected a whole number of at least 1")
    eligible, unknown = _eligible(asked, items, allow, deny, exclude_seen)
    best = weights.best(asked.matrix, eligible, min(int(k), len(items)), parallel.count(threads))
    empty = np.flatnonzero(np.diff(asked.matrix.indptr) == 0)
    return Recommendations(
        _table(best, asked.labels, items, names),
        unknown_users=asked.unknown_users,
        unknown_items=tuple(dict.fromkeys(asked.unknown_items + unknown)),
        empty=tuple(_pick(asked.labels, empty).to_pylist()),
    )


def id_list(ids: Any) -> list[Any]:
    """A list of ids from one id, or from anything that holds several."""
    if isinstance(ids, str | bytes | int | UUID):
        return [ids]
    if not isinstance(ids, Iterable):
        raise ParameterError(f"{_short(ids)} is not an id nor a list of ids")
    return [one.item() if isinstance(one, np.generic) else one for one in ids]


def _history(history: Any, position: int, log: Interactions) -> tuple[Any, Any, list[Any]]:
    """Sorted indices, weights and unknown ids of one history, merged as the log was."""
    if isinstance(history, str | bytes | int | UUID) or not isinstance(history, Iterable):
        raise ParameterError(
            f"history {position} is {_short(history)}; expected a list of item ids. For one history, write [[…]]"
        )
    ids = id_list(history)
    values = np.array(list(history.values()) if isinstance(history, Mapping) else [1.0] * len(ids), np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ParameterError(f"history {position} has a weight that is negative or not finite")
    found = log.items.index(ids)
    keep = (found >= 0) & (values > 0)
    items, where = np.unique(found[keep], return_inverse=True)
    total = np.bincount(where, values[keep], len(items)).astype(np.float32)
    if log.merge == "binary":
        total[:] = 1
    return items, total, [one for one, place in zip(ids, found, strict=True) if place < 0]


def _eligible(
    asked: Histories, items: Vocabulary, allow: Rule, deny: Rule, exclude_seen: bool
) -> tuple[Eligible, tuple[Any, ...]]:
    rows, n = asked.matrix.shape
    mask = np.ones(n, np.bool_)
    seen = asked.matrix if exclude_seen else sp.csr_array((rows, n), dtype=np.float32)
    only_pointers, only = np.zeros(0, np.int64), np.zeros(0, np.int64)
    unknown: list[Any] = []
    if allow is not None:
        each, lists, missing = _rule(allow, items, rows, "allow")
        unknown += missing
        if each:
            only_pointers, only = lists.indptr.astype(np.int64), lists.indices.astype(np.int64)
        else:
            mask[:] = False
            mask[lists.indices] = True
    if deny is not None:
        each, lists, missing = _rule(deny, items, rows, "deny")
        unknown += missing
        if each:
            seen = _union(seen, lists)
        else:
            mask[lists.indices] = False
    return Eligible(mask, seen.indptr.astype(np.int64), seen.indices.astype(np.int64), only_pointers, only), tuple(
        unknown
    )


def _rule(rule: Any, items: Vocabulary, rows: int, name: str) -> tuple[bool, Any, list[Any]]:
    """A list for all (one row) or a list for each request; sorted, unknown ids apart."""
    entries = [rule] if isinstance(rule, str | bytes | int | UUID) else list(rule)
    nested = [not isinstance(one, str | bytes | int | UUID | np.generic) for one in entries]
    each = bool(entries) and all(nested)
    if any(nested) and not each:
        raise ParameterError(f"{name} mixes ids and lists; expected a list of ids, or one list of ids for each request")
    if each and len(entries) != rows:
        raise ParameterError(f"{name} has {len(entries)} lists for {rows} requests; expected one list for each")
    lists = [id_list(one) for one in entries] if each else [id_list(entries)]
    found = [items.index(one) for one in lists]
    missing = [
        one for ids, at in zip(lists, found, strict=True) for one, place in zip(ids, at, strict=True) if place < 0
    ]
    kept = [np.unique(at[at >= 0]) for at in found]
    pointers = np.cumsum([0] + [len(at) for at in kept])
    flat = np.concatenate([np.zeros(0, np.int64), *kept])
    return each, sp.csr_array((np.ones(len(flat), np.float32), flat, pointers), shape=(len(lists), len(items))), missing


def _union(left: Any, right: Any) -> Any:
    both = ((left != 0).astype(np.float32) + right).tocsr()
    both.sort_indices()
    return both


def _table(best: Any, labels: Any, items: Vocabulary, names: tuple[str, str]) -> Any:
    import pyarrow as pa

    kept = np.arange(best.items.shape[1]) < best.counts[:, None]
    first, third = names
    owner = np.repeat(np.arange(len(best.counts)), best.counts)
    ranks = np.broadcast_to(np.arange(1, kept.shape[1] + 1, dtype=np.int32), kept.shape)[kept]
    columns = {
        first: _pick(labels, owner),
        "rank": pa.array(ranks),
        third: items.take(best.items[kept]),
        "score": pa.array(best.scores[kept]),
    }
    return pa.table(columns)


def _pick(labels: Any, at: NDArray[np.integer[Any]]) -> Any:
    import pyarrow as pa

    return pa.array(labels[at]) if isinstance(labels, np.ndarray) else labels.take(pa.array(at))


def _need(package: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(f"{package} is not installed; install it with: pip install {package}")


def _few(ids: Sequence[Any]) -> str:
    return ", ".join(shorten(one) for one in ids[:5]) + (f" and {len(ids) - 5:,} more" if len(ids) > 5 else "")


def shorten(value: Any) -> str:
    """An id for a message: as it is, or its beginning."""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _short(value: Any) -> str:
    return shorten(repr(value))
