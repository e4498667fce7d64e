"""`monogram models`."""

from __future__ import annotations

import json
from dataclasses import dataclass

import monogram as mg
from monogram.models.registry import MODELS


def test_every_registered_model_is_listed(program):
    @dataclass(kw_only=True, eq=False)
    class Mine(mg.EASE):
        """A model of my own."""

        name = "mine"

    with MODELS.restored():
        mg.register(Mine)
        listed = json.loads(program("models", "--json").out)
        assert [row["model"] for row in listed] == list(MODELS)
    assert listed[-1]["about"] == "A model of my own."
    assert all(row["about"] for row in listed)


def test_what_a_model_needs_and_gives(program):
    rows = {row["model"]: row for row in json.loads(program("models", "--json").out)}
    columns = {name: (row["fit"], row["needs"], row["explains by"]) for name, row in rows.items()}
    assert columns["ease"] == ("closed form", "", "shares")
    assert columns["wrmf"] == ("epochs", "", "shares")
    assert columns["slist"] == ("closed form", "an order of events", "shares")
    assert columns["light_gcn"] == ("gradients", "torch", "differences")
    assert columns["elsa"] == ("gradients", "torch", "shares")
    assert rows["light_gcn"]["about"].startswith("LightGCN (He et al. 2020): ")


def test_the_table(program):
    done = program("models")
    assert done.code == 0
    assert done.err == ""
    assert done.out.splitlines()[0].split() == ["model", "fit", "needs", "explains", "by", "about"]
    assert len(done.out.splitlines()) == 1 + len(MODELS)
