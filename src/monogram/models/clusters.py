"""Which models can be fitted on a cluster, and the cluster that was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from monogram.errors import ParameterError

if TYPE_CHECKING:
    from monogram.cluster import Cluster
    from monogram.models.base import Recommender


def check(model: Recommender, cluster: Any, solver: str) -> None:
    """Refuse a cluster to a model, or with a solver, that has no use for it."""
    if cluster is None:
        return
    if not model._on_cluster():
        raise ParameterError(
            f"{type(model).__name__} is fitted on one machine; cluster is for the full-rank models (EASE, DLAE, EDLAE, "
            "DEQL, Tempered) and the spectral ones (LRR, RegularizedPCA, DropoutMF, NuclearPower, WLAE, VLAE, and RG2 "
            "in closed form)"
        )
    model._solver(solver, False)
    if solver not in ("auto", "primal"):
        raise ParameterError(f"solver={solver!r} is for one machine; with cluster expected 'auto' or 'primal'")


@contextmanager
def held(given: Any) -> Iterator[Cluster | None]:
    """The cluster that was given, or none; what was started for it ends with the block."""
    if given is None:
        yield None
        return
    from monogram.cluster import opened

    with opened(given) as found:
        yield found
