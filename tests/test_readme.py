"""What the README shows works as it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import monogram as mg
from monogram.models.registry import MODELS

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_block_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"mg": mg})


def test_the_ids_it_names_are_in_the_sample():
    log = mg.sample()
    for item in re.findall(r'"(The [^"]+)"', README):
        assert item in log.items
    assert re.search(r'\["(\w+-\d{4})", "nobody"\]', README).group(1) in log.users


def test_every_model_is_in_its_table():
    for kind in MODELS.values():
        assert f"| `{kind.__name__}(" in README
