"""Spans of time as texts."""

from __future__ import annotations

import time

import pytest

import monogram as mg
from monogram.data.spans import parse_span
from monogram.errors import ParameterError


@pytest.mark.parametrize("text", ["1" * 200_000, "1" * 200_000 + "!", " " * 200_000 + "x", "1." * 100_000])
def test_a_long_text_is_refused_at_once_and_shortened(text):
    start = time.perf_counter()
    with pytest.raises(
        ParameterError,
        match=r"^half_life = '.{0,40}…; expected a duration such as .* \(its unit one of us, ms, s, min, h, d, w\)",
    ) as caught:
        mg.EASE(half_life=text)
    assert time.perf_counter() - start < 1
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "value", ["1e308w", "1e400", "1e-320us", "1e999d", 10**400, -(10**400), float("inf"), float("nan")]
)
def test_an_amount_that_is_not_finite_in_seconds_is_refused(value):
    with pytest.raises(ParameterError, match=r"^decay_unit = "):
        parse_span(value, "decay_unit")


@pytest.mark.parametrize(
    ("text", "shown"), [("1.d", "1d"), (".5 h", "30min"), ("1e2", "100"), (" 2 Events ", "2 events")]
)
def test_forms_of_a_span(text, shown):
    assert str(parse_span(text)) == shown
