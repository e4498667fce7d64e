"""One exact update of a fitted full-rank model: it is prepared and measured before the weights are changed.

For the formulas see `engine.inverse.woodbury`.
"""

from __future__ import annotations

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
from monogram.engine.runtime.arrays import Csr, Float, Float64, Indices
from monogram.errors import MemoryBudgetError, NumericalError, ParameterError, warn
from monogram.models.inverse import item_counts, same_penalties, user_weight_roots
from monogram.models.report import EXPANDED, FROZEN, Report, ReportBuilder
from monogram.weights import Dense, Dual, Weights
from monogram.weights.update_state import UpdateState, check_scale, rounded_scale

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank

DRIFT = {"float32": 1e-5, "float64": 1e-10}  # largest residual and error of the weights that an update may leave
WORSE = 4.0  # or this many times the residual and error of the fit, where that is larger
PROBED = 8  # most changed items whose columns are measured, in addition to the probe columns of a fit
TWO_DIGITS = 1e-3  # relative accuracy of the measured error: it is only compared with a bound


@dataclass(frozen=True)
class UpdateOptions:
    """The options of an update; see `FullRank.add_users`.

    `on_large` is "refit" or "error": what to do with a local model when the change affects most of its columns.
    """

    penalties: str = "followed"
    on_drift: str = "refit"
    memory: int | float | str | None = None
    threads: int | None = None
    on_large: str = "error"

    def __post_init__(self) -> None:
        allowed = {"penalties": ("followed", "frozen"), "on_drift": ("refit", "error", "warn")}
        for name, choices in (allowed | {"on_large": ("refit", "error")}).items():
            if getattr(self, name) not in choices:
                expected = ", ".join(map(repr, choices))
                raise ParameterError(f"{name} = {getattr(self, name)!r}; expected one of {expected}")
        memory_.parse(self.memory)
        parallel.count(self.threads)


@dataclass(frozen=True)
class _Resources:
    """Memory and threads of an update, and the report of its stages."""

    budget: int
    threads: int
    report: ReportBuilder


@dataclass(frozen=True)
class PreparedUpdate:
    """An update that is computed but not yet applied.

    Attributes
    ----------
    inverse, penalties : after the update
    weights : computes the weights after the update
    bytes : memory that the update takes
    in_place : whether `weights` overwrites the weights of the model
    """

    inverse: ReadableInverse
    penalties: Float64
    weights: Callable[[], Weights]
    bytes: int
    in_place: bool = False


class CostlierThanRefit(Exception):
    """An update that would take more operations or memory than a refit; the message says why."""


def prepare(model: FullRank, after: changes.Changed, options: UpdateOptions) -> tuple[PreparedUpdate, Report]:
    """A prepared update and its report; NumericalError where its residual or error is above the bound."""
    threads = parallel.count(options.threads)
    resources = _Resources(memory_.parse(options.memory), threads, ReportBuilder(threads=threads))
    solve = {"primal": _primal, "dual": _dual}[str(model.weights_.solver)]
    data, drift = _data(model, after.log.matrix), DRIFT[model.report_.dtype]
    update = solve(model, after, data, changed_penalties(model, after.log, squares(data), options), resources)
    resources.report.tick("change")
    also = _most_changed_items(model, after)
    how = _how(model, after.log, threads) | {"fine": drift, "tolerance": TWO_DIGITS}
    accuracy = certificate(data, update.penalties, update.inverse, also=also, **how)
    resources.report.tick("residual")
    at_fit = _accuracy_at_fit(model, accuracy[1], drift, threads)
    _check_drift(model.report_, at_fit, *accuracy, options)
    note = "" if options.penalties == "followed" else FROZEN

    def carry_out() -> Weights:
        weights = update.weights()
        resources.report.tick("weights")
        return weights

    return replace(update, weights=carry_out), updated_report(model.report_, at_fit, resources.report, accuracy, note)


