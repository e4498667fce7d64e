"""What the autoencoders share, full rank or not: penalties, one inverse, and its certificate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.gram import user_weights
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import dense
from monogram.engine.inverse.disk import Tiled, disk, free
from monogram.engine.plan import Cost, Extra, Plan, Size, beside_tiles, measure, on_disk, plan
from monogram.errors import MonogramWarning, NumericalError, ParameterError
from monogram.models.base import Recommender
from monogram.models.work import Work

Float = NDArray[np.float64]
WORST_RESIDUAL = 1e-3
WORST_ERROR = 1e-2
NOISE = 1e-13  # of a penalty: what the order of a sum may change


@dataclass(frozen=True)
class Solved:
    """The inverse C = (S + diag ℓ)⁻¹ of a fit, its penalties ℓ, d = diag S, and the users of each item.

    `weights` are those of the users; None where all are 1.
    """

    inverse: dense.Inverse | Tiled
    penalties: Float
    d: Float
    counts: Float
    weights: Float | None = None


@dataclass(frozen=True)
class Kept:
    """What a full-rank model keeps beside its weights, so that it can be changed: c = diag C, ℓ, and S where asked for.

    S is in the lower triangle of a Fortran-ordered array. `scale` is the factor −θ/c by which dense weights differ from
    C, of the parameters that they were made with.
    """

    c: Float
    penalties: Float
    gram: NDArray[Any] | None = None
    scale: Float | None = None


def factor(theta: Float, c: Float, dtype: Any) -> Float:
    """The factor −θ/c of `Kept`, as it is rounded into weights of a precision."""
    with np.errstate(over="ignore", under="ignore"):
        found: Float = (-theta / c).astype(dtype).astype(np.float64)
    return found


@dataclass(frozen=True)
class Again:
    """A log, and the factor of the users' weights of an earlier fit: `fit` takes it in place of the log."""

    log: Interactions
    unit: float | None


Factors = tuple[NDArray[Any], NDArray[Any], float]


@dataclass
class Inverted:
    """A log and its inverse for one l2 and dropout: `fit` of a student with these takes it in place of the log.

    The pairs of a teacher are kept: a student of lower rank is the beginning of one that was made before.
    """

    log: Interactions
    solved: Solved
    rates: tuple[float, float]
    pairs: dict[Any, tuple[int, Factors]] = field(default_factory=dict)

    def nearest(self, key: Any, rank: int, make: Callable[[], Factors]) -> Factors:
        """Two factors and the residual of their pairs, of at most a rank: made, or the beginning of what was made."""
        if key not in self.pairs or self.pairs[key][0] < rank:
            self.pairs[key] = rank, make()
        left, right, residual = self.pairs[key][1]
        return left[:, :rank], right[:, :rank], residual


