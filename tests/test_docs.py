"""The examples of README and docs run, and every public name, command, parameter and metric is documented."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import monogram as mg
from monogram.cli.app import COMMANDS
from monogram.evaluation.metrics import BY_CATALOGUE, BY_USER
from monogram.models.registry import MODELS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
BLOCK = re.compile(r"^```(python|sh)\b([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
OTHER_PROGRAMS = ("make", "pip", "git")  # lines of a shell block that are not run


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(page: Path) -> list[tuple[str, str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def calls(text: str) -> list[list[str]]:
    """The lines of a shell block that call `monogram`, each split into words."""
    words = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in words if line and line[0] not in OTHER_PROGRAMS]


def write_events(folder: Path) -> None:
    """The log `events.csv` of the README's commands."""
    items = ["green tea", "tea pot", "cup", "honey", "saw", "plane", "chisel"]
    users = ["ann", *(f"user {n}" for n in range(30))]
    rows = [(user, items[(n + step * (1 + n % 2)) % 7]) for n, user in enumerate(users) for step in range(2 + n % 3)]
    text = "user,item\n" + "".join(f"{user},{item}\n" for user, item in rows)
    (folder / "events.csv").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_every_example_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if page == README:
        write_events(tmp_path)
    namespace = {"__name__": "page"}
    for language, marks, text in blocks(page):
        if language == "sh":
            for line in calls(text):
                assert line[0] == "monogram", f"{name_of(page)}: a shell block may call monogram, not {line[0]}"
                process = subprocess.run([sys.executable, "-m", *line], capture_output=True, text=True, timeout=120)
                assert process.returncode == 0, f"{shlex.join(line)}\n{process.stderr}"
        elif marks.strip() != "no-run":
            exec(compile(text, name_of(page), "exec", dont_inherit=True), namespace)


def test_the_ids_in_the_examples_are_in_the_sample():
    log = mg.sample()
    for page in PAGES:
        text = "\n".join(text for _, _, text in blocks(page))
        for title in re.findall(r'"(The [A-Z][^",]+)"', text):
            assert title in log.items, f"{name_of(page)}: {title}"
        for user in re.findall(r"\b[a-z]+-\d{4}\b", text):
            assert user in log.users, f"{name_of(page)}: {user}"


@pytest.fixture(scope="module")
def generated():
    return load(DOCS / "generated.py")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def written_by_hand() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page != README)


@pytest.mark.parametrize("name", mg.__all__)
def test_every_public_name_is_in_the_reference(name, generated):
    assert re.search(rf"monogram\.{name}\b", generated.fill(read("reference/python.md")))


def test_every_split_is_in_the_reference_and_the_protocols():
    functions = [
        name
        for name, value in vars(mg.splits).items()
        if inspect.isfunction(value) and value.__module__ == mg.splits.__name__
    ]
    for name in functions:
        if not name.startswith("_"):
            assert f"monogram.data.splits.{name}\n" in read("reference/python.md")
            assert f"`{name}(" in read("protocols.md")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_shown(name):
    shown = [line[1] for page in PAGES if page != README for language, _, text in blocks(page) if language == "sh"
             for line in calls(text)]  # fmt: skip
    assert name in shown or f"`monogram {name}`" in written_by_hand()


def test_the_reference_has_the_help_of_every_command(generated):
    page = generated.fill(read("reference/commands.md"))
    for name in COMMANDS:
        assert f"## monogram {name}\n" in page
        assert f"Usage: monogram {name}" in page


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_every_model_and_parameter_is_documented(kind, generated):
    page = generated.fill(read("reference/models.md"))
    section = page.split(f"## {kind.__name__}\n")[1].split("\n## ")[0]
    for field in dataclasses.fields(kind):
        assert f"| `{field.name}` |" in section
        assert re.search(rf"`[^`\n]*\b{field.name}\b[^`\n]*`", written_by_hand()), field.name
    assert f"| `{kind.__name__}(" in README.read_text(encoding="utf-8")
    assert f"`{kind.__name__}" in read("howto/choosing-a-model.md")


@pytest.mark.parametrize("metric", [*BY_USER, *BY_CATALOGUE])
def test_every_metric_is_defined(metric):
    assert f"| `{metric}@k` |" in read("protocols.md")
    assert f"`{metric}@k`" in README.read_text(encoding="utf-8")


def test_every_generated_part_of_a_page_can_be_made(generated):
    for page in PAGES:
        assert "<!-- generated" not in generated.fill(page.read_text(encoding="utf-8"))


def test_the_target_of_every_link_exists():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name_of(page)}: {target}"


def test_no_page_contains_a_path_of_the_authors_machine():
    for page in [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CITATION.cff"))]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/(work|home|root|Users|tmp)/", text), name_of(page)


def test_the_picture_is_up_to_date():
    drawn = (DOCS / "pipeline.svg").read_text(encoding="utf-8")
    assert drawn == load(DOCS / "picture.py").picture(), "run: python docs/picture.py"
    words = "".join(ET.fromstring(drawn).itertext())
    for word in ("log", "Interactions", "Gram", "inverse", "model", "ranking", "recommendations", "metrics"):
        assert word in words


def test_the_citation_has_the_version_of_the_package():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^cff-version: 1\.2\.0$", text, re.MULTILINE)
    assert re.search(rf"^version: {re.escape(mg.__version__)}$", text, re.MULTILINE)


LISTED_CALL = re.compile(r"^\d+\. `([\w.]+)`", re.MULTILINE)


def test_the_call_chain_of_the_contributing_guide_is_that_of_the_code(tmp_path):
    write_events(tmp_path)
    path = str(tmp_path / "events.csv")
    listed = LISTED_CALL.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert 0 < len(listed) <= 25
    calls = []

    def record(frame, event, _argument):
        if event == "call":
            calls.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")

    sys.setprofile(record)
    try:
        log = mg.read(path, quiet=True)
        mg.EASE(l2=100).fit(log, solver="primal").recommend(["ann"], k=5)
    finally:
        sys.setprofile(None)
    remaining = iter(calls)
    for name in listed:
        assert f"monogram.{name}" in remaining, f"{name} is not called, or not in the order of the list"


def test_the_pages_build(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path / "html"]
    process = subprocess.run([*command, "-d", tmp_path / "trees"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
