"""The package as a whole: what an import costs, which room knows which, what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import monogram as mg
from monogram import errors

SOURCE = Path(mg.__file__).parent
HEAVY = [
    "numba",
    "pyarrow",
    "scipy",
    "scipy.sparse.linalg",
    "torch",
    "pandas",
    "polars",
    "typer",
    "rich",
    "numpy",
    "dask",
]


def test_the_import_is_light():
    script = f"import monogram, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_documented():
    assert sorted(mg.__all__) == dir(mg)
    for name in mg.__all__:
        assert getattr(mg, name).__doc__ or name == "__version__"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mg.nothing


# Each room and those it may know; a module not named here (errors, _version) is known to all.
ROOMS = {
    "data": {"data"},
    "engine": {"engine"},
    "weights": {"engine", "weights"},
    "store": set(),
    "ranking": {"data", "engine", "weights"},
    "cluster": {"engine", "cluster"},
    "models": {"data", "engine", "weights", "store", "ranking", "cluster", "models"},
    "testing": {"data", "engine", "weights", "ranking", "models", "testing"},
    "evaluation": {"data", "engine", "weights", "ranking", "models", "evaluation"},
    "plots": set(),
    "reports": {"reports"},
    "tuning": {"data", "engine", "weights", "ranking", "models", "evaluation", "plots", "reports", "tuning"},
    "reproduce": {"data", "engine", "weights", "models", "evaluation", "plots", "reports", "tuning", "reproduce"},
    "server": {"data", "engine", "weights", "store", "ranking", "models", "server"},
    "cli": {
        "data",
        "engine",
        "store",
        "ranking",
        "cluster",
        "models",
        "evaluation",
        "reports",
        "tuning",
        "reproduce",
        "server",
        "cli",
    },
}


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("monogram"):
            if node.module == "monogram":
                yield from (alias.name for alias in node.names)
            else:
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("monogram."))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_the_rooms_to_its_left(room):
    home = SOURCE / room
    for path in home.rglob("*.py") if home.is_dir() else [home.with_suffix(".py")]:
        assert set(imports(path)) & set(ROOMS) <= ROOMS[room], path.name


def test_every_error_knows_its_exit_code_and_status():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MonogramError)
    ]
    codes = [kind.exit_code for kind in kinds]
    assert len(codes) == len(set(codes)), "an exit code must name one kind of error"
    assert all(0 < kind.exit_code < 128 and 400 <= kind.http_status < 600 for kind in kinds)
