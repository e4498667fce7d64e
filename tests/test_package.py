"""The package as a whole: the cost of its import, which package imports which, public names, error codes."""

from __future__ import annotations

import ast
import importlib.util
import re
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
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_every_public_name_exists_and_is_documented():
    assert sorted(mg.__all__) == dir(mg)
    for name in mg.__all__:
        assert getattr(mg, name).__doc__ or name == "__version__"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mg.nothing


# Every package and module at the top of src/monogram, with those that it may import. `__init__` is `import monogram`.
IMPORTED_BY_ALL = {"_version", "errors", "safe"}
PACKAGES = {
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
    "models": {"data", "engine", "planning", "weights", "store", "ranking", "cluster", "gradient", "models"},
    "gradient": {"data", "engine", "planning", "weights", "store", "ranking", "models", "evaluation", "gradient"},
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


def module_of(name: str) -> str:
    """The module that a dotted name in an import names, or is defined in."""
    inner = name.removeprefix("monogram").removeprefix(".")
    while inner and inner not in MODULES:
        inner = inner.rpartition(".")[0]
    return inner or "__init__"


def imports(path: Path) -> set[str]:
    """The modules of Monogram that a file imports: at its top, inside functions, for type checks."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: expected an absolute import"
            if node.module and node.module.split(".")[0] == "monogram":
                modules |= {module_of(f"{node.module}.{alias.name}") for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {module_of(alias.name) for alias in node.names if alias.name.split(".")[0] == "monogram"}
    return modules


GRAPH = {name: imports(path) - {name} for name, path in MODULES.items()}


def test_every_package_and_module_is_in_the_table():
    assert {name.split(".")[0] for name in MODULES} == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_those_in_its_row(package):
    for name in MODULES:
        if name.split(".")[0] == package:
            imported = {module.split(".")[0] for module in GRAPH[name]}
            assert imported <= PACKAGES[package] | IMPORTED_BY_ALL, name


CONTRIBUTING = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
BESIDE_THE_ARROWS = {"_version", "safe", "cluster", "gradient", "testing", "plots", "__init__", "__main__"}


def test_the_arrows_of_the_contributing_guide_are_those_of_the_table():
    line = re.search(r"^errors ← .*$", CONTRIBUTING, re.MULTILINE)[0]
    groups = [set(group.split(", ")) for group in line.split(" ← ")]
    assert set().union(*groups) == set(PACKAGES) - BESIDE_THE_ARROWS
    for place, group in enumerate(groups):
        for package in group:
            assert PACKAGES[package] - BESIDE_THE_ARROWS <= set().union(*groups[: place + 1]), package


def test_the_contributing_guide_says_what_belongs_in_each_package():
    described = set(re.findall(r"^\| `([\w/]+?)(?:/|\.py)` \|", CONTRIBUTING, re.MULTILINE))
    assert set(PACKAGES) - {"_version", "__init__", "__main__"} <= described
    parts = {f"engine/{path.parent.name}" for path in (SOURCE / "engine").glob("*/__init__.py")}
    assert {name for name in described if name.startswith("engine/")} == parts


def test_models_name_the_classes_of_gradient_only_for_type_checkers():
    importers = {name for name, imported in GRAPH.items() if any(one.startswith("gradient") for one in imported)}
    assert {name for name in importers if not name.startswith("gradient")} == {"models.builtin"}


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


def test_there_is_no_import_cycle(structure):
    """Imports inside functions count; those under TYPE_CHECKING, which never run, do not."""
    assert structure.cycles(structure.imports()) == []


def test_an_import_cycle_is_reported(structure, tmp_path):
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
    assert len(codes) == len(set(codes)), "two kinds of errors have the same exit code"
    assert all(0 < kind.exit_code < 128 and 400 <= kind.http_status < 600 for kind in kinds)


def integration_tests() -> tuple[str, ...]:
    """The table `INTEGRATION` of conftest.py, which cannot be imported by name."""
    tree = ast.parse((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    (table,) = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "INTEGRATION"
    ]
    return ast.literal_eval(table)


@pytest.mark.parametrize(("workers", "sizes"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (4, [1] * 4), (6, [1] * 6)])
def test_the_processes_of_the_tests_have_cores_of_their_own(request, workers, sizes):
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))
    parts = [conftest.own_cores({7, 0, 2, 5}, worker, workers) for worker in range(workers)]
    assert [len(part) for part in parts] == sizes
    assert set().union(*parts) == {0, 2, 5, 7}


@pytest.mark.parametrize("entry", integration_tests())
def test_every_entry_of_the_integration_tests_exists(entry):
    """A renamed test would else move to the unit tests unnoticed."""
    path, _, function = entry.partition("::")
    place = Path(__file__).parent / path
    assert place.exists(), entry
    assert not function or f"def {function}" in place.read_text(encoding="utf-8"), entry


def test_no_two_classes_share_a_name():
    names = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
