"""Save and load fitted models. Loading takes the class from the registry and never runs code of a file."""

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
from monogram.data.parts import timing
from monogram.data.vocabulary import Vocabulary
from monogram.engine.inverse import local
from monogram.errors import DataError, ModelFileError, MonogramError, StorageError
from monogram.models.registry import MODELS
from monogram.models.report import EXPANDED, Pruning, Report
from monogram.weights import Dense, from_tensors
from monogram.weights.common import checked
from monogram.weights.dual import Expansion
from monogram.weights.update_state import UpdateState

if TYPE_CHECKING:
    from monogram.models.base import Recommender

_BLOCK = 1 << 20  # values checked at a time


def save(
    model: Recommender,
    path: str | Path,
    *,
    extra: dict[str, Any] | None = None,
    mark: str = "",
    check: Callable[[], None] | None = None,
    expansion: Expansion | None = None,
) -> None:
    """Write a fitted model; `extra` are further entries of the header, which the model's own entries override.

    With an `expansion` of its dual weights, the file gets W in their place, computed while it is written. For `mark`
    and `check` see `store.save`.
    """
    log, weights = model.fitted()
    kind, state, report = weights.kind, weights.update_state, model.report_
    arrays: dict[str, Any] = weights.tensors() if expansion is None else {Dense.tensor: expansion}
    if expansion is not None:
        kind, state = Dense.kind, expansion.update_state
        report = dataclasses.replace(report, solver=EXPANDED)
    header: dict[str, Any] = {
        "model": model.name,
        "parameters": _plain(model.params()),
        "weights": kind,
        "report": _plain(dataclasses.asdict(report)),
    }
    header = (extra or {}) | header
    if model.pruning_ is not None:
        header["pruning"] = dataclasses.asdict(model.pruning_)
    log_header, tensors = log_tensors(log)
    tensors |= {f"weights.{name}": tensor for name, tensor in arrays.items()}
    tensors |= _update_tensors(state)
    with _keep_scratch_on_error(weights):
        store.save(path, header | log_header, tensors, mark=mark, check=check)


@contextmanager
def _keep_scratch_on_error(weights: Any) -> Iterator[None]:
    """Inside, an error keeps the files of a fit on disk, so that the fit need not be repeated."""
    scratch = weights.scratch
    try:
        yield
    except BaseException as error:
        if scratch is None:
            raise
        scratch.keep_files = True
        if isinstance(error, StorageError):
            raise StorageError(f"{error}. The finished fit is in {scratch.folder}: the same fit reuses it") from error
        raise
    if scratch is not None:
        scratch.keep_files = False


def _update_tensors(state: UpdateState | None) -> dict[str, Any]:
    """The arrays that an update needs beside the weights; the Gram matrix in row-major order."""
    if state is None:
        return {}
    arrays: dict[str, Any] = {"c": state.c, "penalties": state.penalties, "scale": state.scale}
    arrays["gram"] = None if state.gram is None else state.gram.T
    return {f"kept.{name}": array for name, array in arrays.items() if array is not None}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON represents them: lists instead of tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def log_tensors(log: Interactions) -> tuple[dict[str, Any], dict[str, Any]]:
    """A log as entries of the header and arrays; times and order where it has them."""
    matrix = log.matrix
    header: dict[str, Any] = {"merge": log.merge, "users": log.n_users, "items": log.n_items, "events": log.n_events}
    tensors = {"log.pointers": matrix.indptr, "log.items": matrix.indices, "log.weights": matrix.data}
    tensors |= {
        name: np.frombuffer(ids.to_bytes(), np.uint8) for name, ids in (("users", log.users), ("items", log.items))
    }
    if log.time_unit is not None:
        header["time_unit"] = log.time_unit
    if log.has_order:
        header["order"] = "rows" if log.times is None else "times"  # for `inspect`
    arrays = {f"log.{name}": values for name, values in timing(log, slice(None)).items() if values is not None}
    return header, tensors | arrays


