"""One exact update of a fitted full-rank model: prepared, measured, then carried out.

Everything is prepared and measured before anything is changed; see `engine.inverse.woodbury` for the formulas.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from monogram.data import changes
from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import woodbury
from monogram.engine.inverse.certificate import certificate
from monogram.engine.inverse.dual import DualInverse
from monogram.engine.inverse.protocols import ReadableInverse
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float, Float64, Indices
from monogram.errors import MemoryBudgetError, MonogramWarning, NumericalError, ParameterError
from monogram.models.inverse import alike, roots, used
from monogram.models.report import FROZEN, Report, ReportBuilder
from monogram.weights import Dense, Dual, Weights
from monogram.weights.update_state import UpdateState, check_scale, rounded_scale

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank

DRIFT = {"float32": 1e-5, "float64": 1e-10}  # residual and error of the weights up to which updates are accepted
WORSE = 4.0  # times the residual of the fit, where that is larger
PROBED = 8  # items of an update that are measured, beside those that every fit is measured on
TWO_DIGITS = 1e-3  # of an error that is only compared with a bound; the rest would cost as much as the update


@dataclass(frozen=True)
class UpdateOptions:
    """The options of an update."""

    penalties: str = "followed"
    on_drift: str = "refit"
    memory: int | float | str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, choices in (("penalties", ("followed", "frozen")), ("on_drift", ("refit", "error", "warn"))):
            if getattr(self, name) not in choices:
                expected = ", ".join(repr(one) for one in choices)
                raise ParameterError(f"{name} = {getattr(self, name)!r}; expected one of {expected}")
        memory_.parse(self.memory)
        parallel.count(self.threads)


@dataclass(frozen=True)
class _Work:
    """Memory and threads of an update, and the report of its stages."""

    budget: int
    threads: int
    report: ReportBuilder


@dataclass(frozen=True)
class Ready:
    """A prepared update: the inverse and the penalties after it, and the function that makes the weights."""

    inverse: ReadableInverse
    penalties: Float64
    weights: Callable[[], Weights]
    bytes: int
    in_place: bool = False


class Dearer(Exception):
    """A change that would cost more than a refit; the text says why."""


def prepare(model: FullRank, after: changes.Changed, how: UpdateOptions) -> tuple[Ready, Report]:
    """An update that is ready to be carried out, and its report; NumericalError where rounding has grown too far."""
    work = _Work(memory_.parse(how.memory), parallel.count(how.threads), ReportBuilder())
    solve = {"primal": _primal, "dual": _dual}[str(model.weights_.solver)]
    data, drift = _data(model, after.log.matrix), DRIFT[model.report_.dtype]
    ready = solve(model, after, data, _penalties(model, after.log, squares(data), how), work)
    work.report.tick("change")
    also = _touched(model, after)
    found = certificate(data, ready.penalties, ready.inverse, also=also, fine=drift, tolerance=TWO_DIGITS)
    work.report.tick("residual")
    at_fit = _at_fit(model, found[1], drift)
    _judge(model.report_, at_fit, *found, how)
    note = "" if how.penalties == "followed" else FROZEN

    def carry_out() -> Weights:
        weights = ready.weights()
        work.report.tick("weights")
        return weights

    return replace(ready, weights=carry_out), _report(model.report_, at_fit, work, found, note)


def _data(model: FullRank, matrix: Any) -> Any:
    """Rows of a log as the model weighs them: the weight of a user depends on the user's row alone."""
    return model.formula().recipe.data(matrix, model.report_.unit)


def _touched(model: FullRank, after: changes.Changed) -> Indices:
    """Items whose rows and columns a change moves most."""
    weight = sum(squares(rows) for rows in _rows(model, after))
    return np.argsort(-np.asarray(weight), kind="stable")[:PROBED]