def _data(model: FullRank, matrix: Csr) -> Csr:
    """Rows of a log scaled by the user weights of the model; the weight of a user depends on the user's row alone."""
    return model.formula().recipe.data(matrix, model.report_.unit)


def _most_changed_items(model: FullRank, after: changes.Changed) -> Indices:
    """The items with the largest squared sums in the removed and added rows."""
    parts = _changed_users(model, after)
    sums = sum(squares(_widened(_data(model, log.matrix[users]), after.log.n_items)) for log, users in parts)
    return np.argsort(-np.asarray(sums), kind="stable")[:PROBED]


def _accuracy_at_fit(model: FullRank, error: float, drift: float, threads: int) -> tuple[float, float]:
    """Residual and error of the last fit.

    The report of a fit may hold only a loose bound of the error. Where that bound would decide whether the update is
    accepted, the error is measured.
    """
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
    how = _how(model, model.log_, threads) | {"fine": drift, "tolerance": TWO_DIGITS}
    return certificate(matrix, state.penalties, inverse, **how)


def _how(model: FullRank, log: Interactions, threads: int) -> dict[str, Any]:
    """Arguments of a certificate: the time kernel of a log, and threads for it."""
    return {"kernel": model.formula().recipe.kernel(log), "threads": threads}


def changed_rows(model: FullRank, after: changes.Changed) -> tuple[Csr, Csr]:
    """The removed and the added rows of data, both over the new catalogue.

    A user with new events is in both: the old row is removed and the longer one, with another user weight, is added.
    With a time kernel each event of these users is a row, and the Gram matrix of the rows is still their part of S.
    """
    removed, added = (_widened(_rows_of_data(model, *part), after.log.n_items) for part in _changed_users(model, after))
    return removed, added


def _changed_users(model: FullRank, after: changes.Changed) -> tuple[tuple[Interactions, Indices], ...]:
    """The log and the rows of the users that are removed, and of those that are added."""
    users = after.log.n_users
    return (model.log_, after.removed_rows), (after.log, np.arange(users - after.n_added, users))


def _size_of_change(model: FullRank, after: changes.Changed) -> tuple[int, int]:
    """The rank of the change of S, and the bytes of its rows: with a time kernel each event is a row."""
    lengths = np.concatenate([np.diff(log.matrix.indptr)[users] for log, users in _changed_users(model, after)]).astype(
        np.int64
    )
    if not model.formula().recipe.timed:
        return int((lengths > 0).sum()), 12 * int(lengths.sum())
    return int(lengths.sum()), int(12 * (lengths * (lengths + 1) // 2).sum() + 24 * lengths.max(initial=0) ** 2)


def _rows_of_data(model: FullRank, log: Interactions, users: Indices) -> Csr:
    """The rows of data of some users."""
    kernel, rows = model.formula().recipe.kernel(log), _data(model, log.matrix[users])
    return rows if kernel is None else kernel.part(events_of(log.matrix, users)).expanded(rows)


def events_of(matrix: Csr, rows: Indices) -> Indices:
    """The places of the entries of some rows, in the order of the rows."""
    starts, lengths = matrix.indptr[rows], np.diff(matrix.indptr)[rows]
    return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths))


def _widened(matrix: Csr, items: int) -> Csr:
    """The same rows with columns for a larger catalogue."""
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], items))


def changed_penalties(
    model: FullRank, log: Interactions, d: Float64, options: UpdateOptions
) -> tuple[Float64, Float64]:
    """The penalties of all items of the new catalogue, before and after the change."""
    new, rule = log.n_items - model.log_.n_items, model.formula().penalties
    before = np.concatenate([model.weights_.required_state().penalties, rule.of(np.zeros(new))])
    if options.penalties == "followed":
        refitted = rule.of(d)
        return before, np.where(same_penalties(refitted, before), before, refitted)
    former_counts = np.concatenate([item_counts(model.log_.matrix), np.zeros(new)])
    if rule.l2 == 0 and ((former_counts == 0) & (d > 0)).any():
        raise ParameterError(
            "penalties='frozen' with l2 = 0: an item without events before has no penalty to keep; use "
            "penalties='followed'"
        )
    return before, before