def log_from(header: dict[str, Any], tensors: dict[str, Any]) -> Interactions:
    """The log stored in a file."""
    users, items = (Vocabulary.from_bytes(tensors[name].tobytes()) for name in ("users", "items"))
    matrix = _matrix(header, tensors)
    arrays = {name: _times(tensors, name, matrix.nnz) for name in ("times", "last_times")}
    if arrays["last_times"] is not None and (
        arrays["times"] is None or not (arrays["last_times"] >= arrays["times"]).all()
    ):
        raise DataError("its training data has a last time before the first")
    order, unit = _order(tensors, matrix.nnz), header.get("time_unit")
    return Interactions(matrix, users, items, merge=header["merge"], order=order, time_unit=unit, **arrays)


def _times(tensors: dict[str, Any], name: str, size: int) -> Any:
    times = tensors.get(f"log.{name}")
    if times is None:
        return None
    if times.shape != (size,) or times.dtype not in (np.int64, np.float64) or not finite(times):
        raise DataError(f"its {name} are not {size} finite numbers of 64 bits, one for each event")
    return times


def _order(tensors: dict[str, Any], size: int) -> Any:
    order = tensors.get("log.order")
    if order is None:
        return None
    if order.shape != (size,) or order.dtype != np.int32 or (size and order.min() < 0):
        raise DataError(f"its order of events is not {size} numbers of 32 bits of at least 0, one for each event")
    return order


def load(path: str | Path, *, verify: bool = True, models: Iterable[type[Recommender]] = ()) -> Recommender:
    """Read a model from its file; the large arrays stay on disk until they are used.

    Parameters
    ----------
    path : file written by `save`
    verify : compare every array with its checksums and refuse weights that are not finite; False loads at once,
        without reading the large arrays
    models : classes of models that are not in the registry
    """
    return read(path, verify, models)[0]


def read(
    path: str | Path, verify: bool, models: Iterable[type[Recommender]] = ()
) -> tuple[Recommender, dict[str, Any]]:
    """The model of a file, as from `load`, and the header of the file."""
    stored = store.load(path, verify=verify)
    try:
        return _model(stored.header, stored.tensors, models, verify), stored.header
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MonogramError) as error:
        raise ModelFileError(f"{path} does not contain a complete model ({error}); save the model again") from error


def _model(
    header: dict[str, Any], tensors: dict[str, Any], models: Iterable[type[Recommender]], verify: bool
) -> Recommender:
    if "spectrum" in header:
        raise ModelFileError("contains a spectrum, not a model: load it with monogram.Spectrum.load")
    known = dict.fromkeys(MODELS) | {kind.name: kind for kind in models}
    if header["model"] not in known:
        raise ModelFileError(
            f"contains the model {header['model']!r}, which is not registered; known models are {', '.join(known)}"
        )
    kind = known[header["model"]] or MODELS[header["model"]]
    parameters = header["parameters"].items()
    model = kind(**{name: value for name, value in parameters if name not in kind.retired})
    log = log_from(header, tensors)
    own = {name.removeprefix("weights."): array for name, array in tensors.items() if name.startswith("weights.")}
    _check_weights(own, verify)
    weights = from_tensors(header["weights"], own, log.matrix)
    report, pruning = _report(header["report"]), _pruning(header.get("pruning"))
    if weights.solver == local.NAME and report.neighbours is None:
        raise DataError("its report has no number of candidates, which local weights need")
    weights.update_state = _update_state(tensors, log.n_items, verify)
    model.adopt(log, weights, report, pruning)
    return model


