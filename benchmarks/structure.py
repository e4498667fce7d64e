"""Structure of the source: import graph, cycles, private accesses, type switches, sizes.

    .venv/bin/python benchmarks/structure.py [FOLDER]     a table; FOLDER is that of another checkout's package
    .venv/bin/python benchmarks/structure.py --graph      which package imports which, lazy imports included

It parses the source and does not import it.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "monogram"
MODELS_AND_WEIGHTS = ("models", "weights")


def trees(source: Path = SOURCE) -> dict[str, ast.Module]:
    """Every module of a package by its dotted name, without the package's own."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name or "__init__"] = ast.parse(path.read_text(), str(path))
    return found


def _typing_only(tree: ast.Module) -> set[ast.AST]:
    """Nodes under `if TYPE_CHECKING`: they are never imported."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    return {inner for block in blocks for inner in ast.walk(block)}


def imports(source: Path = SOURCE) -> dict[str, set[str]]:
    """Which modules each module imports, inside functions too."""
    modules = trees(source)
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, tree in modules.items():
        ignored = _typing_only(tree)
        for node in ast.walk(tree):
            if node in ignored:
                continue
            for target in _targets(node, modules):
                if target != name:
                    graph[name].add(target)
    return graph


def _targets(node: ast.AST, modules: dict[str, ast.Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        named = [one.name for one in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        named = [f"{node.module}.{one.name}" for one in node.names]
    else:
        return
    for dotted in named:
        if not dotted.startswith("monogram."):
            continue
        inner = dotted.removeprefix("monogram.")
        if inner in modules:
            yield inner
        elif (outer := inner.rpartition(".")[0]) in modules:
            yield outer


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def packages(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same graph, by the packages at the top."""
    found: dict[str, set[str]] = {}
    for name, targets in graph.items():
        own = name.partition(".")[0]
        found.setdefault(own, set()).update(one.partition(".")[0] for one in targets)
    return {name: targets - {name} for name, targets in found.items()}


def private_accesses(modules: dict[str, ast.Module]) -> dict[str, int]:
    """How often each module reads `other._name` of something that is not self or cls."""
    found = {}
    for name, tree in modules.items():
        found[name] = sum(
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
            and not (isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super")
            for node in ast.walk(tree)
        )
    return found


def type_switches(modules: dict[str, ast.Module]) -> int:
    """Calls of isinstance that ask for a class of models/ or weights/."""
    classes = {
        node.name
        for name, tree in modules.items()
        if name.partition(".")[0] in MODELS_AND_WEIGHTS
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = 0
    for tree in modules.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                named = {getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node.args[1])}
                found += bool(named & classes)
    return found


def table(source: Path = SOURCE) -> dict[str, object]:
    """The numbers by name."""
    modules, graph = trees(source), imports(source)
    files = [len(path.read_text().splitlines()) for path in source.rglob("*.py")]
    functions = [
        node.end_lineno - node.lineno + 1
        for tree in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    knots = cycles(graph)
    private = private_accesses(modules)
    return {
        "files": len(files),
        "lines, median of a file": statistics.median(files),
        "lines, median of a function": statistics.median(functions),
        "functions over 45 lines": sum(one > 45 for one in functions),
        "private accesses on other objects": sum(private.values()),
        "… most in one module": "{1} ({0})".format(*max(private.items(), key=lambda one: one[1])),
        "isinstance on model or weight classes": type_switches(modules),
        "import cycles (lazy imports count)": len(knots),
        "… modules in the largest": max((len(one) for one in knots), default=0),
    }


def main() -> None:
    if sys.argv[1:] == ["--graph"]:
        for name, targets in sorted(packages(imports()).items()):
            print(f"{name:12} → {', '.join(sorted(targets)) or '-'}")
        return
    for name, value in table(*(Path(one) for one in sys.argv[1:])).items():
        print(f"{name:42} {value}")


if __name__ == "__main__":
    main()
