"""A refreshed spectrum equals that of the new log, with fewer products."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.lowrank import spectrum as engine
from monogram.errors import ModelFileError, ParameterError


@pytest.fixture
def lanczos(monkeypatch):
    monkeypatch.setattr(engine, "SMALL", 10)


def world(users=900, items=500, seed=1):
    rng = np.random.default_rng(seed)
    tastes = rng.random((users, 12)) ** 3
    topics = rng.random((items, 12)) ** 3 / np.sqrt(np.arange(1, items + 1))[:, None]
    chance = tastes @ topics.T
    matrix = sp.csr_array((rng.random((users, items)) < chance * users * 20 / chance.sum()).astype(np.float32))
    return mg.Interactions.from_csr(matrix, items=[f"i{n:03}" for n in range(items)])


def first(log, users):
    return mg.Interactions(log.matrix[:users], log.users.part(np.arange(users)), log.items, merge=log.merge)


@pytest.mark.parametrize("target", ["plain", "rg2"])
@pytest.mark.parametrize("solver", ["primal", "dual"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_pairs_for_fewer_products(lanczos, dtype, solver, target):
    log = world()
    how = {"solver": solver, "target": target, "dtype": dtype}
    old, expected = mg.Spectrum(first(log, 890), 16, **how), mg.Spectrum(log, 16, **how)
    actual = old.refresh(log, solver=solver)
    tolerance = engine.TOLERANCE[dtype]
    np.testing.assert_allclose(actual.values, expected.values, rtol=tolerance)
    assert actual.residual <= tolerance
    assert actual.products < expected.products
    assert actual.saved == old.products - actual.products
    assert actual.log is log
    assert old.log is not log
    again = actual.refresh(log, solver=solver)
    assert again.saved == old.products - again.products  # always against the one that started at random


def test_new_items_are_matched_by_id_and_the_models_take_it(lanczos):
    log = world()
    keep = np.arange(log.n_items)[::-1][20:]
    old = mg.Spectrum(mg.Interactions.from_csr(log.matrix[:, keep], items=[log.items[int(n)] for n in keep]), 16)
    actual, expected = old.refresh(log, rank=12), mg.Spectrum(log, 12)
    np.testing.assert_allclose(actual.values, expected.values, rtol=1e-4)
    one, other = (mg.LRR(l2=5, rank=12).fit(spectrum).item_weights() for spectrum in (actual, expected))
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_products_are_counted_on_after_loading(lanczos, tmp_path):
    log = world()
    old = mg.Spectrum(first(log, 890), 16)
    old.save(tmp_path / "s.mono")
    loaded = mg.Spectrum.load(tmp_path / "s.mono")
    assert loaded.products == old.products
    assert loaded.saved is None
    assert loaded.refresh(log).saved == old.refresh(log).saved


def test_a_dense_refresh_saves_nothing_and_wrong_arguments_are_named(tmp_path):
    log = world(60, 40)
    spectrum = mg.Spectrum(log, 5)
    assert spectrum.refresh(log).saved == 0
    for wrong in ({"rank": 0}, {"tolerance": -1}, {"solver": "guess"}):
        with pytest.raises(ParameterError):
            spectrum.refresh(log, **wrong)
    spectrum.products = -3
    spectrum.save(tmp_path / "s.mono")
    with pytest.raises(ModelFileError, match="products"):
        mg.Spectrum.load(tmp_path / "s.mono")
