"""`--history`: a line of CSV, and what may have been meant."""

from __future__ import annotations

import pytest

from monogram.cli.history import parse_history


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b c, d", ["a", "b c", "d"]),
        ('"a, b",c', ["a, b", "c"]),
        ('the "big" one,"say ""hi"""', ['the "big" one', 'say "hi"']),
        ("a,,b,", ["a", "b"]),
    ],
)
def test_a_history_is_a_line_of_csv(text, ids):
    assert parse_history(text) == ids


@pytest.mark.parametrize("text", ['"a', "a\nb", '"a"b'])
def test_a_history_that_is_not_csv(program, shop, text):
    done = program("recommend", shop, "--history", text)
    assert done.code == 2
    assert "--history" in done.err


@pytest.mark.parametrize(
    ("text", "unknown", "meant"),
    [
        ("café, noir,tea", "'café', 'noir'", """'café, noir', as in --history '"café, noir"'?"""),
        ('" tea"', "' tea'", "'tea', as in --history tea?"),
        ("THE  big one", "'THE  big one'", ""),
        ('"The ""Big"" One"', "'The \"Big\" One'", """'the "big" one', as in --history '"the ""big"" one"'?"""),
        ("thé", "'thé'", ""),
    ],
)
def test_a_history_that_was_meant_otherwise(program, shop, text, unknown, meant):
    done = program("recommend", shop, "--history", text, "--json")
    assert done.code == 0
    assert f"left out: {unknown}; ids in --history" in done.err
    assert "is written in double quotes, as in CSV" in done.err
    assert ("Did you mean" in done.err) is bool(meant)
    assert meant in done.err
