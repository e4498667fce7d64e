"""Lists from sparse rows are bit-identical to a selection from the scores of all items."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.topk import by_sparse_rows
from monogram.engine.topk.best import Best, Eligible, empty, select_rows
from monogram.engine.topk.by_sparse_rows import best_by_sparse_rows


def by_all_scores(matrix, histories, eligible, k):
    """Dense sums in the order of the history, then the selection from complete rows."""
    best = tuple(array[0] for array in empty(histories.shape[0], k, 1))
    for user in range(histories.shape[0]):
        total = np.zeros((1, matrix.shape[1]))
        for p in range(histories.indptr[user], histories.indptr[user + 1]):
            row = slice(matrix.indptr[histories.indices[p]], matrix.indptr[histories.indices[p] + 1])
            with np.errstate(invalid="ignore", over="ignore"):
                total[0, matrix.indices[row]] += np.float64(histories.data[p]) * matrix.data[row].astype(np.float64)
        rules = eligible.mask, eligible.out_pointers, eligible.out, eligible.only_pointers, eligible.only
        select_rows(total, *rules, *best, user)
    return Best(*best)


VALUES = (
    [1.0],
    [-1.0],
    [-1.0, 1.0],  # many sums that are 0
    [-0.0, 0.0, -1.0, 2.0],
    [0.1, 0.2, 0.3, -0.3],
    [1e-300, -1e-300, 1e300],
    [np.inf, -np.inf, 1.0],  # infinity less infinity: NaN, which is in no list
    [np.nan, 1.0, -1.0],
)


@st.composite
def cases(draw):
    n, users = draw(st.integers(1, 60)), draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    size = draw(st.sampled_from([0, n, 5 * n]))
    at = np.unique(rng.integers(0, n * n, size))
    with np.errstate(over="ignore", under="ignore"):
        values = rng.choice(draw(st.sampled_from(VALUES)), len(at)).astype(draw(st.sampled_from(["f4", "f8"])))
    matrix = sp.csr_array((values, (at // n, at % n)), shape=(n, n))
    dense = rng.choice([1.0, -1.0, 0.5], (users, n)) * (rng.random((users, n)) < draw(st.sampled_from([0.0, 0.1, 0.6])))
    histories = sp.csr_array(dense.astype(np.float32))
    out = sp.csr_array(rng.random((users, n)) < draw(st.sampled_from([0.0, 0.3, 1.0])))
    only = [np.zeros(0, np.int64)] * 2
    if draw(st.booleans()):
        allowed = sp.csr_array(rng.random((users, n)) < draw(st.sampled_from([0.0, 0.2, 1.0])))
        only = [allowed.indptr.astype(np.int64), allowed.indices.astype(np.int64)]
    mask = rng.random(n) < draw(st.sampled_from([1.0, 0.5, 0.0]))
    eligible = Eligible(mask, out.indptr.astype(np.int64), out.indices.astype(np.int64), *only)
    return matrix, histories, eligible, draw(st.integers(1, n))


@pytest.mark.filterwarnings("ignore:invalid value")
@given(case=cases(), threads=st.sampled_from([1, 2]), users=st.sampled_from([1, 3, 512]))
def test_lists_are_bit_identical_to_a_selection_from_all_scores(case, threads, users):
    matrix, histories, eligible, k = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_sparse_rows, "USERS", users)
        found = best_by_sparse_rows(matrix, histories, eligible, k, threads=threads)
    wanted = by_all_scores(matrix, histories, eligible, k)
    for name in ("items", "scores", "counts"):
        assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes()


def test_items_in_no_row_fill_a_list_before_scores_below_0():
    """Scores 2, −1 and 0 (item 4, by cancellation): item 0 and 1 are in no row, and 0 ties go to the lower index."""
    matrix = sp.csr_array(np.array([[0, 0, 2, -1, 1], [0, 0, 0, 0, -1]] + [[0] * 5] * 3, np.float32))
    histories = sp.csr_array(np.array([[1, 1, 0, 0, 0]], np.float32))
    everything = Eligible(np.ones(5, bool), np.zeros(2, np.int64), *[np.zeros(0, np.int64)] * 3)
    best = best_by_sparse_rows(matrix, histories, everything, 5)
    assert best.items.tolist() == [[2, 0, 1, 4, 3]]
    assert best.scores.tolist() == [[2.0, 0.0, 0.0, 0.0, -1.0]]
