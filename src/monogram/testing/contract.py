"""The contract of a recommender: laws that hold for every model, of this library and of others."""

from __future__ import annotations

import itertools
import tempfile
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from monogram.data.interactions import Interactions
from monogram.errors import DataError, MonogramWarning, NotFittedError, ParameterError, UnknownIdError
from monogram.models.base import Recommender
from monogram.models.files import load
from monogram.testing.worlds import two_tastes

Make = Callable[[], Recommender]
Law = Callable[[Make], None]


def needs(*abilities: str) -> Callable[[Law], Law]:
    """A law that holds only for models with these abilities: class attributes, such as `inductive`, that are true."""

    def mark(law: Law) -> Law:
        law.abilities = abilities  # type: ignore[attr-defined]
        return law

    return mark


def laws_of(model_class: type[Recommender]) -> list[Law]:
    """The laws that a model must keep: those whose abilities it declares."""
    return [law for law in LAWS if all(getattr(model_class, name) for name in getattr(law, "abilities", ()))]


def check_recommender(model_class: type[Recommender], **parameters: Any) -> None:
    """Raise AssertionError with the law, if a model breaks the contract.

    A law that needs an ability is left out for a model that declares not to have it: `inductive` (any history can be
    scored, not only those of the users of the log) and `additive_shares` (the shares of `explain` sum to the score).

    Parameters
    ----------
    model_class : class to check
    parameters : arguments of the class; by default its own defaults

    Examples
    --------
    >>> import monogram as mg
    >>> check_recommender(mg.EASE, l2=5)
    """

    def make() -> Recommender:
        return model_class(**parameters)

    for law in laws_of(model_class):
        try:
            law(make)
        except AssertionError as error:
            raise AssertionError(f"{model_class.__name__}: {law.__doc__} {error}".strip()) from error


def _log(seed: int = 0, users: int = 40, items: int = 17) -> Interactions:
    rng = np.random.default_rng(seed)
    dense = rng.random((users, items)) < rng.uniform(0.1, 0.5, items)
    dense[0], dense[1] = False, True
    names = [f"item {number}é" for number in range(items)]
    matrix = sp.csr_array(dense.astype(np.float32))
    return Interactions.from_csr(
        matrix, users=list(range(100, 100 + users)), items=names, order=rng.permutation(matrix.nnz)
    )


def _lists(model: Recommender, **request: Any) -> dict[Any, list[Any]]:
    lists: dict[Any, list[Any]] = {}
    for row in model.recommend(**request).rows():
        lists.setdefault(row["user"], []).append(row["item"])
    return lists


def _refuses(kind: type[Exception], call: Callable[[], Any], subject: str) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{subject} must raise {kind.__name__}, but raised no such error")


def law_fit(make: Make) -> None:
    """`fit` returns the model, does not change its parameters, and fills `report_`."""
    model = make()
    before = model.params()
    assert model.fit(_log()) is model
    assert model.params() == before
    assert type(model)(**before).params() == before
    assert all(value >= 0 for value in model.report_.seconds.values())
    assert model.report_.residual is None or model.report_.residual < 1e-3


def law_unfitted(make: Make) -> None:
    """Before `fit` every method that needs a fit raises NotFittedError."""
    for call in (
        lambda: make().recommend(),
        lambda: make().score([["a"]]),
        lambda: make().similar(["a"]),
        lambda: make().explain(["a"], "b"),
        lambda: make().save("never.mono"),
    ):
        _refuses(NotFittedError, call, "a method of an unfitted model")


def law_lists(make: Make) -> None:
    """Each list has min(k, eligible) unique items in descending order of finite scores, and no seen item."""
    log = _log()
    model = make().fit(log)
    for k in (1, 5, log.n_items, log.n_items + 50):
        rows = model.recommend(k=k).rows()
        for user in log.users:
            own = [row for row in rows if row["user"] == user]
            seen = log.history(user)
            items = [row["item"] for row in own]
            assert len(items) == len(set(items)) == min(k, log.n_items - len(seen)), f"user {user}, k = {k}"
            assert not set(items) & set(seen), f"user {user}, k = {k}: a seen item is in the list"
            assert [row["rank"] for row in own] == list(range(1, len(own) + 1))
            scores = [row["score"] for row in own]
            assert np.isfinite(scores).all()
            assert scores == sorted(scores, reverse=True)


@needs("inductive")
def law_ties(make: Make) -> None:
    """`recommend` ranks by the values of `score`; equal scores are ranked by the lower index."""
    log = _log(3)
    model = make().fit(log)
    order = {item: place for place, item in enumerate(log.items)}
    for user in list(log.users)[:12]:
        history = log.history(user)
        scores = dict(zip(log.items, model.score([history])[0], strict=True))
        for row in model.recommend([user], k=log.n_items).rows():
            assert abs(row["score"] - scores[row["item"]]) <= 1e-6 * max(1, abs(row["score"]))
        rows = model.recommend([user], k=log.n_items).rows()
        for above, below in itertools.pairwise(rows):
            assert above["score"] > below["score"] or order[above["item"]] < order[below["item"]]


