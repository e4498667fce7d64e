"""Shared by the tests: where real data is, if it is anywhere, and small worlds."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings

# Tests that run in the background inherit an ignored Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes are started: each would compile the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("repository", deadline=None, print_blob=True)
settings.load_profile("repository")

ROOT = Path(__file__).parents[1]


def data_folder() -> Path | None:
    folder = Path(os.environ.get("MONOGRAM_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


@pytest.fixture
def public_data():
    folder = data_folder()
    if folder is None:
        pytest.skip("no real data here: set MONOGRAM_DATA to the folder that holds it")
    return folder


@pytest.fixture
def world():
    """60 users × 25 items, weights 1, one item nobody used."""
    rng = np.random.default_rng(7)
    dense = (rng.random((60, 25)) < rng.uniform(0.05, 0.5, 25)).astype(np.float32)
    dense[:, 13] = 0
    dense[5] = 0
    return sp.csr_array(dense)
