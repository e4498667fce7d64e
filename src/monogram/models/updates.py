"""Full-rank models that change without a refit: users come and go, items join, parameters move.

Everything is prepared and measured before anything is changed; see `engine.inverse.woodbury` for the formulas.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from monogram import ranking
from monogram.data import changes
from monogram.data.interactions import Interactions
from monogram.data.readers import as_interactions
from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import dense, woodbury
from monogram.engine.inverse import matrix_free as free
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime import parallel
from monogram.engine.runtime.arrays import Float64, Indices
from monogram.errors import MemoryBudgetError, MonogramWarning, NumericalError, ParameterError, UnknownIdError
from monogram.models import matrix_free
from monogram.models.base import Recommender
from monogram.models.fitted import RefitSource, UpdateState, factor
from monogram.models.inverse import alike, roots, used
from monogram.models.inverse_model import InverseModel
from monogram.models.registry import names_of
from monogram.models.work import Report, Work
from monogram.weights import Dense, Dual, MatrixFree, Weights

if TYPE_CHECKING:
    from monogram.models.full_rank import FullRank

Model = TypeVar("Model", bound="FullRank")
DRIFT = {"float32": 1e-5, "float64": 1e-10}  # residual and error of the weights up to which changes go on
WORSE = 4.0  # times the residual of the fit, where that is larger
PROBED = 8  # items of a change that are measured, beside those that every fit is measured on
TWO_DIGITS = 1e-3  # of an error that is only compared with a bound; the rest would cost as much as the change
FROZEN = "penalties frozen"


@dataclass(frozen=True)
class How:
    """How a change is to be done."""

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


def add_users(model: Model, log: Any, new_items: bool, how: How) -> Model:
    """See `FullRank.add_users`."""
    check(model)
    more = as_interactions(log)
    return _change(model, changes.with_users(_catalogue(model.log_, more, new_items), more), how)


def _catalogue(log: Interactions, more: Interactions, new_items: bool) -> Interactions:
    """The log over a catalogue that has the items of another one."""
    used = more.items.ids(np.unique(more.matrix.indices))
    unknown = [one for one, place in zip(used, log.items.index(used), strict=True) if place < 0]
    if unknown and not new_items:
        raise UnknownIdError(
            f"the log has {len(unknown):,} items this model does not know: {_few(unknown)}; "
            "add them with add_items, or in one step with new_items=True"
        )
    return changes.with_items(log, unknown) if unknown else log


def forget_users(model: Model, ids: Any, how: How) -> Model:
    """See `FullRank.forget_users`."""
    check(model)
    rows = _known(model, ids)
    return _change(model, changes.without_users(model.log_, rows), how) if len(rows) else model


def exchange_users(model: Model, ids: Any, log: Any, how: How) -> Model:
    """Forget users, then learn from more events, new items too, as one change; a forgotten user may come again."""
    check(model)
    more = as_interactions(log)
    return _change(model, changes.exchanged(_catalogue(model.log_, more, True), _known(model, ids), more), how)


def _known(model: FullRank, ids: Any) -> Indices:
    """Rows of users to forget."""
    asked = ranking.id_list(ids, "the list of users")
    rows = model.log_.users.index(asked)
    unknown = [one for one, row in zip(asked, rows, strict=True) if row < 0]
    if unknown:
        raise UnknownIdError(f"{len(unknown):,} of the users to forget are not in this model's log: {_few(unknown)}")
    return np.unique(rows)


def add_items(model: Model, ids: Any, how: How) -> Model:
    """See `FullRank.add_items`."""
    check(model)
    asked = ranking.id_list(ids, "the list of items")
    known = [one for one, place in zip(asked, model.log_.items.index(asked), strict=True) if place >= 0]
    if known:
        raise ParameterError(f"{len(known):,} of the items are in the catalogue already: {_few(known)}")
    if not asked:
        return model
    after = changes.with_items(model.log_, asked)
    return _change(model, changes.Changed(after, np.zeros(0, np.int64), 0), how)


def _few(ids: list[Any]) -> str:
    return ", ".join(repr(ranking.shorten(one)) for one in ids[:5]) + (", …" if len(ids) > 5 else "")


def check(model: Recommender) -> None:
    """Refuse a model that cannot be changed, with the reason."""
    _, weights = model._learned()
    name = type(model).__name__
    if model.pruning_ is not None:
        raise ParameterError(f"this {name} was pruned: what is left is no inverse. Change the whole one, then prune it")
    if isinstance(model, InverseModel) and model.formula().recipe.weighted and model.report_.unit is None:
        raise ParameterError(f"this {name} does not know the factor of its users' weights (report_.unit): fit it again")
    if isinstance(weights, MatrixFree):
        return
    if not (isinstance(model, InverseModel) and model.updatable) or not isinstance(weights, Dense | Dual):
        raise ParameterError(f"{name} cannot be changed without a refit; models that can: {names_of('updatable')}")
    if not isinstance(model._kept, UpdateState) or (isinstance(weights, Dense) and model._kept.scale is None):
        raise ParameterError(f"this {name} was saved without what a change needs (its diagonal of C): fit it again")


@dataclass(frozen=True)
class _Ready:
    """A change that was prepared: the inverse as it will be, the penalties, and what makes the weights (in place?)."""

    inverse: dense.Readable
    penalties: Float64
    weights: Callable[[], Weights]
    bytes: int
    in_place: bool = False
    scale: Float64 | None = None


class _Dearer(Exception):
    """A change that would cost more than a refit; the text says why."""


def _change(model: Model, after: changes.Changed, how: How) -> Model:
    """The model of the log after a change, in place of the model before; or an error, and nothing changed."""
    if isinstance(model.weights_, MatrixFree):
        return _refitted(model, after.log, "without a square array a model is its log, which is what changed", how)
    work = Work(model.report_.dtype, memory_.parse(how.memory), parallel.count(how.threads))
    with parallel.blas_threads(how.threads), memory_.Peak() as peak:
        try:
            ready, report = _prepared(model, after, how, work)
        except (_Dearer, NumericalError) as reason:
            if how.on_drift != "refit" and isinstance(reason, NumericalError):
                raise
            return _refitted(model, after.log, str(reason), how)
        kept = UpdateState(ready.inverse.diagonal, ready.penalties, _gram(model, after), ready.scale)
        try:
            weights = ready.weights()
            if kept.gram is not None:
                woodbury.add_to_gram(kept.gram, *_rows(model, after))
            work.tick("weights")
            model._become(after.log, weights, report, kept=kept)
        except BaseException:
            if ready.in_place:
                model._forget()  # half of the weights are new: rather no model than a wrong one
            raise
    model.report_ = replace(report, peak_bytes=peak.bytes, planned_bytes=ready.bytes)
    return model


def _prepared(model: FullRank, after: changes.Changed, how: How, work: Work) -> tuple[_Ready, Report]:
    """A change that is ready to be carried out, and what is then to be reported; NumericalError where it drifted."""
    prepare = _dual if isinstance(model.weights_, Dual) else _primal
    data, drift = _data(model, after.log.matrix), DRIFT[model.report_.dtype]
    ready = prepare(model, after, data, _penalties(model, after.log, squares(data), how), work)
    work.tick("change")
    also = _touched(model, after)
    found = dense.certificate(data, ready.penalties, ready.inverse, also=also, fine=drift, tolerance=TWO_DIGITS)
    work.tick("residual")
    at_fit = _at_fit(model, found[1], drift)
    _judge(model.report_, at_fit, *found, how)
    note = "" if how.penalties == "followed" else FROZEN
    return ready, _report(model.report_, at_fit, work, found, note)


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
    kept, matrix = model._kept, _data(model, model.log_.matrix)
    if isinstance(model.weights_, Dense):
        held: dense.Readable = woodbury.Held(model.weights_.matrix, kept.scale, kept.c)
    else:
        assert isinstance(model.weights_, Dual)
        held = dense.Dual(model.weights_.inverse, matrix.T.tocsr(), kept.penalties, 1)
    return dense.certificate(matrix, kept.penalties, held, fine=drift, tolerance=TWO_DIGITS)


def _rows(model: FullRank, after: changes.Changed) -> tuple[Any, Any]:
    """Rows of data that go and come, over the new catalogue; who did more goes and comes, with another weight."""
    matrix = after.log.matrix
    gone = _data(model, model.log_.matrix[after.gone])
    return _widened(gone, after.log.n_items), _data(model, matrix[matrix.shape[0] - after.come :])


def _widened(matrix: Any, items: int) -> Any:
    """The same rows over a larger catalogue."""
    return sp.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], items))


def _penalties(model: FullRank, log: Interactions, d: Float64, how: How) -> tuple[Float64, Float64]:
    """The penalties over the new catalogue before the change, and after it."""
    new, rule = log.n_items - model.log_.n_items, model.formula().penalties
    before = np.concatenate([model._kept.penalties, rule.of(np.zeros(new))])
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
    model: FullRank, after: changes.Changed, data: Any, penalties: tuple[Float64, Float64], work: Work
) -> _Ready:
    d, counts = squares(data), used(data)
    array, n, c = model.weights_.matrix, after.log.n_items, model._kept.c  # type: ignore[attr-defined]
    wanted = woodbury.change(*_rows(model, after), penalties[1] - penalties[0])
    size = array.dtype.itemsize
    taken = woodbury.working_bytes(wanted.rank, n, array.dtype, work.threads) + model.formula().recipe.copied_bytes(
        after.log.n_events
    )
    _compare(wanted.rank, n, size)
    grows, copied = n > len(array), not array.flags.writeable
    gram = 0 if model._kept.gram is None or not (grows or copied) else 1
    more = n * n * size * (int(grows or copied) + gram)
    taken += more
    _require(taken, work.budget, model, more)
    scale = _usable(model, model._kept.scale)
    if grows:
        more = n - len(array)
        array = woodbury.grown(array, n)
        c, scale = np.concatenate([c, 1 / penalties[0][-more:]]), np.concatenate([scale, np.ones(more)])
    held = woodbury.Held(array, scale, c)
    correction = woodbury.correction(held, wanted, np.where(d == 0, 1 / np.where(d == 0, penalties[1], 1.0), 0.0))
    theta, delta = model.formula().head(correction.diagonal, penalties[1], d, counts)
    scale = _usable(model, factor(theta, correction.diagonal, array.dtype))
    step = woodbury.Pass(held, correction, scale)

    def weights() -> Weights:
        out = np.empty_like(array) if copied and not grows else array
        step.into(out, delta, work.threads)
        return Dense(out)

    return _Ready(step, penalties[1], weights, taken, not (grows or copied), scale)


def _dual(model: FullRank, after: changes.Changed, data: Any, penalties: tuple[Float64, Float64], work: Work) -> _Ready:
    held, (gone, come) = model.weights_, _rows(model, after)
    assert isinstance(held, Dual)
    size = held.inverse.dtype.itemsize
    if not (penalties[1] > 0).all():
        raise ParameterError("the dual needs every penalty above 0")
    side = max(after.log.n_users, model.log_.n_users)
    rank = gone.shape[0] + come.shape[0] + int((penalties[0] != penalties[1]).sum())
    taken = woodbury.working_bytes(rank, side, held.inverse.dtype, work.threads)
    _compare(rank, side, size)
    taken += (
        after.log.n_users**2 * size + 28 * after.log.n_events + model.formula().recipe.copied_bytes(after.log.n_events)
    )
    _require(taken, work.budget, model)
    wide = _widened(_data(model, model.log_.matrix), after.log.n_items)
    whole = held.inverse
    if after.come or len(after.gone) or (penalties[0] != penalties[1]).any():
        whole = woodbury.dual(
            whole, wide, penalties[0], gone=after.gone, come=come, moved=penalties[1], threads=work.threads
        )
    solved = dense.Dual(whole, data.T.tocsr(), penalties[1], work.threads)
    if not (solved.diagonal > 0).all():
        raise NumericalError("the change cannot be carried out in this precision: the diagonal of C left its range")
    theta, delta = model.formula().head(solved.diagonal, penalties[1], squares(data), used(data))
    scale = -theta / (solved.diagonal * penalties[1])
    own = roots(after.log, model.formula().recipe.weights(after.log.matrix, model.report_.unit))

    def weights() -> Weights:
        return Dual(solved.inverse, after.log.matrix, penalties[1], scale, theta + delta, own)

    return _Ready(solved, penalties[1], weights, taken)


def _gram(model: FullRank, after: changes.Changed) -> NDArray[Any] | None:
    """The Gram to follow the change in: the model's own, or a copy where it is shared, read-only or too small."""
    gram: NDArray[Any] | None = model._kept.gram
    if gram is None or (len(gram) == after.log.n_items and gram.flags.writeable):
        return gram
    return woodbury.grown(gram, after.log.n_items)


