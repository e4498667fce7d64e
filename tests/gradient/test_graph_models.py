"""SGL, DGCF, PinSage and SimpleX: each encoder by its definition in plain NumPy, new users, and the contract."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.errors import ModelFileError, ParameterError
from monogram.gradient.ranking import LOSSES, OF_COSINES
from monogram.testing import check_recommender
from monogram.weights import TrainedSage, from_tensors

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.gradient.contrast import ContrastEncoder, contrast  # noqa: E402
from monogram.gradient.encoders import GraphEncoder  # noqa: E402
from monogram.gradient.graph import Graph, Links, row_means, without_edges  # noqa: E402
from monogram.gradient.intents import SAMPLE, IntentEncoder, distance_correlation, sample  # noqa: E402
from monogram.gradient.pairs import LossSettings, PairTraining  # noqa: E402
from monogram.gradient.pooling import PoolingEncoder  # noqa: E402
from monogram.gradient.sage import SageEncoder, draw  # noqa: E402
from monogram.gradient.trainer import Context  # noqa: E402

CONTEXT = Context(dtype="float64")
SMALL = {"rank": 4, "epochs": 3, "batch": 64}
MODELS = {
    "sgl": (mg.SGL, {"layers": 2, "dropout": 0.2}),
    "dgcf": (mg.DGCF, {"layers": 1, "intents": 2}),
    "pin_sage": (mg.PinSage, {"layers": 2, "neighbours": 5}),
    "simplex": (mg.SimpleX, {"negatives": 10}),
}
EVERY = pytest.mark.parametrize("name", MODELS)


def model(name, **parameters):
    kind, own = MODELS[name]
    return kind(**(SMALL | own | parameters))


@pytest.fixture
def log(world):
    return mg.Interactions.from_csr(world)


@pytest.fixture(autouse=True)
def seeded_torch():
    torch.manual_seed(1)


def values(encoder):
    return {name: tensor.detach().numpy() for name, tensor in encoder.parameters.items()}


def vectors(encoder):
    """The vectors of all users and items of a forward pass."""
    encoder.forward()
    users = encoder.users(torch.arange(len(encoder.parameters["users"])))
    return users.detach().numpy(), encoder.items().detach().numpy()


def unit(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


@EVERY
def test_the_contract(name):
    check_recommender(MODELS[name][0], **(SMALL | MODELS[name][1] | {"epochs": 2}))


@EVERY
def test_it_learns_what_belongs_together(name):
    rng = np.random.default_rng(0)
    dense = np.zeros((60, 24), np.float32)
    for user in range(60):
        dense[user, rng.choice(np.arange(12) + 12 * (user % 2), 6, replace=False)] = 1
    log = mg.Interactions.from_csr(sp.csr_array(dense))
    fitted = model(name, epochs=20, learning_rate=0.05, l2=1e-3).fit(log, threads=1)
    rows = fitted.recommend(k=3).rows()
    assert np.mean([(row["item"] >= 12) == row["user"] % 2 for row in rows]) > 0.95
    strangers = fitted.recommend(histories=[[0, 1, 2], [13, 14, 15]], k=3).rows()
    assert all((row["item"] >= 12) == row["user"] for row in strangers)


@pytest.mark.integration
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "rg2"])
@EVERY
def test_every_loss_is_trained(name, loss, log):
    fitted = model(name, loss=loss, epochs=5, learning_rate=0.02, negatives=10).fit(log, threads=1)
    objectives = fitted.report_.objectives
    assert objectives[-1] < objectives[0]
    if loss in OF_COSINES:
        np.testing.assert_allclose(np.linalg.norm(fitted.weights_.items, axis=1), 1, atol=1e-5)
    assert np.isfinite(fitted.score([[0, 3], [7]])).all()


@EVERY
def test_a_stopped_training_resumes_to_the_same_bits(name, log, tmp_path, monkeypatch):
    monkeypatch.setattr("monogram.gradient.checkpoint.SECONDS", 0.0)
    whole, stopped = model(name).fit(log, threads=1), model(name)
    inputs = stopped.inputs(log)

    def between(epochs, _):
        if epochs == 2:
            raise InterruptedError

    inputs.between = between
    with pytest.raises(InterruptedError):
        stopped.fit_from(inputs, mg.models.context.FitOptions(scratch=tmp_path))
    resumed = model(name).fit(log, scratch=tmp_path, threads=1)
    assert resumed.report_.objectives == whole.report_.objectives
    np.testing.assert_array_equal(resumed.weights_.users, whole.weights_.users)


@EVERY
def test_trained_vectors_are_those_that_rank_known_users(name, log):
    fitted = model(name).fit(log)
    users = [user for user in range(60) if log.history(user)][:5]
    product = fitted.weights_.users @ fitted.weights_.items.T
    np.testing.assert_allclose(
        fitted.score([log.history(user) for user in users]), product[users], rtol=1e-4, atol=1e-6
    )


@EVERY
def test_rg2_without_sampling_is_refused(name):
    with pytest.raises(ParameterError, match="for the encoders of Factorization and LightGCN"):
        model(name, loss="rg2")


# SGL


def test_a_graph_without_edges(log):
    kept = without_edges(log.matrix, 0.3)
    assert 0.5 * log.n_events < kept.nnz < 0.9 * log.n_events
    assert (log.matrix.toarray()[kept.toarray() > 0] > 0).all()
    assert without_edges(log.matrix, 0.0).nnz == log.n_events


def test_the_contrast_is_its_formula():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 5, 3))
    cosines = unit(left) @ unit(right).T / 0.3
    expected = -np.mean([np.log(np.exp(cosines[a, a]) / np.exp(cosines[a]).sum()) for a in range(5)])
    tensors = [torch.from_numpy(side).requires_grad_(True) for side in (left, right)]
    assert contrast(*tensors, 0.3).item() == pytest.approx(expected, rel=1e-10)
    assert torch.autograd.gradcheck(lambda a, b: contrast(a, b, 0.3), tensors)


def test_sgl_adds_the_contrast_of_two_graphs(log):
    encoder = ContrastEncoder(log.matrix, CONTEXT, 4, 2, dropout=0.3, weight=0.7, temperature=0.2)
    training = PairTraining(log.matrix, CONTEXT, encoder, LossSettings(name="bpr", batch=40))
    batch = next(iter(training.batches()))
    users, items, _ = batch
    total = training.loss(batch)
    encoder.weight = 0.0
    plain = training.loss(batch)
    pair = encoder.parameters["users"], encoder.parameters["items"]
    views = [view.smooth(*pair, 2) for view in encoder.views]
    expected = sum(
        contrast(views[0][side][index.unique()], views[1][side][index.unique()], 0.2)
        for side, index in enumerate((users, items))
    )
    assert (total - plain).item() == pytest.approx(0.7 * expected.item(), rel=1e-9)
    assert encoder.views[0].links.matrix.nnz != encoder.views[1].links.matrix.nnz


def test_without_contrast_sgl_is_light_gcn(log):
    same = {"rank": 4, "epochs": 2, "batch": 64, "layers": 2}
    one = mg.LightGCN(**same).fit(log)
    other = mg.SGL(**same, contrast=0.0, dropout=0.0).fit(log)
    assert other.report_.objectives[0] == pytest.approx(one.report_.objectives[0], rel=0.05)
    encoder = ContrastEncoder(log.matrix, CONTEXT, 4, 2, dropout=0.3, weight=0.0, temperature=0.2)
    torch.manual_seed(1)
    np.testing.assert_array_equal(vectors(encoder)[1], vectors(GraphEncoder(log.matrix, CONTEXT, 4, 2))[1])


# DGCF


def routed(log, encoder, layers, iterations):
    """The vectors of DGCF by its definition, edge by edge."""
    start = np.vstack([values(encoder)[name] for name in ("users", "items")])
    nodes, intents = len(start), encoder.intents
    below = start.reshape(nodes, intents, -1)
    dense = log.matrix.toarray() > 0
    edges = [(u, 60 + i) for u, i in zip(*np.nonzero(dense), strict=True)]
    edges += [(tail, head) for head, tail in edges]
    scores, total = {edge: np.ones(intents) for edge in edges}, below.copy()
    for _ in range(layers):
        for _ in range(iterations):
            weights = {edge: np.exp(score) / np.exp(score).sum() for edge, score in scores.items()}
            degrees = np.zeros((nodes, intents))
            for (head, _), weight in weights.items():
                degrees[head] += weight
            layer = np.zeros_like(below)
            for (head, tail), weight in weights.items():
                layer[head] += (weight / np.sqrt(degrees[head] * degrees[tail]))[:, None] * below[tail]
            for head, tail in edges:
                grown = (unit(layer[head]) * np.tanh(unit(below[tail]))).sum(1)
                scores[head, tail] = scores[head, tail] + grown
        below = layer
        total += below
    return total.reshape(nodes, -1)


@pytest.mark.parametrize(("layers", "iterations"), [(1, 2), (2, 1)])
def test_dgcf_is_its_definition(log, layers, iterations):
    encoder = IntentEncoder(log.matrix, CONTEXT, 4, layers=layers, intents=2, iterations=iterations, weight=0.01)
    np.testing.assert_allclose(np.vstack(vectors(encoder)), routed(log, encoder, layers, iterations), atol=1e-10)


def test_one_intent_and_one_iteration_is_light_gcn_times_its_layers(log):
    encoder = IntentEncoder(log.matrix, CONTEXT, 4, layers=2, intents=1, iterations=1, weight=0.0)
    pair = encoder.parameters["users"].detach(), encoder.parameters["items"].detach()
    expected = Graph(log.matrix).smooth(*pair, 2)
    np.testing.assert_allclose(vectors(encoder)[1], 3 * expected[1], atol=1e-6)


def test_the_gradient_of_the_routing():
    matrix = sp.csr_array(np.array([[1, 1, 0], [0, 1, 1]], np.float32))
    encoder = IntentEncoder(matrix, CONTEXT, 4, layers=1, intents=2, iterations=2, weight=0.1)

    def score(users, items):
        encoder.parameters["users"], encoder.parameters["items"] = users, items
        encoder.forward()
        index = torch.tensor([0, 1])
        return (encoder.users(index) * encoder.items(index)).sum() + encoder.extra_loss(index, index)

    parameters = [torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (2, 3)]
    assert torch.autograd.gradcheck(score, parameters)


def test_the_distance_correlation():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 2))

    def by_definition(a, b):
        centred = []
        for side in (a, b):
            distance = np.linalg.norm(side[:, None] - side[None], axis=2)
            centred.append(distance - distance.mean(0) - distance.mean(1)[:, None] + distance.mean())
        covariance = [
            np.sqrt((p * q).mean()) for p, q in ((centred[0], centred[1]), (centred[0],) * 2, (centred[1],) * 2)
        ]
        return covariance[0] / np.sqrt(covariance[1] * covariance[2])

    measured = distance_correlation(torch.from_numpy(x), torch.from_numpy(y)).item()
    assert measured == pytest.approx(by_definition(x, y), rel=1e-4)
    assert distance_correlation(torch.from_numpy(x), torch.from_numpy(3 * x)).item() == pytest.approx(1, rel=1e-4)
    assert measured < 0.2


def test_the_dependence_is_measured_on_a_random_sample():
    index = torch.arange(1000).repeat(3)
    draws = torch.stack([sample(index) for _ in range(60)])
    assert all(len(draw.unique()) == SAMPLE for draw in draws)
    assert len(draws.unique()) == 1000, "no node is left out"
    counts = torch.bincount(draws.flatten(), minlength=1000).reshape(4, 250).sum(1) / draws.numel()
    np.testing.assert_allclose(counts, 0.25, atol=0.02)
    assert torch.equal(sample(torch.tensor([5, 2, 5])), torch.tensor([2, 5])), "a few are all taken"


def test_the_sample_reaches_the_loss():
    """With more than 256 distinct users and items, two losses of the same batch differ."""
    rng = np.random.default_rng(0)
    dense = (rng.random((600, 500)) < 0.02).astype(np.float32)
    encoder = IntentEncoder(sp.csr_array(dense), CONTEXT, 4, layers=1, intents=2, iterations=1, weight=1.0)
    encoder.forward()
    values = {encoder.extra_loss(torch.arange(600), torch.arange(500)).item() for _ in range(3)}
    assert len(values) == 3


def test_a_new_user_of_dgcf_is_propagated_with_equal_intents(log):
    encoder = IntentEncoder(log.matrix, CONTEXT, 4, layers=1, intents=2, iterations=2, weight=0.0)
    weights = encoder.weights(log.matrix, cosine=False)
    history = np.zeros(25, np.float32)
    history[[1, 4, 9]] = 1
    degrees = log.matrix.toarray().sum(0)
    expected = sum(values(encoder)["items"][i] / np.sqrt(3 * degrees[i]) for i in (1, 4, 9))
    np.testing.assert_allclose(weights.rows(sp.csr_array(history[None]))[0], expected, rtol=1e-5)


def test_a_rank_that_is_not_a_multiple_of_the_intents():
    with pytest.raises(ParameterError, match="expected a rank that is a multiple of intents"):
        mg.DGCF(rank=6, intents=4)


# PinSage


def through(encoder, links):
    """The vectors of PinSage by its definition, with dense neighbourhoods."""
    given = values(encoder)
    users, items = given["users"], given["items"]
    for layer in range(encoder.layers):
        pooled = [
            np.maximum(side @ given[f"pool.{layer}"].T + given[f"pool_shift.{layer}"], 0) for side in (users, items)
        ]
        near = links[0] @ pooled[1], links[1] @ pooled[0]
        joined = [np.hstack([own, around]) for own, around in zip((users, items), near, strict=True)]
        merged = [side @ given[f"merge.{layer}"].T + given[f"merge_shift.{layer}"] for side in joined]
        users, items = merged if layer == encoder.layers - 1 else [unit(np.maximum(side, 0)) for side in merged]
    return users, items


def test_pin_sage_is_its_definition(log):
    encoder = SageEncoder(log.matrix, CONTEXT, 4, layers=2, neighbours=6)
    encoder.start_epoch()
    sampled = [links.matrix.toarray() for links in encoder._sampled]
    for actual, expected in zip(vectors(encoder), through(encoder, sampled), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    dense = (log.matrix.toarray() > 0).astype(float)
    every = [side / np.maximum(side.sum(1, keepdims=True), 1) for side in (dense, dense.T)]
    weights = encoder.weights(log.matrix, cosine=False)
    np.testing.assert_allclose(weights.items, through(encoder, every)[1], atol=1e-6)


def test_neighbours_are_drawn_evenly_with_replacement(log):
    drawn = draw(log.matrix, 400).toarray()
    lengths = np.diff(log.matrix.indptr)
    np.testing.assert_array_equal(drawn.sum(1), np.where(lengths > 0, 400, 0))
    expected = (log.matrix.toarray() > 0) / np.maximum(lengths, 1)[:, None]
    np.testing.assert_allclose(drawn / 400, expected, atol=0.13)


def test_the_gradient_of_links(log):
    links = Links(log.matrix[:6])
    block = torch.randn(25, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(links, (block,))


def test_links_have_the_precision_of_the_vectors(log):
    weighted = row_means(log.matrix)
    for dtype in (torch.float32, torch.float64):
        links, block = Links(weighted), torch.randn(25, 3, dtype=dtype)
        product = links(block)
        assert product.dtype is dtype
        assert links.matrix.dtype == links.transposed.dtype == str(dtype).removeprefix("torch.")
    np.testing.assert_allclose(product, weighted.toarray() @ block.numpy(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("make", [mg.LightGCN, mg.SimpleX, mg.PinSage])
def test_a_fit_in_float64_has_exact_edges(log, make):
    fitted = make(**SMALL).fit(log, dtype="float64", threads=1)
    assert fitted.weights_.items.dtype == np.float64


@pytest.mark.parametrize(
    "make",
    [
        lambda log: SageEncoder(log.matrix, CONTEXT, 4, layers=2, neighbours=6),
        lambda log: PoolingEncoder(log.matrix, CONTEXT, 4, own=0.3),
        lambda log: GraphEncoder(log.matrix, CONTEXT, 4, 3),
    ],
    ids=["PinSage", "SimpleX", "LightGCN"],
)
def test_a_new_user_is_a_user_whose_own_vector_is_0(log, make):
    encoder = make(log)
    with torch.no_grad():
        encoder.parameters["users"][:5] = 0
    nobody = sp.csr_array(log.matrix.shape, dtype=np.float32)  # so that no history is that of a known user
    weights = encoder.weights(nobody, cosine=False)
    if isinstance(encoder, SageEncoder):
        with torch.no_grad():
            expected = encoder.propagate(encoder._every)[0][0][:5].numpy()
    else:
        encoder.forward()
        expected = encoder.users(torch.arange(5)).detach().numpy()
    np.testing.assert_allclose(weights.rows(log.matrix[:5]), expected, atol=1e-6)


def test_weights_of_pin_sage_in_a_file(log):
    weights = SageEncoder(log.matrix, CONTEXT, 4, layers=2, neighbours=6).weights(log.matrix, cosine=False)
    loaded = from_tensors("trained_sage", weights.tensors(), log.matrix)
    assert isinstance(loaded, TrainedSage)
    np.testing.assert_array_equal(loaded.columns(np.arange(25)), weights.columns(np.arange(25)))
    with pytest.raises(ModelFileError, match="'merge'"):
        from_tensors("trained_sage", weights.tensors() | {"merge": np.zeros((2, 4, 4))}, log.matrix)


# SimpleX


def test_simplex_is_its_definition(log):
    encoder = PoolingEncoder(log.matrix, CONTEXT, 4, own=0.3)
    with torch.no_grad():
        encoder.parameters["mixing"].normal_()
    given, dense = values(encoder), (log.matrix.toarray() > 0).astype(float)
    means = dense @ given["items"] / np.maximum(dense.sum(1, keepdims=True), 1)
    expected = 0.3 * given["users"] + 0.7 * means @ given["mixing"].T
    np.testing.assert_allclose(vectors(encoder)[0], expected, atol=1e-6)
    weights = encoder.weights(log.matrix, cosine=True)
    np.testing.assert_allclose(weights.items, unit(given["items"]), rtol=1e-5)
    stranger = np.zeros(25, np.float32)
    stranger[[3, 8]] = 1
    vector = 0.7 * given["mixing"] @ given["items"][[3, 8]].mean(0)
    np.testing.assert_allclose(weights.rows(sp.csr_array(stranger[None]))[0], vector, rtol=1e-5)


def test_simplex_has_cosine_scores(log):
    fitted = model("simplex").fit(log)
    assert fitted.loss == "cosine_contrastive"
    assert np.abs(fitted.score([log.history(0), log.history(1)])).max() <= 1 + 1e-6
