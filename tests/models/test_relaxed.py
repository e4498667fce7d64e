"""RDLAE: the minimiser under its own constraint, its ends, and every other way to fit it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

import monogram as mg
from monogram.errors import ParameterError
from monogram.testing import check_recommender

L2, DROPOUT = 2.0, 0.4
EVERY = [0.0, 0.05, 0.2, 0.5, 1.0]


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(3)
    taste = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 7)) + rng.standard_normal((40, 7))
    return mg.Interactions.from_csr(sp.csr_array((taste > 0.3).astype(np.float32)))


def by_constraint(log, relax):
    """Each column by SLSQP: min ‖x_i − Xw‖² + wᵀΛw with w_i ≤ relax."""
    x = log.matrix.toarray().astype(np.float64)
    gram = x.T @ x
    system = gram + np.diag(L2 + DROPOUT / (1 - DROPOUT) * np.diag(gram))
    columns = []
    for item in range(len(gram)):
        bounds = [(None, relax if other == item else None) for other in range(len(gram))]
        solution = scipy.optimize.minimize(
            lambda w, item=item: w @ system @ w - 2 * gram[item] @ w,
            np.zeros(len(gram)),
            jac=lambda w, item=item: 2 * (system @ w - gram[item]),
            method="SLSQP",
            bounds=bounds,
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        columns.append(solution.x)
    return np.array(columns).T


@pytest.mark.parametrize("relax", EVERY)
@pytest.mark.parametrize("solver", ["primal", "dual", "disk", "matrix_free"])
def test_it_minimises_its_objective_under_its_constraint(log, relax, solver):
    model = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=relax).fit(log, dtype="float64", solver=solver)
    weights = model.item_weights()
    np.testing.assert_allclose(weights, by_constraint(log, relax), atol=2e-6)
    assert np.diag(weights).max() <= relax + 1e-9


def test_the_constraint_binds_for_some_items_and_not_for_others(log):
    """Else the test above would hold for EDLAE or DLAE, too."""
    free = np.diag(mg.DLAE(l2=L2, dropout=DROPOUT).fit(log, dtype="float64").item_weights())
    relax = float(np.median(free))
    bound = np.diag(mg.RDLAE(l2=L2, dropout=DROPOUT, relax=relax).fit(log, dtype="float64").item_weights())
    assert 0 < (bound < relax - 1e-6).sum() < len(free)


@pytest.mark.parametrize(("relax", "end"), [(0, mg.EDLAE), (1, mg.DLAE)])
def test_its_ends_are_edlae_and_dlae(log, relax, end):
    relaxed = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=relax).fit(log, dtype="float64")
    np.testing.assert_allclose(
        relaxed.item_weights(), end(l2=L2, dropout=DROPOUT).fit(log, dtype="float64").item_weights(), atol=1e-12
    )


def test_it_shares_the_inverse_of_edlae(log):
    inverse = mg.EDLAE(l2=L2, dropout=DROPOUT).fit(log, dtype="float64").inverse()
    shared = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=0.2).fit(inverse, dtype="float64")
    assert shared.report_.solver == "reused"
    alone = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=0.2).fit(log, dtype="float64")
    np.testing.assert_allclose(shared.item_weights(), alone.item_weights(), atol=1e-12)


def test_another_relax_costs_no_factorisation(log):
    model = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=0.2).fit(log, dtype="float64")
    other = model.changed(relax=0.05)
    assert other.report_.solver == "reused"
    alone = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=0.05).fit(log, dtype="float64")
    np.testing.assert_allclose(other.item_weights(), alone.item_weights(), atol=1e-12)


def test_users_are_added_and_forgotten(log):
    model = mg.RDLAE(l2=L2, dropout=DROPOUT, relax=0.2).fit(log, dtype="float64")
    expected = model.item_weights()
    user = next(iter(log.users))
    items = log.history(user)
    model.forget_users([user]).add_users([(user, item) for item in items])
    np.testing.assert_allclose(model.item_weights(), expected, atol=1e-9)


def test_it_keeps_the_contract():
    check_recommender(mg.RDLAE, l2=5, dropout=0.4, relax=0.1)


@pytest.mark.parametrize("relax", [-0.1, 1.1, float("nan")])
def test_a_relax_outside_its_bounds_is_refused(relax):
    with pytest.raises(ParameterError, match="relax"):
        mg.RDLAE(relax=relax)
