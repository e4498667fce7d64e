"""With a recency, users of the log are scored as new users, and the documentation says so."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.models.registry import MODELS

pytest.importorskip("torch", reason="the extra torch is not installed")

NAMES = ["factorization", "light_gcn", "sgl", "dgcf", "pin_sage", "simplex", "cdae"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recency_replaces_the_trained_vectors(world, name):
    matrix = mg.Interactions.from_csr(world).matrix
    log = mg.Interactions.from_csr(world, times=np.arange(matrix.nnz), time_unit="h")
    settings = {"rank": 4, "epochs": 3, "batch": 64, "seed": 1}
    plain = MODELS[name](**settings).fit(log)
    aged = MODELS[name](**settings, half_life="2 events").fit(log)
    np.testing.assert_array_equal(aged.weights_.users, plain.weights_.users)
    user = int(np.flatnonzero(np.diff(log.matrix.indptr) > 2)[0])
    known = plain.recommend([user], k=5).rows()
    assert [row["score"] for row in aged.recommend([user], k=5).rows()] != [row["score"] for row in known]
    users = aged.weights_.users
    before = aged.recommend([user], k=5).rows()
    users.flags.writeable = True
    users += 1
    assert aged.recommend([user], k=5).rows() == before, "the vectors of users have no effect"
    assert "recency" in (type(plain).__doc__ or "")