def _at_fit(model: FullRank, error: float, drift: float) -> tuple[float, float]:
    """Residual and error as the fit left them; a bound of the error that would excuse much is measured instead."""
    report = model.report_
    if report.changes:
        return report.residual_at_fit or 0.0, report.error_at_fit or 0.0
    residual, before = report.residual or 0.0, report.error or 0.0
    if before <= drift:
        return residual, before
    if error <= drift:
        return residual, drift
    matrix, state = _data(model, model.log_.matrix), model.weights_.required_state()
    inverse = model.weights_.read_inverse(matrix)
    return certificate(matrix, state.penalties, inverse, fine=drift, tolerance=TWO_DIGITS)


def _rows(model: FullRank, after: changes.Changed) -> tuple[Any, Any]:
    """Rows of data that go and come, over the new catalogue; who did more goes and comes, with another weight."""
    matrix = after.log.matrix
    gone = _data(model, model.log_.matrix[after.gone])
    return _widened(gone, after.log.n_items), _data(model, matrix[matrix.shape[0] - after.come :])


def _widened(matrix: Any, items: int) -> Any:
    """The same rows over a larger catalogue."""
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], items))


def _penalties(model: FullRank, log: Interactions, d: Float64, how: UpdateOptions) -> tuple[Float64, Float64]:
    """The penalties over the new catalogue before the change, and after it."""
    new, rule = log.n_items - model.log_.n_items, model.formula().penalties
    before = np.concatenate([model.weights_.required_state().penalties, rule.of(np.zeros(new))])
    if how.penalties == "followed":
        wanted = rule.of(d)
        return before, np.where(alike(wanted, before), before, wanted)
    was = np.concatenate([used(model.log_.matrix), np.zeros(new)])
    if rule.l2 == 0 and ((was == 0) & (d > 0)).any():
        raise ParameterError(
            "penalties='frozen' with l2 = 0: an item nobody had used has no penalty to freeze; use penalties='followed'"
        )
    return before, before


def _primal(
    model: FullRank, after: changes.Changed, data: Any, penalties: tuple[Float64, Float64], work: _Work
) -> Ready:
    d, counts = squares(data), used(data)
    weights, n = model.weights_, after.log.n_items
    assert isinstance(weights, Dense)
    state = weights.required_state()
    array, c = weights.matrix, state.c
    wanted = woodbury.gram_change(*_rows(model, after), penalties[1] - penalties[0])
    size = array.dtype.itemsize
    taken = woodbury.working_bytes(wanted.rank, n, array.dtype, work.threads) + model.formula().recipe.copied_bytes(
        after.log.n_events
    )
    require_cheaper(wanted.rank, n, size)
    grows, copied = n > len(array), not array.flags.writeable
    gram = 0 if state.gram is None or not (grows or copied) else 1
    more = n * n * size * (int(grows or copied) + gram)
    taken += more
    _require(taken, work.budget, model, more)
    scale = state.usable_scale()
    if grows:
        more = n - len(array)
        array = woodbury.grown(array, n)
        c, scale = np.concatenate([c, 1 / penalties[0][-more:]]), np.concatenate([scale, np.ones(more)])
    held = woodbury.InverseInWeights(array, scale, c)
    correction = woodbury.correction(held, wanted, np.where(d == 0, 1 / np.where(d == 0, penalties[1], 1.0), 0.0))
    theta, delta = model.formula().head(correction.diagonal, penalties[1], d, counts)
    scale = check_scale(rounded_scale(theta, correction.diagonal, array.dtype))
    step = woodbury.WeightsUpdate(held, correction, scale)

    def carry_out() -> Weights:
        out = np.empty_like(array) if copied and not grows else array
        step.into(out, delta, work.threads)
        gram = _updated_gram(state.gram, model, after)
        return Dense(out, update_state=UpdateState(step.diagonal, penalties[1], gram, scale))

    return Ready(step, penalties[1], carry_out, taken, not (grows or copied))


