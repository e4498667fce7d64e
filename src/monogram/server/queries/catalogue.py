"""The item catalogue: columns of the items from a file, the number of users of each, and search."""

from __future__ import annotations

import threading
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from monogram.data.interactions import Interactions
from monogram.errors import DataError
from monogram.server.http.schemas import Found, Page

IDS = ("item", "item_id", "itemid", "id", "sku")
TITLES = ("title", "name", "label")


@dataclass(frozen=True)
class ItemTable:
    """A file of items: ids and other columns."""

    ids: list[Any]
    names: tuple[str, ...]
    encoded: list[msgspec.Raw]  # the columns of each item as JSON
    titles: list[str]


def read(path: str | None) -> ItemTable | None:
    """Items from a CSV, TSV or Parquet file; the column of ids is named as in `IDS`, or is the first."""
    if path is None:
        return None
    try:
        table = _table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"the items in {path} cannot be read: {error}") from error
    names = table.column_names
    duplicate = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if duplicate is not None:
        raise DataError(f"the items in {path} have two columns called {duplicate!r}; name each column differently")
    lower = {name.lower(): name for name in reversed(names)}
    id_column = next((lower[name] for name in IDS if name in lower), names[0])
    title = next((lower[name] for name in TITLES if name in lower and lower[name] != id_column), None)
    others = tuple(name for name in names if name != id_column)
    rows = [{name: value for name, value in row.items() if value is not None} for row in _row_dicts(table, others)]
    titles = ["" if title is None else str(row.get(title, "")) for row in rows]
    encoded = [msgspec.Raw(msgspec.json.encode(row)) for row in rows]
    return ItemTable(table.column(id_column).to_pylist(), others, encoded, titles)


def _row_dicts(table: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.select(names).to_pylist()
    return rows or [{}] * table.num_rows


def _table(path: str) -> Any:
    if Path(path).suffix.lower() == ".parquet":
        return pa.parquet.read_table(path)
    with Path(path).open("rb") as file:
        head = file.readline(65_536)
    separator = max(b",;\t", key=head.count)  # the most frequent in the first line; a comma where there is none
    options = pa.csv.ParseOptions(delimiter=chr(separator), newlines_in_values=True)
    with pa.csv.open_csv(path, parse_options=options) as reader:
        names = reader.schema.names
    texts = {name: pa.string() for name in names if name.lower() in (*IDS, *TITLES) or name == names[0]}
    return pa.csv.read_csv(path, parse_options=options, convert_options=pa.csv.ConvertOptions(column_types=texts))


def plain_text(text: str) -> str:
    """A text in lower case without accents."""
    split = unicodedata.normalize("NFKD", text)
    return "".join(character for character in split if not unicodedata.combining(character)).casefold()


class Catalogue:
    """The items of one model."""

    def __init__(self, log: Interactions, table: ItemTable | None) -> None:
        self.items, self.names = log.items, () if table is None else table.names
        self.uses = np.bincount(log.matrix.indices, minlength=log.n_items)
        self._columns: list[Any] | None = None
        self._titles: dict[int, str] = {}
        self._searched: list[tuple[int, str, str]] | None = None
        self.matched = 0  # items that are in the file of items
        self._lock = threading.Lock()
        if table is not None:
            self._join(table, log)

    def _join(self, table: ItemTable, log: Interactions) -> None:
        columns: list[Any] = [msgspec.UNSET] * log.n_items
        for place, row, title in zip(log.items.index(table.ids).tolist(), table.encoded, table.titles, strict=True):
            if place >= 0:
                columns[place], self._titles[place] = row, title
        self._columns, self.matched = columns, len(self._titles)

    def columns(self, item: int) -> Any:
        """The columns of an item as JSON, or UNSET."""
        return msgspec.UNSET if self._columns is None else self._columns[item]

    def search(self, model: str, query: str, offset: int, limit: int) -> Page:
        """Items whose id or title contains a text: first those that begin with it; each group by number of users."""
        wanted = plain_text(query)
        first, others = [], []
        for place, name, title in self._index():
            if name.startswith(wanted) or title.startswith(wanted):
                first.append(place)
            elif wanted in name or wanted in title:
                others.append(place)
        places = (first + others)[offset : offset + limit]
        ids = self.items.ids(places) if places else []
        page = [Found(id_, int(self.uses[place]), self.columns(place)) for id_, place in zip(ids, places, strict=True)]
        return Page(model, len(first) + len(others), offset, limit, page)

    def _index(self) -> list[tuple[int, str, str]]:
        """Index, id and title as they are compared, by number of users; built at the first search."""
        with self._lock:
            if self._searched is None:
                order = np.argsort(-self.uses, kind="stable").tolist()
                ids = self.items.ids(order)
                self._searched = [
                    (place, plain_text(str(id_)), plain_text(self._titles.get(place, "")))
                    for id_, place in zip(ids, order, strict=True)
                ]
            return self._searched
