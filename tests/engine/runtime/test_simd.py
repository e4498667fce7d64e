"""Sums of short rows against numpy, bits against Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.runtime.jit import kernel
from monogram.engine.runtime.simd import LANES, lowest_bit, sum_short_rows


@kernel
def summed(panel, places, factors, start, stop, floor, total):
    return sum_short_rows(panel, places, factors, start, stop, floor, total)


@kernel
def lowest(mask):
    return lowest_bit(mask)


@given(rows=st.integers(1, 9), pairs=st.integers(0, 20), seed=st.integers(0, 1000), data=st.data())
def test_a_sum_of_short_rows(rows, pairs, seed, data):
    rng = np.random.default_rng(seed)
    panel = rng.integers(-8, 8, (rows, LANES)).astype(np.float32)  # sums of whole numbers have no rounding errors
    places, factors = rng.integers(0, rows, pairs).astype(np.int32), rng.integers(-3, 4, pairs).astype(np.float32)
    start = data.draw(st.integers(0, pairs))
    stop = data.draw(st.integers(start, pairs))
    total = np.full(LANES + 1, 7, np.float32)
    above = summed(panel, places, factors, start, stop, np.float32(2), total[:LANES])
    np.testing.assert_array_equal(total[:LANES], factors[start:stop] @ panel[places[start:stop]])
    assert total[LANES] == 7
    assert [(above >> t) & 1 for t in range(LANES)] == (total[:LANES] > 2).tolist()


@given(mask=st.integers(-(2**63), 2**63 - 1).filter(bool))
def test_the_lowest_bit(mask):
    assert 1 << lowest(mask) == mask & -mask
