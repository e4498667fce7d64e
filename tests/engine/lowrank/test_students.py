"""Students against dense constructions of their own, and the loops against a general optimiser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.gram.accumulate import squares
from monogram.engine.gram.operators import Operator
from monogram.engine.inverse.dual import dual_inverse
from monogram.engine.inverse.primal import primal_inverse
from monogram.engine.lowrank import student_loops, students

L2, DROPOUT = 2.5, 0.4


def made(users=40, items=9, seed=0, solve=primal_inverse, dtype=np.float64, density=0.4):
    """A problem, and beside it S, A and C as plain arrays."""
    rng = np.random.default_rng(seed)
    matrix = sp.csr_array((rng.random((users, items)) < density * rng.uniform(0.3, 1.5, items)).astype(np.float32))
    d = squares(matrix)
    penalties = L2 + DROPOUT / (1 - DROPOUT) * d
    problem = students.StudentProblem(Operator(matrix), penalties, d, solve(matrix, penalties, dtype=dtype))
    gram = (matrix.T @ matrix).toarray().astype(np.float64)
    full = gram + np.diag(penalties)
    return problem, gram, full, np.linalg.inv(full)


def teachers(problem):
    c, penalties = problem.inverse.diagonal, problem.penalties
    return {
        "dlae": students.Teacher(problem, c * penalties, 1 - c * penalties),
        "edlae": students.Teacher(problem, np.ones_like(c), np.zeros_like(c)),
    }


def dense_teachers(gram, inverted):
    b = -inverted / np.diag(inverted)
    np.fill_diagonal(b, 0)
    return {"dlae": inverted @ gram, "edlae": b}


def off(square):
    return square - np.diag(np.diag(square))


def plainly(matrix, penalties, w):
    """The objective ‖X − XW‖² + ‖Λ^½W‖², as it is written."""
    x = matrix.toarray().astype(np.float64)
    return ((x - x @ w) ** 2).sum() + (penalties[:, None] * w**2).sum()


def lowest(problem, gram, full, rank, *, starts=6, weight=0.0):
    """The least f(U, V) that L-BFGS finds; with a `weight` the diagonal is punished instead of ignored."""
    n = len(gram)

    def cost(flat):
        u, v = flat.reshape(2, n, rank)
        w = u @ v.T
        w0 = w if weight else off(w)
        slope = 2 * (full @ w0 - gram)
        slope = slope + np.diag(2 * weight * np.diag(w)) if weight else off(slope)
        value = np.trace(gram) - 2 * (gram * w0).sum() + (w0 * (full @ w0)).sum() + weight * (np.diag(w) ** 2).sum()
        return value, np.concatenate([(slope @ v).ravel(), (slope.T @ u).ravel()])

    options = {"maxiter": 20_000, "maxfun": 10**6, "ftol": 1e-13, "gtol": 1e-9}
    points = np.random.default_rng(1).standard_normal((starts, 2 * n * rank)) / 3
    return min(scipy.optimize.minimize(cost, x, jac=True, method="L-BFGS-B", options=options).fun for x in points)


@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
@pytest.mark.parametrize("kind", ["dlae", "edlae"])
@given(seed=st.integers(0, 30))
def test_a_teacher_multiplies_as_its_matrix_does(solve, kind, seed):
    problem, gram, full, inverted = made(seed=seed, solve=solve)
    teacher, w = teachers(problem)[kind], dense_teachers(gram, inverted)[kind]
    block = np.random.default_rng(seed).standard_normal((9, 4))
    np.testing.assert_allclose(teacher.times(block), w @ block, atol=1e-10)
    np.testing.assert_allclose(teacher.transpose_times(block), w.T @ block, atol=1e-10)
    np.testing.assert_allclose(teacher.system_times(block), full @ w @ block, atol=1e-9)
    np.testing.assert_allclose(problem.gram_times(block), gram @ block, atol=1e-10)
    np.testing.assert_allclose(problem.inverse_times(block), inverted @ block, atol=1e-10)


def test_the_closed_forms_of_m():
    problem, gram, full, inverted = made()
    penalties, c = np.diag(problem.penalties), np.diag(inverted)
    w, b = dense_teachers(gram, inverted).values()
    np.testing.assert_allclose(w.T @ full @ w, gram @ inverted @ gram, atol=1e-10)
    np.testing.assert_allclose(w.T @ full @ w, gram - penalties + penalties @ inverted @ penalties, atol=1e-10)
    np.testing.assert_allclose(b.T @ full @ b, full - 2 * np.diag(1 / c) + inverted / np.outer(c, c), atol=1e-10)


@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
@pytest.mark.parametrize("kind", ["dlae", "edlae"])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("rank", [1, 3, 9])
def test_the_nearest_is_the_svd_of_the_stacked_data(solve, kind, plain, rank):
    """Z = [X; Λ^½]: the truncated SVD of Z·W* gives V, and U = W*V; in the plain norm, of W* itself."""
    problem, gram, _, inverted = made(solve=solve)
    w = dense_teachers(gram, inverted)[kind]
    stacked = np.vstack([problem.data.matrix.toarray().astype(np.float64), np.diag(np.sqrt(problem.penalties))])
    right = np.linalg.svd(w if plain else stacked @ w)[2][:rank].T
    left, found, residual = students.nearest(teachers(problem)[kind], rank, plain=plain, dtype="float64")
    np.testing.assert_allclose(left @ found.T, w @ right @ right.T, atol=1e-9)
    assert residual < 1e-10


@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
@pytest.mark.parametrize("kind", ["dlae", "edlae"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("plain", [False, True])
def test_large_ones_go_through_lanczos_to_the_same(solve, kind, dtype, plain, monkeypatch):
    problem, gram, full, inverted = made(300, 250, solve=solve, dtype=dtype, density=0.1)
    monkeypatch.setattr(students.spectrum, "SMALL", 10)
    w = dense_teachers(gram, inverted)[kind]
    metric = np.eye(250) if plain else full
    values, vectors = np.linalg.eigh(w.T @ metric @ w)
    right = vectors[:, -5:]
    assert values[-5] > 1.001 * values[-6], "or the answer is not one"
    left, found, residual = students.nearest(teachers(problem)[kind], 5, plain=plain, dtype=dtype)
    assert left.dtype == dtype
    fine = dtype == "float64"
    np.testing.assert_allclose(left @ found.T, w @ right @ right.T, atol=1e-7 if fine else 2e-3)
    assert residual < (1e-8 if fine else 1e-4)


def test_a_teacher_of_lower_rank_gives_fewer_columns():
    problem, gram, _, inverted = made(users=4, items=9)
    left, right, _ = students.nearest(teachers(problem)["dlae"], 9, dtype="float64")
    assert right.shape[1] <= 4
    np.testing.assert_allclose(left @ right.T, inverted @ gram, atol=1e-9)


@given(seed=st.integers(0, 50), rank=st.integers(1, 9))
def test_the_objective_is_the_one_that_is_written(seed, rank):
    problem, *_ = made(seed=seed)
    left, right = np.random.default_rng(seed).standard_normal((2, 9, rank))
    expected = plainly(problem.data.matrix, problem.penalties, off(left @ right.T))
    assert students.objective(problem, left, right) == pytest.approx(expected, rel=1e-10)


def started(rank=3, **options):
    problem, gram, full, _ = made(**options)
    left, right, _ = students.nearest(teachers(problem)["edlae"], rank, dtype="float64")
    return problem, gram, full, left, right


@pytest.mark.parametrize("rank", [1, 3, 8, 9])
@pytest.mark.parametrize("solve", [primal_inverse, dual_inverse])
@given(seed=st.integers(0, 20))
def test_alternating_never_goes_up(rank, solve, seed):
    """Also at ranks at which some item's system is singular."""
    problem, _, _, left, right = started(rank, seed=seed, solve=solve)
    found = student_loops.alternating(problem, left, right, epochs=15, tolerance=0.0)
    assert all(after <= before * (1 + 1e-12) for before, after in zip(found.record, found.record[1:], strict=False))
    assert found.record[0] == pytest.approx(students.objective(problem, left, right))
    assert students.objective(problem, found.left, found.right) == pytest.approx(min(found.record), rel=1e-9)


