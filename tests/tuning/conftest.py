"""A log on which models differ, small enough for many fits."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg


@pytest.fixture(scope="session")
def log():
    rng = np.random.default_rng(4)
    taste = rng.standard_normal((150, 4)) @ rng.standard_normal((4, 60)) + rng.standard_normal((150, 60))
    matrix = sp.csr_array((taste > np.quantile(taste, 0.75)).astype(np.float32))
    times = np.arange(matrix.nnz)
    return mg.Interactions.from_csr(matrix, items=[f"i{n}" for n in range(60)], times=times)


@pytest.fixture(scope="module", autouse=True)
def without_flushes():
    """A search flushes its files after each setting; these tests are of what is in the files, not on the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
