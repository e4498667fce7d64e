"""Weights + rules (seen, allow, deny) → recommendations. Ids come in and go out; indices stay here."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.data.vocabulary import Vocabulary
from monogram.engine.runtime import parallel
from monogram.engine.topk.best import Eligible
from monogram.errors import MissingExtraError, ParameterError
from monogram.weights import Weights

Rule = Iterable[Any] | None
One = str | bytes | int | float | UUID


@dataclass(frozen=True)
class Histories:
    """A batch of histories as a CSR matrix, what they are called, and what was not known in them.

    Where unknown users were left out, `asked` is how many requests there were and `kept` which of them remain:
    lists by request are given for the requests as asked.
    """

    matrix: Any
    labels: Any  # one a row: ids, or positions
    unknown_users: tuple[Any, ...] = ()
    unknown_items: tuple[Any, ...] = ()
    asked: int | None = None
    kept: NDArray[np.int64] | None = None


class Recommendations:
    """A table of ranked items: columns user, rank, item, score (for `similar`: item, rank, similar, score).

    Attributes
    ----------
    unknown_users, unknown_items : tuple
        Ids in the request that the model does not know; they were left out.
    empty : tuple
        Users (or positions) without one known item in their history: their scores hold no information.
    residuals : array or None
        Of a matrix-free model, for each user or history that was ranked: ‖h − (S + Λ)z‖/‖h‖ of its solution z.
    """

    def __init__(
        self,
        table: Any,
        *,
        unknown_users: tuple[Any, ...],
        unknown_items: tuple[Any, ...],
        empty: tuple[Any, ...],
        residuals: NDArray[np.float64] | None = None,
    ) -> None:
        self._table = table
        self.unknown_users, self.unknown_items, self.empty = unknown_users, unknown_items, empty
        self.residuals = residuals

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
    asked = id_list(users, "the list of users")
    index = log.users.index(asked)
    kept = np.flatnonzero(index >= 0)
    at = index[kept]
    unknown = tuple(one for one, place in zip(asked, index, strict=True) if place < 0)
    return Histories(log.matrix[at], log.users.take(at), unknown_users=unknown, asked=len(asked), kept=kept)


def given_histories(histories: Any, log: Interactions) -> Histories:
    """Histories by what they hold: lists of item ids, or mappings from item id to weight.

    They are merged as the log was: on a "binary" log every item of a history counts 1, whatever its weight (an item
    of weight 0 is left out); on a "sum" log weights count, and an item named twice counts twice.
    """
    if isinstance(histories, Interactions):
        histories = [histories.history(user) for user in histories.users]
    histories = _plain(histories)
    if _is_matrix(histories):
        raise ParameterError(
            f"histories is a matrix ({type(histories).__name__}); expected a list of histories, each a list of item "
            "ids, or an Interactions: monogram.Interactions.from_csr(matrix, items=…)"
        )
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
    rules, unknown = eligible(asked, items, allow, deny, exclude_seen)
    best = weights.best(asked.matrix, rules, min(int(k), len(items)), parallel.count(threads))
    empty = np.flatnonzero(np.diff(asked.matrix.indptr) == 0)
    return Recommendations(
        _table(best, asked.labels, items, names),
        unknown_users=asked.unknown_users,
        unknown_items=tuple(dict.fromkeys(asked.unknown_items + unknown)),
        empty=tuple(_pick(asked.labels, empty).to_pylist()),
        residuals=best.residuals,
    )


def id_list(ids: Any, name: str = "the list of ids") -> list[Any]:
    """A list of ids from one id, or from anything that holds several."""
    ids = _plain(ids)
    if isinstance(ids, One):
        return [ids]
    if not isinstance(ids, Iterable) or _is_matrix(ids):
        raise ParameterError(f"{_short(ids)} is not an id nor a list of ids")
    plain = [_plain(one) for one in ids]
    for one in plain:
        if _is_many(one):
            raise ParameterError(f"{name} holds {_short(one)}; expected ids: strings, integers or UUIDs")
    return plain


def _plain(value: Any) -> Any:
    """A scalar of NumPy or Arrow, or an Arrow array, as Python has it."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, pa.Scalar):
        return value.as_py()
    return value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else value


def _is_many(value: Any) -> bool:
    """Whether a value is a container; any other is an id, known or not."""
    return not isinstance(value, One) and (isinstance(value, Iterable) or not isinstance(value, Hashable))


def _is_matrix(value: Any) -> bool:
    return sp.issparse(value) or getattr(value, "ndim", 1) > 1


