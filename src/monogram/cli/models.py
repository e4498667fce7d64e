"""`monogram models`: list the models, with what each needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monogram.cli.output import print_json, print_table
from monogram.cli.shared_options import Json

if TYPE_CHECKING:
    from monogram.models.base import Recommender


def command(json: Json = False) -> None:
    """List the models, with what each needs.

    A fit is a closed form, or runs in epochs, or is trained by gradients, which needs the extra torch. Explanations are
    shares, which sum to the score, or differences: how much the score falls without one item of the history.
    """
    from monogram.models.registry import MODELS

    rows = [_row(name, kind) for name, kind in MODELS.items()]
    if json:
        print_json(rows)
    else:
        print_table(rows)


def _row(name: str, kind: type[Recommender]) -> dict[str, str]:
    """What a model says about itself."""
    direct = "closed form" if kind().closed_form else "epochs"
    needs = ["torch"] * kind.needs_torch + ["an order of events"] * kind.needs_order
    return {
        "model": name,
        "fit": "gradients" if kind.needs_torch else direct,
        "needs": ", ".join(needs),
        "explains by": "shares" if kind.additive_shares else "differences",
        "about": (kind.__doc__ or "").strip().partition("\n")[0],
    }
