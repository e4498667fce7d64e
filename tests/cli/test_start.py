"""What a short command does not do: import what it does not use, read all of a large file."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import monogram as mg
from monogram import store
from monogram.cli import recommend
from monogram.errors import ModelFileError

SLOW = ("numba", "scipy.linalg", "pandas", "polars", "narwhals", "pyarrow.parquet", "dask", "torch", "sklearn")
WITH_HELP = ("numpy", "scipy", "pyarrow", "rich", *SLOW)
MODELS = {
    "dense": mg.EASE(l2=2),
    "sparse": mg.ItemKNN(k=3),
    "dual": mg.EASE(l2=2),
    "factors": mg.RegularizedPCA(rank=2, l2=1),
    "fixed": mg.Popularity(),
}


def imported(names, *arguments):
    """Those of the modules that a process imports to run a command."""
    script = (
        f"import atexit, sys; sys.argv = ['monogram', *{list(map(str, arguments))}]\n"
        f"atexit.register(lambda: print([name for name in {names} if name in sys.modules], file=sys.stderr))\n"
        "from monogram.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("command", [[], ["recommend"], ["serve"]])
def test_help_imports_no_numbers(command):
    assert imported(WITH_HELP, *command, "--help") == "[]"


def test_help_with_the_flags_of_all_models_compiles_nothing():
    assert imported(("numba", "pandas", "dask", "torch"), "fit", "--help") == "[]"


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("request_", [["--user", "ann"], ["--user", "ann", "--user", "u03", "--json"]])
def test_one_request_imports_no_compiler(kind, request_, pairs, tmp_path):
    model = MODELS[kind].fit(pairs, solver="dual" if kind == "dual" else "auto")
    assert model.weights_.kind == kind
    model.save(tmp_path / "x.mono")
    # A product of factors limits the threads of the BLAS in scipy.linalg.
    names = tuple(name for name in SLOW if name != "scipy.linalg" or kind != "factors")
    assert imported(names, "recommend", tmp_path / "x.mono", *request_) == "[]"


@pytest.mark.parametrize("ids", ["text", "integers"])
def test_a_request_to_many_users_imports_no_compiler(ids, tmp_path):
    """Among many ids, one is looked up without an index of all."""
    pairs = [(f"u{user}" if ids == "text" else user, item) for user in range(150) for item in (user % 7, user % 5)]
    mg.EASE(l2=2).fit(pairs).save(tmp_path / "x.mono")
    user = "u77" if ids == "text" else 77
    assert imported(SLOW, "recommend", tmp_path / "x.mono", "--user", user) == "[]"


def test_a_history_and_similar_items_import_no_compiler(shop):
    assert imported(SLOW, "recommend", shop, "--history", "tea,42") == "[]"
    assert imported(SLOW, "similar", shop, "tea") == "[]"


@pytest.mark.parametrize("kind", MODELS)
def test_one_request_has_the_bits_of_the_library(kind, program, pairs, tmp_path):
    model = MODELS[kind].fit(pairs, solver="dual" if kind == "dual" else "auto")
    model.save(tmp_path / "x.mono")
    done = program("recommend", tmp_path / "x.mono", "--user", "ann", "--user", "u07", "--format", "csv")
    rows = [line.rsplit(",", 1)[1] for line in done.out.splitlines()[1:]]
    assert rows == [repr(row["score"]) for row in model.recommend(["ann", "u07"]).rows()]


def altered(path, name):
    """Change one byte of an array in a model file, so that only its checksum can tell."""
    raw = np.fromfile(path, np.uint8)
    array = store.load(path).tensors[name]
    content = array.tobytes()
    at = raw.tobytes().index(content)
    raw[at] ^= 1
    raw.tofile(path)


@pytest.mark.parametrize(
    ("limit", "flags", "refused"),
    [
        (recommend.VERIFIED, ["--user", "ann"], True),
        (0, ["--user", "ann"], False),
        (0, ["--history", "tea"], False),
        (0, ["--user", "ann", "--verify"], True),
        (0, ["--format", "csv"], True),
    ],
)
def test_only_a_large_file_is_not_compared_with_its_checksums(program, shop, monkeypatch, limit, flags, refused):
    monkeypatch.setattr(recommend, "VERIFIED", limit)
    altered(shop, "weights.weights")
    done = program("recommend", shop, *flags)
    assert (done.code, "checksum differs" in done.err) == ((ModelFileError.exit_code, True) if refused else (0, False))


@pytest.mark.parametrize("name", ["weights.columns", "weights.pointers", "log.items", "log.pointers"])
def test_indices_of_a_large_file_are_checked(program, pairs, tmp_path, monkeypatch, name):
    monkeypatch.setattr(recommend, "VERIFIED", 0)
    path = tmp_path / "x.mono"
    mg.ItemKNN(k=3).fit(pairs).save(path)
    stored = store.load(path)
    tensors = {key: array.copy() for key, array in stored.tensors.items()}
    tensors[name][1] = 10**6
    store.save(path, stored.header, tensors)
    done = program("recommend", path, "--user", "ann")
    assert done.code == ModelFileError.exit_code
