"""Fits and batch recommendations on a `dask.distributed` cluster, with the results of one machine up to rounding.

Workers receive data only as arguments of tasks, and every task is a pure function of its arguments: the results of a
lost worker are recomputed from them.
"""

from __future__ import annotations

from monogram.cluster.client import Cluster, open_cluster

__all__ = ["Cluster", "open_cluster"]
