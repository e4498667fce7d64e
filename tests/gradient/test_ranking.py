"""Encoders × losses: the objective of a batch, propagation, new users, and every pair fitted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram.engine.iterative import rg2
from monogram.errors import ParameterError
from monogram.planning.gradient_costs import gradient
from monogram.planning.size import Size
from monogram.testing import check_recommender
from monogram.weights import TrainedSum

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram.engine.iterative.rg2_encoded import EncodedPoint, identity  # noqa: E402
from monogram.gradient import losses  # noqa: E402
from monogram.gradient import pairs as pairs_module  # noqa: E402
from monogram.gradient.encoders import FactorEncoder, GraphEncoder, TableEncoder  # noqa: E402
from monogram.gradient.graph import Graph, Smoothing, rows_of  # noqa: E402
from monogram.gradient.negatives import Proposal  # noqa: E402
from monogram.gradient.newton import Rg2Training  # noqa: E402
from monogram.gradient.pair_scores import pair_scores, squared_norms  # noqa: E402
from monogram.gradient.pairs import ListTraining, LossSettings, PairTraining  # noqa: E402
from monogram.gradient.ranking import ALL_ITEMS, LOSSES, OF_COSINES, SAMPLED  # noqa: E402
from monogram.gradient.trainer import Context  # noqa: E402

CONTEXT = Context(dtype="float64")


@pytest.fixture
def log(world):
    return mg.Interactions.from_csr(world)


def adjacency(matrix):
    """Â of users and items, dense, by its definition."""
    dense = (matrix.toarray() > 0).astype(float)
    whole = np.block([[np.zeros((len(dense),) * 2), dense], [dense.T, np.zeros((dense.shape[1],) * 2)]])
    degrees = np.maximum(whole.sum(1), 1)
    return whole / np.sqrt(np.outer(degrees, degrees))


def encoder(log, layers=2, rank=3):
    torch.manual_seed(1)
    return GraphEncoder(log.matrix, CONTEXT, rank, layers)


def test_propagation_is_the_mean_of_powers_of_the_adjacency(log):
    graph = encoder(log, layers=3)
    start = np.vstack([graph.parameters[name].detach().numpy() for name in ("users", "items")])
    a = adjacency(log.matrix)
    expected = sum(np.linalg.matrix_power(a, k) @ start for k in range(4)) / 4
    graph.forward()
    actual = np.vstack([graph.users(torch.arange(60)).detach(), graph.items().detach()])
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    np.testing.assert_allclose(graph.items(torch.tensor([4, 2])).detach(), expected[[64, 62]], atol=1e-6)


def test_the_gradient_of_the_propagation(log):
    graph = Graph(log.matrix[:8])
    users, items = (torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (8, 25))
    assert torch.autograd.gradcheck(lambda u, i: Smoothing.apply(u, i, graph, 2), (users, items), atol=1e-6)


def test_threads_change_no_bit_of_a_product(log):
    pair = torch.randn(60, 5), torch.randn(25, 5)
    one, two = (Graph(log.matrix, threads=threads).smooth(*pair, 3) for threads in (1, 2))
    assert all(torch.equal(left, right) for left, right in zip(one, two, strict=True))


@pytest.mark.parametrize("width", [5, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_multiplies_as_torch_does(log, width, dtype):
    links, users, items = Graph(log.matrix).links, *(torch.randn(n, width, dtype=dtype) for n in (60, 25))
    dense = torch.from_numpy(links.matrix.toarray()).to(dtype)
    torch.testing.assert_close(links.times(items), dense @ items)
    torch.testing.assert_close(links.times(items, users), users + dense @ items)
    torch.testing.assert_close(links.transpose_times(users, items), items + dense.T @ users)


def test_scores_and_norms_by_tables_have_their_gradients():
    users, items = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (6, 4))
    pairs = torch.tensor([0, 5, 5, 2]), torch.tensor([3, 0, 0, 1])
    torch.testing.assert_close(pair_scores(users, items, pairs, 2), (users[pairs[0]] * items[pairs[1]]).sum(1))
    assert torch.autograd.gradcheck(lambda x, y: pair_scores(x, y, pairs, 2), (users, items))
    norms = squared_norms(users, pairs[0], 1)
    torch.testing.assert_close(norms, users[pairs[0]].square().sum(1))
    norms.sum().backward()
    torch.testing.assert_close(users.grad, 2 * torch.tensor([[1], [0], [1], [0], [0], [2]]) * users.detach())


@pytest.mark.parametrize("loss", ["bpr", "bce"])
def test_a_large_batch_has_the_loss_and_gradients_of_a_small_one(log, monkeypatch, loss):
    context, settings = CONTEXT, LossSettings(name=loss, batch=50, negatives=3, l2=0.1)
    training = PairTraining(log.matrix, context, TableEncoder(log.matrix, context, 5), settings)
    batch, results = next(training.batches()), []
    for many in (1, 10**9):
        monkeypatch.setattr(pairs_module, "MANY", many)
        value = training.loss(batch)
        results.append((value, *torch.autograd.grad(value, list(training.parameters.values()))))
    torch.testing.assert_close(*results)


def test_sparse_gradients_of_rows_are_smoothed_as_dense_ones(log):
    graph, index = Graph(log.matrix), torch.tensor([3, 5, 3])
    pair = [torch.randn(n, 4, requires_grad=True) for n in (60, 25)]
    users, items = Smoothing.apply(*pair, graph, 2)
    first = torch.autograd.grad((rows_of(users, index) * rows_of(items, index)).square().sum(), pair, retain_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad((users[index] * items[index]).square().sum(), pair))


def test_a_new_user_has_the_vector_of_one_propagation(log):
    """A user without parameters, added to the graph: with large degrees the item vectors hardly change."""
    graph = encoder(log, layers=2)
    weights = graph.weights(log.matrix, cosine=False)
    assert isinstance(weights, TrainedSum)
    history = np.zeros(25, np.float32)
    history[[1, 4, 9]] = 1
    a, start = adjacency(log.matrix), np.vstack([p.detach().numpy() for p in graph.parameters.values()])
    layers = [np.linalg.matrix_power(a, k) @ start for k in range(2)]
    degrees = log.matrix.toarray().sum(0)
    user = sum(layer[60 + i] / np.sqrt(degrees[i] * 3) for layer in layers for i in (1, 4, 9)) / 3
    vector = weights.rows(sp.csr_array(history[None]))[0]
    np.testing.assert_allclose(vector, user, atol=1e-6)
    known = weights.rows(log.matrix)
    graph.forward()
    np.testing.assert_allclose(known[0], graph.users(torch.tensor([0])).detach()[0], atol=1e-6)


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("number", [1, 4])
def test_the_loss_of_a_batch_of_pairs(log, name, cosine, number):
    """The loss of each name, from the vectors by plain indexing, with the temperature and the penalty."""
    graph, temperature = encoder(log), 1.0 if name in OF_COSINES else 0.5
    settings = LossSettings(
        name=name,
        batch=9,
        negatives=number,
        proposal="log_popularity",
        cosine=cosine,
        temperature=temperature,
        margin=0.4,
        l2=0.2,
    )
    training = PairTraining(log.matrix, CONTEXT, graph, settings)
    users, items, others = next(iter(training.batches()))
    others_of_all = others.expand(9, -1)
    graph.forward()
    vectors = [graph.users(users), graph.items(items), graph.items(others_of_all)]
    if cosine:
        vectors = [part / part.norm(dim=-1, keepdim=True) for part in vectors]
    p, q, r = (part.detach() for part in vectors)
    scores = (p * q).sum(1) / temperature, (p[:, None] * r).sum(2) / temperature
    own = {key: values.detach() for key, values in training.parameters.items()}
    log_q = Proposal(log.matrix, "log_popularity").probabilities.log()
    expected = {
        "bpr": lambda: losses.bpr(*scores),
        "bce": lambda: losses.bce(*scores),
        "sampled_softmax": lambda: losses.sampled_softmax(*scores, log_q[items], log_q[others_of_all]),
        "cosine_contrastive": lambda: losses.cosine_contrastive(*scores, 0.4, 1.0),
        "uib": lambda: losses.uib(*scores, own["boundary"][users], 0.4),
        "sml": lambda: losses.sml(
            *scores, (q[:, None] * r).sum(2), (torch.full((9,), 0.2), torch.full((9,), 0.2)), 1.0, 0.1
        ),
    }[name]()
    base = [own["users"][users], own["items"][items]]
    base.append(own["items"][others[:, 0] if others.shape[0] == 9 else others[0]])
    expected = expected + 0.2 / 2 * sum(part.square().sum(1).mean() for part in base)
    assert training.loss((users, items, others)).item() == pytest.approx(expected.item(), rel=1e-7)


@pytest.mark.parametrize("name", ALL_ITEMS)
def test_the_loss_of_a_batch_of_users(log, name):
    torch.manual_seed(2)
    factors = FactorEncoder(log.matrix, CONTEXT, 3)
    training = ListTraining(log.matrix, CONTEXT, factors, LossSettings(name=name, batch=11, temperature=0.2, l2=0.1))
    batches = list(training.batches())
    seen = sp.csr_array(log.matrix.shape)
    for users, rows, items in batches:
        seen += sp.csr_array((np.ones(len(rows)), (users[rows].numpy(), items.numpy())), shape=seen.shape)
    assert abs(seen - (log.matrix > 0)).max() == 0
    users, rows, items = batches[0]
    p, q = (factors.parameters[key].detach() for key in ("users", "items"))
    expected = getattr(losses, name)(p[users] @ q.T / 0.2, rows, items)
    expected += 0.1 / 2 * (p[users[rows]].square().sum() + q[items].square().sum()) / len(rows)
    assert training.loss(batches[0]).item() == pytest.approx(expected.item(), rel=1e-10)


def test_the_proposal():
    matrix = sp.csr_array(np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0]], np.float32))
    proposal = Proposal(matrix, "log_popularity")
    expected = np.log1p([3, 1, 1, 0])
    np.testing.assert_allclose(proposal.probabilities, expected / expected.sum())
    torch.manual_seed(0)
    drawn = np.bincount(proposal.draw(20_000), minlength=4) / 20_000
    np.testing.assert_allclose(drawn, expected / expected.sum(), atol=0.02)
    assert drawn[3] == 0
    np.testing.assert_allclose(Proposal(matrix, "uniform").probabilities, 0.25)


# RG² without sampling.


def objective(problem, layers, graph, users, items):
    """RG² by its definition, as an operation of torch."""
    smooth = Smoothing.apply(users, items, graph, layers) if layers else (users, items)
    target = torch.from_numpy(problem.matrix.toarray()) - 1
    weights = torch.from_numpy(problem.weights)
    fit = (weights[:, None] * (target - smooth[0] @ smooth[1].T).square()).sum()
    penalties = torch.from_numpy(problem.user_penalties)
    return fit + (penalties[:, None] * users.square()).sum() + problem.item_ridge * items.square().sum()


@pytest.mark.parametrize("layers", [0, 2])
def test_value_and_gradient_of_rg2_are_those_of_autograd(log, layers):
    training = Rg2Training(log.matrix, encoder(log, layers), 0.05, 0)
    point = training.point()
    parameters = training.parameters["users"], training.parameters["items"]
    value = objective(training.problem, layers, training.encoder.graph, *parameters)
    assert point.value == pytest.approx(value.item(), rel=1e-10)
    value.backward()
    for half, whole in zip(point.gradient(), parameters, strict=True):
        np.testing.assert_allclose(2 * half, whole.grad, atol=1e-7)


def test_the_gauss_newton_matrix(log):
    """J·diag(w)·Jᵀ plus the penalties, J the derivative of the scores, by finite differences."""
    from monogram.engine.iterative.rg2_encoded import EncodedGaussNewton

    training = Rg2Training(log.matrix, encoder(log, 2), 0.05, 0)
    point, rng = training.point(), np.random.default_rng(0)
    step = tuple(rng.normal(size=side.shape) for side in point.pair)
    image = EncodedGaussNewton(point).times(step)

    def scores(length):
        moved = tuple(side + length * change for side, change in zip(point.pair, step, strict=True))
        users, items = point.encode(moved)
        return users @ items.T

    slope = (scores(1e-5) - scores(-1e-5)) / 2e-5
    penalty = (point.problem.user_penalties[:, None] * step[0] ** 2).sum() + point.problem.item_ridge * (
        step[1] ** 2
    ).sum()
    expected = (point.problem.weights[:, None] * slope**2).sum() + penalty
    assert sum(np.vdot(a, b) for a, b in zip(step, image, strict=True)) == pytest.approx(expected, rel=1e-6)


def test_rg2_on_zero_layers_is_the_closed_form(log):
    closed = mg.RG2(rank=6, l2=0.2).fit(log, dtype="float64")
    problem = rg2.problem(log.matrix, 0.2, dtype="float64")
    for model in (mg.LightGCN(layers=0, loss="rg2", rank=6, l2=0.2, epochs=300),
                  mg.Factorization(loss="rg2", rank=6, l2=0.2, epochs=300)):  # fmt: skip
        model.fit(log, dtype="float64")
        weights = model.weights_
        product = weights.users @ weights.items.T
        singular = np.linalg.svd(np.sqrt(problem.weights)[:, None] * (problem.matrix.toarray() - 1))[1][:6]
        shrunk = np.maximum(singular - 0.2 / np.sqrt(2), 0)
        best = problem.constant - (2 * singular * shrunk - shrunk**2).sum() + np.sqrt(2) * 0.2 * shrunk.sum()
        assert model.report_.objectives[-1] == pytest.approx(best, rel=1e-6)
        users = list(range(60))
        expected = closed.score([log.history(user) for user in users])
        active = np.diff(log.matrix.indptr) > 0
        np.testing.assert_allclose(product[active], expected[active], atol=2e-3 * np.abs(expected).max())


def test_rg2_on_a_graph_descends_and_ends(log):
    model = mg.LightGCN(layers=2, loss="rg2", rank=4, l2=0.05, epochs=400).fit(log, dtype="float64")
    values = np.array(model.report_.objectives)
    assert (np.diff(values) <= 1e-12).all()
    training = Rg2Training(log.matrix, encoder(log, 2, rank=4), 0.05, 0)
    users, items = (torch.from_numpy(np.array(side)).requires_grad_(True) for side in training.point().pair)
    general = torch.optim.LBFGS([users, items], max_iter=2000, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        general.zero_grad()
        value = objective(training.problem, 2, training.encoder.graph, users, items)
        value.backward()
        return value

    general.step(closure)
    assert values[-1] <= closure().item() * 1.01
    again = mg.LightGCN(layers=2, loss="rg2", rank=4, l2=0.05, epochs=400).fit(log, dtype="float64", threads=2)
    np.testing.assert_allclose(again.weights_.users, model.weights_.users, atol=1e-6)


def test_the_identity_is_the_plain_objective(log):
    problem = rg2.problem(log.matrix, 0.1, dtype="float64")
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(60, 3)), rng.normal(size=(25, 3))
    point = EncodedPoint.at(problem, identity, (users, items))
    assert point.value == pytest.approx(problem.objective(users, items), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [mg.Factorization, mg.LightGCN])
def test_every_encoder_learns_with_every_loss(kind, loss):
    """Two groups of users with items of their own: each user is given an item of the group."""
    rng = np.random.default_rng(0)
    dense = np.zeros((60, 24), np.float32)
    for user in range(60):
        own = np.arange(12) + 12 * (user % 2)
        dense[user, rng.choice(own, 6, replace=False)] = 1
    log = mg.Interactions.from_csr(sp.csr_array(dense))
    strength = {"l2": 0.05, "epochs": 30} if loss == "rg2" else {"l2": 1e-3, "epochs": 12, "learning_rate": 0.05}
    model = kind(loss=loss, rank=4, batch=60, negatives=20, **strength).fit(log, threads=1)
    assert model.report_.objectives[-1] < model.report_.objectives[0]
    rows = model.recommend(k=3).rows()
    right = np.mean([(row["item"] >= 12) == row["user"] % 2 for row in rows])
    assert right > 0.95
    strangers = model.recommend(histories=[[0, 1, 2], [13, 14, 15]], k=3).rows()
    assert all((row["item"] >= 12) == row["user"] for row in strangers)


@pytest.mark.parametrize(
    "parameters",
    [
        {"layers": 2},
        {"layers": 2, "loss": "sampled_softmax", "cosine": True, "temperature": 0.2, "negatives": 9},
        {"layers": 0, "loss": "softmax"},
        {"layers": 2, "loss": "rg2", "l2": 0.1},
    ],
    ids=["bpr", "SSM (GNN)", "softmax", "rg2"],
)
def test_the_contract(parameters):
    check_recommender(mg.LightGCN, **({"rank": 3, "epochs": 2, "batch": 100} | parameters))


def test_a_number_of_negatives_is_whole():
    assert isinstance(mg.LightGCN(negatives=2.0).negatives, int)
    assert mg.LightGCN().negatives is None
    with pytest.raises(ParameterError, match=r"negatives = 2\.5; expected a whole number"):
        mg.LightGCN(negatives=2.5)


def test_the_text_form_is_short():
    assert repr(mg.LightGCN(layers=2, batch=100)) == "LightGCN(batch=100, layers=2)"


def test_cosine_scores_of_known_users_are_cosines(log):
    model = mg.LightGCN(rank=4, epochs=2, cosine=True, loss="sampled_softmax", temperature=0.1, layers=1).fit(log)
    scores = model.score([log.history(user) for user in (0, 1, 2)])
    assert np.abs(scores).max() <= 1 + 1e-6
    np.testing.assert_allclose(np.linalg.norm(model.weights_.items, axis=1)[[0, 5]], 1, rtol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [{"loss": "rg2", "cosine": True}, {"loss": "sml", "margin": 0}, {"layers": -1}, {"temperature": 0},
     {"loss": "sml", "temperature": 0.5}, {"loss": "cosine_contrastive", "temperature": 2},
     {"proposal": "guess"}, {"loss": "rg2", "device": "cuda"}],
)  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ParameterError):
        mg.LightGCN(**wrong)


def test_the_plan_grows_with_layers_and_with_all_items():
    size = (20_000, 10_000, 300_000)
    plain = mg.LightGCN(layers=1).plan(size).chosen
    deep, full = (mg.LightGCN(**one).plan(size).chosen for one in ({"layers": 4}, {"loss": "softmax"}))
    assert deep.seconds > plain.seconds
    assert full.bytes > plain.bytes
    assert dataclasses.replace(mg.LightGCN(loss="softmax", batch=128)).plan(size).chosen.bytes < full.bytes


def test_products_with_the_graph_are_faster_than_lookups():
    size = Size(20_000, 10_000, 400_000, 8e6, 1.6e7)
    plain, graph = (kind(batch=50_000, epochs=1).training_cost(size) for kind in (mg.Factorization, mg.LightGCN))
    assert graph.lookups == plain.lookups
    assert graph.products == 4 * 8 * 3 * 400_000 * 64, "two sides and their gradients, batches, layers, events, rank"
    seconds = [gradient("adam", size, needs).seconds for needs in (plain, graph)]
    assert seconds[1] - seconds[0] < 2, "one thread took 0.8 s for these products"
    for kind in (mg.SGL, mg.PinSage, mg.SimpleX):
        assert kind().training_cost(size).products > 0


def test_tune_searches_with_optuna_and_stops_by_epochs(log):
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    space = {"factorization": {"epochs": 4, "rank": 3, "batch": 128, "loss": ["bpr", "softmax"]}}
    tuning = mg.tune(log, "factorization", space=space, metric="ndcg@5", budget="6 settings")
    tried = [row["parameters"] for row in tuning.rows() if row["model"] == "factorization"]
    assert {row["loss"] for row in tried} <= {"bpr", "softmax"}
    assert len({row["learning_rate"] for row in tried}) > 1
    assert tuning.model.name == "factorization"