@needs("inductive")
def law_same_history(make: Make) -> None:
    """The same history gives the same list for a known user, in a batch, and alone."""
    log = _log(1)
    model = make().fit(log)
    known = _lists(model, k=7)
    batched = _lists(model, histories=[log.history(user) for user in log.users], k=7)
    alone = {n: _lists(model, histories=[list(log.history(user))], k=7).get(0, []) for n, user in enumerate(log.users)}
    for position, user in enumerate(log.users):
        assert known.get(user, []) == batched.get(position, []) == alone[position], f"user {user}"


def law_rules(make: Make) -> None:
    """`allow` restricts the items and `deny` excludes items, for all requests or for each; unknown ids are reported."""
    log = _log(2)
    model = make().fit(log)
    names = list(log.items)
    allowed = _lists(model, k=99, allow=[*names[:6], "nowhere"])
    denied = _lists(model, k=99, deny=names[:6])
    everything = _lists(model, k=99)
    for user in log.users:
        assert allowed.get(user, []) == [item for item in everything.get(user, []) if item in names[:6]]
        assert denied.get(user, []) == [item for item in everything.get(user, []) if item not in names[:6]]
    each = model.recommend([100, 100], allow=[names[:2], []], deny=[[names[0]], []])
    assert [(row["user"], row["item"]) for row in each.rows()] == [(100, names[1])]
    assert model.recommend(k=3, allow=["nowhere"]).unknown_items == ("nowhere",)
    seen = model.recommend([101], k=99, exclude_seen=False)
    assert len(seen) == log.n_items


def law_unknown_users(make: Make) -> None:
    """Unknown users are reported in the result and are not errors."""
    result = make().fit(_log()).recommend([101, "stranger", None, 102], k=2)
    assert result.unknown_users == ("stranger", None)
    assert {row["user"] for row in result.rows()} <= {101, 102}


@needs("inductive")
def law_unknown(make: Make) -> None:
    """Unknown items and empty histories are reported in the result and are not errors."""
    model = make().fit(_log())
    result = model.recommend(histories=[["item 1é", "lost"], [], ["lost"]], k=2)
    assert result.unknown_items == ("lost",)
    assert result.empty == (1, 2)
    assert [row["user"] for row in result.rows()] == [0, 0, 1, 1, 2, 2]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = model.score([["item 1é"]], ["item 2é", "lost"])
    assert np.isfinite(scores[0, 0])
    assert np.isnan(scores[0, 1])
    assert any(issubclass(warning.category, MonogramWarning) for warning in caught), (
        "score with an unknown item must warn"
    )
    assert model.similar(["lost"]).unknown_items == ("lost",)
    _refuses(UnknownIdError, lambda: model.explain(["item 1é"], "lost"), "explain of an unknown item")


def law_refusals(make: Make) -> None:
    """An invalid argument raises ParameterError."""
    model = make().fit(_log())
    for call in (
        lambda: model.recommend(k=0),
        lambda: model.recommend(k=2.5),  # type: ignore[arg-type]
        lambda: model.recommend(users=[101], histories=[["item 1é"]]),
        lambda: model.recommend(histories=["item 1é"]),
        lambda: model.recommend(histories=[{"item 1é": -1.0}]),
        lambda: model.recommend([101], allow=[["item 2é"], ["item 3é"]]),
        lambda: make().fit(_log(), dtype="float16"),
        lambda: make().fit(_log(), solver="guess"),
        lambda: make().fit(_log(), threads=0),
    ):
        _refuses(ParameterError, call, "an invalid argument")


@needs("inductive", "additive_shares")
def law_explain(make: Make) -> None:
    """The shares of an explanation sum to the score, within 1e-6."""
    log = _log(4)
    model = make().fit(log)
    for history in (log.history(103), list(log.items)[2:5], []):
        for item in list(log.items)[:8]:
            explained = model.explain(history, item)
            score = model.score([history], [item])[0, 0]
            assert abs(sum(row["share"] for row in explained.rows()) - score) <= 1e-6 * max(1, abs(score))
            assert abs(explained.score - score) <= 1e-6 * max(1, abs(score))
            assert [source for source, _ in explained.shares] == sorted(history, key=list(log.items).index)


def law_abilities(make: Make) -> None:
    """A model has the abilities that it declares, and refuses what it declares not to be able to do."""
    model = make().fit(_log(4))
    assert model.weights_.additive or not model.additive_shares, "additive_shares is declared, the weights have none"
    explained = model.explain(item="item 2é", user=103)
    assert explained.additive == model.weights_.additive
    assert np.isfinite([row["share"] for row in explained.rows()]).all()
    if not model.inductive:
        for call in (
            lambda: model.recommend(histories=[["item 1é"]]),
            lambda: model.score([["item 1é"]]),
            lambda: model.similar(["item 1é"]),
            lambda: model.explain(["item 1é"], "item 2é"),
        ):
            _refuses(ParameterError, call, "a history, for a model that is not inductive,")


@needs("inductive")
def law_differences(make: Make) -> None:
    """Without additive shares, `explain` gives how much the score falls without each one item of the history."""
    log = _log(4)
    model = make().fit(log)
    if model.weights_.additive:
        return
    history = list(log.items)[2:6]
    for item in list(log.items)[:8]:
        explained, score = model.explain(history, item), model.score([history], [item])[0, 0]
        assert abs(explained.score - score) <= 1e-6 * max(1, abs(score))
        for source, difference in explained.shares:
            without = model.score([[other for other in history if other != source]], [item])[0, 0]
            assert abs(difference - (score - without)) <= 1e-6 * max(1, abs(score))
    known = model.explain(item=item, user=103)
    assert abs(known.score - model.score([log.history(103)], [item])[0, 0]) <= 1e-6


@needs("inductive")
def law_similar(make: Make) -> None:
    """`similar` does not return the item itself, and its scores are those of a history of that item."""
    log = _log(5)
    model = make().fit(log)
    rows = model.similar(list(log.items)[:4], k=6).rows()
    assert len(rows) == 24
    assert all(row["item"] != row["similar"] for row in rows)
    weights = model.item_weights()
    assert weights.shape == (log.n_items, log.n_items)
    for row in rows:
        single = model.score([[row["item"]]], [row["similar"]])[0, 0]
        assert abs(single - row["score"]) <= 1e-6 * max(1, abs(single))


def law_ids(make: Make) -> None:
    """String, integer and UUID ids are returned unchanged."""
    matrix = sp.csr_array(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], np.float32))
    for ids in (["a b", "ü", "007"], [30, 10, 20], [uuid.UUID(int=n) for n in (5, 1, 9)]):
        model = make().fit(Interactions.from_csr(matrix, users=ids, items=ids, order=[0, 1, 0, 1, 0, 1]))
        rows = model.recommend(ids).rows()
        assert [row["user"] for row in rows] == ids
        assert [row["item"] for row in rows] == [ids[2], ids[0], ids[1]]
        assert [type(row["item"]) for row in rows] == [type(ids[0])] * 3


def law_refit(make: Make) -> None:
    """A second `fit` replaces the first; after a failed `fit` the model is unfitted."""
    model = make().fit(_log(1))
    fresh = make().fit(_log(2))
    assert model.fit(_log(2)).recommend(k=5).rows() == fresh.recommend(k=5).rows()
    _refuses(Exception, lambda: model.fit([]), "fit on an empty log")
    _refuses(NotFittedError, model.recommend, "a model whose fit failed")


def law_determinism(make: Make) -> None:
    """The same input gives the same output for any number of threads; the log is not changed."""
    log = _log(6)
    before = (log.matrix.data.copy(), log.matrix.indices.copy())
    first = make().fit(log, threads=1)
    second = make().fit(log, threads=2)
    assert first.recommend(k=5, threads=1).rows() == first.recommend(k=5, threads=3).rows()
    if first.inductive:
        np.testing.assert_allclose(first.item_weights(), second.item_weights(), atol=1e-5)
    np.testing.assert_array_equal(before[0], log.matrix.data)
    np.testing.assert_array_equal(before[1], log.matrix.indices)


def law_files(make: Make) -> None:
    """A model that is saved and loaded gives bit-identical results."""
    log = _log(7)
    model = make().fit(log)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a model.mono"
        model.save(path)
        loaded = load(path, models=[type(model)])
        assert loaded.params() == model.params()
        assert loaded.report_ == model.report_
        assert loaded.recommend(k=6).to_arrow().equals(model.recommend(k=6).to_arrow())
        if model.inductive:
            np.testing.assert_array_equal(loaded.item_weights(), model.item_weights())
        copy = Path(folder) / "copy.mono"
        loaded.save(copy)
        assert copy.read_bytes() == path.read_bytes(), "a loaded model is saved with other bytes"


def law_sources(make: Make) -> None:
    """`fit` accepts a log, a matrix, or pairs of ids, with the same result; a model that needs an order refuses it."""
    log, _, _ = two_tastes()
    if make().needs_order:
        _refuses(DataError, lambda: make().fit(log), "a log without an order of events")
        _refuses(DataError, lambda: make().plan(log), "a plan for a log without an order of events")
        return
    pairs = [(user, item) for user in log.users for item in log.history(user)]
    expected = make().fit(log).recommend(k=3).rows()
    assert make().fit(pairs).recommend(k=3).rows() == expected
    numbered = make().fit(log.matrix).recommend(k=3).rows()
    names = list(log.items)
    assert [names[row["item"]] for row in numbered] == [row["item"] for row in expected]


LAWS: tuple[Law, ...] = (
    law_fit,
    law_unfitted,
    law_lists,
    law_ties,
    law_same_history,
    law_rules,
    law_unknown_users,
    law_unknown,
    law_refusals,
    law_explain,
    law_abilities,
    law_differences,
    law_similar,
    law_ids,
    law_refit,
    law_determinism,
    law_files,
    law_sources,
)