def _primal(
    model: FullRank, after: changes.Changed, data: Csr, penalties: tuple[Float64, Float64], resources: _Resources
) -> PreparedUpdate:
    """The update of a primal inverse, which is stored in the weights: W = B·diag(θ) + diag(δ)."""
    d, counts = squares(data), item_counts(data)
    weights, n = model.weights_, after.log.n_items
    assert isinstance(weights, Dense)
    state = weights.required_state()
    array, c = weights.matrix, state.c
    shift, itemsize = penalties[1] - penalties[0], array.dtype.itemsize
    rank, row_bytes = _size_of_change(model, after)
    rank += int((shift != 0).sum())
    require_cheaper(rank, n, itemsize)
    grows, copied = n > len(array), not array.flags.writeable
    new_gram = state.gram is not None and (grows or not state.gram.flags.writeable)
    new_arrays = int(grows or copied) + int(new_gram)
    new_bytes = n * n * itemsize * new_arrays
    needed = woodbury.working_bytes(rank, n, array.dtype, resources.threads) + new_bytes + 2 * row_bytes
    needed += model.formula().recipe.copied_bytes(after.log.n_events)
    _require_memory(needed, resources.budget, model, new_bytes)
    rows = changed_rows(model, after)
    gram_change = woodbury.gram_change(*rows, shift)
    scale = state.usable_scale()
    if grows:
        new_items = n - len(array)
        array = woodbury.grown(array, n)
        c, scale = np.concatenate([c, 1 / penalties[0][-new_items:]]), np.concatenate([scale, np.ones(new_items)])
    before = woodbury.InverseInWeights(array, scale, c)
    correction = woodbury.correction(
        before, gram_change, np.where(d == 0, 1 / np.where(d == 0, penalties[1], 1.0), 0.0)
    )
    theta, delta = model.formula().head(correction.diagonal, penalties[1], d, counts)
    scale = check_scale(rounded_scale(theta, correction.diagonal, array.dtype))
    update = woodbury.WeightsUpdate(before, correction, scale)
    gram = _writable_gram(state.gram, n)  # a failed allocation must come before the first change

    def carry_out() -> Weights:
        out = np.empty_like(array) if copied and not grows else array
        update.into(out, delta, resources.threads)
        if gram is not None:
            woodbury.add_to_gram(gram, *rows)
        return Dense(out, update_state=UpdateState(update.diagonal, penalties[1], gram, scale))

    return PreparedUpdate(update, penalties[1], carry_out, needed, not (grows or copied))


