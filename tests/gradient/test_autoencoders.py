"""MultDAE, MultVAE and CDAE: losses and gradients by plain NumPy, dropout, annealing, users, files, seeds."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from scipy.special import logsumexp

import monogram as mg
from monogram import store
from monogram.errors import ModelFileError
from monogram.models.context import FitOptions
from monogram.models.parameters import search_axes

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.gradient import checkpoint, networks, reconstruction, validation  # noqa: E402
from monogram.gradient.networks import NetworkSettings, NetworkTraining, UserTraining, VariationalTraining  # noqa: E402
from monogram.gradient.rows import RowBatches, kept  # noqa: E402
from monogram.gradient.trainer import Context  # noqa: E402

CONTEXT = Context(dtype="float64")
SMALL = {
    "mult_dae": {"rank": 4, "layers": 1, "hidden": 6, "epochs": 6, "batch": 16},
    "mult_vae": {"rank": 4, "hidden": 6, "epochs": 6, "batch": 16, "annealing": 2},
    "cdae": {"rank": 4, "epochs": 6, "batch": 16, "negatives": 2},
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


def settings(**changes):
    plain = {"widths": (5, 3, 4), "activations": ("tanh", "tanh", "tanh"), "dropout": 0.0, "l2": 0.02, "batch": 10}
    return NetworkSettings(**(plain | changes))


def slope_is_the_gradient(training, loss, name, place):
    """The gradient of a parameter by autograd, beside a difference quotient."""
    parameter, step = training.parameters[name], 1e-6
    parameter.grad = None
    loss().backward()
    gradient, values = parameter.grad[place].item(), []
    for sign in (1, -1):
        with torch.no_grad():
            parameter[place] += sign * step
            values.append(loss().item())
            parameter[place] -= sign * step
    assert gradient == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)
    assert abs(gradient) > 1e-6


def forward(training, x, activations, own=0.0):
    """All scores, from layers by plain NumPy."""
    hidden = x
    for number, activation in enumerate(activations):
        hidden = hidden @ training.array(f"layer.{number}") + training.array(f"bias.{number}") + (0 if number else own)
        hidden = {"tanh": np.tanh, "none": lambda y: y, "sigmoid": lambda y: 1 / (1 + np.exp(-y))}[activation](hidden)
    return hidden @ training.array("items").T + training.array("base")


def squared_weights(training):
    return sum((training.array(name) ** 2).sum() for name, value in training.parameters.items() if value.ndim == 2)


def moved(training):
    """Other values than 0 for the biases, so that they matter."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in training.parameters.values():
            parameter += 0.1 * torch.randn(parameter.shape, dtype=torch.float64)
    return training


def log_softmax(scores):
    return scores - logsumexp(scores, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["multinomial", "squared", "logistic", "logistic, drawn"])
def test_a_loss_is_its_formula(matrix, name):
    rows = RowBatches(matrix, CONTEXT, 10).take(np.array([4, 0, 17]))
    x = matrix[[4, 0, 17]].toarray().astype(float)
    rng = np.random.default_rng(5)
    scores = rng.standard_normal(x.shape) * 3
    others = rng.integers(0, 25, (len(rows.items), 2))
    expected = {
        "multinomial": lambda s: -(x * log_softmax(s)).sum(),
        "squared": lambda s: ((x - s) ** 2).sum(),
        "logistic": lambda s: np.log1p(np.exp(np.where(x > 0, -s, s))).sum(),
        "logistic, drawn": lambda s: (
            np.log1p(np.exp(-s[x > 0])).sum()
            + np.log1p(np.exp(s[np.repeat(rows.owners.numpy(), 2), others.reshape(-1)])).sum()
        ),
    }[name]
    given = torch.tensor(scores, requires_grad=True)
    more = (torch.as_tensor(others),) if name.endswith("drawn") else ()
    loss = getattr(reconstruction, name.partition(",")[0])(given, rows, *more)
    assert loss.item() == pytest.approx(expected(scores) / 3, rel=1e-10)
    loss.backward()
    for place in [(0, int(np.flatnonzero(x[0])[0])), (2, int(np.flatnonzero(x[2] == 0)[1])), (1, 7)]:
        step = np.zeros_like(scores)
        step[place] = 1e-6
        slope = (expected(scores + step) - expected(scores - step)) / 6e-6
        assert given.grad[place].item() == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_objective_of_mult_dae(matrix, monkeypatch, dropout):
    training = moved(NetworkTraining(matrix, CONTEXT, settings(dropout=dropout)))
    rows = next(iter(training.batches()))
    stay = (torch.arange(len(rows.items)) % 3 > 0).double()
    monkeypatch.setattr(networks, "kept", lambda rows, dropout: stay)
    x = matrix[rows.users.numpy()].toarray().astype(float)
    read = x / np.linalg.norm(x, axis=1, keepdims=True)
    if dropout:
        read[rows.owners.numpy(), rows.items.numpy()] *= stay.numpy() / (1 - dropout)
    scores = forward(training, read, ("tanh",) * 3)
    expected = -(x * log_softmax(scores)).sum() / len(rows) + 0.02 * squared_weights(training)
    assert training.loss(rows).item() == pytest.approx(expected, rel=1e-10)
    for name, place in (("layer.0", (int(rows.items[1]), 2)), ("layer.1", (1, 1)), ("bias.2", (3,)), ("items", (4, 0))):
        slope_is_the_gradient(training, lambda: training.loss(rows), name, place)


