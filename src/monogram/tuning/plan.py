"""What a round of a search does, before it is done: which settings share what, and what that costs.

Full-rank models of several l2 whose ratio of dropout/(1 − dropout) to l2 is the same (as where there is no dropout) can
be tried by one eigendecomposition (`engine.inverse.ridge_path`) in place of an inverse for each l2. It is taken where
it is cheaper, the memory holds it, and it ends within the time left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import ridge_path
from monogram.engine.runtime.memory import show
from monogram.models.context import FitOptions
from monogram.models.full_rank import FullRank
from monogram.models.inverse_model import InverseModel
from monogram.models.recipe import Penalties
from monogram.models.spectral import Spectral
from monogram.models.students import Student
from monogram.planning.cost import Cost
from monogram.planning.inverse_costs import repeated_inverses, ridge_path_cost
from monogram.planning.plan import duration
from monogram.tuning.budget import Budget
from monogram.tuning.families import Families, Group, grouped, shared
from monogram.tuning.settings import Setting

SAME = 1e-9  # relative: ratios that differ by less are one


@dataclass(frozen=True)
class Step:
    """A group that is tried at once.

    Attributes
    ----------
    way : "inverse", "path" (one eigendecomposition), "spectrum" or "alone"
    group : its settings
    cost : of the inverse, or of the path
    """

    way: str
    group: Group
    cost: Cost | None = None


@dataclass(frozen=True)
class Candidate:
    """Settings that one eigendecomposition could serve, and both prices.

    Attributes
    ----------
    groups : one for each l2
    ratio : dropout/(1 − dropout) to l2
    inverses, path : the costs of the two ways
    taken : whether the path is
    note : why it is not, where it is cheaper
    """

    groups: list[Group]
    ratio: float
    inverses: Cost
    path: Cost
    taken: bool
    note: str = ""

    def __str__(self) -> str:
        where = f"{_names(one for group in self.groups for one in group)}, {len(self.groups)} values of l2"
        if self.ratio:
            where += f" with dropout/(1 − dropout) = {self.ratio:.3g}·l2"
        inverses = f"{len(self.groups)} inverses"
        one, other = f"one eigendecomposition: {duration(self.path.seconds)}", duration(self.inverses.seconds)
        if self.taken:
            return f"{where}: {one}, {show(self.path.bytes)} ({inverses}: {other})"
        return f"{where}: {inverses}, {other} ({one}{self.note})"


@dataclass(frozen=True)
class SearchPlan:
    """What the coarse grid of a search does, as long as the budget lasts; prints as a few lines.

    Attributes
    ----------
    steps : the groups in their order, with the way each is tried
    candidates : where one eigendecomposition could take the place of several inverses, and which is taken
    gram : bytes of the Gram that is kept for all inverses; 0 where it is made anew for each
    grams : how many are made, one after the other: another wherever user_power changes
    """

    steps: tuple[Step, ...]
    candidates: tuple[Candidate, ...] = ()
    gram: int = 0
    grams: int = 1

    @property
    def groups(self) -> list[Group]:
        """The settings, group by group."""
        return [step.group for step in self.steps]

    def counts(self) -> dict[str, int]:
        """How many settings, inverses, paths, spectra, students, and settings that are fitted alone."""
        models = [(step, setting.make()) for step in self.steps for setting in step.group]
        spectral = [one for step, one in models if step.way == "spectrum" and isinstance(one, Spectral)]
        return {
            "settings": len(models),
            "inverses": sum(step.way == "inverse" for step in self.steps),
            "paths": sum(step.way == "path" for step in self.steps),
            "spectra": len({one.target for one in spectral}),
            "students": sum(isinstance(one, Student) for _, one in models),
            "alone": sum(step.way == "alone" for step, _ in models),
        }

    def __str__(self) -> str:
        count = self.counts()
        lines = [f"coarse grid: {count['settings']:,} settings, as long as the budget lasts"]
        lines += [f"  {one}" for one in self.candidates]
        lines += self._inverses()
        if self.gram:
            number = "the Gram is made once" if self.grams < 2 else f"{self.grams} Grams are made as user_power changes"
            lines.append(f"  {number}, and kept ({show(self.gram)})")
        if count["students"]:
            lines.append(f"  {_number(count['students'], 'student')}, from the inverse of their group")
        if count["spectra"]:
            settings = [one for step in self.steps if step.way == "spectrum" for one in step.group]
            number = _number(count["spectra"], "spectrum", "spectra")
            lines.append(f"  {number} for {_names(settings)}; more pairs where a filter needs them")
        if count["alone"]:
            settings = [one for step in self.steps if step.way == "alone" for one in step.group]
            lines.append(f"  {_number(count['alone'], 'setting')} fitted alone: {_names(settings)}")
        return "\n".join([*lines, "what is tried after it depends on what it finds"])

    def _inverses(self) -> list[str]:
        """A line for each solver."""
        by_solver: dict[str, list[tuple[Cost, Group]]] = {}
        for step in self.steps:
            if step.way == "inverse" and step.cost is not None:
                by_solver.setdefault(step.cost.solver, []).append((step.cost, step.group))
        lines = []
        for solver, found in by_solver.items():
            names, most = _names(one for _, group in found for one in group), max(cost.bytes for cost, _ in found)
            seconds = duration(sum(cost.seconds for cost, _ in found) / len(found))
            each = " each" if len(found) > 1 else ""
            number = _number(len(found), "inverse")
            lines.append(f"  {number} in all for {names}: {solver}, {show(most)} at the peak, {seconds}{each}")
        return lines


def plan(families: Families, settings: Iterable[Setting], left: Budget) -> SearchPlan:
    """The settings in groups, as many as the budget allows, those on a path together where that is cheaper."""
    groups = _within(grouped(settings), left.settings)
    found = candidates(families, groups, left.seconds)
    first = {id(one.groups[0]): one for one in found if one.taken}
    rest = {id(group) for one in first.values() for group in one.groups[1:]}
    steps, options, kept, grams = [], families.options(), families.recipe, 0
    for group in groups:
        if id(group) in rest:
            continue
        held = shared(group)
        recipe = held[0][0] if held else None
        if kept is not None and recipe not in (kept, None):  # another Gram takes its place
            kept, options = None, _with_budget(options, families.square)
        step = _step(families, group, first.get(id(group)), options)
        if kept is not None and step.way == "inverse" and step.cost and step.cost.bytes > options.budget:
            kept, options = None, _with_budget(options, families.square)
            step = _step(families, group, None, options)
        steps.append(step if kept is None else _after_gram(step, families))
        keeps = step.way == "path" or (step.way == "inverse" and step.cost and families.keeps(step.cost, options))
        if kept is None and keeps:
            kept, options, grams = recipe, _with_budget(options, -families.square), grams + 1
    return SearchPlan(tuple(steps), tuple(found), families.square if families.kept or grams else 0, grams)


def _with_budget(options: FitOptions, more: int) -> FitOptions:
    return replace(options, budget=options.budget + more)


def _step(families: Families, group: Group, on: Candidate | None, options: FitOptions) -> Step:
    if on is not None:
        return Step("path", [one for part in on.groups for one in part], on.path)
    models = [setting.make() for setting in group]
    held = [one for one in models if isinstance(one, InverseModel)]
    if held:
        return Step("inverse", group, families.chosen(held, options)[0])
    spectral = isinstance(models[0], Spectral) and models[0].closed_form
    return Step("spectrum" if spectral else "alone", group)


def _after_gram(step: Step, families: Families) -> Step:
    """A step whose inverse finds the Gram made."""
    if step.cost is None or step.cost.solver != "primal":
        return step
    gram = families.size.pairs_by_user * 1e-9 / families.threads
    return replace(step, cost=replace(step.cost, seconds=max(0.0, step.cost.seconds - gram)))


def _within(groups: list[Group], settings: float) -> list[Group]:
    """The groups, cut off where a number of settings ends."""
    found: list[Group] = []
    for group in groups:
        room = settings - sum(map(len, found))
        if room >= 1:
            found.append(group[: int(min(room, len(group)))])
    return found


def candidates(families: Families, groups: list[Group], seconds: float) -> list[Candidate]:
    """Groups that one eigendecomposition could serve: full rank, several l2, one ratio, solved by the items."""
    able = sorted(((ratio, at) for at, group in enumerate(groups) if (ratio := _ratio(families, group)) is not None))
    rows: list[list[tuple[tuple[float, float], int]]] = []
    for one in able:
        if rows and _same(one[0], rows[-1][0][0]):
            rows[-1].append(one)
        else:
            rows.append([one])
    parts = [[groups[at] for at in sorted(at for _, at in row)] for row in rows if len(row) > 1]
    return [_judged(families, part, seconds) for part in parts]


def _same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether weights of users and ratio are the same, but for rounding."""
    return one[0] == other[0] and abs(one[1] - other[1]) <= SAME * one[1]


