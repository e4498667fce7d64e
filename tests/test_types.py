"""What type checkers and editors know of the public names: mypy runs on a snippet as a user writes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import monogram as mg

SOURCE = Path(mg.__file__).parents[1]
EXPECTED = {
    "mg.read([])": "Interactions",
    "mg.sample()": "Interactions",
    "train": "Interactions",
    "test.histories": "Interactions",
    "test.audit()": "Audit",
    "mg.splits.temporal(log)[0]": "Interactions",
    "mg.EASE(l2=3)": "EASE",
    "mg.EASE().fit(train)": "EASE",
    "mg.EASE().fit(train).recommend(k=3)": "Recommendations",
    "mg.load('shop.mono')": "Recommender",
    "mg.evaluate(mg.EASE(), test)": "Evaluation",
    "mg.tune(log)": "Tuning",
}


@pytest.fixture(scope="module")
def revealed(tmp_path_factory) -> dict[str, str]:
    """The type of each expression, as mypy names it."""
    names = [f"mg.{name}" for name in mg.__all__]
    lines = ["import monogram as mg", "log = mg.read([])", "train, test = mg.splits.holdout(log)"]
    expressions = {len(lines) + number: text for number, text in enumerate([*EXPECTED, *names], 1)}
    path = tmp_path_factory.mktemp("types") / "snippet.py"
    path.write_text("\n".join([*lines, *(f"reveal_type({text})" for text in expressions.values())]) + "\n")
    command = [sys.executable, "-m", "mypy", "--config-file", SOURCE.parent / "pyproject.toml", path]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"MYPYPATH": str(SOURCE)}, cwd=SOURCE.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r'snippet\.py:(\d+): note: Revealed type is "(.+)"', done.stdout)
    return {expressions[int(line)]: kind for line, kind in found}


@pytest.mark.integration
@pytest.mark.parametrize("expression", EXPECTED)
def test_an_expression_has_its_type(revealed, expression):
    assert revealed[expression].split(".")[-1] == EXPECTED[expression]


@pytest.mark.integration
@pytest.mark.parametrize("name", mg.__all__)
def test_no_public_name_is_any(revealed, name):
    assert revealed[f"mg.{name}"] != "Any"