def test_the_objective_of_mult_vae(matrix):
    given = settings(activations=("tanh", "none", "tanh"))
    training = moved(VariationalTraining(matrix, CONTEXT, given, code=1, beta=0.3, annealing=0))
    rows = next(iter(training.batches()))

    def loss():
        torch.manual_seed(8)
        return training.loss(rows)

    torch.manual_seed(8)
    noise = torch.randn(len(rows), 3).numpy()
    x = matrix[rows.users.numpy()].toarray().astype(float)
    array = training.array
    first = np.tanh(x / np.linalg.norm(x, axis=1, keepdims=True) @ array("layer.0") + array("bias.0"))
    mean, spread = first @ array("layer.1") + array("bias.1"), first @ array("spread") + array("spread_bias")
    code = mean + noise * np.exp(spread / 2)
    scores = np.tanh(code @ array("layer.2") + array("bias.2")) @ array("items").T + array("base")
    divergence = 0.5 * (mean**2 + np.exp(spread) - 1 - spread).sum()
    expected = (-(x * log_softmax(scores)).sum() + 0.3 * divergence) / len(rows) + 0.02 * squared_weights(training)
    assert loss().item() == pytest.approx(expected, rel=1e-10)
    for name, place in (("spread", (1, 2)), ("layer.0", (int(rows.items[1]), 2)), ("spread_bias", (0,))):
        slope_is_the_gradient(training, loss, name, place)


@pytest.mark.parametrize("layers", [0, 1])
def test_the_code_is_not_limited(layers):
    """Mean and variance have no activation, whatever the number of layers."""
    model = mg.MultVAE(rank=2, hidden=3, layers=layers)
    training = model._training(mg.sample(), CONTEXT)
    assert training.settings.activations[layers] == "none"
    assert training.settings.widths[layers] == 2
    assert training.parameters["spread"].shape[1] == 2


def test_the_weight_of_the_divergence_rises(matrix):
    training = VariationalTraining(
        matrix, CONTEXT, settings(activations=("tanh", "none", "tanh")), code=1, beta=0.5, annealing=2
    )
    weights = []
    for _ in range(3):
        for rows in training.batches():
            weights.append(training.annealed())
            training.loss(rows)
    steps = training.rows.number
    np.testing.assert_allclose(weights, 0.5 * np.minimum(1, np.arange(3 * steps) / (2 * steps)))


@pytest.mark.parametrize("negatives", [0, 3])
def test_the_objective_of_cdae(matrix, negatives):
    training = moved(
        UserTraining(matrix, CONTEXT, settings(widths=(5,), activations=("sigmoid",), unit=False), negatives=negatives)
    )
    rows = next(iter(training.batches()))

    def loss():
        torch.manual_seed(8)
        return training.loss(rows)

    users = rows.users.numpy()
    x = matrix[users].toarray().astype(float)
    scores = forward(training, x, ("sigmoid",), training.array("users")[users])
    used = np.log1p(np.exp(-scores[x > 0])).sum()
    unused = np.log1p(np.exp(scores[x == 0])).sum()
    if negatives:
        torch.manual_seed(8)
        others = training._unseen.draw(rows.users[rows.owners], 3).numpy()
        assert others.shape == (len(rows.items), 3)
        assert not x[rows.owners.numpy()[:, None], others].any()
        unused = np.log1p(np.exp(scores[rows.owners.numpy()[:, None], others])).sum()
    expected = (used + unused) / len(rows) + 0.02 * squared_weights(training)
    assert loss().item() == pytest.approx(expected, rel=1e-10)
    slope_is_the_gradient(training, loss, "users", (int(users[0]), 1))
    slope_is_the_gradient(training, loss, "items", (int(rows.items[0]), 1))


