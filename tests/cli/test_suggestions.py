"""Suggestions for unknown ids."""

from __future__ import annotations

import pytest

from monogram.cli.suggestions import similar_ids, suggestion


@pytest.mark.parametrize("typed", ["jose garcia", "José  García ", "JOSÉ GARCÍA", "Jose\u0301 Garcia"])
def test_case_accents_and_spaces_are_ignored(typed):
    assert similar_ids([typed], ["ann", "José García", 7]) == ["José García"]
    assert suggestion([typed], ["José García"]) == ". Did you mean 'José García'?"


def test_nothing_is_similar():
    assert similar_ids(["jose"], ["josé g", 7]) == []
    assert suggestion([], ["ann"]) == ""


def test_without_an_unknown_id_the_known_ids_are_not_read():
    known = iter(["ann"])
    assert similar_ids([], known) == []
    assert next(known) == "ann"
