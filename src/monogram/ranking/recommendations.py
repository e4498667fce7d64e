"""The table of ranked items that `recommend` and `similar` return."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from monogram.data.id_arrays import arrow_numbers
from monogram.data.vocabulary import Vocabulary
from monogram.engine.runtime.arrays import Float64
from monogram.engine.topk.best import Best
from monogram.errors import MissingExtraError
from monogram.ranking.ids import first_ids
from monogram.ranking.requests import Histories

PRINTED = 40  # rows that `repr` shows


class Recommendations:
    """A table of ranked items: columns user, rank, item, score (for `similar`: item, rank, similar, score).

    Attributes
    ----------
    unknown_users, unknown_items : tuple
        Ids in the request that the model does not know; they were left out.
    empty : tuple
        Users (or positions) without a known item in their history: their scores hold no information.
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
        residuals: Float64 | None = None,
    ) -> None:
        self._table = table
        self.unknown_users, self.unknown_items, self.empty = unknown_users, unknown_items, empty
        self.residuals = residuals

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each row."""
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def to_arrow(self) -> Any:
        """The table as a `pyarrow.Table`."""
        return self._table

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`."""
        _require("pandas")
        return self._table.to_pandas()

    def to_polars(self) -> Any:
        """The table as a `polars.DataFrame`; UUIDs become text, since polars has no UUID type."""
        _require("polars")
        import polars

        columns = [
            pa.array([str(value) for value in column.to_pylist()]) if column.type == pa.uuid() else column
            for column in self._table.columns
        ]
        return polars.from_arrow(pa.table(columns, names=self._table.column_names))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        lines = [_drawn(self._table.slice(0, PRINTED))]
        if len(self) > PRINTED:
            lines.append(f"… {len(self) - PRINTED:,} more rows")
        for heading, ids in (
            ("unknown users", self.unknown_users),
            ("unknown items", self.unknown_items),
            ("nothing known in the history of", self.empty),
        ):
            if ids:
                lines.append(f"{heading}: {first_ids(ids)}")
        return "\n".join(lines)


def tabulate(
    best: Best, histories: Histories, items: Vocabulary, names: tuple[str, str], unknown_items: tuple[Any, ...] = ()
) -> Recommendations:
    """Ranked indices as a table of ids.

    Parameters
    ----------
    names : of the column of labels, and of the column of ranked items
    unknown_items : ids in the rules that are unknown
    """
    in_list = np.arange(best.items.shape[1]) < best.counts[:, None]
    label_name, item_name = names
    rows = np.repeat(np.arange(len(best.counts)), best.counts)
    ranks = np.broadcast_to(np.arange(1, in_list.shape[1] + 1, dtype=np.int32), in_list.shape)[in_list]
    columns = {
        label_name: histories.label_column(rows),
        "rank": arrow_numbers(ranks),
        item_name: items.take(best.items[in_list]),
        "score": arrow_numbers(best.scores[in_list]),
    }
    return Recommendations(
        pa.table(columns),
        unknown_users=histories.unknown_users,
        unknown_items=tuple(dict.fromkeys(histories.unknown_items + unknown_items)),
        empty=tuple(histories.label_column(histories.empty_rows()).to_pylist()),
        residuals=best.residuals,
    )


def _drawn(table: Any) -> str:
    """A table as text."""
    from rich.console import Console
    from rich.table import Table

    text = Table(box=None, pad_edge=False)
    for name in table.column_names:
        text.add_column(name, justify="right" if name in ("rank", "score") else "left")
    for row in table.to_pylist():
        text.add_row(*[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()])
    console = Console(width=100, color_system=None, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(text)
    return capture.get().rstrip()


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(f"{package} is not installed; install it with: pip install {package}")
