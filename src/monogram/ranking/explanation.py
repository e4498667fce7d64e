"""Why an item has its score: the share of each item of the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monogram.engine.runtime.arrays import Float64


@dataclass(frozen=True, eq=False)
class Shares:
    """What each entry of a history adds to the score of one item, by index; `Explanation` holds the same by id.

    Parameters
    ----------
    values : the share of each entry of the history, in its order
    base : the part of the score that no history changes
    """

    values: Float64
    base: float

    @property
    def score(self) -> float:
        """The score: the sum of the shares and the base."""
        return float(sum(self.values.tolist()) + self.base)

    def largest(self, number: int) -> list[tuple[int | None, float]]:
        """The shares largest in magnitude, with the position of their entry; None is the base, unless it is 0."""
        values = np.append(self.values, self.base) if self.base else self.values
        order = np.argsort(-np.abs(values), kind="stable")[:number].tolist()
        return [(at if at < len(self.values) else None, float(values[at])) for at in order]


@dataclass(frozen=True)
class Explanation:
    """What each item of a history adds to the score of one item.

    Attributes
    ----------
    item : the item explained
    shares : pairs of history item and share
    base : the part that no history changes (popularity, RG²; 0 for most models)
    unknown_items : items of the history that the model does not know
    """

    item: Any
    shares: tuple[tuple[Any, float], ...]
    base: float = 0.0
    unknown_items: tuple[Any, ...] = ()

    @property
    def score(self) -> float:
        """The score: the sum of the shares and the base."""
        return sum(share for _, share in self.shares) + self.base

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each share, largest first; a base other than 0 has item None. They sum to the score."""
        rows = [{"item": item, "share": share} for item, share in self.shares]
        rows += [{"item": None, "share": self.base}] if self.base else []
        return sorted(rows, key=lambda row: -abs(row["share"]))

    def __str__(self) -> str:
        lines = [f"{self.item}: {self.score:.4f}"]
        lines += [f"  {row['share']:+.4f}  {_item_name(row['item'])}" for row in self.rows()]
        if self.unknown_items:
            lines.append(f"  unknown: {', '.join(map(str, self.unknown_items))}")
        return "\n".join(lines)


def _item_name(item: Any) -> str:
    return "(everyone)" if item is None else str(item)
