"""Consecutive numbers for the keys of a small set among many: 0, 1, 2 … in the order in which the keys come.

A table is an int64 array of zeros. Over few possible keys it has one entry for each (`bits` = 0). Over many keys it is
a hash table of 2^bits entries, which stays in the cache however many keys are possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monogram.engine.runtime.jit import kernel

DIRECT = 1 << 17  # possible keys up to which a table has an entry for each
_LOW = np.int64(0xFFFFFFFF)


def table_size(keys: int, most: int) -> int:
    """The length of a table for at most `most` of so many possible keys."""
    return keys if keys <= DIRECT else 1 << table_bits(keys, most)


@kernel
def table_bits(keys: int, most: int) -> int:
    """The bits of a table for at most `most` of so many possible keys; at most half of its entries are used."""
    if keys <= DIRECT:
        return 0
    bits = 4
    while (1 << bits) < 2 * min(most, keys):
        bits += 1
    return bits


@kernel
def number_of(key: int, table: Any, bits: int, count: int) -> int:
    """The number of a key; `count` where it has none, and then it gets this number."""
    if bits == 0:
        if table[key] == 0:
            table[key] = count + 1
        return int(table[key] - 1)
    at = ((key * 2654435769) & _LOW) >> (32 - bits)
    while table[at] != 0:
        if table[at] >> 32 == key + 1:
            return int(table[at] & _LOW)
        at = (at + 1) & ((1 << bits) - 1)
    table[at] = (np.int64(key + 1) << 32) | count
    return count


@kernel
def clear_table(table: Any, bits: int, keys: Any, count: int) -> None:
    """Make a table ready for other keys; the first `count` of `keys` are those that it holds."""
    if bits:
        table[: 1 << bits] = 0
        return
    for at in range(count):
        table[keys[at]] = 0
