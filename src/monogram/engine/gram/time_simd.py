"""The float32 Gram matrix with a kernel between times, computed in vector registers instead of read from a table.

With d = 1 + Δ = 2^e·(1 + f) and p the decay, d^(−p) = 2^(−p·(e + log₂(1 + f))); the logarithm and the power of 2 are
polynomials. The relative error of k is below 3e-7, that of a float32 result, for a decay of at most 2. The values of 16
pairs and their sums alternate, so that the processor computes the next values while it adds. Numba is imported with
this module.
"""

# ruff: noqa: ARG001  (numba passes the types of all arguments, and the context, to every intrinsic)

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from monogram.engine.gram.time_kernel import TimeKernel
from monogram.engine.runtime.jit import kernel as compiled

LANES = 16  # pairs at a time
MOST_DECAY = 2.0  # the rounding of d to float32 counts `decay` times
ROOT_HALF = 0x3F3504F3  # the bits of √½: 1 + f is between √½ and √2
MANTISSA = 23
SHIFT = 1.5 * 2.0**MANTISSA  # adding it rounds to a whole number, which is then in the lowest bits
LEAST = -120.0  # smaller powers of 2 are 0
# Interpolating polynomials at Chebyshev points: log₂(1 + f)/f with an error of 5e-8, and (2^g − 1)/g, |g| ≤ ½, of 5e-9.
LOGARITHM = (
    1.44269500357, -0.72134746825, 0.480910753459, -0.360693268135, 0.287903260925, -0.239169881401,
    0.216078225522, -0.205861880513, 0.123109684672,
)  # fmt: skip
POWER = (
    0.693147188026, 0.240226507606, 0.0555035711422, 0.00961808255728, 0.00133908633647, 0.000154531629451,
)  # fmt: skip


def constants(kernel: TimeKernel) -> tuple[Any, ...]:
    """−decay as the sum of two float32 numbers, floor and 1 − floor, as `power_columns` takes them."""
    high = np.float32(-kernel.decay)
    return high, np.float32(-kernel.decay - float(high)), np.float32(kernel.floor), np.float32(1 - kernel.floor)


