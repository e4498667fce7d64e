"""Checkpoints: the state of a training in one file, from which the same fit resumes after the process was killed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from monogram import safe, store
from monogram._version import __version__
from monogram.data.interactions import Interactions
from monogram.errors import ModelFileError, StorageError, warn

SECONDS = 30.0  # between checkpoints
SUFFIX = ".checkpoint"
Stored = tuple[dict[str, Any], dict[str, torch.Tensor]]


class Checkpoint:
    """The file of a training in a folder. It is written durably, holds tensors and numbers, and is never executed.

    Parameters
    ----------
    folder : created where it does not exist
    name, key : of the file; the key says what is trained, see `key_of`
    """

    def __init__(self, folder: Path, name: str, key: str) -> None:
        safe.make_folder(folder, "name another folder (scratch)")
        self.path, self.key = folder / f"monogram-{name}-{key[:12]}{SUFFIX}", key
        self._last, self._warned = time.monotonic(), False

    def load(self) -> Stored | None:
        """The stored state; None where there is no file. ModelFileError where the file is damaged."""
        if not self.path.exists():
            return None
        try:
            stored = store.load(self.path)
        except ModelFileError as error:
            raise ModelFileError(f"{error}; delete the file to start the training anew") from error
        if stored.header.get("key") != self.key:
            raise ModelFileError(
                f"{self.path} is the checkpoint of another training; delete it, or name another folder"
            )
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in stored.tensors.items()}
        return stored.header.get("progress", {}), tensors

    def error(self, reason: str) -> ModelFileError:
        """The error for a file whose content does not fit the training."""
        return ModelFileError(f"{self.path} does not fit the training: {reason}; delete it to start the training anew")

    def check_tensors(self, tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
        """ModelFileError where the names, shapes or types are not as expected: optimisers do not check them."""
        for name in sorted(tensors.keys() ^ expected.keys()):
            raise self.error(f"the tensor {name!r} is {'unknown' if name in tensors else 'missing'}")
        for name, tensor in tensors.items():
            stored, fresh = ((tuple(side.shape), side.dtype) for side in (tensor, expected[name]))
            if stored != fresh:
                raise self.error(f"the tensor {name!r} has shape and type {stored}, expected {fresh}")

    def save_now_and_then(self, state: Callable[[], Stored]) -> None:
        """Write the state, unless the last write was a short time ago. An error is a warning: the training goes on."""
        if time.monotonic() - self._last < SECONDS:
            return
        progress, tensors = state()
        arrays = {name: np.asarray(tensor.detach().cpu().numpy(), order="C") for name, tensor in tensors.items()}
        try:
            store.save(self.path, {"key": self.key, "progress": progress}, arrays)
        except StorageError as error:
            if not self._warned:
                warn(f"no checkpoint was stored: {error}. The training continues, and tries again later")
            self._warned = True
        self._last = time.monotonic()

    def delete(self) -> None:
        """Delete the file of a finished training."""
        self.path.unlink(missing_ok=True)


def key_of(name: str, parameters: dict[str, Any], log: Interactions, *, dtype: str, threads: int, device: str) -> str:
    """A key of what is trained and of what its bits depend on.

    It is equal for the same model with the same parameters on the same events, times and order, with the same
    precision, threads and device, and the same versions of the library and of torch.
    """
    data = log.matrix
    parts = [name, parameters, data.shape, log.time_unit, dtype, threads, device, __version__, str(torch.__version__)]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    for array in (data.indptr, data.indices, data.data, log.times, log.last_times, log.order):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