def test_entries_are_hidden_at_random():
    rows = RowBatches(mg.sample().matrix, Context(), 500).take(np.arange(400))
    torch.manual_seed(0)
    stay = kept(rows, 0.3)
    assert stay.dtype is torch.float32
    assert set(stay.unique().tolist()) == {0.0, 1.0}
    assert stay.mean().item() == pytest.approx(0.7, abs=0.02)
    assert kept(rows, 0.0).min() == 1


def test_every_row_with_entries_is_in_one_batch(matrix):
    batches = list(RowBatches(matrix, CONTEXT, 7))
    users = np.concatenate([rows.users.numpy() for rows in batches])
    assert sorted(users) == [user for user in range(60) if matrix[[user]].nnz]
    assert max(map(len, batches)) == 7
    for rows in batches:
        dense = np.zeros((len(rows), 25))
        dense[rows.owners.numpy(), rows.items.numpy()] = rows.values.numpy()
        np.testing.assert_array_equal(dense, matrix[rows.users.numpy()].toarray())
        np.testing.assert_allclose(rows.times(torch.eye(25, dtype=torch.float64), rows.values).numpy(), dense)


@MODELS
def test_fitted_weights_score_as_the_network_does(log, name):
    model = make(name)
    training = moved(model._training(log, CONTEXT))
    users = np.array([0, 3, 8])
    x = log.matrix[users].toarray().astype(float)
    read = x / np.linalg.norm(x, axis=1, keepdims=True) if training.settings.unit else x
    own = training.array("users")[users] if name == "cdae" else 0.0
    expected = forward(training, read, training.settings.activations, own)
    weights = training.weights(log.matrix)
    np.testing.assert_allclose(weights.score(log.matrix[users], np.arange(25), 1), expected, atol=1e-9)


def test_a_stranger_has_the_mean_vector_of_the_users(log):
    training = moved(make("cdae")._training(log, CONTEXT))
    stranger = log.matrix[[0]].copy()
    stranger.data *= 2
    filled = np.diff(log.matrix.indptr) > 0
    mean = training.array("users")[filled].mean(0)
    expected = forward(training, stranger.toarray().astype(float), ("sigmoid",), mean)
    np.testing.assert_allclose(training.weights(log.matrix).score(stranger, np.arange(25), 1), expected, atol=1e-9)


@MODELS
def test_training_ranks_better_than_popularity(name):
    split = mg.splits.holdout(mg.sample())
    parameters = {"rank": 16, "epochs": 20, "batch": 250, "learning_rate": 0.03, "l2": 0.0}
    extra = {"mult_dae": {"layers": 0}, "mult_vae": {"annealing": 4, "hidden": 32}, "cdae": {"negatives": 5}}[name]
    model = make(name, **parameters | extra).fit(split.train, threads=1)
    assert model.report_.objectives[-1] < 0.97 * model.report_.objectives[0]
    result = mg.evaluate({name: model}, split, "ndcg@10")
    assert result.value(name, "ndcg@10") > 2 * result.value("popularity", "ndcg@10")


def test_the_default_penalty_of_mult_dae_is_the_published_one():
    model = mg.MultDAE()
    assert model.l2 == pytest.approx(0.01 / model.batch)
    assert model.l2 in search_axes(mg.MultDAE)["l2"].values
    split = mg.splits.holdout(mg.sample())
    learned, shrunk = (
        mg.MultDAE(rank=16, epochs=10, batch=250, learning_rate=0.01, l2=l2).fit(split.train, threads=1)
        for l2 in (model.l2, 0.01)
    )
    result = mg.evaluate({"learned": learned, "shrunk": shrunk}, split, "ndcg@10")
    assert result.value("learned", "ndcg@10") > 1.1 * result.value("shrunk", "ndcg@10")


@MODELS
def test_the_same_seed_gives_the_same_model(log, name):
    first, second, other = (make(name, seed=seed).fit(log, threads=1).weights_.tensors() for seed in (3, 3, 4))
    assert all(np.array_equal(first[key], second[key]) for key in first)
    assert np.abs(first["items"] - other["items"]).max() > 0.01


@MODELS
def test_early_stopping_keeps_the_best_epoch(log, name):
    stopped = make(name, epochs=40, patience=2, validation=0.3, metric="recall@5", learning_rate=0.02)
    report = stopped.fit(log, threads=1).report_
    best = int(np.argmax(report.metrics)) + 1
    assert len(report.metrics) == best + 2
    split = validation.cut(log, 0.3, 0).split
    again = make(name, epochs=best, learning_rate=0.02).fit(split.train, threads=1).weights_
    assert validation.measure(split, "recall@5", 1)(again) == pytest.approx(report.metrics[best - 1], abs=1e-12)
    np.testing.assert_array_equal(stopped.weights_.items, again.items)


