"""A made-up paper on made-up lists, and a folder with their file."""

from __future__ import annotations

import numpy as np
import pytest

from monogram.reproduce.paper import Paper, PaperTable, Row, swept

HERE = {"gowalla": {"l2": 10.0, "dropout": 0.3}}
EASE = Row(name="EASE", model="ease", settings={"gowalla": {"l2": 10.0}}, printed={"gowalla": (0.9, 0.0)})
DEQL = Row(name="DEQL", model="deql", settings=HERE, printed={"gowalla": (0.1, None)})
ROWS = (
    Row(name="Deep", printed={"gowalla": (0.5, 0.5), "yelp2018": (0.4, 0.4)}, note="not in this library"),
    EASE,
    DEQL,
    Row(name="DLAE", model="dlae", settings={"yelp2018": {"l2": 1.0}}, printed={"gowalla": (0.1, 0.1)}),
)
PAPER = Paper(
    name="tiny",
    title="Tiny & made up",
    source="nowhere",
    protocol="lightgcn",
    question="Is it good?",
    main="table 1",
    tables=(
        PaperTable(
            name="table 1", title="All", metrics=("recall@5", "ndcg@5"), data=("gowalla", "yelp2018"), rows=ROWS
        ),
        PaperTable(
            name="figure b",
            title="b",
            metrics=("recall@5",),
            data=("gowalla",),
            rows=swept(DEQL, "b", (0.0, 0.5, 1.0), ("gowalla",)),
            axis=("b",),
            marks=("DEQL",),
        ),
    ),
)


def write_lists(path, users=40, items=25, order=None):
    """Train and test lists; with `order`, a generator of orders, the events of each user stand in that order."""
    rng = np.random.default_rng(1)
    used = rng.random((users, items)) < 0.4
    test = used & (rng.random((users, items)) < 0.3)
    train = used & ~test
    arrays = {}
    for name, part in (("train", train), ("test", test)):
        arrays[f"{name}_indptr"] = np.concatenate([[0], np.cumsum(part.sum(axis=1))]).astype(np.int32)
        rows = [np.flatnonzero(row) for row in part]
        rows = rows if order is None else [row[order.permutation(len(row))] for row in rows]
        arrays[f"{name}_indices"] = np.concatenate(rows).astype(np.int32)
    np.savez(path, shape=np.array([users, items]), **arrays)


@pytest.fixture
def paper():
    return PAPER


@pytest.fixture
def lists():
    return write_lists


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "data"
    made.mkdir()
    write_lists(made / "gowalla.npz")
    return made