@dataclass(kw_only=True, eq=False)
class Autoencoder(Recommender):
    """A linear autoencoder: what it needs is (S + Λ)⁻¹ and W = B·diag(θ) + diag(δ) (see `full_rank`)."""

    def _rates(self) -> tuple[float, float]:
        """The penalty l2 and the dropout."""
        raise TypeError(f"{type(self).__name__} must define _rates()")

    def _head(self, c: Float, penalties: Float, d: Float, counts: Float) -> tuple[Float, Float]:
        """The rescaling θ and the diagonal δ; `counts` are the users of each item."""
        raise TypeError(f"{type(self).__name__} must define _head(c, penalties, d, counts)")

    def _user_power(self) -> float:
        """The power α of the users' weights |I_u|^(−α); 0 where all count alike."""
        return 0.0

    def _user_weights(self, matrix: Any, unit: float | None) -> Float | None:
        """The weights of the users for a factor `unit` (see `engine.gram.user_weights`); None where all are 1."""
        power = self._user_power()
        return None if unit is None or power == 0 else user_weights.user_weights(matrix, power, unit)

    def _scaled(self, matrix: Any, unit: float | None) -> Any:
        """The data whose Gram is S: X̃ = diag(√w)·X, or X itself where no user has a weight."""
        return dense.rooted(matrix, self._user_weights(matrix, unit))

    def _data(self, log: Interactions, work: Work) -> Any:
        """X̃ of a log; where no factor of the weights was given, it is that of this log."""
        if work.data is None:
            if work.unit is None and self._user_power() != 0:
                work.unit = user_weights.unit(log.matrix, self._user_power())
            work.data = self._scaled(log.matrix, work.unit)
        return work.data

    def _tiny(self) -> Any:
        """The smallest data that compiles what a fit calls: weighted, it is of another precision."""
        return self._scaled(tiny(), 1.0 if self._user_power() else None)

    def _copied(self, events: int) -> int:
        """Bytes of the weighted data beside the log: by user, and once more by item."""
        return 16 * events if self._user_power() else 0

    def _extra(self, size: Size, work: Work) -> Extra:
        """What the fit takes beside the inverse."""
        return Extra(bytes=self._copied(size.events))

    def _penalties(self, d: Float) -> Float:
        l2, dropout = self._rates()
        penalties = l2 + dropout / (1 - dropout) * d
        # An item nobody used is alone in S + Λ: any penalty gives it zero weights, 0 would make it singular.
        return np.where((d == 0) & (penalties == 0), 1.0, penalties)

    def _warm(self, work: Work) -> None:
        data = self._tiny()
        for solve in (dense.primal, dense.dual):
            solved = solve(data, np.ones(2), dtype=work.dtype)
            dense.certificate(data, np.ones(2), solved)
            if isinstance(solved, dense.Primal):
                solved.into_weights(np.ones(2), np.ones(2), 1)

    def _plan(self, size: Size, work: Work) -> Plan:
        return self._planned(size, work)

    def _planned(self, size: Size, work: Work, others: tuple[Cost, ...] = ()) -> Plan:
        """The plan of an inverse, with ways that need none beside it."""
        if work.cluster is not None:
            from monogram.cluster.cost import inverse_plan

            extra = self._extra(size, work)
            return inverse_plan(work.cluster, size, work.budget, dtype=work.dtype, extra=extra)
        l2, dropout = self._rates()
        solvers: tuple[str, ...] = ("primal", "dual")
        copied = self._copied(size.events)
        if "disk" in self.solvers:
            others = (on_disk(size, work.budget - copied, dtype=work.dtype, threads=work.threads), *others)
        others = tuple(replace(one, bytes=one.bytes + copied) for one in others)
        if l2 == 0 and dropout == 0:  # the others divide by the penalties
            if work.solver not in ("auto", "primal", "disk"):
                raise ParameterError(
                    f"solver={work.solver!r} needs l2 or dropout above 0; give one, or use solver='primal'"
                )
            solvers, others = ("primal",), tuple(one for one in others if one.solver == "disk")
        return plan(
            size,
            budget=work.budget,
            solver=work.solver,
            solvers=solvers,
            dtype=work.dtype,
            threads=work.threads,
            extra=self._extra(size, work),
            others=others,
            room=None if work.scratch is None or "disk" not in self.solvers else free(work.scratch),
        )

    def _inverted(self, log: Interactions, work: Work, known: NDArray[Any] | None = None) -> Solved:
        """Plan and invert; `known` is the Gram, where it is there already (see `dense.primal`)."""
        size = measure(log.matrix)
        chosen = self._planned(size, work).require().chosen
        work.tick("plan")
        work.used, work.planned = chosen.solver, chosen.bytes
        data = self._data(log, work)
        d = squares(data)
        penalties = self._penalties(d)
        rest = penalties, d, used(data), self._user_weights(log.matrix, work.unit)
        how: dict[str, Any] = {"dtype": work.dtype, "threads": work.threads, "stage": work.tick}
        if work.cluster is not None:
            from monogram.cluster.solve import primal

            way = "tiles" if "tiles" in chosen.solver else "one_worker"
            keep = known if known is not None and known.flags.writeable else None  # else it is whole already
            return Solved(primal(work.cluster, data, penalties, way, keep=keep, **how), *rest)
        if chosen.solver == "disk":
            assert work.scratch is not None
            room = work.budget - beside_tiles(size, work.threads) - self._copied(size.events)
            return Solved(disk(data, penalties, folder=work.scratch, room=room, **how), *rest)
        if chosen.solver == "primal":
            return Solved(dense.primal(data, penalties, known=known, **how), *rest)
        return Solved(dense.dual(data, penalties, **how), *rest)

    def _solve(self, log: Interactions, work: Work) -> Solved:
        """Plan, invert, and judge the inverse."""
        solved = self._inverted(log, work, work.gram)
        work.tick("diagonal")
        work.residual, work.error = dense.certificate(work.data, solved.penalties, solved.inverse)
        work.tick("residual")
        try:
            judge(work)
        except NumericalError as error:
            if isinstance(solved.inverse, Tiled):
                solved.inverse.scratch.remove()
                raise NumericalError(f"{error}. Its files may have been damaged: they are gone, fit again") from error
            raise
        return solved


def used(matrix: Any) -> Float:
    """How many users each item has."""
    return np.bincount(matrix.indices, minlength=matrix.shape[1]).astype(np.float64)


def roots(log: Interactions, weights: Float | None) -> Float:
    """The roots √w of the users' weights."""
    return np.ones(log.n_users) if weights is None else np.sqrt(weights)


def tiny() -> NDArray[np.float32]:
    """The smallest data that compiles everything: two users, two items."""
    matrix: NDArray[np.float32] = Interactions.from_csr(sp.eye_array(2, dtype=np.float32).tocsr()).matrix
    return matrix


def alike(one: Float, other: Float) -> NDArray[np.bool_]:
    """Which penalties are the same, but for the order of the sums they come from."""
    return np.abs(one - other) <= NOISE * other


def exact_enough(work: Work) -> bool:
    """Whether residual and error of a fit are such as nobody need be told of."""
    return (work.residual or 0) <= WORST_RESIDUAL and (work.error or 0) <= WORST_ERROR


def judge(work: Work) -> None:
    """Refuse a fit that is not finite, and warn of one that is not exact."""
    assert work.residual is not None
    if not (np.isfinite(work.residual) and np.isfinite(work.error or 0)):
        raise NumericalError("the inverse is not finite: raise l2, or use dtype='float64'")
    if not exact_enough(work):
        other = "primal" if work.used == "dual" else "dual"
        advice = f"use dtype='float64', or try solver='{other}'" if work.dtype == "float32" else "raise l2"
        warnings.warn(
            f"this fit is not exact: its residual is {work.residual:.1e} (good: below {WORST_RESIDUAL:g}), and its "
            f"weights are off by some {work.error or 0:.0e} of the largest (good: below {WORST_ERROR:g}); {advice}",
            MonogramWarning,
            stacklevel=5,
        )