def _update_state(tensors: dict[str, Any], items: int, verify: bool) -> UpdateState | None:
    own = {name.removeprefix("kept."): array for name, array in tensors.items() if name.startswith("kept.")}
    if not own:
        return None
    c, penalties = (checked(own, name, (items,)) for name in ("c", "penalties"))
    if not (finite(c) and finite(penalties) and (c > 0).all() and (penalties >= 0).all()):
        raise DataError("its arrays for updates contain a value that is not a finite number above 0")
    scale = checked(own, "scale", (items,)) if "scale" in own else None
    if scale is not None and not finite(scale):
        raise DataError("its arrays for updates contain a factor that is not finite")
    gram = checked(own, "gram", (items, items)).T if "gram" in own else None  # symmetric; the lower triangle is used
    if verify and gram is not None and not finite(gram.T):
        raise DataError("its Gram matrix contains a value that is not finite")
    return UpdateState(c, penalties, gram, scale)


def _report(stored: dict[str, Any]) -> Report:
    report = Report(**stored)
    if report.unit is not None and not (isinstance(report.unit, float) and 0 < report.unit < np.inf):
        raise DataError("its report has a factor of the user weights that is not a finite number above 0")
    if report.neighbours is not None and not (isinstance(report.neighbours, int) and report.neighbours >= 1):
        raise DataError("its report has a number of candidates that is not a whole number of at least 1")
    if not isinstance(report.seconds, dict):
        raise DataError("its report has no seconds by stage")
    phrases = ("solver", "dtype", "note", "device", "metric", "validation")
    if not all(isinstance(getattr(report, name), str) for name in phrases):
        raise DataError(f"its report has a {', '.join(phrases[:-1])} or {phrases[-1]} that is not a text")
    if not isinstance(report.stopped, bool):
        raise DataError("its report does not say whether a limit of time ended the fit")
    series = (report.objectives, report.metrics, report.epoch_seconds)
    others = (*phrases, "seconds", "objectives", "metrics", "epoch_seconds", "stopped")
    measured = [value for name, value in stored.items() if name not in others and value is not None]
    _check_numbers([*measured, *report.seconds.values(), *(value for values in series for value in values)], "report")
    return report


def _pruning(stored: dict[str, Any] | None) -> Pruning | None:
    if stored is None:
        return None
    _check_numbers(stored.values(), "pruning")
    return Pruning(**stored)


def _check_numbers(values: Iterable[Any], part: str) -> None:
    if not all(type(value) in (int, float) for value in values):
        raise DataError(f"its {part} contains a value that is not a number")


def _check_weights(tensors: dict[str, Any], verify: bool) -> None:
    """Refuse values that are not finite: in vectors always, in large matrices only with `verify`, which reads them."""
    for name, tensor in tensors.items():
        if (verify or tensor.ndim < 2) and not finite(tensor):
            raise DataError(f"its weights contain a value in {name!r} that is not finite")
        if name in ("roots", "penalties") and not (tensor > 0).all():
            raise DataError(f"its weights contain a value in {name!r} that is not above 0")


def finite(tensor: Any) -> bool:
    """Whether every value is finite; checked by blocks, to avoid a mask of the size of the array."""
    if tensor.ndim == 0:
        return bool(np.isfinite(tensor))
    rows = max(1, _BLOCK // max(1, tensor[:1].size))
    blocks = (tensor[start : start + rows] for start in range(0, len(tensor), rows))
    with ThreadPoolExecutor() as pool:  # NumPy releases the GIL
        return all(pool.map(lambda block: bool(np.isfinite(block).all()), blocks))


def _matrix(header: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """The training matrix; its indices are checked, because kernels do not check bounds."""
    arrays = (tensors["log.weights"], tensors["log.items"], tensors["log.pointers"])
    matrix = sp.csr_array(arrays, shape=(header["users"], header["items"]))
    matrix.check_format(full_check=True)
    if not (np.isfinite(matrix.data).all() and (matrix.data > 0).all()):
        raise DataError("its training data has a weight that is not a finite number above 0")
    if not matrix.has_canonical_format or matrix.data.dtype != np.float32:
        raise DataError("its training data is not in canonical form")
    return matrix
