"""Settings are chosen without the test part."""

from __future__ import annotations

import numpy as np
import pytest

import monogram as mg
from monogram.errors import DataError, StorageError
from monogram.reproduce import sets, tuned
from monogram.reproduce.cache import Cache
from monogram.reproduce.paper import Row
from monogram.reproduce.runner import Runner, Selection
from monogram.reproduce.tuned import Tuned


def test_another_test_part_gives_the_same_settings(paper, folder, tmp_path):
    def chosen(at):
        runner = Runner(folder, Cache(tmp_path / at), choose=Tuned(tmp_path / at, "40 settings", {}))
        cells = runner.run(paper, Selection(data=["gowalla"], tables=["table 1"], rows=["EASE", "DEQL"]))
        return {cell.row: cell.settings for cell in cells}, [cell.value for cell in cells]

    first, values = chosen("a")
    path = folder / "gowalla.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["test_indices"] = (arrays["test_indices"] + 1) % arrays["shape"][1]
    np.savez(path, **arrays)
    second, others = chosen("b")
    assert first == second
    assert values != others


def test_a_search_that_was_interrupted_goes_on(paper, folder, tmp_path, monkeypatch):
    row, table = paper.tables[0].rows[1], paper.tables[0]
    place = sets.find("gowalla", folder, "lightgcn")
    real, done = tuned.ModelSearch._try, []

    def once(self, settings):
        done.append(len(settings))
        if len(done) == 2:
            raise KeyboardInterrupt
        return real(self, settings)

    monkeypatch.setattr(tuned.ModelSearch, "_try", once)
    with pytest.raises(KeyboardInterrupt):
        Tuned(tmp_path, "1h", {})(row, place, table)
    said = []
    found = Tuned(tmp_path, "1h", {}, said.append)(row, place, table)
    assert found == Tuned(tmp_path / "other", "1h", {})(row, place, table)
    assert mg.EASE(**found.settings)
    assert found.tried > 0
    assert "on validation" in said[-1]


def test_what_makes_a_row_is_not_searched():
    assert tuned.fixed_of("low_rank_edlae", {"l2": 0.0, "dropout": 0.5, "rank": 3}) == {"l2": 0.0, "rank": 3}
    assert tuned.fixed_of("deql", {"b": 0.1, "zero_diagonal": True}) == {"b": 0.1, "zero_diagonal": True}
    assert tuned.fixed_of("deql", {"b": 0.1}) == {}
    trained = {"loss": "bce", "batch": 512, "learning_rate": 0.01, "epochs": 9}
    assert tuned.fixed_of("light_gcn", trained) == {"loss": "bce", "batch": 512, "epochs": 9}


def test_a_row_keeps_what_makes_it_where_it_has_no_settings(paper, folder, tmp_path):
    plain = Row(name="plain", model="deql", settings={"yelp2018": {"l2": 0.0, "dropout": 0.5}})
    found = Tuned(tmp_path, "5 settings", {})(plain, sets.find("gowalla", folder, "lightgcn"), paper.tables[0])
    assert found.settings["l2"] == 0.0


def test_a_folder_that_cannot_be_made(paper, folder, tmp_path):
    (tmp_path / "file").write_text("")
    place = sets.find("gowalla", folder, "lightgcn")
    with pytest.raises(StorageError, match="give another with --cache"):
        Tuned(tmp_path / "file" / "c", "1h", {})(paper.tables[0].rows[1], place, paper.tables[0])


def test_lists_in_order_are_validated_on_the_latest_part(paper, folder, tmp_path, lists):
    place, tuned_ = sets.find("gowalla", folder, "lightgcn"), Tuned(tmp_path, "1h", {})
    random = tuned_.validation(place)
    assert random.split.protocol == "holdout"
    assert "the train list has no order" in random.how
    lists(folder / "gowalla-ordered.npz", order=np.random.default_rng(5))
    validation = Tuned(tmp_path, "1h", {}).validation(place)
    assert validation.split.protocol == "latest"
    assert "as the public lists were cut" in validation.how
    train = mg.splits.public(folder / "gowalla-ordered.npz").train
    expected = mg.splits.latest(train, share=0.2)
    assert (validation.split.targets.matrix != expected.targets.matrix).nnz == 0
    runner = Runner(folder, Cache(tmp_path / "c"), choose=Tuned(tmp_path, "3 settings", {}))
    (cell, *_) = runner.run(paper, Selection(data=["gowalla"], tables=["table 1"], rows=["EASE"]))
    assert cell.validation == validation.how
    assert cell.tried == 3


def test_another_order_has_its_own_study(paper, folder, tmp_path, lists):
    row, table, place = paper.tables[0].rows[1], paper.tables[0], sets.find("gowalla", folder, "lightgcn")
    for number, seed in enumerate((None, 5, 6), start=1):
        if seed is not None:
            lists(folder / "gowalla-ordered.npz", order=np.random.default_rng(seed))
        Tuned(tmp_path, "1 settings", {})(row, place, table)
        assert len(list(tmp_path.glob("*.study.jsonl"))) == number


def test_ordered_lists_with_other_events_are_refused(folder, tmp_path, lists):
    lists(folder / "gowalla-ordered.npz", items=26, order=np.random.default_rng(5))
    with pytest.raises(DataError, match=r"gowalla-ordered\.npz has another train list"):
        Tuned(tmp_path, "1h", {}).validation(sets.find("gowalla", folder, "lightgcn"))
