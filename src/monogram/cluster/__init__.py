"""Fits and batches of lists on a cluster of `dask.distributed`: the same results as one machine, to rounding.

Everything that the workers get is an argument of a task, and every task is a pure function of its arguments: what a
lost worker held is made again from them. The client keeps nothing on the workers by hand.
"""

from __future__ import annotations

from monogram.cluster.client import Cluster, opened

__all__ = ["Cluster", "opened"]
