"""A fitted model to one file, and back. Loading looks the class up in the registry; it never runs code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from monogram import store
from monogram.data.interactions import Interactions
from monogram.data.vocabulary import Vocabulary
from monogram.errors import DataError, ModelFileError, MonogramError
from monogram.weights import from_tensors

if TYPE_CHECKING:
    from monogram.models.base import Recommender


def save(model: Recommender, path: str | Path) -> None:
    """Write a fitted model."""
    log, weights = model._learned()
    matrix = log.matrix
    header: dict[str, Any] = {
        "model": model.name,
        "parameters": model.params(),
        "weights": weights.kind,
        "merge": log.merge,
        "users": log.n_users,
        "items": log.n_items,
        "events": log.n_events,
        "report": dataclasses.asdict(model.report_),
    }
    tensors = {f"weights.{name}": tensor for name, tensor in weights.tensors().items()}
    tensors |= {"log.pointers": matrix.indptr, "log.items": matrix.indices, "log.weights": matrix.data}
    tensors |= {
        name: np.frombuffer(ids.to_bytes(), np.uint8) for name, ids in (("users", log.users), ("items", log.items))
    }
    store.save(path, header, tensors)


def load(path: str | Path, *, verify: bool = True, models: Iterable[type[Recommender]] = ()) -> Recommender:
    """Read a model from its file; the large arrays stay on disk until they are used.

    Parameters
    ----------
    path : file written by `save`
    verify : compare every byte with its checksum; False loads at once and trusts the file
    models : classes of your own, beside the registry's, that the file may hold
    """
    stored = store.load(path, verify=verify)
    try:
        return _model(stored.header, stored.tensors, models)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, MonogramError) as error:
        raise ModelFileError(f"{path} does not hold a whole model ({error}); save it again") from error


def _model(header: dict[str, Any], tensors: dict[str, Any], models: Iterable[type[Recommender]]) -> Recommender:
    from monogram.models.base import Report
    from monogram.models.registry import MODELS

    known = MODELS | {one.name: one for one in models}
    if header["model"] not in known:
        raise ModelFileError(
            f"holds the model {header['model']!r}, which this library does not have; it has {', '.join(known)}"
        )
    model = known[header["model"]](**header["parameters"])
    log = Interactions(_matrix(header, tensors), _ids(tensors["users"]), _ids(tensors["items"]), None, header["merge"])
    own = {name.removeprefix("weights."): array for name, array in tensors.items() if name.startswith("weights.")}
    model._become(log, from_tensors(header["weights"], own, log.matrix), Report(**header["report"]))
    return model


def _ids(tensor: Any) -> Vocabulary:
    return Vocabulary.from_bytes(tensor.tobytes())


def _matrix(header: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """The training matrix, checked: a kernel would follow a wrong index out of its array."""
    arrays = (tensors["log.weights"], tensors["log.items"], tensors["log.pointers"])
    matrix = sp.csr_array(arrays, shape=(header["users"], header["items"]))
    matrix.check_format(full_check=True)
    if not matrix.has_canonical_format or matrix.data.dtype != np.float32:
        raise DataError("its training data is not in canonical form")
    return matrix