def _ratio(families: Families, group: Group) -> tuple[float, float] | None:
    """The user_power of a group, and its ratio of dropout/(1 − dropout) to l2; None where no path can serve it."""
    models = [setting.make() for setting in group]
    full = [one for one in models if isinstance(one, FullRank)]
    if len(full) < len(models):
        return None
    ((recipe, penalties),) = shared(group)
    if penalties.l2 == 0 or families.chosen(full, families.options())[0].solver != "primal":
        return None
    return recipe.user_power, _odds(penalties)


def _odds(penalties: Penalties) -> float:
    """dropout/(1 − dropout) over l2."""
    return penalties.dropout / (1 - penalties.dropout) / penalties.l2


def _judged(families: Families, groups: list[Group], seconds: float) -> Candidate:
    """Both prices, and which way is taken; an l2 too small for the precision of a path keeps its inverse."""
    found = _priced(families, groups)
    if found.path.flops >= found.inverses.flops:
        return found
    data = families.data(next(one for one in map(Setting.make, groups[0]) if isinstance(one, InverseModel)))
    lowest = ridge_path.lowest(data, 1 + found.ratio * squares(data), families.task.dtype)
    above = [group for group in groups if shared(group)[0][1].l2 >= lowest]
    if 0 < len(above) < len(groups):
        found = _priced(families, above)
    room = families.options().budget - (0 if families.kept else families.square)
    if not above:
        return replace(found, note=", too coarse for so small an l2")
    if families.size.items > ridge_path.LARGEST:
        return replace(found, note=f", for at most {ridge_path.LARGEST:,} items")
    if found.path.bytes > room:
        return replace(found, note=f", but {show(found.path.bytes)}")
    if found.path.seconds > seconds:
        return replace(found, note=", longer than the time left")
    return replace(found, taken=found.path.flops < found.inverses.flops)


def _priced(families: Families, groups: list[Group]) -> Candidate:
    histories = families.task.split.histories.matrix
    how: dict[str, Any] = {"dtype": families.task.dtype, "threads": families.threads}
    inverses = repeated_inverses(families.size, len(groups), histories.nnz, **how)
    found = ridge_path_cost(families.size, len(groups), histories.shape[0], histories.nnz, **how)
    ((_, penalties),) = shared(groups[0])
    return Candidate(groups, _odds(penalties), inverses, found, taken=False)


def _names(settings: Iterable[Setting]) -> str:
    return ", ".join(dict.fromkeys(one.model for one in settings))


def _number(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"