def test_each_v_is_the_best_for_its_item():
    problem, gram, full, left, right = started()
    u, v = student_loops._best_right(problem, left, right)
    for i in range(9):
        others = np.delete(np.arange(9), i)
        expected = np.linalg.solve(
            u[others].T @ full[np.ix_(others, others)] @ u[others], u[others].T @ gram[others, i]
        )
        np.testing.assert_allclose(v[i], expected, atol=1e-6)


def test_u_converges_to_the_best_for_v(monkeypatch):
    problem, gram, full, left, right = started()
    monkeypatch.setattr(student_loops, "STEPS", 200)
    u, v = student_loops._improve_left(problem, left, right)
    np.testing.assert_allclose(off(full @ off(u @ v.T) - gram) @ v, 0, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("loop", [student_loops.alternating, student_loops.admm])
def test_the_loops_end_below_the_closed_forms_and_near_the_best(loop, seed):
    problem, gram, full, left, right = started(seed=seed)
    found = loop(problem, left, right, epochs=400, tolerance=1e-8)
    teacher = teachers(problem)["edlae"]
    for plain in (False, True):
        closed = students.nearest(teacher, 3, plain=plain, dtype="float64")[:2]
        assert min(found.record) <= students.objective(problem, *closed) * (1 + 1e-9)
    best = lowest(problem, gram, full, 3)
    assert students.objective(problem, found.left, found.right) <= 1.01 * best


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_zero_diagonal_ends_near_the_best_under_its_constraint(seed):
    problem, gram, full, left, right = started(seed=seed)
    found = student_loops.zero_diagonal(problem, left, right, epochs=1000, tolerance=1e-10)
    np.testing.assert_allclose(students.rows(found.left, found.right), 0, atol=1e-12)
    assert all(after <= before * (1 + 1e-9) for before, after in zip(found.record, found.record[1:], strict=False))
    best = lowest(problem, gram, full, 3, weight=1e5)
    assert found.record[-1] <= 1.02 * best, "one start against six: it may end in another valley"
    free = student_loops.alternating(problem, left, right, epochs=400, tolerance=1e-8)
    assert min(free.record) <= found.record[-1], "the constraint costs something"


def test_each_step_of_zero_diagonal_is_the_best_under_its_constraint():
    """The gradient of f in the one factor is what a multiplier for each diagonal entry pulls it by."""
    problem, gram, full, _, right = started()
    right = np.linalg.qr(right)[0]
    left = student_loops._bare_left(problem, right)
    for u, v in ((left, right), student_loops._bare_right(problem, left)):
        np.testing.assert_allclose(students.rows(u, v), 0, atol=1e-9)
        slope = full @ u @ v.T - gram
        gradient, other = (slope @ v, v) if u is left else (slope.T @ u, u)
        multipliers = students.rows(gradient, other) / students.rows(other, other)
        np.testing.assert_allclose(gradient, multipliers[:, None] * other, atol=1e-8)


@pytest.mark.parametrize("loop", [student_loops.alternating, student_loops.admm, student_loops.zero_diagonal])
def test_at_full_rank_the_loops_keep_the_teacher(loop):
    problem, gram, _, inverted = made()
    left, right, _ = students.nearest(teachers(problem)["edlae"], 9, dtype="float64")
    found = loop(problem, left, right, epochs=5)
    b = dense_teachers(gram, inverted)["edlae"]
    np.testing.assert_allclose(off(found.left @ found.right.T), b, atol=1e-5)


@pytest.mark.parametrize("loop", [student_loops.alternating, student_loops.admm, student_loops.zero_diagonal])
def test_a_loop_ends_when_it_stands_still(loop):
    problem, _, _, left, right = started()
    found = loop(problem, left, right, epochs=500, tolerance=1e-4)
    assert len(found.record) < 500
    assert abs(found.record[-2] - found.record[-1]) <= 1e-4 * found.record[-1]


@pytest.mark.parametrize("loop", [student_loops.alternating, student_loops.admm, student_loops.zero_diagonal])
def test_an_item_nobody_used_stays_out(loop):
    problem, *_ = made()
    dense = problem.data.matrix.toarray()
    dense[:, 4] = 0
    matrix = sp.csr_array(dense)
    d = squares(matrix)
    solved = primal_inverse(matrix, problem.penalties, dtype=np.float64)
    problem = replace(problem, data=Operator(matrix), d=d, inverse=solved)
    left, right, _ = students.nearest(teachers(problem)["edlae"], 3, dtype="float64")
    found = loop(problem, left, right, epochs=5)
    np.testing.assert_allclose((found.left @ found.right.T)[4], 0, atol=1e-12)
    np.testing.assert_allclose((found.left @ found.right.T)[:, 4], 0, atol=1e-12)