def _dual(model: FullRank, after: changes.Changed, data: Any, penalties: tuple[Float64, Float64], work: _Work) -> Ready:
    held, (gone, come) = model.weights_, _rows(model, after)
    assert isinstance(held, Dual)
    size = held.inverse.dtype.itemsize
    if not (penalties[1] > 0).all():
        raise ParameterError("the dual needs every penalty above 0")
    side = max(after.log.n_users, model.log_.n_users)
    rank = gone.shape[0] + come.shape[0] + int((penalties[0] != penalties[1]).sum())
    taken = woodbury.working_bytes(rank, side, held.inverse.dtype, work.threads)
    require_cheaper(rank, side, size)
    taken += (
        after.log.n_users**2 * size + 28 * after.log.n_events + model.formula().recipe.copied_bytes(after.log.n_events)
    )
    _require(taken, work.budget, model)
    wide = _widened(_data(model, model.log_.matrix), after.log.n_items)
    whole = held.inverse
    if after.come or len(after.gone) or (penalties[0] != penalties[1]).any():
        whole = woodbury.dual(
            whole,
            wide,
            penalties[0],
            removed=after.gone,
            appended=come,
            new_penalties=penalties[1],
            threads=work.threads,
        )
    solved = DualInverse(whole, data.T.tocsr(), penalties[1], work.threads)
    if not (solved.diagonal > 0).all():
        raise NumericalError("the change cannot be carried out in this precision: the diagonal of C left its range")
    theta, delta = model.formula().head(solved.diagonal, penalties[1], squares(data), used(data))
    scale = -theta / (solved.diagonal * penalties[1])
    own = roots(after.log, model.formula().recipe.weights(after.log.matrix, model.report_.unit))

    def carry_out() -> Weights:
        gram = _updated_gram(held.required_state().gram, model, after)
        state = UpdateState(solved.diagonal, penalties[1], gram)
        return Dual(solved.inverse, after.log.matrix, penalties[1], scale, theta + delta, own, state)

    return Ready(solved, penalties[1], carry_out, taken)


def _updated_gram(gram: Float | None, model: FullRank, after: changes.Changed) -> Float | None:
    """The Gram after the change: in place, or in a copy where it is shared, read-only or too small."""
    if gram is None:
        return None
    if len(gram) != after.log.n_items or not gram.flags.writeable:
        gram = woodbury.grown(gram, after.log.n_items)
    woodbury.add_to_gram(gram, *_rows(model, after))
    return gram


def require_cheaper(rank: int, side: int, size: int) -> None:
    """Say so where a change takes more operations, or more memory, than a factorisation anew."""
    if woodbury.flops(rank, side) > float(side) ** 3 or rank * (24 + 2 * size) > size * side:
        raise Dearer(f"a change of rank {rank:,} would have cost more")


def _require(needed: int, budget: int, model: FullRank, copied: int = 0) -> None:
    if needed > budget:
        other = f": {memory_.show(copied)} of it for new weights beside these" if copied else ""
        advice = "fit again on the changed log" if copied > budget else "change fewer users at a time"
        raise MemoryBudgetError(
            f"the change needs {memory_.show(needed)}, but may use {memory_.show(budget)}{other}; this "
            f"{type(model).__name__} is as it was. Raise the memory, or {advice}"
        )


def _judge(before: Report, at_fit: tuple[float, float], residual: float, error: float, how: UpdateOptions) -> None:
    """Compare what a change would leave with what the fit left."""
    bounds = [max(DRIFT[before.dtype], WORSE * one) for one in at_fit]
    if residual <= bounds[0] and error <= bounds[1]:
        return
    text = (
        f"after {before.changes + 1:,} changes the residual would be {residual:.1e} (bound: {bounds[0]:.0e}) and the "
        f"weights off by some {error:.0e} (bound: {bounds[1]:.0e})"
    )
    if how.on_drift == "warn" and np.isfinite(residual):
        warnings.warn(f"{text}; fit again to be exact", MonogramWarning, stacklevel=5)
        return
    raise NumericalError(text)


def _report(before: Report, at_fit: tuple[float, float], work: _Work, found: tuple[float, float], note: str) -> Report:
    return replace(
        before,
        solver="primal" if before.solver == "disk" else before.solver,
        threads=work.threads,
        seconds=work.report.seconds,
        residual=found[0],
        error=found[1],
        changes=before.changes + 1,
        residual_at_fit=at_fit[0],
        error_at_fit=at_fit[1],
        note=note,
    )
