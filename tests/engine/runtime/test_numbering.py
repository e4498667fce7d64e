"""Numbers for the keys of a small set, in tables of both kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monogram.engine.runtime.numbering import DIRECT, clear_table, number_of, table_bits, table_size


@pytest.mark.parametrize("keys", [1000, DIRECT + 1, 2**31 - 1])
@given(seed=st.integers(0, 1000), distinct=st.integers(1, 300))
def test_keys_are_numbered_in_the_order_in_which_they_come(keys, seed, distinct):
    rng = np.random.default_rng(seed)
    drawn = rng.choice(rng.integers(0, keys, distinct), 2 * distinct)
    bits = table_bits(keys, distinct)
    table = np.zeros(table_size(keys, distinct), np.int64)
    order = list(dict.fromkeys(drawn.tolist()))
    seen = 0
    for key in drawn.tolist():
        number = number_of(key, table, bits, seen)
        assert number == order.index(key)
        seen = max(seen, number + 1)
    clear_table(table, bits, np.array(order), seen)
    assert not table.any()


def test_keys_with_the_same_place_in_the_table_have_numbers_of_their_own():
    bits = table_bits(2**31 - 1, 8)
    places = ((np.arange(200_000) * 2654435769) & 0xFFFFFFFF) >> (32 - bits)
    keys = np.flatnonzero(places == 15).tolist()
    table = np.zeros(1 << bits, np.int64)
    for number, key in enumerate(keys[:8]):
        assert number_of(key, table, bits, number) == number
    assert [number_of(key, table, bits, 99) for key in keys[:8]] == list(range(8))
