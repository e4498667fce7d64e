"""Files of version 0.1.0 load, and answer as they did then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import monogram as mg

from . import make

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "answers.json").read_text())
MODELS = [name for name in EXPECTED if name != "spectrum"]


def same(found, expected):
    """Everything equal; numbers to the rounding of another processor."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            same(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert found == expected


@pytest.mark.parametrize("name", MODELS)
def test_an_old_file_answers_as_it_did(name):
    model = mg.load(HERE / f"{name}.mono")
    same(make.answers(model), EXPECTED[name])


@pytest.mark.parametrize("name", MODELS)
def test_an_old_file_is_written_again_with_the_same_answers(name, tmp_path):
    model = mg.load(HERE / f"{name}.mono")
    model.save(tmp_path / "again.mono")
    same(make.answers(mg.load(tmp_path / "again.mono")), EXPECTED[name])


def test_an_old_spectrum_fits_a_model():
    spectrum = mg.Spectrum.load(HERE / "spectrum.mono")
    same(spectrum.values.tolist(), EXPECTED["spectrum"]["values"])
    model = mg.LRR(rank=6, l2=10).fit(spectrum)
    lists = [row["item"] for row in model.recommend(list(model.log_.users)[:9], k=7).rows()]
    assert lists == [row["item"] for row in EXPECTED["lrr"]["users"]]


def test_every_model_of_that_version_has_a_file():
    named = {mg.load(HERE / f"{name}.mono").name for name in MODELS}
    assert named == {
        "ease", "dlae", "edlae", "deql", "tempered", "two_step", "regularized_pca", "dropout_mf", "nuclear_power",
        "wlae", "vlae", "lrr", "rg2", "wrmf", "slim", "item_knn", "low_rank_dlae", "low_rank_edlae", "popularity",
    }  # fmt: skip


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in HERE.iterdir() if path.is_file()) < 2_000_000


@pytest.mark.parametrize("name", ["ease-primal", "edlae-dual", "tempered-primal", "deql-kept-gram"])
def test_an_old_file_can_be_changed(name):
    model = mg.load(HERE / f"{name}.mono")
    log = model.log_
    user = list(log.users)[3]
    model.forget_users([user])
    assert user not in list(model.log_.users)
    fresh = type(model)(**model.params()).fit(model.log_, solver=model.report_.solver)
    atol = 2e-2 if name == "tempered-primal" else 2e-4  # a fit anew takes the weights of users from its own log
    np.testing.assert_allclose(model.item_weights(), fresh.item_weights(), atol=atol)
