"""Why an item has its score: the share of each item of the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from monogram.engine.runtime.arrays import Float64

DIFFERENCES = "not shares: how much the score falls without the one item"


@dataclass(frozen=True, eq=False)
class Shares:
    """What each entry of a history adds to the score of one item, by index; `Explanation` holds the same by id.

    Parameters
    ----------
    values : the share of each entry of the history, in its order; with a `total` the difference that it makes
    base : the part of the score that no history changes
    total : the score, where the values are differences, which need not sum to it; else None
    """

    values: Float64
    base: float
    total: float | None = None

    @property
    def score(self) -> float:
        """The score; without a `total` the sum of the shares and the base."""
        return float(sum(self.values.tolist()) + self.base) if self.total is None else self.total

    def largest(self, number: int) -> list[tuple[int | None, float]]:
        """The shares largest in magnitude, with the position of their entry; None is the base, unless it is 0."""
        values = np.append(self.values, self.base) if self.base else self.values
        order = np.argsort(-np.abs(values), kind="stable")[:number].tolist()
        return [(at if at < len(self.values) else None, float(values[at])) for at in order]


@dataclass(frozen=True)
class Explanation:
    """What each item of a history adds to the score of one item.

    Where the model's scores are no sums over the history, the numbers are not shares but differences: how much the
    score falls when the history lacks this one item. Differences need not sum to the score; `additive` is then False.
    For a user with a trained vector `score` is that of this vector, and the differences are those of the score that the
    same history would have for a new user.

    Attributes
    ----------
    item : the item explained
    shares : pairs of history item and share, or difference
    base : the part that no history changes (popularity, RG²; 0 for most models)
    unknown_items : items of the history that the model does not know
    weights : the weight of each event of the history, in the order of `shares`: how much it counts by its age, times
        its weight in the log or in the request
    total : the score, where the numbers are differences; None where they are shares
    """

    item: Any
    shares: tuple[tuple[Any, float], ...]
    base: float = 0.0
    unknown_items: tuple[Any, ...] = ()
    weights: tuple[float, ...] = ()
    total: float | None = None

    @property
    def additive(self) -> bool:
        """Whether the numbers are shares, which sum to the score; else they are differences."""
        return self.total is None

    @property
    def score(self) -> float:
        """The score; for shares their sum and the base."""
        return sum(share for _, share in self.shares) + self.base if self.total is None else self.total

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each share or difference, largest first; a base other than 0 has item None.

        Shares sum to the score. "weight" is that of the event; the base has the weight None.
        """
        weights: Iterable[float] = self.weights or repeat(1.0)
        rows: list[dict[str, Any]] = [
            {"item": item, "share": share, "weight": weight}
            for (item, share), weight in zip(self.shares, weights, strict=False)
        ]
        rows += [{"item": None, "share": self.base, "weight": None}] if self.base else []
        return sorted(rows, key=lambda row: -abs(row["share"]))

    def __str__(self) -> str:
        weighted = any(weight != 1 for weight in self.weights)
        lines = [f"{self.item}: {self.score:.4f}" + ("" if self.additive else f"; {DIFFERENCES}")]
        for row in self.rows():
            weight = f"  (weight {row['weight']:.3g})" if weighted and row["weight"] is not None else ""
            lines.append(f"  {row['share']:+.4f}  {_item_name(row['item'])}{weight}")
        if self.unknown_items:
            lines.append(f"  unknown: {', '.join(map(str, self.unknown_items))}")
        return "\n".join(lines)


def _item_name(item: Any) -> str:
    return "(everyone)" if item is None else str(item)
