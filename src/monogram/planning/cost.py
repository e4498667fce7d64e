"""The cost of a fit by one solver, and the extra cost that a model adds to an inverse."""

from __future__ import annotations

from dataclasses import dataclass

from monogram.planning.size import Size

# Memory that every fit takes in addition to its arrays: buffers of BLAS, caches and stacks of the threads.
WORKSPACE = 10_000_000

# The long parts of a fit: name, amount of work, and the unit of that amount.
Stages = tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Cost:
    """The cost of a fit by one solver.

    Attributes
    ----------
    solver : name of the solver
    bytes : memory at the peak
    flops, seconds : of the whole fit
    advice : how to make the fit smaller, where fewer users or items do not help
    stages : long parts of the fit, for a progress bar
    flops_per_history, seconds_per_history : of ranking for one history, where that is expensive; else 0
    disk : bytes of files
    avoidable : bytes that following the advice can save; 0 where the advice can save nearly all of them
    """

    solver: str
    bytes: int
    flops: float
    seconds: float
    advice: str = ""
    stages: Stages = ()
    flops_per_history: float = 0.0
    seconds_per_history: float = 0.0
    disk: int = 0
    avoidable: int = 0


@dataclass(frozen=True)
class Extra:
    """What a model takes in addition to an inverse.

    Attributes
    ----------
    bytes, flops : in addition to those of the inverse
    columns : columns that the inverse is multiplied with
    stages : long parts that follow those of the inverse
    products : products of a primal inverse with itself; each takes one more square array
    expand : True: a dual inverse is expanded to the weights W in memory; "file": W is written to a file instead
    advice, avoidable : as those of `Cost`
    """

    bytes: int = 0
    flops: float = 0.0
    columns: int = 0
    stages: Stages = ()
    products: int = 0
    expand: bool | str = False
    advice: str = ""
    avoidable: int = 0


@dataclass(frozen=True)
class Alternative:
    """Another model that fits the memory, as a refusal names it: "LRR(rank=64)", and its bytes."""

    label: str
    bytes: int


def counting(size: Size) -> Cost:
    """The cost of one sum over the events for each item; the default for models without a cost function."""
    return Cost("none", 8 * size.items, float(size.events), size.events * 1e-8)
