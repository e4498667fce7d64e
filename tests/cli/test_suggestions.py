"""Ids that may have been meant."""

from __future__ import annotations

import pytest

from monogram.cli.alike import alike, hint


@pytest.mark.parametrize("typed", ["jose garcia", "José  García ", "JOSÉ GARCÍA", "Jose\u0301 Garcia"])
def test_capitals_accents_and_spaces_are_easily_mistyped(typed):
    assert alike([typed], ["ann", "José García", 7]) == ["José García"]
    assert hint([typed], ["José García"]) == ". Did you mean 'José García'?"


def test_nothing_is_alike():
    assert alike(["jose"], ["josé g", 7]) == []
    assert hint([], ["ann"]) == ""