def _usable(model: FullRank, scale: Float64) -> Float64:
    """The factor by which weights differ from C, if C can be read from them."""
    if not (np.isfinite(scale).all() and (scale != 0).all()):
        raise ParameterError(
            f"in {int((scale == 0).sum()):,} columns the weights of this {type(model).__name__} are 0 times the "
            "inverse (θ = 0: without l2 and dropout it copies its input), so that it cannot be changed without a "
            "refit; give it l2 above 0"
        )
    return scale


def _compare(rank: int, side: int, size: int) -> None:
    """Say so where a change takes more operations, or more memory, than a factorisation anew."""
    if woodbury.flops(rank, side) > float(side) ** 3 or rank * (24 + 2 * size) > size * side:
        raise _Dearer(f"a change of rank {rank:,} would have cost more")


def _require(needed: int, budget: int, model: FullRank, copied: int = 0) -> None:
    if needed > budget:
        other = f": {memory_.show(copied)} of it for new weights beside these" if copied else ""
        advice = "fit again on the changed log" if copied > budget else "change fewer users at a time"
        raise MemoryBudgetError(
            f"the change needs {memory_.show(needed)}, but may use {memory_.show(budget)}{other}; this "
            f"{type(model).__name__} is as it was. Raise the memory, or {advice}"
        )


