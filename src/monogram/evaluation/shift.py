"""Popularity shift of a split: how the share of held-out events differs between items."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.splits import Split
from monogram.engine.runtime.arrays import Csr, Float64
from monogram.errors import ParameterError

LEAST = 1.0  # variance of an item's held-out events; items below it have too few events


@dataclass(frozen=True)
class Shift:
    """How far a split is from a random split, by item and by popularity.

    Attributes
    ----------
    dispersion : mean over items of (t − e)²/v; 1 on a random split, None where no item has enough events
    spread : standard deviation of the dispersion over random splits
    items : the number of items with enough events: v of at least 1
    deciles : of the items by popularity, the least popular first: decile, items, least and most (events of an item),
        events (held out), expected, and ratio = events/expected, above 1 where the test part has more than its share
    """

    dispersion: float | None
    spread: float | None
    items: int
    deciles: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """The shift as a dictionary, for JSON."""
        return dataclasses.asdict(self) | {"deciles": list(self.deciles)}

    def __str__(self) -> str:
        head = "dispersion unknown: every item has too few events"
        if self.dispersion is not None:
            head = (
                f"dispersion of the test share by item {self.dispersion:.3f}, on a random split 1 ± {self.spread:.3f}"
            )
        lines = [f"{head} ({self.items:,} items)", f"{'decile':>6} {'popularity':>15} {'test events':>12} {'ratio':>6}"]
        for row in self.deciles:
            popularity = f"{row['least']:,} to {row['most']:,}"
            lines.append(f"{row['decile']:>6} {popularity:>15} {row['events']:>12,} {row['ratio']:>6.3f}")
        return "\n".join(lines)


def shift(split: Split) -> Shift:
    """Measure whether a split is a random split of its users' events, or popularity shifts between its parts.

    The share p_u of a user's events is held out. If the held-out events were drawn at random, each event of the user
    would be among them with probability p_u; so the number t of held-out events of an item has the mean e = Σp_u and
    the variance v = Σp_u·(1 − p_u), summed over the events of the item in both parts. The dispersion is the mean of
    (t − e)²/v over the items with v of at least 1: Pearson's χ² over its degrees of freedom, with a share for each user
    in place of one for all, so that users with larger shares do not look like a shift. It is 1 on a random split
    (holdout, strong, ratio811), and above 1 where the held-out share differs between items. On a random split a term
    has the variance 2 + k/v² with k = Σp_u(1 − p_u)(1 − 6p_u(1 − p_u)), the fourth cumulant of t; the spread takes the
    terms as independent.

    The deciles are tenths of the items by the number of their events in both parts. By their events in train alone,
    items with a larger held-out share would look rare on a random split, too.

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
    known, held_out = split.histories.matrix, split.targets.matrix
    shares = np.diff(held_out.indptr) / np.maximum(np.diff(held_out.indptr) + np.diff(known.indptr), 1)
    variances = shares * (1 - shares)
    by_user = (np.ones_like(shares), shares, variances, variances * (1 - 6 * variances))
    totals, expected, variance, fourth = (_sum_by_item(known, held_out, numbers) for numbers in by_user)
    observed = np.bincount(held_out.indices, minlength=held_out.shape[1])
    enough = variance >= LEAST
    number = int(enough.sum())
    deciles = tuple(_deciles(totals, observed, expected))
    if not number:
        return Shift(None, None, 0, deciles)
    terms = (observed - expected)[enough] ** 2 / variance[enough]
    spread = np.sqrt((2 + fourth[enough] / variance[enough] ** 2).sum()) / number
    return Shift(float(terms.mean()), float(spread), number, deciles)


def _sum_by_item(known: Csr, held_out: Csr, by_user: Float64) -> Float64:
    """By item, the sum of a number of the user over the events in both parts."""
    sums = (
        np.bincount(part.indices, np.repeat(by_user, np.diff(part.indptr)), part.shape[1]) for part in (known, held_out)
    )
    return np.asarray(sum(sums))


def _deciles(totals: Float64, observed: NDArray[np.int64], expected: Float64) -> list[dict[str, Any]]:
    order = np.argsort(totals, kind="stable")
    order = order[totals[order] > 0]
    rows = []
    for number, items in enumerate(np.array_split(order, min(10, len(order))), 1):
        wanted, events = float(expected[items].sum()), int(observed[items].sum())
        row = {"decile": number, "items": len(items), "least": int(totals[items[0]]), "most": int(totals[items[-1]])}
        rows.append(row | {"events": events, "expected": wanted, "ratio": events / wanted if wanted else 1.0})
    return rows
