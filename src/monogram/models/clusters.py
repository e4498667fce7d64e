"""The cluster argument of `fit`: which models accept a cluster, and the connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from monogram.errors import ParameterError
from monogram.models.registry import names_of

if TYPE_CHECKING:
    from monogram.cluster import Cluster
    from monogram.models.base import Recommender


def check(model: Recommender, cluster: Any, solver: str) -> None:
    """Raise ParameterError where a cluster is given to a model, or with a solver, that runs on one machine."""
    if cluster is None:
        return
    if not model._on_cluster():
        which = f"with these parameters {model!r}" if model.on_cluster else type(model).__name__
        raise ParameterError(
            f"{which} is fitted on one machine; fit it without cluster. Models that can be fitted on a cluster: "
            f"{names_of('on_cluster')}"
        )
    recipe = model._gram_recipe()
    if recipe is not None and recipe.timed:
        raise ParameterError(
            f"decay = {recipe.decay:g} with a cluster, whose workers make the Gram matrix without a time kernel; fit "
            "without cluster, or with decay = 0"
        )
    model._solver(solver, False)
    if solver not in ("auto", "primal"):
        raise ParameterError(f"solver = {solver!r} runs on one machine; with cluster expected 'auto' or 'primal'")


@contextmanager
def connection(cluster: Any) -> Iterator[Cluster | None]:
    """The connection to a cluster; None without one. Workers that are started for it stop at the end of the block."""
    if cluster is None:
        yield None
        return
    from monogram.cluster import open_cluster

    with open_cluster(cluster) as connected:
        yield connected
