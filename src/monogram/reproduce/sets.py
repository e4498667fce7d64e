"""From the name of a data set to the split of a paper: find the files, read, filter, split; or name missing files."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from monogram.data import public, splits
from monogram.data.interactions import Interactions
from monogram.data.parts import events, part_of
from monogram.data.readers import read
from monogram.data.splits import Split
from monogram.engine.runtime.arrays import Csr
from monogram.errors import DataError

SEED = 98765  # that of the reference code of the strong protocol
RATIO_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The filters on a log before it is split.

    Attributes
    ----------
    rating : events with a lower rating are left out; None: no event is
    users, items : least events of a user and of an item, repeated until both hold
    first : least events of an item, applied before the other filters
    held_out : users held out for validation, and as many for test (protocol strong)
    """

    rating: float | None = None
    users: int = 0
    items: int = 0
    first: int = 0
    held_out: int = 0


PREPARATIONS: dict[tuple[str, str], Preparation] = {
    ("strong", "ml-20m"): Preparation(rating=4, users=5, held_out=10_000),
    ("strong", "netflix"): Preparation(rating=4, users=5, held_out=40_000),
    ("strong", "msd"): Preparation(first=200, users=20, held_out=50_000),
    ("strong", "ml-1m"): Preparation(rating=4, users=5, held_out=1_000),
    ("ratio811", "ml-10m"): Preparation(rating=3, users=5, items=5),
    ("ratio811", "amazon-electronics"): Preparation(rating=3, users=5, items=5),
    ("ratio811", "steam"): Preparation(users=5, items=5),
    ("ratio811", "ml-1m"): Preparation(rating=3, users=5, items=5),
}


@dataclass(frozen=True)
class Place:
    """A data set that is on this machine."""

    name: str
    path: Path
    folder: Path
    protocol: str
    preparation: Preparation

    def checksum(self) -> str:
        """SHA-256 of the file, or of the names and contents of a folder."""
        digest = hashlib.sha256()
        for file in self._files():
            with file.open("rb") as content:
                digest.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()

    def _files(self) -> list[Path]:
        if self.path.is_dir():
            return sorted(file for file in self.path.rglob("*") if file.is_file())
        lists = self.protocol == "lightgcn" and not self._is_npz()  # train.txt, and the test list beside it
        return sorted(self.path.parent.glob("*.txt")) if lists else [self.path]

    def document(self, part: str) -> dict[str, Any]:
        """Everything that the split depends on, for the key of a cache."""
        seed = RATIO_SEED if self.protocol == "ratio811" else SEED
        split = {"protocol": self.protocol, "part": part, "seed": seed, "preparation": asdict(self.preparation)}
        return {"data": self.checksum(), **split}

    def split(self, part: str) -> Split:
        """The split whose targets are the "test" or the "validation" part."""
        if self.protocol == "lightgcn":
            return splits.public(self.path) if self._is_npz() else self._run_reading_code()["split"]
        log = self._log()
        if self.protocol == "ratio811":
            return splits.ratio811(log, seed=RATIO_SEED, part=part)
        return _half(splits.strong(log, users=2 * self.preparation.held_out, seed=SEED), part)

    def ordered(self) -> Split | None:
        """The public lists with the events of each user in order, from NAME-ordered.npz; None where it is absent.

        Raises
        ------
        DataError
            Where the file has other events than the lists of the data set.
        """
        path = self.folder / f"{self.name}-ordered.npz"
        if self.protocol != "lightgcn" or not path.exists():
            return None
        ordered, split = splits.public(path), self.split("test")
        for name, ours, theirs in (("train", ordered.train, split.train), ("test", ordered.targets, split.targets)):
            if ours.matrix.shape != theirs.matrix.shape or (_pattern(ours.matrix) != _pattern(theirs.matrix)).nnz:
                raise DataError(
                    f"{path} has another {name} list than {self.path}; expected the same events, in order. Replace or "
                    "remove it: without it the validation part is a random share of each user's train events"
                )
        return ordered

    def _is_npz(self) -> bool:
        return self.path.suffix == ".npz"

    def _log(self) -> Interactions:
        log: Interactions
        how = self.preparation
        if self._is_npz():
            log = read(self.path, weight=None if how.rating is None else "rating", quiet=True)
        elif self.path.suffix == ".dat":
            log = _ratings(self.path)
        else:  # the reading code filters too
            log = self._run_reading_code()["log"]
            return log
        if how.rating is not None:
            rated = events(log, log.matrix.data >= how.rating)
            log = Interactions.from_csr(rated.matrix, rated.users.ids(np.arange(rated.n_users)),
                                        rated.items.ids(np.arange(rated.n_items)), merge="binary")  # fmt: skip
        if how.first:
            log = log.at_least(items=how.first)
        return log.at_least(users=how.users, items=how.items)

    def _run_reading_code(self) -> Mapping[str, Any]:
        """The variables of the data set's reading code; files that it writes go to a temporary folder."""
        names: dict[str, Any] = {}
        source = public.get(self.name).reading
        code = re.sub(r'"([^"\n]+/[^"\n]+)"', lambda match: repr(str(self.folder / match[1])), source)
        try:
            with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
                exec(code, names)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise DataError(f"{self.name} cannot be read from {self.path.parent}: {error}") from error
        return names


def _pattern(matrix: Csr) -> Csr:
    return (matrix != 0).tocsr()


def _ratings(path: Path) -> Interactions:
    """User, item and rating of each line of a MovieLens file."""
    try:
        with path.open(encoding="latin-1") as lines:
            rows = (line.split("::") for line in lines)
            return read((user, item, float(rating)) for user, item, rating, _ in rows)
    except ValueError as error:
        raise DataError(f"{path} is not MovieLens' user::item::rating::time: {error}") from error


def find(name: str, folder: Path | None, protocol: str) -> Place | None:
    """The local copy of a data set; None when there is none."""
    folder = folder or public.folder()
    if folder is None:
        return None
    npz = folder / f"{name}.npz"
    path = npz if npz.exists() else public.find(name, folder) if name in public.DATA_SETS else None
    usable = path is not None and path.suffix != ".zip"
    how = PREPARATIONS.get((protocol, name), Preparation())
    return Place(name, path, folder.resolve(), protocol, how) if path is not None and usable else None


def missing(name: str) -> str:
    """The message for a data set that is not on this machine, with the way to get it."""
    data_set = public.get(name)
    get = f"monogram data download {name}, then unpack it there" if data_set.url else f"by hand from {data_set.source}"
    return f"{data_set.files[0]} is not in the data folder; to get it: {get} (see: monogram data show {name})"


def _half(split: Split, part: str) -> Split:
    """One half of the held-out users: that of the validation part, or that of the test part."""
    number = split.histories.n_users
    order = np.random.default_rng(SEED).permutation(number)
    rows = np.sort(order[: number // 2] if part == "validation" else order[number // 2 :])
    every = np.arange(split.histories.n_items)
    return replace(split, histories=part_of(split.histories, rows, every), targets=part_of(split.targets, rows, every))
