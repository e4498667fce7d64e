"""The inverses of a search: one Gram is made for all inverses of a recipe, and kept where the memory allows.

A candidate's inverse has no certificate (its residual is not measured): the refitted best model has one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monogram.data.interactions import Interactions
from monogram.engine.gram.accumulate import gram
from monogram.engine.inverse import local
from monogram.engine.runtime import memory as memory_
from monogram.engine.runtime.arrays import Csr, Float, Float64
from monogram.errors import MonogramWarning, NumericalError
from monogram.models.context import FitInputs, FitOptions
from monogram.models.inverse import Inverse, invert
from monogram.models.inverse_model import InverseModel
from monogram.models.recipe import GramRecipe
from monogram.models.two_step import TwoStep, directions
from monogram.planning.cost import Cost
from monogram.planning.plan import Plan
from monogram.planning.size import Size, measure


class SharedInverses:
    """Plans and makes the inverses of groups of models that share one, on one log.

    Parameters
    ----------
    log : what the models are fitted on
    dtype, memory : as for `fit`
    threads : how many

    Attributes
    ----------
    gram_recipe : the recipe of the Gram that is kept; None where none is
    """

    def __init__(self, log: Interactions, dtype: str, memory: int | float | str | None, threads: int) -> None:
        self.log, self.dtype, self.threads, self._memory = log, dtype, threads, memory
        self._gram: NDArray[Any] | None = None
        self.gram_recipe: GramRecipe | None = None
        self._directions: tuple[int, Float] = 0, np.zeros((log.n_items, 0), dtype)  # rank, directions

    @cached_property
    def size(self) -> Size:
        """The size of the log."""
        return measure(self.log.matrix)

    @property
    def gram_bytes(self) -> int:
        """The bytes of a Gram."""
        return self.log.n_items**2 * np.dtype(self.dtype).itemsize

    def budget(self) -> int:
        """The bytes that an inverse may take now."""
        budget = memory_.parse(self._memory)
        if self.gram_recipe is not None and self._memory is not None:
            budget -= self.gram_bytes  # of the free memory, which is the default, it is missing already
        return budget

    def data(self, recipe: GramRecipe) -> Csr:
        """The log with the weights of a recipe."""
        return recipe.data(self.log.matrix, recipe.unit(self.log.matrix))

    def cost(self, models: Sequence[InverseModel], budget: int) -> Cost:
        """The cost of a group: that of the model which takes most memory."""
        return self._largest(models, budget)[0]

    def local_models(self, models: Sequence[InverseModel]) -> list[InverseModel]:
        """The models of a group that are fitted by local regressions, because no inverse fits in memory."""
        budget = self.release_gram(models)[0]
        return [model for model in models if self._plan(model, budget).chosen.solver == local.NAME]

    def can_keep_gram(self, cost: Cost, budget: int) -> bool:
        """Whether the Gram fits in memory beside an inverse of this cost."""
        return cost.solver == "primal" and cost.bytes + self.gram_bytes <= budget

    def invert(self, models: Sequence[InverseModel]) -> Inverse:
        """The inverse that models share, from the kept Gram where the memory allows one."""
        budget, cost, largest = self.release_gram(models)
        shared = models[0].formula().shared
        if self._gram is None and self.can_keep_gram(cost, budget):
            self.gram(shared[0])
            budget -= self.gram_bytes
        options = self._options(budget)
        chosen = largest.plan_inverse(self.size, options).require().chosen
        solved = invert(*shared, FitInputs(self.log, gram=self._gram), options, options.report(), chosen)
        check_finite(solved.inverse.diagonal)
        return Inverse.of_solved(self.log, shared, solved)

    def gram(self, recipe: GramRecipe) -> NDArray[Any]:
        """The Gram of a recipe: the kept one, or a new one that replaces it."""
        if self._gram is None or self.gram_recipe != recipe:
            self._drop_gram()  # its memory is needed for the new one
            array = np.empty((self.log.n_items, self.log.n_items), self.dtype, order="F")
            gram(self.data(recipe), array, kernel=recipe.kernel(self.log), threads=self.threads)
            self._gram, self.gram_recipe = array, recipe
        return self._gram

    def directions(self, rank: int) -> Float:
        """The leading directions of `TwoStep`: at least so many, or all."""
        if self._directions[0] < rank:
            self._directions = rank, directions(self.log, rank, self._options(self.budget()))
        return self._directions[1]

    def within_memory(self, models: Sequence[TwoStep]) -> list[TwoStep]:
        """The models whose fit fits in memory; a warning names the ranks of the others.

        Raises MemoryBudgetError where no model does.
        """
        budget, _, _ = self.release_gram(models)
        plans = [(model, self._plan(model, budget)) for model in models]
        fitting = [model for model, plan in plans if plan.fits]
        if not fitting:
            min((plan for _, plan in plans), key=lambda plan: plan.chosen.bytes).require()
        for rank in sorted({model.rank for model, plan in plans if not plan.fits}):
            words = f"low_pass with rank {rank} was not tried: there is no memory for it"
            warnings.warn(words, MonogramWarning, stacklevel=2)
        return fitting

    def release_gram(self, models: Sequence[InverseModel]) -> tuple[int, Cost, InverseModel]:
        """The budget, the cost and the largest model of a group.

        A kept Gram is dropped where it is of another recipe, or where the group does not fit in memory beside it.
        """
        if self.gram_recipe != models[0].formula().recipe:
            self._drop_gram()
        budget = self.budget()
        cost, largest = self._largest(models, budget)
        if self._gram is not None and cost.bytes > budget:
            self._drop_gram()
            budget = self.budget()
            cost, largest = self._largest(models, budget)
        return budget, cost, largest

    def _drop_gram(self) -> None:
        self._gram = self.gram_recipe = None

    def _largest(self, models: Sequence[InverseModel], budget: int) -> tuple[Cost, InverseModel]:
        planned = [(self._plan(model, budget).chosen, model) for model in models]
        return max(planned, key=lambda pair: pair[0].bytes)

    def _plan(self, model: InverseModel, budget: int) -> Plan:
        return model.plan_size(self.size, self._options(budget))

    def _options(self, budget: int) -> FitOptions:
        return FitOptions(dtype=self.dtype, budget=budget, threads=self.threads)


def check_finite(diagonal: Float64) -> None:
    """Raise NumericalError for the diagonal of an inverse that is not positive and finite."""
    if not (np.isfinite(diagonal).all() and (diagonal > 0).all()):
        raise NumericalError("the inverse is not finite: raise l2, or use dtype='float64'")
