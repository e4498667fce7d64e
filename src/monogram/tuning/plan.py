"""The plan of one round of a search: which settings share a computation, and what that costs.

Models that rescale the columns of one inverse, with several l2 of the same ratio of dropout/(1 − dropout) to l2 (as
without dropout), can be tried on a *path*: one eigendecomposition (`engine.inverse.ridge_path`) in place of an inverse
for each l2. A path is taken where it costs less, fits in memory, and ends within the time left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from monogram.engine.gram.accumulate import squares
from monogram.engine.inverse import ridge_path
from monogram.engine.runtime.memory import show
from monogram.evaluation.shared_fits import measured_together
from monogram.models.inverse_model import InverseModel
from monogram.models.recipe import GramRecipe, Penalties
from monogram.planning.cost import Cost
from monogram.planning.inverse_costs import repeated_inverses, ridge_path_cost
from monogram.planning.plan import duration
from monogram.tuning.budget import Budget
from monogram.tuning.group_runner import Group, GroupRunner, grouped, inverse_keys
from monogram.tuning.settings import Setting
from monogram.tuning.shared_inverses import SharedInverses

SAME = 1e-9  # relative: ratios that differ by less are one


@dataclass(frozen=True)
class Step:
    """A group that is tried at once.

    Attributes
    ----------
    way : "inverse", "path" (one eigendecomposition), "spectrum", "sequence" (from each other's weights) or "alone"
    group : its settings
    cost : of the inverse, or of the path
    """

    way: str
    group: Group
    cost: Cost | None = None


@dataclass(frozen=True)
class Candidate:
    """Groups that could be tried on one path, and the cost of both ways.

    Attributes
    ----------
    groups : one for each l2
    ratio : dropout/(1 − dropout) to l2
    inverses, path : the cost of an inverse for each l2, and of one eigendecomposition
    taken : whether the path is taken
    note : why a path that costs less is not taken
    """

    groups: list[Group]
    ratio: float
    inverses: Cost
    path: Cost
    taken: bool
    note: str = ""

    def __str__(self) -> str:
        where = f"{_names(setting for group in self.groups for setting in group)}, {len(self.groups)} values of l2"
        if self.ratio:
            where += f" with dropout/(1 − dropout) = {self.ratio:.3g}·l2"
        inverses, seconds = f"{len(self.groups)} inverses", duration(self.inverses.seconds)
        path = f"one eigendecomposition: {duration(self.path.seconds)}"
        if self.taken:
            return f"{where}: {path}, {show(self.path.bytes)} ({inverses}: {seconds})"
        return f"{where}: {inverses}, {seconds} ({path}{self.note})"


@dataclass(frozen=True)
class SearchPlan:
    """The plan of the coarse grid of a search, as far as the budget allows; prints as a few lines.

    Attributes
    ----------
    steps : the groups in their order, with the way each is tried
    candidates : where one eigendecomposition could replace several inverses, and whether it does
    gram : bytes of the Gram that is kept for all inverses; 0 where each inverse makes its own
    grams : how many Grams are made, one after the other: a new one wherever user_power or decay changes
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
        """The number of settings, inverses, paths, spectra, sequences, students, and settings that are fitted alone."""
        models = [(step.way, setting.make()) for step in self.steps for setting in step.group]
        shared = [(way, model.shared_fit()) for way, model in models]
        return {
            "settings": len(models),
            "inverses": sum(step.way == "inverse" for step in self.steps),
            "paths": sum(step.way == "path" for step in self.steps),
            "spectra": len({fit.key for way, fit in shared if way == "spectrum" and fit is not None}),
            "sequences": sum(step.way == "sequence" for step in self.steps),
            "students": sum(way == "inverse" and fit is not None and fit.reading == "fit" for way, fit in shared),
            "alone": sum(way == "alone" for way, _ in models),
        }

    def __str__(self) -> str:
        count = self.counts()
        lines = [f"coarse grid: {count['settings']:,} settings, as long as the budget lasts"]
        lines += [f"  {candidate}" for candidate in self.candidates]
        lines += self._inverses()
        if self.gram:
            number = "the Gram is made once" if self.grams < 2 else f"{self.grams} Grams are made as {self._varied()}"
            lines.append(f"  {number}, and kept ({show(self.gram)})")
        if count["students"]:
            lines.append(f"  {_number(count['students'], 'student')}, from the inverse of their group")
        if count["spectra"]:
            number = _number(count["spectra"], "spectrum", "spectra")
            lines.append(f"  {number} for {_names(self._settings('spectrum'))}; more pairs where a filter needs them")
        if count["sequences"]:
            number = _number(count["sequences"], "sequence")
            lines.append(f"  {number} of {_names(self._settings('sequence'))}, each fit from the weights before")
        if count["alone"]:
            lines.append(f"  {_number(count['alone'], 'setting')} fitted alone: {_names(self._settings('alone'))}")
        return "\n".join([*lines, "what is tried after it depends on what it finds"])

    def _varied(self) -> str:
        """Which parameters of the recipe change."""
        recipes = [keys[0][0] for step in self.steps if step.way != "spectrum" and (keys := inverse_keys(step.group))]
        names = [name for name in ("user_power", "decay") if len({getattr(each, name) for each in recipes}) > 1]
        return f"{' and '.join(names)} change{'' if len(names) > 1 else 's'}"

    def _settings(self, way: str) -> list[Setting]:
        return [setting for step in self.steps if step.way == way for setting in step.group]

    def _inverses(self) -> list[str]:
        """A line for each solver."""
        by_solver: dict[str, list[tuple[Cost, Group]]] = {}
        for step in self.steps:
            if step.way == "inverse" and step.cost is not None:
                by_solver.setdefault(step.cost.solver, []).append((step.cost, step.group))
        lines = []
        for solver, steps in by_solver.items():
            names = _names(setting for _, group in steps for setting in group)
            most = max(cost.bytes for cost, _ in steps)
            seconds = duration(sum(cost.seconds for cost, _ in steps) / len(steps))
            each = " each" if len(steps) > 1 else ""
            number = _number(len(steps), "inverse")
            lines.append(f"  {number} in all for {names}: {solver}, {show(most)} at the peak, {seconds}{each}")
        return lines


def plan(runner: GroupRunner, settings: Iterable[Setting], left: Budget) -> SearchPlan:
    """The settings in groups, as many as the budget allows, those on a path together where that costs less."""
    inverses = runner.inverses
    groups = _within(grouped(settings), left.settings)
    paths = candidates(runner, groups, left.seconds)
    first = {id(path.groups[0]): path for path in paths if path.taken}
    joined = {id(group) for path in first.values() for group in path.groups[1:]}
    steps, budget, gram_recipe, grams = [], inverses.budget(), inverses.gram_recipe, 0
    for group in groups:
        if id(group) in joined:
            continue
        keys = inverse_keys(group)
        recipe = keys[0][0] if keys else None
        if gram_recipe is not None and recipe not in (gram_recipe, None):  # another Gram takes its place
            gram_recipe, budget = None, budget + inverses.gram_bytes
        step = _step(inverses, group, first.get(id(group)), budget)
        if gram_recipe is not None and step.way == "inverse" and step.cost and step.cost.bytes > budget:
            gram_recipe, budget = None, budget + inverses.gram_bytes
            step = _step(inverses, group, None, budget)
        steps.append(step if gram_recipe is None else _without_gram(step, inverses))
        if gram_recipe is None and _keeps_gram(step, inverses, budget):
            gram_recipe, budget, grams = recipe, budget - inverses.gram_bytes, grams + 1
    gram = inverses.gram_bytes if inverses.gram_recipe is not None or grams else 0
    return SearchPlan(tuple(steps), tuple(paths), gram, grams)


def _step(inverses: SharedInverses, group: Group, path: Candidate | None, budget: int) -> Step:
    if path is not None:
        return Step("path", [setting for part in path.groups for setting in part], path.path)
    shared = group[0].make().shared_fit()
    if shared is None:
        return Step("alone", group)
    if shared.computation == "spectrum":
        return Step("spectrum", group)
    if shared.computation == "sequence":
        return Step("sequence", group)
    return Step("inverse", group, inverses.cost(_models(group), budget))


def _keeps_gram(step: Step, inverses: SharedInverses, budget: int) -> bool:
    """Whether the Gram that a step makes is kept after it."""
    if step.way == "inverse" and step.cost is not None:
        return inverses.can_keep_gram(step.cost, budget)
    return step.way == "path"


def _models(group: Group) -> list[InverseModel]:
    """The models of a group that shares an inverse."""
    return cast("list[InverseModel]", [setting.make() for setting in group])


def _without_gram(step: Step, inverses: SharedInverses) -> Step:
    """A step whose inverse is made from the kept Gram: its time is less by that of a Gram."""
    if step.cost is None or step.cost.solver != "primal":
        return step
    gram = inverses.size.pairs_by_user * 1e-9 / inverses.threads
    return replace(step, cost=replace(step.cost, seconds=max(0.0, step.cost.seconds - gram)))


def _within(groups: list[Group], settings: float) -> list[Group]:
    """The groups, cut off after a number of settings."""
    chosen: list[Group] = []
    for group in groups:
        left = settings - sum(map(len, chosen))
        if left >= 1:
            chosen.append(group[: int(min(left, len(group)))])
    return chosen


def candidates(runner: GroupRunner, groups: list[Group], seconds: float) -> list[Candidate]:
    """Groups that one path could serve: they read heads, have one recipe and ratio, and are solved by the items."""
    ratios = [(ratio, at) for at, group in enumerate(groups) if (ratio := _ratio(runner, group)) is not None]
    rows: list[list[tuple[tuple[GramRecipe, float], int]]] = []
    for ratio, at in sorted(ratios, key=lambda row: (repr(row[0][0]), row[0][1], row[1])):
        if rows and _same(ratio, rows[-1][0][0]):
            rows[-1].append((ratio, at))
        else:
            rows.append([(ratio, at)])
    parts = [[groups[at] for at in sorted(at for _, at in row)] for row in rows if len(row) > 1]
    return [_judged(runner, part, seconds) for part in parts]


def _same(first: tuple[GramRecipe, float], second: tuple[GramRecipe, float]) -> bool:
    """Whether two groups have equal recipes, and ratios equal up to rounding."""
    return first[0] == second[0] and abs(first[1] - second[1]) <= SAME * first[1]


def _ratio(runner: GroupRunner, group: Group) -> tuple[GramRecipe, float] | None:
    """The recipe of a group, and its ratio of dropout/(1 − dropout) to l2; None where no path can serve the group."""
    models = [setting.make() for setting in group]
    if not all(measured_together(model, runner.task.split) for model in models):
        return None
    ((recipe, penalties),) = inverse_keys(group)
    if type(penalties) is not Penalties:  # a path needs penalties of the form l2·(1 + ratio·d)
        return None
    inverses = runner.inverses
    if penalties.l2 == 0 or inverses.cost(cast("list[InverseModel]", models), inverses.budget()).solver != "primal":
        return None
    return recipe, _odds(penalties)


def _odds(penalties: Penalties) -> float:
    """dropout/(1 − dropout) over l2."""
    return penalties.dropout / (1 - penalties.dropout) / penalties.l2


def _judged(runner: GroupRunner, groups: list[Group], seconds: float) -> Candidate:
    """Both costs, and which way is taken; an l2 too small for the precision of a path keeps its inverse."""
    inverses, path = runner.inverses, _priced(runner, groups)
    if path.path.flops >= path.inverses.flops:
        return path
    recipe = inverse_keys(groups[0])[0][0]
    data, kernel = inverses.data(recipe), recipe.kernel(inverses.log)
    scale = 1 + path.ratio * squares(data)
    lowest = ridge_path.lowest(data, scale, inverses.dtype, kernel=kernel, threads=inverses.threads)
    above = [group for group in groups if inverse_keys(group)[0][1].l2 >= lowest]
    if 0 < len(above) < len(groups):
        path = _priced(runner, above)
    budget = inverses.budget() - (0 if inverses.gram_recipe is not None else inverses.gram_bytes)
    if not above:
        return replace(path, note=", too coarse for so small an l2")
    if inverses.size.items > ridge_path.LARGEST:
        return replace(path, note=f", for at most {ridge_path.LARGEST:,} items")
    if path.path.bytes > budget:
        return replace(path, note=f", but {show(path.path.bytes)}")
    if path.path.seconds > seconds:
        return replace(path, note=", longer than the time left")
    return replace(path, taken=path.path.flops < path.inverses.flops)


def _priced(runner: GroupRunner, groups: list[Group]) -> Candidate:
    histories, inverses = runner.task.split.histories.matrix, runner.inverses
    how: dict[str, Any] = {"dtype": inverses.dtype, "threads": inverses.threads}
    by_inverses = repeated_inverses(inverses.size, len(groups), histories.nnz, **how)
    by_path = ridge_path_cost(inverses.size, len(groups), histories.shape[0], histories.nnz, **how)
    ((_, penalties),) = inverse_keys(groups[0])
    return Candidate(groups, _odds(penalties), by_inverses, by_path, taken=False)


def _names(settings: Iterable[Setting]) -> str:
    return ", ".join(dict.fromkeys(setting.model for setting in settings))


def _number(count: int, singular: str, plural: str = "") -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
