"""ELSA and LinearAutoencoder: losses by plain NumPy, and the agreement of trained weights with the closed forms."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import typing

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram import store
from monogram.cli.shared_options import Scratch
from monogram.errors import ModelFileError, ParameterError
from monogram.models.context import FitOptions

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.gradient import checkpoint, linear  # noqa: E402
from monogram.gradient.linear import LinearSettings, LinearTraining, UnitTraining  # noqa: E402
from monogram.gradient.model import GradientModel  # noqa: E402
from monogram.gradient.trainer import Context  # noqa: E402

CONTEXT = Context(dtype="float64")
SMALL = {
    "elsa": {"rank": 4, "epochs": 6, "batch": 16},
    "linear_autoencoder": {"rank": 4, "epochs": 6, "batch": 16, "l2": 3.0},
}
MODELS = pytest.mark.parametrize("name", SMALL)


@pytest.fixture
def log(world):
    return mg.Interactions.from_csr(world)


@pytest.fixture
def matrix(world):
    weighted = world.copy()
    weighted.data = np.random.default_rng(0).integers(1, 4, world.nnz).astype(np.float32)
    return weighted


def make(name, **parameters):
    return mg.models.registry.MODELS[name](**(SMALL[name] | parameters))


def training_of(matrix, **changes):
    plain = {"rank": 3, "l2": 7.0, "penalty": "product", "dropout": 0.4, "b": 1.0, "batch": 10}
    torch.manual_seed(2)
    return LinearTraining(matrix, CONTEXT, LinearSettings(**(plain | changes)))


def slope_is_the_gradient(training, loss, name, place):
    """The gradient of a parameter by autograd, beside a difference quotient."""
    parameter, step, values = training.parameters[name], 1e-6, []
    parameter.grad = None
    loss().backward()
    gradient = parameter.grad[place].item()
    for sign in (1, -1):
        with torch.no_grad():
            parameter[place] += sign * step
            values.append(loss().item())
            parameter[place] -= sign * step
    assert gradient == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)
    assert abs(gradient) > 1e-6


def test_the_objective_of_elsa(matrix):
    training = UnitTraining(matrix, CONTEXT, rank=3, batch=10)
    rows = next(iter(training.batches()))
    a = training.array("items")
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    x = matrix[rows.users.numpy()].toarray().astype(float)
    scores = x @ (a @ a.T - np.eye(25))
    unit = [y / np.linalg.norm(y, axis=1, keepdims=True) for y in (x, scores)]
    assert training.loss(rows).item() == pytest.approx(((unit[0] - unit[1]) ** 2).sum(1).mean(), rel=1e-10)
    slope_is_the_gradient(training, lambda: training.loss(rows), "items", (int(rows.items[0]), 1))
    weights = training.weights(matrix)
    everything = np.arange(25)
    np.testing.assert_allclose(weights.score(matrix[rows.users.numpy()], everything, 1), scores, atol=1e-9)
    np.testing.assert_allclose(weights.columns(everything), a @ a.T - np.eye(25), atol=1e-12)


@pytest.mark.parametrize("b", [0.0, 0.3, 1.0])
def test_the_error_of_a_linear_autoencoder(matrix, monkeypatch, b):
    training = training_of(matrix, l2=0.0, b=b)
    rows = next(iter(training.batches()))
    stay = (torch.arange(len(rows.items)) % 3 > 0).double()
    monkeypatch.setattr(linear, "kept", lambda rows, dropout: stay)
    x = matrix[rows.users.numpy()].toarray().astype(float)
    entries = rows.owners.numpy(), rows.items.numpy()
    read, weight = x.copy(), np.full_like(x, 0.4 + 0.6 * b)
    read[entries] *= stay.numpy() / 0.6
    weight[entries] = np.where(stay.numpy() > 0, b, 1.0)
    errors = x - read @ training.array("left") @ training.array("right").T
    expected = (weight * errors**2).sum() / (0.4 + 0.6 * b) / len(rows)
    assert training.loss(rows).item() == pytest.approx(expected, rel=1e-10)
    for name in ("left", "right"):
        slope_is_the_gradient(training, lambda: training.loss(rows), name, (int(rows.items[1]), 2))


@pytest.mark.parametrize("b", [0.0, 0.3, 1.0])
def test_the_mean_over_the_dropout_is_the_theorem_of_steck(matrix, b):
    """Steck 2020, eq. 6: the diagonal counts less by 1 − b/N in the error, and by 1 − √b/N in the penalty."""
    training = training_of(matrix, b=b, batch=100)
    (rows,) = training.batches()
    with torch.no_grad():
        sampled = np.mean([training.loss(rows).item() for _ in range(1500)])
    x = matrix.toarray().astype(float)
    w = training.array("left") @ training.array("right").T
    n, diagonal = 0.4 + 0.6 * b, np.diag(np.diag(w))
    penalties = 7.0 + 0.4 / 0.6 * (x**2).sum(0)
    error = ((x - x @ (w - diagonal * (1 - b / n))) ** 2).sum()
    penalty = (penalties[:, None] * (w - diagonal * (1 - b**0.5 / n)) ** 2).sum()
    assert sampled == pytest.approx((error + penalty) / training.rows.rows, rel=0.005)


def test_the_penalty_on_the_factors(matrix):
    training = training_of(matrix, penalty="factors")
    left, right = training.array("left"), training.array("right")
    assert training.penalty().item() == pytest.approx((left**2).sum() + (right**2).sum(), rel=1e-12)


N, RANK, L2 = 18, 4, 5.0  # of the trainings of table 1 of Steck 2020, beside their closed forms


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    tastes, items = rng.standard_normal((80, 4)), rng.standard_normal((N, 4))
    return (tastes @ items.T + rng.standard_normal((80, N)) > 1.2).astype(np.float32)


def fitted(data, model):
    return model.fit(mg.Interactions.from_csr(sp.csr_array(data)), dtype="float64", threads=1).item_weights()


def trained(data, copies, **parameters):
    """Weights trained on the rows, each `copies` times: a step then sees as many draws of the dropout."""
    model = mg.LinearAutoencoder(rank=RANK, l2=L2 * copies, batch=100_000, **parameters)
    return fitted(np.tile(data, (copies, 1)), model)


def test_weight_decay_ends_at_wlae(data):
    weights = trained(data, 1, penalty="factors", dropout=0, epochs=500, learning_rate=0.03)
    closed = fitted(data, mg.WLAE(rank=RANK, weights=L2))
    np.testing.assert_allclose(weights, closed, atol=0.005)
    assert closed.max() > 0.3


def test_the_product_penalty_ends_at_lrr(data):
    weights = trained(data, 1, dropout=0, epochs=500, learning_rate=0.03)
    np.testing.assert_allclose(weights, fitted(data, mg.LRR(rank=RANK, l2=L2)), atol=0.005)


def test_sampled_dropout_ends_at_low_rank_dlae(data):
    weights = trained(data, 40, dropout=0.3, epochs=300, learning_rate=0.02)
    closed = fitted(data, mg.LowRankDLAE(rank=RANK, l2=L2, dropout=0.3))
    without = fitted(data, mg.LRR(rank=RANK, l2=L2))

    def distance(weights):
        return np.linalg.norm(weights - closed) / np.linalg.norm(closed)

    assert distance(weights) < 0.05
    assert distance(without) > 0.15


def test_emphasised_denoising_ends_at_low_rank_edlae(data):
    """The objective has several local minima, so its value is compared, not the weights."""
    penalties = L2 + 0.3 / 0.7 * data.sum(0)

    def objective(weights):
        off = np.where(np.eye(N), 0.0, weights)
        return ((data - data @ off) ** 2).sum() + (penalties[:, None] * off**2).sum()

    weights = trained(data, 30, dropout=0.3, b=0, epochs=500, learning_rate=0.03, seed=1)
    model = mg.LowRankEDLAE(rank=RANK, l2=L2, dropout=0.3, solver="alternating", epochs=200)
    best = objective(fitted(data, model))
    assert best * 0.99 < objective(weights) < best * 1.005
    assert objective(fitted(data, mg.LowRankDLAE(rank=RANK, l2=L2, dropout=0.3))) > best * 1.015


def test_nothing_to_minimise_is_refused():
    with pytest.raises(ParameterError, match="b = 0 with dropout = 0 leaves no error"):
        mg.LinearAutoencoder(b=0, dropout=0)


@MODELS
def test_training_ranks_better_than_popularity(name):
    split = mg.splits.holdout(mg.sample())
    extra = {"elsa": {"learning_rate": 0.1}, "linear_autoencoder": {"learning_rate": 0.01, "l2": 50}}[name]
    model = make(name, rank=16, epochs=15, batch=250, **extra).fit(split.train, threads=1)
    assert model.report_.objectives[-1] < 0.9 * model.report_.objectives[0]
    result = mg.evaluate({name: model}, split, "ndcg@10")
    assert result.value(name, "ndcg@10") > 2 * result.value("popularity", "ndcg@10")


@MODELS
def test_the_same_seed_gives_the_same_model(log, name):
    first, second, other = (make(name, seed=seed).fit(log, threads=1).item_weights() for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 0.01


class Killed(Exception):
    pass


@MODELS
def test_a_stopped_training_resumes_to_the_same_bits(log, tmp_path, monkeypatch, name):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    whole = make(name).fit(log, threads=1).item_weights()
    stopped = make(name)
    inputs = stopped.inputs(log)

    def between(epochs, weights):
        if epochs == 3:
            raise Killed

    inputs.between = between
    with pytest.raises(Killed):
        stopped.fit_from(inputs, FitOptions(scratch=tmp_path, threads=1))
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(make(name).fit(log, scratch=tmp_path, threads=1).item_weights(), whole)


@MODELS
@pytest.mark.parametrize("harm", ["shape", "nan"])
def test_a_file_that_holds_no_factors_is_refused(log, tmp_path, name, harm):
    path = tmp_path / "model.mono"
    make(name, epochs=1).fit(log).save(path)
    stored = store.load(path)
    tensors = {key: np.array(value) for key, value in stored.tensors.items()}
    tensor = {"elsa": "items", "linear_autoencoder": "left"}[name]
    if harm == "shape":
        tensors[f"weights.{tensor}"] = tensors[f"weights.{tensor}"][1:].copy()
    else:
        tensors[f"weights.{tensor}"][2, 1] = np.nan
    store.save(path, stored.header, tensors)
    with pytest.raises(ModelFileError, match=tensor):
        mg.load(path)


def test_a_loaded_model_needs_no_torch(log, tmp_path):
    for name in SMALL:
        make(name, epochs=1).fit(log).save(tmp_path / f"{name}.mono")
    script = textwrap.dedent("""
        import pathlib, sys
        import monogram as mg
        for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
            mg.load(path).recommend(k=3)
        assert "torch" not in sys.modules
        """)
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


@MODELS
def test_the_memory_is_planned(name):
    kind = mg.models.registry.MODELS[name]
    small, wide = (kind(rank=rank).plan((10_000, 5_000, 80_000)).chosen for rank in (16, 512))
    assert wide.bytes - small.bytes > 4 * 6 * 5_000 * (512 - 16)
    assert wide.seconds > small.seconds


@pytest.mark.parametrize("kind", [mg.ELSA, mg.LinearAutoencoder])
def test_no_array_of_all_scores_is_made(kind):
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, (3_000, 40_000), (40_000, 2)), axis=0)
    matrix = sp.csr_array((np.ones(len(pairs), np.float32), pairs.T), shape=(3_000, 40_000))
    report = kind(rank=8, epochs=1, batch=3_000).fit(mg.Interactions.from_csr(matrix)).report_
    assert report.peak_bytes < report.planned_bytes
    assert report.peak_bytes < 2 * 3_000 * 40_000


def test_the_documentation_of_the_base_class_names_what_reads_weights():
    text = " ".join((GradientModel.__doc__ or "").split())
    assert "autoencoders train on the weights of the events" in text
    assert "after an epoch" in text
    assert "checkpoints" in (typing.get_args(Scratch)[1].help or "")


def test_the_unit_rows_and_their_gram_have_the_gradients_of_the_plain_formulas():
    rows, weights = torch.randn(9, 4, dtype=torch.float64, requires_grad=True), torch.randn(9, 4, dtype=torch.float64)
    codes = torch.randn(3, 4, dtype=torch.float64)
    ours = linear.unit_rows(rows)
    (first,) = torch.autograd.grad(
        (ours * weights).sum() + (codes @ linear.symmetric_gram(ours) * codes).sum().sin(), rows
    )
    plain = torch.nn.functional.normalize(rows)
    (second,) = torch.autograd.grad((plain * weights).sum() + (codes @ (plain.T @ plain) * codes).sum().sin(), rows)
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(first, second)


def test_an_update_in_parts_has_the_numbers_of_one_update(world, monkeypatch):
    log, fitted = mg.Interactions.from_csr(world), []
    for part in (10**9, 20):
        monkeypatch.setattr(linear, "PART", part)
        fitted.append(mg.ELSA(rank=4, epochs=3, batch=16, learning_rate=0.01).fit(log).weights_.tensors())
    for name, tensor in fitted[0].items():
        np.testing.assert_array_equal(tensor, fitted[1][name])
