"""Kernels: compiled on first call, once, whoever calls them; numba is imported then and not before."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest

from monogram.engine.runtime import jit
from monogram.engine.runtime.jit import fused, kernel
from monogram.engine.topk import by_rows


@kernel
def doubled(x):
    """Twice x."""
    return 2 * x


@fused
def quadrupled(x):
    return doubled(doubled(x))


def test_a_kernel_calls_others():
    assert quadrupled(3) == 12
    assert (doubled.__name__, doubled.__doc__, doubled.__module__) == ("doubled", "Twice x.", __name__)


def test_a_kernel_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(by_rows._rows)) is by_rows._rows


@pytest.mark.integration
def test_numba_is_imported_by_the_first_call():
    script = (
        "import sys, numpy as np\n"
        "from monogram.engine.topk.scores import clear\n"
        "before = 'numba' in sys.modules\n"
        "none = np.zeros(0, np.int64)\n"
        "clear(np.zeros(1), np.zeros(1, np.bool_), none)\n"
        "print(before, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"


@pytest.mark.integration
def test_a_fit_loads_numba_before_it_counts_memory():
    script = (
        "import sys, monogram as mg\n"
        "from monogram.engine.runtime import memory\n"
        "enter = memory.Peak.__enter__\n"
        "memory.Peak.__enter__ = lambda peak: (print('numba' in sys.modules), enter(peak))[1]\n"
        "mg.Popularity().fit([('ann', 'tea'), ('bob', 'jam')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_threads_share_one_compiled_function():
    tripled, barrier = kernel(lambda x: 3 * x), threading.Barrier(4)

    def call(x):
        barrier.wait()
        return tripled(x), tripled.dispatcher()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(call, range(4)))
    assert [value for value, _ in results] == [0, 3, 6, 9]
    assert len({id(dispatcher) for _, dispatcher in results}) == 1


@pytest.mark.parametrize(("decorator", "fastmath"), [(kernel, False), (fused, jit._REORDERED)])
def test_without_a_cache_folder_a_kernel_is_compiled_in_memory(monkeypatch, decorator, fastmath):
    original, options = numba.njit, []

    def njit(**given):
        options.append(given)
        if given.get("cache"):
            raise RuntimeError("no locator available")
        return original(**given)

    monkeypatch.setattr(numba, "njit", njit)
    assert decorator(lambda x: x + 1)(1) == 2
    assert [given.get("cache", False) for given in options] == [True, False]
    assert all(given["nogil"] and given.get("fastmath", False) == fastmath for given in options)
