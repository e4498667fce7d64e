"""The reason for one recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Explanation:
    """What each item of a history adds to the score of one item.

    Attributes
    ----------
    item : the item explained
    shares : pairs of history item and share
    base : the part that no history changes (popularity, RG²; 0 for most models)
    unknown_items : what the model does not know of the history
    """

    item: Any
    shares: tuple[tuple[Any, float], ...]
    base: float = 0.0
    unknown_items: tuple[Any, ...] = ()

    @property
    def score(self) -> float:
        """The score: the sum of the shares."""
        return sum(share for _, share in self.shares) + self.base

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary a share, largest first; the base, where there is one, as item None. They sum to the score."""
        rows = [{"item": item, "share": share} for item, share in self.shares]
        rows += [{"item": None, "share": self.base}] if self.base else []
        return sorted(rows, key=lambda row: -abs(row["share"]))

    def __str__(self) -> str:
        lines = [f"{self.item}: {self.score:.4f}"]
        lines += [f"  {row['share']:+.4f}  {_named(row['item'])}" for row in self.rows()]
        if self.unknown_items:
            lines.append(f"  unknown: {', '.join(map(str, self.unknown_items))}")
        return "\n".join(lines)


def _named(item: Any) -> str:
    return "(everyone)" if item is None else str(item)