def _judge(before: Report, at_fit: tuple[float, float], residual: float, error: float, how: How) -> None:
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


def _report(before: Report, at_fit: tuple[float, float], work: Work, found: tuple[float, float], note: str) -> Report:
    return replace(
        before,
        solver="primal" if before.solver == "disk" else before.solver,
        threads=work.threads,
        seconds=work.seconds,
        residual=found[0],
        error=found[1],
        changes=before.changes + 1,
        residual_at_fit=at_fit[0],
        error_at_fit=at_fit[1],
        note=note,
    )


def _refitted(model: Model, log: Interactions, why: str, how: How) -> Model:
    """A refit in place of a change: the model before stays until the new one is there."""
    fresh = type(model)(**model.params())
    gram, solver = model._kept is not None and model._kept.gram is not None, _solver(model)
    options: dict[str, Any] = {"memory": how.memory, "threads": how.threads, "solver": solver, "keep_gram": gram}
    fresh.fit(RefitSource(log, model.report_.unit), dtype=model.report_.dtype, **options)
    followed = "" if how.penalties == "followed" else "; the penalties were followed"
    report = replace(fresh.report_, note=f"refit: {why}{followed}")
    model._become(fresh.log_, fresh.weights_, report, kept=fresh._kept)
    return model


def changed(model: Model, parameters: dict[str, Any], memory: int | float | str | None, threads: int | None) -> Model:
    """See `FullRank.changed`."""
    check(model)
    own = model.params()
    strange = [name for name in parameters if name not in own]
    if strange:
        raise ParameterError(f"{type(model).__name__} has no parameter {strange[0]!r}; it has {', '.join(own)}")
    fresh = type(model)(**(own | parameters))
    return fresh.fit(model, dtype=model.report_.dtype, memory=memory, threads=threads, solver=_solver(model))


