"""BLAS and LAPACK on blocks of one large matrix, without copies and without 32-bit offsets.

The Python wrappers of SciPy copy a block of an array, and a routine that receives a whole large matrix can overflow or
crash (the threaded potrf and syrk of OpenBLAS 0.3.30 do). So the routines are called through the pointers that SciPy
exports for Cython, on blocks whose addresses are computed in 64 bits.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.errors import NumericalError, ParameterError

# Arguments by letter: c = option character, i = integer, s = scalar of the dtype, a = address in the matrix.
_SIGNATURES = {
    "gemm": ("blas", "cciiisaiaisai"),
    "trsm": ("blas", "cccciisaiai"),
    "trmm": ("blas", "cccciisaiai"),
    "potrf": ("lapack", "ciaii"),
    "trtri": ("lapack", "cciaii"),
    "lauum": ("lapack", "ciaii"),
}
_PREFIX = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}


def _capsule(library: str, name: str) -> tuple[int, str]:
    """Address and C signature of a routine that scipy exports."""
    from scipy.linalg import cython_blas, cython_lapack

    capsule = {"blas": cython_blas, "lapack": cython_lapack}[library].__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature = get_name(capsule)
    return get_pointer(capsule, signature), signature.decode()


@cache
def _routine(name: str, dtype: np.dtype[Any]) -> tuple[Any, type]:
    """The callable routine and the C integer type this scipy was built with."""
    letter, _ = _PREFIX[dtype]
    library, shape = _SIGNATURES[name]
    address, signature = _capsule(library, letter + name)
    # An ILP64 build spells its integers differently; a plain `int *` is 32 bits everywhere we run.
    integer: type = ctypes.c_int if "int *" in signature.split("__pyx")[0] else ctypes.c_int64
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(shape))(address), integer


def _call(name: str, dtype: np.dtype[Any], *arguments: Any) -> int:
    """Call a routine and return the value of its last argument (for LAPACK: info)."""
    function, integer = _routine(name, dtype)
    scalar = _PREFIX[dtype][1]
    boxed: list[Any] = []
    for letter, value in zip(_SIGNATURES[name][1], arguments, strict=True):
        if letter == "a":
            boxed.append(ctypes.c_void_p(value))
        elif letter == "c":
            boxed.append(ctypes.create_string_buffer(value))
        else:
            boxed.append((integer if letter == "i" else scalar)(value))
    function(*[k if isinstance(k, ctypes.c_void_p) else ctypes.addressof(k) for k in boxed])
    return int(boxed[-1].value or 0)


def gemm(
    target: NDArray[Any],
    left: NDArray[Any],
    right: NDArray[Any],
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose: bytes = b"NN",
) -> None:
    """target ← beta·target + alpha · op(left) · op(right), for arrays or blocks with unit stride down their columns."""
    inner = left.shape[0 if transpose[:1] == b"T" else 1]
    sizes = (*target.shape, inner)
    if 0 in target.shape:
        return
    a, b, c = (_block(array, target.dtype) for array in (left, right, target))
    _call("gemm", target.dtype, transpose[:1], transpose[1:], *sizes, alpha, *a, *b, beta, *c)


def trsm(triangle: NDArray[Any], panel: NDArray[Any], *, side: bytes) -> None:
    """Panel ← panel · triangle⁻ᵀ (side R) or triangle⁻¹ · panel (side L), the triangle a lower one."""
    transpose = b"T" if side == b"R" else b"N"
    blocks = (*_block(triangle, panel.dtype), *_block(panel, panel.dtype))
    _call("trsm", panel.dtype, side, b"L", transpose, b"N", *panel.shape, 1.0, *blocks)


def _block(array: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Address and leading dimension of an array, or of a block of one, that BLAS can work on."""
    if array.dtype != dtype or dtype not in _PREFIX or array.ndim != 2:
        raise ParameterError(f"a block is {array.dtype} of shape {array.shape}; expected two axes of {dtype}")
    if array.shape[0] > 1 and array.strides[0] != array.itemsize:
        raise ParameterError("a block has no unit stride down its columns; expected Fortran order")
    down = array.strides[1] // array.itemsize if array.shape[1] > 1 else 0
    return array.ctypes.data, max(1, array.shape[0], down)


class Blocks:
    """Level-3 routines between blocks of one square Fortran-ordered matrix, in place.

    Parameters
    ----------
    matrix : ndarray
        n × n, Fortran-ordered, float32 or float64, writable.
    """

    def __init__(self, matrix: NDArray[Any]) -> None:
        if matrix.dtype not in _PREFIX:
            raise ParameterError(f"the matrix is {matrix.dtype}; expected float32 or float64")
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ParameterError(f"the matrix has shape {matrix.shape}; expected a square one")
        if not (matrix.flags.f_contiguous and matrix.flags.writeable):
            raise ParameterError("the matrix must be writable and Fortran-ordered, because it is changed in place")
        self.n = matrix.shape[0]
        self._matrix = matrix  # keeps the memory alive while its address is used
        self._base = matrix.ctypes.data
        self._size = matrix.itemsize

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a routine on blocks, each given by the row and the column of its first entry."""
        shape = _SIGNATURES[name][1]
        placed = (self._at(*value) if letter == "a" else value for letter, value in zip(shape, arguments, strict=True))
        return _call(name, self._matrix.dtype, *placed)

    def _at(self, row: int, column: int) -> int:
        """The address of an entry, in Python integers, which do not overflow."""
        return int(self._base + (row + column * self.n) * self._size)

    def gemm(
        self,
        target: tuple[int, int],
        left: tuple[int, int],
        right: tuple[int, int],
        sizes: tuple[int, int, int],
        *,
        alpha: float,
        transpose: bytes = b"NN",
    ) -> None:
        """target += alpha · op(left) · op(right), with sizes (rows, columns, inner)."""
        rows, columns, inner = sizes
        a, b, n = transpose[:1], transpose[1:], self.n
        self._call("gemm", a, b, rows, columns, inner, alpha, left, n, right, n, 1.0, target, n)

    def trsm(self, triangle: tuple[int, int], panel: tuple[int, int], sizes: tuple[int, int]) -> None:
        """Panel ← panel · triangle⁻ᵀ."""
        self._call("trsm", b"R", b"L", b"T", b"N", *sizes, 1.0, triangle, self.n, panel, self.n)

    def trmm(
        self,
        side: bytes,
        transpose: bytes,
        triangle: tuple[int, int],
        panel: tuple[int, int],
        sizes: tuple[int, int],
        *,
        alpha: float = 1.0,
    ) -> None:
        """Panel ← alpha · op(triangle) · panel (side L) or alpha · panel · op(triangle) (side R)."""
        self._call("trmm", side, b"L", transpose, b"N", *sizes, alpha, triangle, self.n, panel, self.n)

    def potrf(self, at: int, size: int) -> None:
        """Cholesky factor of a diagonal block."""
        info = self._call("potrf", b"L", size, (at, at), self.n, 0)
        if info:
            raise NumericalError(f"the matrix is not positive definite (pivot {at + info} of {self.n})")

    def trtri(self, at: int, size: int) -> None:
        """Inverse of a triangular diagonal block."""
        if self._call("trtri", b"L", b"N", size, (at, at), self.n, 0):
            raise NumericalError("a triangular block is singular")

    def lauum(self, at: int, size: int) -> None:
        """LᵀL of a triangular diagonal block, lower triangle."""
        self._call("lauum", b"L", size, (at, at), self.n, 0)