def _history(history: Any, position: int, log: Interactions) -> tuple[Any, Any, list[Any]]:
    """Sorted indices, weights and unknown ids of one history, merged as the log was."""
    history = _plain(history)
    if isinstance(history, One) or not isinstance(history, Iterable) or _is_matrix(history):
        raise ParameterError(
            f"history {position} is {_short(history)}; expected a list of item ids. For one history, write [[…]]"
        )
    ids = id_list(history, f"history {position}")
    values = _values(history, position) if isinstance(history, Mapping) else np.ones(len(ids))
    found = log.items.index(ids)
    keep = (found >= 0) & (values > 0)
    items, where = np.unique(found[keep], return_inverse=True)
    total = np.bincount(where, values[keep], len(items)).astype(np.float32)
    if log.merge == "binary":
        total[:] = 1
    return items, total, [one for one, place in zip(ids, found, strict=True) if place < 0]


def _values(history: Mapping[Any, Any], position: int) -> NDArray[np.float64]:
    values = np.array([_weight(value) for value in history.values()], np.float64)
    for item, value, number in zip(history, history.values(), values, strict=True):
        if not 0 <= number <= np.finfo(np.float32).max:
            raise ParameterError(
                f"history {position} gives {shorten(item)} the weight {_short(value)}; "
                "expected a finite number of at least 0"
            )
    return values


def _weight(value: Any) -> float:
    try:
        return float(_plain(value))
    except (TypeError, ValueError, OverflowError):
        return np.nan


def eligible(
    asked: Histories, items: Vocabulary, allow: Rule, deny: Rule, exclude_seen: bool
) -> tuple[Eligible, tuple[Any, ...]]:
    """Who may get what, as the kernels take it, and the ids in the rules that are not known."""
    rows, n = asked.matrix.shape
    mask = np.ones(n, np.bool_)
    seen = asked.matrix if exclude_seen else sp.csr_array((rows, n), dtype=np.float32)
    only_pointers, only = np.zeros(0, np.int64), np.zeros(0, np.int64)
    unknown: list[Any] = []
    if allow is not None:
        each, lists, missing = _rule(allow, items, asked, "allow")
        unknown += missing
        if each:
            only_pointers, only = lists.indptr.astype(np.int64), lists.indices.astype(np.int64)
        else:
            mask[:] = False
            mask[lists.indices] = True
    if deny is not None:
        each, lists, missing = _rule(deny, items, asked, "deny")
        unknown += missing
        if each:
            seen = _union(seen, lists)
        else:
            mask[lists.indices] = False
    return Eligible(mask, seen.indptr.astype(np.int64), seen.indices.astype(np.int64), only_pointers, only), tuple(
        unknown
    )


def _rule(rule: Any, items: Vocabulary, asked: Histories, name: str) -> tuple[bool, Any, list[Any]]:
    """A list for all (one row) or a list for each request that remains; sorted, unknown ids apart."""
    each, lists = rule_lists(rule, name)
    requests = asked.matrix.shape[0] if asked.asked is None else asked.asked
    if each and len(lists) != requests:
        raise ParameterError(f"{name} has {len(lists)} lists for {requests} requests; expected one list for each")
    if each and asked.kept is not None:
        lists = [lists[at] for at in asked.kept]
    found = [items.index(one) for one in lists]
    missing = [
        one for ids, at in zip(lists, found, strict=True) for one, place in zip(ids, at, strict=True) if place < 0
    ]
    kept = [np.unique(at[at >= 0]) for at in found]
    pointers = np.cumsum([0] + [len(at) for at in kept])
    flat = np.concatenate([np.zeros(0, np.int64), *kept])
    return each, sp.csr_array((np.ones(len(flat), np.float32), flat, pointers), shape=(len(lists), len(items))), missing


def rule_lists(rule: Any, name: str) -> tuple[bool, list[list[Any]]]:
    """Whether a rule holds a list for each request, and its lists."""
    rule = _plain(rule)
    if not isinstance(rule, One | Iterable):
        raise ParameterError(f"{name} is {_short(rule)}; expected item ids, or one list of them for each request")
    entries = [rule] if isinstance(rule, One) else [_plain(one) for one in rule]
    nested = [_is_many(one) for one in entries]
    each = bool(entries) and all(nested)
    if any(nested) and not each:
        raise ParameterError(f"{name} mixes ids and lists; expected a list of ids, or one list of ids for each request")
    return each, [id_list(one, name) for one in entries] if each else [entries]


def _union(left: Any, right: Any) -> Any:
    both = ((left != 0).astype(np.float32) + right).tocsr()
    both.sort_indices()
    return both


def _table(best: Any, labels: Any, items: Vocabulary, names: tuple[str, str]) -> Any:
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
    return shorten(" ".join(line.strip() for line in repr(value).splitlines()))