def _solver(model: FullRank) -> str:
    """The solver whose weights a model holds."""
    kinds = {Dense.kind: "primal", Dual.kind: "dual", MatrixFree.kind: free.NAME}
    return kinds[model.weights_.kind]


def another_head(model: FullRank, work: Work) -> Weights | None:
    """The weights of a model from those of another with the same inverse; None, and the Gram, where it has another."""
    given: FullRank = work.given
    if isinstance(given.weights_, MatrixFree):
        return matrix_free.another_head(model, given.weights_, work)
    (recipe, rule, head), before = model.formula(), given.formula()
    if recipe != before.recipe:
        raise ParameterError(
            f"user_power = {recipe.user_power:g}, where the model given in place of a log has "
            f"{before.recipe.user_power:g}: users of other weights have another Gram; fit it on the log"
        )
    work.unit = given.report_.unit
    log, weights, kept = given.log_, given.weights_, given._kept
    data = model._data(log, work)
    d = squares(data)
    frozen = given.report_.note == FROZEN and rule == before.penalties
    same = (frozen or alike(rule.of(d), kept.penalties).all()) and work.dtype == given.report_.dtype
    if work.keep_gram and kept.gram is None:
        raise ParameterError("keep_gram=True, but the model given in place of a log kept no Gram; fit on the log")
    if kept.gram is not None:
        kept.gram.setflags(write=False)  # two models share it: whichever changes first makes a copy
        work.gram = kept.gram
    if not same:
        if work.gram is None:
            raise ParameterError(
                "another l2, dropout or dtype needs the Gram, which this model did not keep: fit it with "
                "keep_gram=True, or fit the new one on the log"
            )
        work.solver = "primal"
        return None
    work.note = FROZEN if frozen else ""
    work.used, work.residual, work.error = "reused", given.report_.residual, given.report_.error
    theta, delta = head(kept.c, kept.penalties, d, used(data))
    scale = None if kept.scale is None else factor(theta, kept.c, work.dtype)
    work.kept = UpdateState(kept.c, kept.penalties, work.gram, scale)
    if isinstance(weights, Dual):
        scale = -theta / (kept.c * kept.penalties)
        return Dual(weights.inverse, log.matrix, kept.penalties, scale, theta + delta, weights.roots)
    assert isinstance(weights, Dense)
    array = weights.matrix
    work.planned = array.nbytes
    if array.nbytes > work.budget:
        raise MemoryBudgetError(
            f"a second array of weights needs {memory_.show(array.nbytes)}, but may use {memory_.show(work.budget)}"
        )
    return Dense(woodbury.rescaled(array, (-theta / kept.c) / _usable(given, kept.scale), delta, work.threads))
