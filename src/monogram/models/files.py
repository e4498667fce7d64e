"""A fitted model to one file, and back. Loading looks the class up in the registry; it never runs code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from monogram import store
from monogram.data.interactions import Interactions
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, ModelFileError, MonogramError, StorageError
from monogram.models.registry import MODELS
from monogram.models.report import Pruning, Report
from monogram.weights import from_tensors
from monogram.weights.common import checked
from monogram.weights.update_state import UpdateState

if TYPE_CHECKING:
    from monogram.models.base import Recommender

_BLOCK = 1 << 20  # values looked at in one step


def save(
    model: Recommender,
    path: str | Path,
    *,
    extra: dict[str, Any] | None = None,
    mark: str = "",
    check: Callable[[], None] | None = None,
) -> None:
    """Write a fitted model; `extra` stands in the header beside it, under names that are not the model's own.

    For `mark` and `check` see `store.save`.
    """
    log, weights = model.fitted()
    header: dict[str, Any] = {
        "model": model.name,
        "parameters": _plain(model.params()),
        "weights": weights.kind,
        "report": _plain(dataclasses.asdict(model.report_)),
    }
    header = (extra or {}) | header
    if model.pruning_ is not None:
        header["pruning"] = dataclasses.asdict(model.pruning_)
    described, held = log_tensors(log)
    own = {f"weights.{name}": tensor for name, tensor in weights.tensors().items()}
    with _not_lost(weights):
        store.save(path, header | described, own | held | _state_tensors(weights.update_state), mark=mark, check=check)


@contextmanager
def _not_lost(weights: Any) -> Iterator[None]:
    """What was fitted on disk is not lost with a model that could not be saved."""
    scratch = weights.scratch
    try:
        yield
    except BaseException as error:
        if scratch is None:
            raise
        scratch.kept = True
        if isinstance(error, StorageError):
            raise StorageError(f"{error}. The fit is kept in {scratch.folder}: the same fit finds it there") from error
        raise
    if scratch is not None:
        scratch.kept = False


def _state_tensors(state: UpdateState | None) -> dict[str, Any]:
    """What an update of the model needs beside its weights; the Gram by its rows, as files have it."""
    if state is None:
        return {}
    held: dict[str, Any] = {"c": state.c, "penalties": state.penalties, "scale": state.scale}
    held["gram"] = None if state.gram is None else state.gram.T
    return {f"kept.{name}": array for name, array in held.items() if array is not None}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: lists, no tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def log_tensors(log: Interactions) -> tuple[dict[str, Any], dict[str, Any]]:
    """A log as part of a file: what stands in the header, and its arrays."""
    matrix = log.matrix
    header = {"merge": log.merge, "users": log.n_users, "items": log.n_items, "events": log.n_events}
    tensors = {"log.pointers": matrix.indptr, "log.items": matrix.indices, "log.weights": matrix.data}
    tensors |= {
        name: np.frombuffer(ids.to_bytes(), np.uint8) for name, ids in (("users", log.users), ("items", log.items))
    }
    return header, tensors


def log_from(header: dict[str, Any], tensors: dict[str, Any]) -> Interactions:
    """The log of a file."""
    users, items = (Vocabulary.from_bytes(tensors[name].tobytes()) for name in ("users", "items"))
    return Interactions(_matrix(header, tensors), users, items, None, header["merge"])


def load(path: str | Path, *, verify: bool = True, models: Iterable[type[Recommender]] = ()) -> Recommender:
    """Read a model from its file; the large arrays stay on disk until they are used.

    Parameters
    ----------
    path : file written by `save`
    verify : compare every byte with its checksum and look for weights that are not finite; False loads at once and
        trusts the large arrays
    models : classes of your own, beside the registry's, that the file may hold
    """
    return read(path, verify, models)[0]


def read(
    path: str | Path, verify: bool, models: Iterable[type[Recommender]] = ()
) -> tuple[Recommender, dict[str, Any]]:
    """What `load` gives, and the header of the same file."""
    stored = store.load(path, verify=verify)
    try:
        return _model(stored.header, stored.tensors, models, verify), stored.header
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MonogramError) as error:
        raise ModelFileError(f"{path} does not hold a whole model ({error}); save it again") from error


def _model(
    header: dict[str, Any], tensors: dict[str, Any], models: Iterable[type[Recommender]], verify: bool
) -> Recommender:
    if "spectrum" in header:
        raise ModelFileError("holds a spectrum, not a model: read it with monogram.Spectrum.load")
    known = dict.fromkeys(MODELS) | {one.name: one for one in models}
    if header["model"] not in known:
        raise ModelFileError(
            f"holds the model {header['model']!r}, which this library does not have; it has {', '.join(known)}"
        )
    model = (known[header["model"]] or MODELS[header["model"]])(**header["parameters"])
    log = log_from(header, tensors)
    own = {name.removeprefix("weights."): array for name, array in tensors.items() if name.startswith("weights.")}
    _check_weights(own, verify)
    weights = from_tensors(header["weights"], own, log.matrix)
    pruning = _pruning(header.get("pruning"))
    weights.update_state = _update_state(tensors, log.n_items, verify)
    model.adopt(log, weights, _report(header["report"]), pruning)
    return model


def _update_state(tensors: dict[str, Any], items: int, verify: bool) -> UpdateState | None:
    own = {name.removeprefix("kept."): array for name, array in tensors.items() if name.startswith("kept.")}
    if not own:
        return None
    c, penalties = (checked(own, name, (items,)) for name in ("c", "penalties"))
    if not (finite(c) and finite(penalties) and (c > 0).all() and (penalties >= 0).all()):
        raise DataError("what it keeps for changes holds a value that is not a finite number above 0")
    scale = checked(own, "scale", (items,)) if "scale" in own else None
    if scale is not None and not finite(scale):
        raise DataError("what it keeps for changes holds a factor that is not finite")
    gram = checked(own, "gram", (items, items)).T if "gram" in own else None  # symmetric, its lower triangle
    if verify and gram is not None and not finite(gram.T):
        raise DataError("its Gram holds a value that is not finite")
    return UpdateState(c, penalties, gram, scale)


def _report(stored: dict[str, Any]) -> Report:
    report = Report(**stored)
    if report.unit is not None and not (isinstance(report.unit, float) and 0 < report.unit < np.inf):
        raise DataError("its report has a factor of the users' weights that is not a finite number above 0")
    if not isinstance(report.seconds, dict):
        raise DataError("its report has no seconds by stage")
    texts = ("solver", "dtype", "seconds", "objectives", "note")
    measured = [value for name, value in stored.items() if name not in texts and value is not None]
    _check_numbers([*measured, *report.seconds.values(), *report.objectives], "report")
    return report


def _pruning(stored: dict[str, Any] | None) -> Pruning | None:
    if stored is None:
        return None
    _check_numbers(stored.values(), "pruning")
    return Pruning(**stored)


def _check_numbers(values: Iterable[Any], part: str) -> None:
    if not all(type(one) in (int, float) for one in values):
        raise DataError(f"its {part} holds something else where a number was expected")


def _check_weights(tensors: dict[str, Any], verify: bool) -> None:
    """Vectors always; the large matrices, which would be read whole, only to verify."""
    for name, tensor in tensors.items():
        if (verify or tensor.ndim < 2) and not finite(tensor):
            raise DataError(f"its weights hold a value in {name!r} that is not finite")
        if name in ("roots", "penalties") and not (tensor > 0).all():
            raise DataError(f"its weights hold a value in {name!r} that is not above 0")


def finite(tensor: Any) -> bool:
    """Whether every value is finite, block by block: the answer for all at once would be a second large array."""
    if tensor.ndim == 0:
        return bool(np.isfinite(tensor))
    rows = max(1, _BLOCK // max(1, tensor[:1].size))
    blocks = (tensor[start : start + rows] for start in range(0, len(tensor), rows))
    with ThreadPoolExecutor() as pool:  # NumPy releases the GIL
        return all(pool.map(lambda block: bool(np.isfinite(block).all()), blocks))


def _matrix(header: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """The training matrix, checked: a kernel would follow a wrong index out of its array."""
    arrays = (tensors["log.weights"], tensors["log.items"], tensors["log.pointers"])
    matrix = sp.csr_array(arrays, shape=(header["users"], header["items"]))
    matrix.check_format(full_check=True)
    if not (np.isfinite(matrix.data).all() and (matrix.data > 0).all()):
        raise DataError("its training data has a weight that is not a finite number above 0")
    if not matrix.has_canonical_format or matrix.data.dtype != np.float32:
        raise DataError("its training data is not in canonical form")
    return matrix
