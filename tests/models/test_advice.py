"""Errors of the engine name the parameter to change."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.inverse import disk, tile_store
from monogram.engine.lowrank import spectrum
from monogram.errors import MonogramWarning, NumericalError, StorageError


@pytest.fixture
def log():
    return mg.Interactions.from_csr(sp.random_array((60, 40), density=0.2, dtype=np.float32, format="csr", rng=0))


def test_a_matrix_without_a_factor_names_l2_and_dtype():
    log = sp.csr_array(np.ones((4, 60), np.float32))
    with pytest.raises(NumericalError, match=r"not positive definite \(.*\): raise l2, or use dtype='float64'$"):
        mg.EASE(l2=0).fit(log)


@pytest.mark.parametrize(("dtype", "advice"), [("float32", "use dtype='float64'"), ("float64", "raise the tolerance")])
def test_pairs_that_do_not_converge_name_the_rank(log, monkeypatch, dtype, advice):
    monkeypatch.setattr(spectrum, "SMALL", 10)
    monkeypatch.setattr(spectrum, "RESTARTS", 1)
    with pytest.raises(NumericalError, match=rf"have not converged.*; use a lower rank, or {advice}$"):
        mg.Spectrum(log, rank=12, dtype=dtype, tolerance=1e-15)


def test_a_product_that_is_not_finite_names_dtype(log, monkeypatch):
    monkeypatch.setattr(spectrum, "SMALL", 10)
    monkeypatch.setattr(spectrum.Operator, "item_gram_times", lambda self, block: np.full_like(block, np.inf))
    with pytest.raises(NumericalError, match=r"is not finite: use dtype='float64', or smaller weights$"):
        mg.Spectrum(log, rank=8)


def test_a_disk_without_space_names_both_remedies(log, tmp_path, monkeypatch):
    monkeypatch.setattr("monogram.models.inverse.free", lambda _: 10**12)  # the disk fills after the plan
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**6, 10**6, 50))
    with pytest.raises(
        StorageError, match=r"50 B free; nothing was written: free some space, or name another folder \(scratch\)$"
    ):
        mg.EASE(l2=2).fit(log, solver="disk", scratch=tmp_path)


def test_a_folder_that_cannot_hold_files_names_scratch(log, tmp_path, monkeypatch):
    def full(self, sizes):
        raise tile_store.FolderError("the folder is full")

    monkeypatch.setattr(tile_store.Tiles, "_begin", full)
    with pytest.raises(StorageError, match=r"the folder is full; name another folder \(scratch\)$"):
        mg.EASE(l2=2).fit(log, solver="disk", scratch=tmp_path)


def test_a_fit_on_disk_that_starts_again_warns(log, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "tile_size", lambda n, budget, itemsize: 8)
    honest = tile_store.Tiles.mark

    def stop(self, stage, keys):
        honest(self, stage, keys)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tile_store.Tiles, "mark", stop)
        with pytest.raises(KeyboardInterrupt):
            mg.EASE(l2=2).fit(log, solver="disk", scratch=tmp_path)
    journal = next(tmp_path.glob(f"*/{tile_store.JOURNAL}"))
    journal.write_bytes(journal.read_bytes() + b"no json\n")
    with pytest.warns(MonogramWarning, match="cannot be resumed from .*: the fit starts again from the beginning"):
        model = mg.EASE(l2=2).fit(log, solver="disk", scratch=tmp_path)
    np.testing.assert_allclose(model.item_weights(), mg.EASE(l2=2).fit(log).item_weights(), atol=1e-5)
