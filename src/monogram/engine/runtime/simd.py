"""Sums of short rows in vector registers: the compiler does not find this form of a loop by itself."""

# ruff: noqa: ARG001  (numba passes the types of all arguments, and the context, to every intrinsic)

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64  # floats of one row, as many as a mask has bits: four registers of 512 bits, or 16 of 128 bits


@intrinsic  # type: ignore[untyped-decorator]
def sum_short_rows(
    typing: Any, panel: Any, places: Any, factors: Any, start: Any, stop: Any, floor: Any, total: Any
) -> tuple[Any, Any]:
    """Write Σ factors[p]·panel[places[p]] over p from `start` to `stop` to `total`, in float32; for use in a kernel.

    Bit t of the value returned (int64) is 1 where total[t] is above the floor. The panel is a C-ordered float32 array
    of `LANES` columns; `places` (int32), `factors` and `total` (float32) are contiguous. No index is checked.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, at, by, out = (
            context.make_array(signature.args[number])(context, builder, arguments[number]).data
            for number in (0, 1, 2, 6)
        )
        whole, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)

        def repeated(value: Any) -> Any:
            undefined = ir.Constant(vector, ir.Undefined)
            first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(first, undefined, zeros)

        sums = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))
        with cgutils.for_range_slice(builder, arguments[3], arguments[4], ir.Constant(whole, 1)) as (p, _):
            first = builder.mul(builder.sext(builder.load(builder.gep(at, [p])), whole), ir.Constant(whole, LANES))
            row = builder.load(builder.bitcast(builder.gep(rows, [first]), vector.as_pointer()), align=4)
            product = builder.fmul(row, repeated(builder.load(builder.gep(by, [p]))), flags=["contract"])
            builder.store(builder.fadd(builder.load(sums), product, flags=["contract"]), sums)
        result = builder.load(sums)
        builder.store(result, builder.bitcast(out, vector.as_pointer()), align=4)
        return builder.bitcast(builder.fcmp_ordered(">", result, repeated(arguments[5])), whole)

    return types.int64(panel, places, factors, types.int64, types.int64, types.float32, total), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing: Any, mask: Any) -> tuple[Any, Any]:
    """The place of the lowest bit that is 1, of an int64 that is not 0; for use in a kernel."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate
