from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from monogram.data.interactions import Interactions
from monogram.data.sample import genres, sample
from monogram.errors import ParameterError


@pytest.fixture(scope="module")
def log() -> Interactions:
    return sample()


@pytest.fixture(scope="module")
def parted(log: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """A fifth of each user's events held out: what was seen, what was hidden."""
    used = log.matrix.toarray() > 0
    luck = np.where(used, np.random.default_rng(0).random(used.shape), 2.0)
    place = luck.argsort(axis=1).argsort(axis=1)
    hidden = place < used.sum(axis=1, keepdims=True) // 5
    return (used & ~hidden).astype(float), hidden


def recall(scores: np.ndarray, seen: np.ndarray, hidden: np.ndarray, k: int = 20) -> float:
    top = np.argsort(np.where(seen > 0, np.inf, -scores), axis=1, kind="stable")[:, :k]
    hits = np.take_along_axis(hidden, top, axis=1).sum(axis=1)
    return float((hits / hidden.sum(axis=1)).mean())


def ease(seen: np.ndarray, l2: float) -> np.ndarray:
    inverse = np.linalg.inv(seen.T @ seen + l2 * np.eye(seen.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return seen @ weights


def test_same_seed_same_log(log: Interactions) -> None:
    again = sample(1)
    assert list(again.users) == list(log.users)
    assert list(again.items) == list(log.items)
    assert (again.matrix != log.matrix).nnz == 0
    np.testing.assert_array_equal(again.times, log.times)


def test_another_seed_another_log(log: Interactions) -> None:
    other = sample(2)
    assert other.matrix.shape == log.matrix.shape
    assert list(other.items) != list(log.items)
    assert list(other.items) == list(genres(2))


def test_sizes(log: Interactions) -> None:
    assert log.matrix.shape == (3000, 800)
    assert 60_000 <= log.matrix.nnz <= 90_000
    assert log.matrix.dtype == np.float32
    assert set(log.matrix.data.tolist()) == {1.0}
    events = np.diff(log.matrix.indptr)
    assert events.min() >= 8
    assert events.max() <= 85


def test_times_are_seconds_of_one_year(log: Interactions) -> None:
    assert log.times is not None
    assert log.times.dtype == np.int64
    days = log.times.astype("datetime64[s]")
    assert days.min() >= np.datetime64("2024-01-01")
    assert days.max() < np.datetime64("2025-01-01")
    assert np.ptp(log.times) > 350 * 86_400


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_titles_are_unique_and_readable(seed: int) -> None:
    titles = list(genres(seed))
    assert len(titles) == 800
    for title in titles:
        assert re.fullmatch(r"[A-Z][a-z]+( [A-Za-z][a-z]+){1,5}", title), title


def test_user_ids_are_unique_and_readable(log: Interactions) -> None:
    ids = list(log.users)
    assert len(set(ids)) == 3000
    assert all(type(name) is str and re.fullmatch(r"[a-z]+-\d{4}", name) for name in ids)


def test_every_title_has_one_of_twelve_genres(log: Interactions) -> None:
    known = genres()
    assert list(known) == list(log.items)
    sizes = Counter(known.values())
    assert len(sizes) == 12
    assert min(sizes.values()) >= 30


def test_popularity_has_a_long_tail(log: Interactions) -> None:
    users = np.sort(np.bincount(log.matrix.indices, minlength=800))[::-1]
    assert 0.18 < users[0] / 3000 < 0.27
    assert users[:80].sum() > 0.35 * users.sum()
    assert np.median(users) < 60
    assert users[-40:].mean() < 10
    assert users.min() >= 3


def test_users_keep_to_their_genres(log: Interactions) -> None:
    names = sorted(set(genres().values()))
    of_genre = np.array([[kind == name for name in names] for kind in genres().values()], dtype=float)
    shares = log.matrix @ of_genre
    three = np.sort(shares, axis=1)[:, -3:].sum(axis=1) / shares.sum(axis=1)
    assert three.mean() > 0.6


def test_a_linear_autoencoder_finds_what_popularity_does_not(parted: tuple[np.ndarray, np.ndarray]) -> None:
    seen, hidden = parted
    chance = recall(np.random.default_rng(1).random(seen.shape), seen, hidden)
    popular = recall(np.broadcast_to(seen.sum(axis=0), seen.shape), seen, hidden)
    learned = recall(ease(seen, 100.0), seen, hidden)
    assert popular > 2 * chance
    assert learned > 2 * popular
    assert learned < 0.6  # a task, not a toy


def test_negative_seed() -> None:
    with pytest.raises(ParameterError, match="seed"):
        sample(-1)