class _Vectors:
    """Instructions on vectors of `LANES` numbers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.single, self.double, self.whole, self.long = (
            ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64))
        )

    def constant(self, value: Any, kind: Any = None) -> Any:
        """A vector of equal numbers, in float32 by default."""
        kind = self.single if kind is None else kind
        value = float(np.float32(value)) if kind is self.single else value
        return ir.Constant(kind, [value] * LANES)

    def repeated(self, value: Any, kind: Any) -> Any:
        """A number in every lane."""
        undefined, places = ir.Constant(kind, ir.Undefined), ir.Constant(self.whole, [0] * LANES)
        first = self.builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(first, undefined, places)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """a·b + c."""
        return self.builder.fadd(self.builder.fmul(a, b, flags=["contract"]), c, flags=["contract"])

    def polynomial(self, coefficients: tuple[float, ...], at: Any) -> Any:
        """Σ c_m·at^m."""
        total = self.constant(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            total = self.fused(total, at, self.constant(coefficient))
        return total

    def distances(self, positions: Any, here: Any) -> Any:
        """1 + |positions − here|: subtracted in float64, then rounded to float32."""
        build, sign = self.builder, self.constant(2**63 - 1, self.long)
        apart = build.bitcast(build.fsub(positions, self.repeated(here, self.double)), self.long)
        apart = build.bitcast(build.and_(apart, sign), self.double)
        return build.fptrunc(build.fadd(apart, self.constant(1.0, self.double)), self.single)

    def power(self, base: Any, high: Any, low: Any) -> Any:
        """base^(high + low) of numbers of at least 1; beyond 2^128 that of 2^128."""
        build, mantissa = self.builder, self.constant(MANTISSA, self.whole)
        bits = build.bitcast(base, self.whole)
        whole = build.ashr(build.sub(bits, self.constant(ROOT_HALF, self.whole)), mantissa)
        part = build.bitcast(build.sub(bits, build.shl(whole, mantissa)), self.single)
        part = build.fsub(part, self.constant(1.0))
        exponent, logarithm = build.sitofp(whole, self.single), build.fmul(part, self.polynomial(LOGARITHM, part))
        result = build.fmul(high, build.fadd(exponent, logarithm))  # the logarithm of the result, to find its exponent
        shifted = build.fadd(result, self.constant(SHIFT))
        rounded = build.fsub(shifted, self.constant(SHIFT))
        rest = self.fused(high, logarithm, build.fmul(low, exponent))
        rest = build.fadd(self.fused(high, exponent, build.fneg(rounded)), rest)
        value = self.fused(self.polynomial(POWER, rest), rest, self.constant(1.0))
        scale = build.shl(build.bitcast(shifted, self.whole), mantissa)
        value = build.bitcast(build.add(build.bitcast(value, self.whole), scale), self.single)
        return build.select(build.fcmp_ordered(">", result, self.constant(LEAST)), value, self.constant(0.0))


@intrinsic  # type: ignore[untyped-decorator]
def time_products(
    typing: Any, positions: Any, values: Any, first: Any, here: Any, factor: Any, high: Any, low: Any, floor: Any,
    gain: Any, out: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Write factor·values·(floor + gain·(1 + |positions − here|)^(high + low)) of `LANES` entries; for use in a kernel.

    The entries start at place `first` of `positions` (float64) and `values` (float32 or float64), both contiguous.
    `out` is a float64 array. `high`, `low`, `floor` and `gain` are float32. No index is checked.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = _Vectors(builder)
        places, numbers, target = (
            context.make_array(signature.args[number])(context, builder, arguments[number]).data for number in (0, 1, 9)
        )

        def load(array: Any, kind: Any) -> Any:
            start = builder.bitcast(builder.gep(array, [arguments[2]]), kind.as_pointer())
            return builder.load(start, align=4)

        above, below, least, span = (vectors.repeated(argument, vectors.single) for argument in arguments[5:9])
        distances = vectors.distances(load(places, vectors.double), arguments[3])
        near = vectors.fused(span, vectors.power(distances, above, below), least)
        if signature.args[1].dtype == types.float32:
            entries = builder.fpext(load(numbers, vectors.single), vectors.double)
        else:
            entries = load(numbers, vectors.double)
        scaled = builder.fmul(entries, vectors.repeated(arguments[4], vectors.double))
        products = builder.fmul(scaled, builder.fpext(near, vectors.double))
        builder.store(products, builder.bitcast(target, vectors.double.as_pointer()), align=8)
        return context.get_dummy_value()

    numbers = (types.float64, types.float64, *[types.float32] * 4)
    return types.void(positions, values, types.int64, *numbers, out), generate


@compiled
def power_columns(
    pointers: Any,
    owners: Any,
    places: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    weights: Any,
    positions: Any,
    high: Any,
    low: Any,
    floor: Any,
    gain: Any,
    out: Any,
    start: int,
    stop: int,
    top: int,
    left: int,
    total: Any,
) -> None:
    """Columns of the lower triangle, as `_timed_columns` writes them; the data have at least `LANES` entries."""
    n = len(total)
    products = np.empty(LANES)
    for j in range(start, stop):
        total[j:] = 0.0
        for p in range(pointers[j], pointers[j + 1]):
            row = owners[p]
            first, end = places[p], indptr[row + 1]
            factor, here = weights[row] * np.float64(data[first]), positions[first]
            while end - LANES >= first:  # from the end of the row, so that no block reaches beyond the data
                end -= LANES
                time_products(positions, data, end, here, factor, high, low, floor, gain, products)
                columns = indices[end : end + LANES]
                for q in range(LANES):
                    total[columns[q]] += products[q]
            if end > first:
                block = max(end - LANES, 0)
                time_products(positions, data, block, here, factor, high, low, floor, gain, products)
                for q in range(first, end):
                    total[indices[q]] += products[q - block]
        for i in range(j, n):
            out[i - top, j - left] = total[i]
