"""Whether a split is a random cut: how the share of held-out events differs between items."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.splits import Split
from monogram.engine.runtime.arrays import Float64
from monogram.errors import ParameterError

LEAST = 1.0  # variance of an item's held-out events, below which it says nothing


@dataclass(frozen=True)
class Shift:
    """How far a split is from a random cut, by item and by popularity.

    Attributes
    ----------
    dispersion : mean over items of (t − e)²/v; 1 on a random cut, None where no item has enough events
    spread : standard deviation of the dispersion between random cuts
    items : how many have enough events: v of at least 1
    deciles : of the items by popularity, the least popular first: decile, items, least and most (events of an item),
        events (held out), expected, and ratio = events/expected, above 1 where the test part has more than its share
    """

    dispersion: float | None
    spread: float | None
    items: int
    deciles: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """As a dictionary, for JSON."""
        return dataclasses.asdict(self) | {"deciles": list(self.deciles)}

    def __str__(self) -> str:
        head = "dispersion unknown: every item has too few events"
        if self.dispersion is not None:
            head = f"dispersion of the test share by item {self.dispersion:.3f}, on a random cut 1 ± {self.spread:.3f}"
        lines = [f"{head} ({self.items:,} items)", f"{'decile':>6} {'popularity':>15} {'test events':>12} {'ratio':>6}"]
        for row in self.deciles:
            popularity = f"{row['least']:,} to {row['most']:,}"
            lines.append(f"{row['decile']:>6} {popularity:>15} {row['events']:>12,} {row['ratio']:>6.3f}")
        return "\n".join(lines)


def shift(split: Split) -> Shift:
    """Measure whether a split is a random cut of its users' events, or popularity shifts between its parts.

    Of a user's known and held-out events the share p_u is held out. If these were drawn at random, each item of the
    user would be among them with probability p_u; so the held-out events t of an item have the mean e = Σp_u and the
    variance v = Σp_u·(1 − p_u), summed over the events of the item in both parts. The dispersion is the mean of
    (t − e)²/v over the items with v of at least 1: Pearson's χ² over its degrees of freedom, with each user's own share
    in place of one for all, so that users who give more do not look like a shift. It is 1 on a random cut (holdout,
    strong, ratio811), and above 1 where items differ in what is held out. There a term has the variance 2 + k/v² with
    k = Σp_u(1 − p_u)(1 − 6p_u(1 − p_u)), the fourth cumulant of t; the spread takes terms as independent.

    The deciles are tenths of the items by the number of their events in both parts: by that of train alone, items of
    which more was held out would seem rare on a random cut, too.

    Parameters
    ----------
    split : from `monogram.splits`

    Returns
    -------
    Shift
        Prints as a small table.
    """
    if not isinstance(split, Split):
        raise ParameterError(
            f"split is a {type(split).__name__}; expected one of monogram.splits: train, test = mg.splits.holdout(log)"
        )
    known, held = split.histories.matrix, split.targets.matrix
    shares = np.diff(held.indptr) / np.maximum(np.diff(held.indptr) + np.diff(known.indptr), 1)
    own = shares * (1 - shares)
    numbers = (np.ones_like(shares), shares, own, own * (1 - 6 * own))
    totals, expected, variance, fourth = (_both(known, held, one) for one in numbers)
    found = np.bincount(held.indices, minlength=held.shape[1])
    enough = variance >= LEAST
    number = int(enough.sum())
    deciles = tuple(_deciles(totals, found, expected))
    if not number:
        return Shift(None, None, 0, deciles)
    terms = (found - expected)[enough] ** 2 / variance[enough]
    spread = np.sqrt((2 + fourth[enough] / variance[enough] ** 2).sum()) / number
    return Shift(float(terms.mean()), float(spread), number, deciles)


def _both(known: Any, held: Any, by_user: Float64) -> Float64:
    """By item, the sum over the events in both parts of a number of their user."""
    parts = (np.bincount(one.indices, np.repeat(by_user, np.diff(one.indptr)), one.shape[1]) for one in (known, held))
    return np.asarray(sum(parts))


def _deciles(totals: Float64, found: NDArray[np.int64], expected: Float64) -> list[dict[str, Any]]:
    order = np.argsort(totals, kind="stable")
    order = order[totals[order] > 0]
    rows = []
    for number, items in enumerate(np.array_split(order, min(10, len(order))), 1):
        wanted, events = float(expected[items].sum()), int(found[items].sum())
        row = {"decile": number, "items": len(items), "least": int(totals[items[0]]), "most": int(totals[items[-1]])}
        rows.append(row | {"events": events, "expected": wanted, "ratio": events / wanted if wanted else 1.0})
    return rows