class Killed(Exception):
    pass


@MODELS
def test_a_stopped_training_resumes_to_the_same_bits(log, tmp_path, monkeypatch, name):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    extra = {"annealing": 5} if name == "mult_vae" else {}
    whole = make(name, **extra).fit(log, threads=1).weights_.tensors()
    stopped = make(name, **extra)
    inputs = stopped.inputs(log)

    def between(epochs, weights):
        if epochs == 3:
            raise Killed

    inputs.between = between
    with pytest.raises(Killed):
        stopped.fit_from(inputs, FitOptions(scratch=tmp_path, threads=1))
    assert len(list(tmp_path.iterdir())) == 1
    resumed = make(name, **extra).fit(log, scratch=tmp_path, threads=1).weights_.tensors()
    assert all(np.array_equal(whole[key], resumed[key]) for key in whole)


@MODELS
@pytest.mark.parametrize("harm", ["shape", "nan"])
def test_a_file_that_holds_no_network_is_refused(log, tmp_path, name, harm):
    path = tmp_path / "model.mono"
    make(name, epochs=1).fit(log).save(path)
    stored = store.load(path)
    tensors = {key: np.array(value) for key, value in stored.tensors.items()}
    if harm == "shape":
        tensors["weights.layer.0"] = tensors["weights.layer.0"][:, 1:].copy()
    else:
        tensors["weights.layer.0"][2, 1] = np.nan
    store.save(path, stored.header, tensors)
    with pytest.raises(ModelFileError, match=r"layer\.0"):
        mg.load(path)


def test_a_loaded_model_needs_no_torch(log, tmp_path):
    for name in SMALL:
        make(name, epochs=1).fit(log).save(tmp_path / f"{name}.mono")
    script = textwrap.dedent("""
        import pathlib, sys
        import monogram as mg
        for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
            model = mg.load(path)
            model.recommend(k=3)
            model.score([list(model.log_.items)[:2]])
        assert "torch" not in sys.modules
        """)
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


@MODELS
def test_the_memory_is_planned(name):
    kind = mg.models.registry.MODELS[name]
    small, wide, tall = (
        kind(**parameters).plan((10_000, 5_000, 80_000)).chosen
        for parameters in ({"rank": 16}, {"rank": 512}, {"rank": 16, "batch": 5000})
    )
    assert wide.bytes - small.bytes > 4 * 2 * 5_000 * (512 - 16) * (name != "mult_vae")
    assert wide.seconds > small.seconds
    assert tall.bytes - small.bytes > 4 * 3 * 4_500 * 5_000


def test_a_fit_stays_within_its_plan():
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, (3_000, 20_000), (40_000, 2)), axis=0)
    matrix = mg.sample().matrix.__class__((np.ones(len(pairs), np.float32), pairs.T), shape=(3_000, 20_000))
    report = mg.MultDAE(rank=32, epochs=1, batch=500).fit(mg.Interactions.from_csr(matrix)).report_
    assert 20_000_000 < report.peak_bytes < report.planned_bytes


class Deep(mg.MultDAE):
    name = "deep"
    loss = "squared"


def test_a_deep_autoencoder_fits_no_better_than_the_leading_directions(log):
    """Steck and Garcia 2021: a network with k numbers before the output errs at least as the k best directions do.

    The bias of the output counts as one more number.
    """
    x, numbers = log.matrix.toarray().astype(float), 4
    bound = (np.linalg.svd(x, compute_uv=False)[numbers + 1 :] ** 2).sum()
    errors = []
    for epochs in (1, 300):
        deep = Deep(rank=8, layers=1, hidden=numbers, dropout=0, l2=0, epochs=epochs, batch=60, learning_rate=0.02)
        weights = deep.fit(log, dtype="float64", threads=1).weights_
        errors.append(((x - weights.score(log.matrix, np.arange(25), 1)) ** 2).sum())
    assert bound < errors[1] < 0.5 * errors[0]
    assert errors[1] < 1.2 * bound, "the network has learned nearly all that it can"


def test_a_file_of_cdae_without_the_vectors_of_users_is_refused(log, tmp_path):
    path = tmp_path / "cdae.mono"
    make("cdae").fit(log).save(path)
    stored = store.load(path)
    tensors = {name: np.array(tensor) for name, tensor in stored.tensors.items() if name != "weights.users"}
    store.save(path, stored.header, tensors)
    with pytest.raises(ModelFileError, match="no vectors of users"):
        mg.load(path)
