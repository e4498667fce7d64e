"""The result of an evaluation: a table of models and metrics that converts to JSON, CSV, Markdown and Arrow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError
from monogram.evaluation.metrics import BY_USER, Metric
from monogram.evaluation.statistics import Difference, bootstrap, interval, paired

COLUMNS = ("model", "metric", "value", "low", "high", "users")


class Evaluation:
    """Means over users with 95% bootstrap intervals; the same resampled users for every model.

    Attributes
    ----------
    protocol : name of the split
    users : with per_user=True, an Arrow table with a row for each model and user; else None
    """

    def __init__(
        self,
        protocol: str,
        metrics: tuple[Metric, ...],
        values: Mapping[str, Float64],
        catalogue: Mapping[str, Mapping[str, float]],
        user_ids: Any,
        seed: int,
    ) -> None:
        self.protocol, self._metrics, self._seed = protocol, metrics, seed
        self._by_user = [str(metric) for metric in metrics if metric.name in BY_USER]
        self._values, self._catalogue = dict(values), dict(catalogue)
        self._rows = self._summary()
        self.users = None if user_ids is None else self._per_user(user_ids)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each model and metric: model, metric, value, low, high, users.

        Metrics of the catalogue (coverage, gini) have no interval: low and high are None.
        """
        return [dict(row) for row in self._rows]

    def value(self, model: str, metric: str) -> float:
        """The mean of one metric of one model."""
        for row in self._rows:
            if row["model"] == model and row["metric"] == metric:
                return float(row["value"])
        raise ParameterError(
            f"there is no {metric!r} of {model!r}; models: {', '.join(self._values)}; "
            f"metrics: {', '.join(map(str, self._metrics))}"
        )

    def compare(self, first: str, second: str, metric: str | None = None) -> Difference:
        """The paired difference first − second on a metric of users (the first one by default)."""
        if not self._by_user:
            raise ParameterError("only metrics of the catalogue were measured; expected one by user, such as recall@20")
        metric = metric or self._by_user[0]
        if metric not in self._by_user:
            raise ParameterError(
                f"metric {metric!r} has no value by user here; expected one of {', '.join(self._by_user)}"
            )
        for name in (first, second):
            if name not in self._values:
                raise ParameterError(f"there is no model {name!r}; expected one of {', '.join(self._values)}")
        column = self._by_user.index(metric)
        return paired(self._values[first][:, column], self._values[second][:, column], seed=self._seed)

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        import pyarrow as pa

        kinds = (pa.string(), pa.string(), pa.float64(), pa.float64(), pa.float64(), pa.int64())
        return pa.Table.from_pylist(self._rows, pa.schema(list(zip(COLUMNS, kinds, strict=True))))

    def to_json(self) -> str:
        """The rows as a JSON array."""
        return json.dumps(self._rows, indent=2)

    def to_csv(self) -> str:
        """The rows as CSV with a header."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        return text.getvalue()

    def to_markdown(self) -> str:
        """A row for each model, a column for each metric, intervals in brackets."""
        names = [str(metric) for metric in self._metrics]
        lines = ["| model | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
        for model in self._values:
            name = model.replace("|", "\\|").replace("\n", " ")
            lines.append("| " + " | ".join([name, *self._cells(model)]) + " |")
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        table = [["model", *map(str, self._metrics)]]
        table += [[model, *self._cells(model)] for model in self._values]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        users = len(next(iter(self._values.values())))
        return "\n".join([*lines, f"{self.protocol}, {users:,} users, mean [95% interval]"])

    def _cells(self, model: str) -> list[str]:
        cells = []
        for row in self._rows:
            if row["model"] == model:
                bounds = "" if row["low"] is None else f" [{row['low']:.4f}, {row['high']:.4f}]"
                cells.append(f"{row['value']:.4f}{bounds}")
        return cells

    def _summary(self) -> list[dict[str, Any]]:
        rows, width = [], len(self._by_user)
        every = np.hstack(list(self._values.values()))
        low, high = interval(bootstrap(every, seed=self._seed)) if width else (every, every)
        for number, (model, values) in enumerate(self._values.items()):
            for metric in map(str, self._metrics):
                if metric in self._by_user:
                    column = self._by_user.index(metric)
                    at = number * width + column
                    numbers = (float(values[:, column].mean()), float(low[at]), float(high[at]))
                else:
                    numbers = (self._catalogue[model][metric], None, None)  # type: ignore[assignment]
                rows.append(dict(zip(COLUMNS, (model, metric, *numbers, len(values)), strict=True)))
        return rows

    def _per_user(self, user_ids: Any) -> Any:
        import pyarrow as pa

        parts = []
        for model, values in self._values.items():
            columns = {"model": pa.array([model] * len(values)), "user": user_ids}
            columns |= {metric: pa.array(values[:, column]) for column, metric in enumerate(self._by_user)}
            parts.append(pa.table(columns))
        return pa.concat_tables(parts)
