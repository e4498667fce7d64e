"""The optional dependency torch, and the device of a fit."""

from __future__ import annotations

from typing import Any

from monogram.errors import MissingExtraError, ParameterError

DEVICES = ("auto", "cpu", "cuda", "mps")


def import_torch() -> Any:
    """The package torch; MissingExtraError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("a gradient-trained model needs torch: pip install 'monogram[torch]'") from error
    return torch


def warm_up() -> None:
    """Import torch, and what it imports with the first steps of its optimisers, which takes seconds."""
    torch = import_torch()
    for kind in (torch.optim.Adam, torch.optim.NAdam):
        parameter = torch.zeros(1, requires_grad=True)
        parameter.grad = torch.zeros(1)
        kind([parameter]).step()


def choose_device(device: str, dtype: str) -> str:
    """The device of a fit; "auto" is cuda where it is available, and else cpu.

    "mps" is not chosen by "auto": it lacks operations that some models need, and the models are not tested on it.
    ParameterError where the device is not available.
    """
    torch = import_torch()
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return "cuda" if available["cuda"] else "cpu"
    if not available[device]:
        names = ", ".join(repr(name) for name, usable in available.items() if usable)
        raise ParameterError(f"device = {device!r} is not available; expected one of {names}, or 'auto'")
    if device == "mps" and dtype == "float64":
        raise ParameterError("device = 'mps' has no float64; use dtype='float32', or device='cpu'")
    return device