def _dual(
    model: FullRank, after: changes.Changed, data: Csr, penalties: tuple[Float64, Float64], resources: _Resources
) -> PreparedUpdate:
    """The update of a dual inverse, a square array over the users."""
    weights, (removed, added) = model.weights_, changed_rows(model, after)
    assert isinstance(weights, Dual)
    itemsize = weights.inverse.dtype.itemsize
    if not (penalties[1] > 0).all():
        raise ParameterError(
            "the dual solver needs every penalty above 0, and this change leaves an item with the penalty 0; use an l2 "
            "above 0, or solver='primal'"
        )
    side = max(after.log.n_users, model.log_.n_users)
    rank = removed.shape[0] + added.shape[0] + int((penalties[0] != penalties[1]).sum())
    require_cheaper(rank, side, itemsize)
    needed = woodbury.working_bytes(rank, side, weights.inverse.dtype, resources.threads)
    needed += after.log.n_users**2 * itemsize + 28 * after.log.n_events
    needed += model.formula().recipe.copied_bytes(after.log.n_events)
    _require_memory(needed, resources.budget, model)
    before = _widened(_data(model, model.log_.matrix), after.log.n_items)
    square = weights.inverse
    if after.n_added or len(after.removed_rows) or (penalties[0] != penalties[1]).any():
        square = woodbury.dual(
            square,
            before,
            penalties[0],
            removed=after.removed_rows,
            appended=added,
            new_penalties=penalties[1],
            threads=resources.threads,
        )
    inverse = DualInverse(square, data.T.tocsr(), penalties[1], resources.threads)
    if not (inverse.diagonal > 0).all():
        raise NumericalError("the change cannot be carried out in this precision: diag C has a value of 0 or below")
    theta, delta = model.formula().head(inverse.diagonal, penalties[1], squares(data), item_counts(data))
    scale = -theta / (inverse.diagonal * penalties[1])
    user_roots = user_weight_roots(after.log, model.formula().recipe.weights(after.log.matrix, model.report_.unit))

    def carry_out() -> Weights:
        state = UpdateState(inverse.diagonal, penalties[1])
        return Dual(inverse.inverse, after.log.matrix, penalties[1], scale, theta + delta, user_roots, state)

    return PreparedUpdate(inverse, penalties[1], carry_out, needed)


def _writable_gram(gram: Float | None, items: int) -> Float | None:
    """The Gram matrix to update: the array itself, or a copy where it is read-only or too small."""
    if gram is None or (len(gram) == items and gram.flags.writeable):
        return gram
    return woodbury.grown(gram, items)


def require_cheaper(rank: int, side: int, itemsize: int) -> None:
    """Raise CostlierThanRefit where an update takes more operations, or more memory, than a new factorisation."""
    if woodbury.flops(rank, side) > float(side) ** 3 or rank * (24 + 2 * itemsize) > itemsize * side:
        raise CostlierThanRefit(f"a change of rank {rank:,} would cost more than a refit")


def _require_memory(needed: int, budget: int, model: FullRank, new_arrays: int = 0) -> None:
    """Raise MemoryBudgetError where an update needs too many bytes; `new_arrays` are those of larger or copied ones."""
    if needed > budget:
        part = f": {memory_.show(new_arrays)} of it for new arrays beside the present weights" if new_arrays else ""
        advice = "fit again on the changed log" if new_arrays > budget else "change fewer users at a time"
        raise MemoryBudgetError(
            f"the change needs {memory_.show(needed)}, but may use {memory_.show(budget)}{part}; this "
            f"{type(model).__name__} was not changed. Raise the memory, or {advice}"
        )


def _check_drift(
    before: Report, at_fit: tuple[float, float], residual: float, error: float, options: UpdateOptions
) -> None:
    """Raise NumericalError, or warn, where the residual or the error after an update is above its bound."""
    bounds = [max(DRIFT[before.dtype], WORSE * value) for value in at_fit]
    if residual <= bounds[0] and error <= bounds[1]:
        return
    text = (
        f"after {before.changes + 1:,} changes the residual would be {residual:.1e} (bound: {bounds[0]:.0e}) and the "
        f"error of the weights about {error:.0e} (bound: {bounds[1]:.0e})"
    )
    if options.on_drift == "warn" and np.isfinite(residual):
        warn(f"{text}; fit again to be exact")
        return
    raise NumericalError(text)


def updated_report(
    before: Report, at_fit: tuple[float, float], made: ReportBuilder, accuracy: tuple[float, float], note: str
) -> Report:
    """The report of an update; `at_fit` and `accuracy` are residual and error of the last fit and of the update."""
    return replace(
        before,
        solver="primal" if before.solver in ("disk", EXPANDED) else before.solver,
        threads=made.threads,
        seconds=made.seconds,
        residual=accuracy[0],
        error=accuracy[1],
        changes=before.changes + 1,
        residual_at_fit=at_fit[0],
        error_at_fit=at_fit[1],
        note=note,
    )
