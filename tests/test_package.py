"""The package as a whole: what an import costs, which package imports which, what is public."""

from __future__ import annotations

import ast
import importlib.util
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


# Each package or module at the top of src/monogram, and those that it may import. `__init__` is `import monogram`.
FOR_ALL = {"_version", "errors", "safe"}
MAY_IMPORT = {
    "_version": set(),
    "errors": set(),
    "safe": set(),
    "data": {"data"},
    "engine": {"engine"},
    "planning": {"engine", "planning"},
    "weights": {"engine", "planning", "weights"},
    "store": {"store"},
    "ranking": {"data", "engine", "weights", "ranking"},
    "cluster": {"engine", "planning", "cluster"},
    "models": {"data", "engine", "planning", "weights", "store", "ranking", "cluster", "models"},
    "testing": {"data", "engine", "planning", "weights", "ranking", "models", "testing"},
    "evaluation": {"data", "engine", "planning", "weights", "ranking", "models", "evaluation"},
    "plots": set(),
    "reports": {"reports"},
    "tuning": {
        "data",
        "engine",
        "planning",
        "weights",
        "ranking",
        "models",
        "evaluation",
        "plots",
        "reports",
        "tuning",
    },
    "reproduce": {
        "data",
        "engine",
        "planning",
        "weights",
        "models",
        "evaluation",
        "plots",
        "reports",
        "tuning",
        "reproduce",
    },
    "server": {"data", "engine", "planning", "weights", "store", "ranking", "models", "server"},
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
        "__init__",
    },
    "__main__": {"cli"},
    "__init__": {"data", "evaluation", "models", "testing", "tuning"},
}


def module_name(path: Path) -> str:
    """The dotted name without `monogram.`; "__init__" for the package itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def known(name: str) -> str:
    """The module that an imported dotted name is, or is defined in."""
    inner = name.removeprefix("monogram").removeprefix(".")
    while inner and inner not in MODULES:
        inner = inner.rpartition(".")[0]
    return inner or "__init__"


def imports(path: Path) -> set[str]:
    """The modules of Monogram that a file imports anywhere: at its top, inside functions, for type checks."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            if node.module and node.module.split(".")[0] == "monogram":
                found |= {known(f"{node.module}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {known(alias.name) for alias in node.names if alias.name.split(".")[0] == "monogram"}
    return found


GRAPH = {name: imports(path) - {name} for name, path in MODULES.items()}


def test_every_package_and_module_is_in_the_table():
    assert {name.split(".")[0] for name in MODULES} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_those_to_its_left(package):
    for name in MODULES:
        if name.split(".")[0] == package:
            used = {module.split(".")[0] for module in GRAPH[name]}
            assert used <= MAY_IMPORT[package] | FOR_ALL, name


def test_an_import_inside_a_function_counts(tmp_path):
    lines = ["import monogram.cli.app", "def f():", "    from monogram.models import registry", "    import monogram"]
    path = tmp_path / "module.py"
    path.write_text("\n".join(lines))
    assert imports(path) == {"cli.app", "models.registry", "__init__"}


STRUCTURE = Path(__file__).parents[1] / "benchmarks" / "structure.py"


@pytest.fixture(scope="module")
def structure():
    spec = importlib.util.spec_from_file_location("structure", STRUCTURE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_module_imports_itself_by_way_of_others(structure):
    """Imports inside functions count; those for type checks, which are never carried out, do not."""
    assert structure.cycles(structure.imports()) == []


def test_a_cycle_is_found(structure, tmp_path):
    (tmp_path / "one.py").write_text("def f():\n    from monogram.two import g\n")
    (tmp_path / "two.py").write_text("from monogram import three\n")
    (tmp_path / "three.py").write_text("import monogram.one\n")
    (tmp_path / "four.py").write_text("from monogram.one import f\n")
    assert structure.cycles(structure.imports(tmp_path)) == [["one", "three", "two"]]


def test_every_error_knows_its_exit_code_and_status():
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MonogramError)
    ]
    codes = [kind.exit_code for kind in kinds]
    assert len(codes) == len(set(codes)), "an exit code must name one kind of error"
    assert all(0 < kind.exit_code < 128 and 400 <= kind.http_status < 600 for kind in kinds)


def test_no_two_classes_share_a_name():
    names = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
