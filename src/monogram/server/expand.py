"""Dual weights that rank slowly are expanded when the server opens their model: then it answers as a primal one."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, cast

from monogram.engine.runtime import memory
from monogram.errors import MonogramError
from monogram.models import expansion
from monogram.models.base import Recommender
from monogram.planning import inverse_costs
from monogram.server import logs
from monogram.server.settings import Settings

if TYPE_CHECKING:
    from monogram.models.inverse_model import InverseModel

NOT_EXPANDED = "this dual model ranks slowly for new histories; its weights are not expanded"
ADVICE = "store expanded weights: monogram fit --expand, or in Python monogram.load(FILE).save(FILE, expand=True)"


def expand_if_slow(name: str, model: Recommender, settings: Settings, threads: int) -> None:
    """Expand the weights of a model that would rank slowly, and log it; else log why not, and what to do."""
    if not settings.expand or not expansion.slow(model):
        return
    log, needed = model.log_, model.weights_.expanded_bytes(threads)
    reason = _obstacle(settings, needed)
    if reason:
        logs.emit(
            NOT_EXPANDED, logging.WARNING, model=name, reason=reason, advice=ADVICE,
        )  # fmt: skip
        return
    seconds = inverse_costs.expansion_seconds(log.n_users, log.n_items, log.n_events, threads)
    logs.emit(
        "expanding the weights of a dual model, which would rank slowly for new histories",
        model=name, about_seconds=round(seconds, 1), memory=memory.show(needed),
    )  # fmt: skip
    start = time.monotonic()
    try:
        expansion.expand(cast("InverseModel", model), None, threads)
    except (MonogramError, MemoryError) as error:
        logs.emit(NOT_EXPANDED, logging.WARNING, model=name, reason=str(error) or "out of memory", advice=ADVICE)
        return
    model.weights_.seal()  # read-only, as in a mapped file: the kernels are compiled for that
    logs.emit("expanded", model=name, seconds=round(time.monotonic() - start, 1))


def _obstacle(settings: Settings, needed: int) -> str:
    """Why the weights of a model cannot be expanded here; empty where they can."""
    if settings.updates:
        return "with --updates the server writes the model file in the form that it has"
    if settings.workers > 1:
        return f"each of the {settings.workers} workers would hold a copy of {memory.show(needed)}"
    budget = memory.parse(None)
    if needed > budget:
        return f"the expanded weights need {memory.show(needed)}, but {memory.show(budget)} can be used"
    return ""
