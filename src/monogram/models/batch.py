"""Lists for everyone into a folder of Parquet files: here, or on the workers of a cluster."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from monogram import ranking
from monogram._version import __version__
from monogram.engine.runtime.progress import Stage
from monogram.errors import ClusterError, ParameterError, StorageError
from monogram.models import files
from monogram.safe import make_folder, whole_file

if TYPE_CHECKING:
    from monogram.cluster import Cluster
    from monogram.models.base import Recommender

USERS, ROWS = 10_000, 1_000_000  # of a file, at most
REQUEST, MODEL = ".monogram-request.json", ".monogram-model.mono"
PART = re.compile(r"part-\d{5,}\.parquet")
LEFT = re.compile(r"\.(part-|\.monogram-).*\.tmp")  # of a writer that was killed
SLAB = 1 << 24


@dataclass(frozen=True)
class Asked:
    """What everyone is to get: see `recommend`. Rules are lists, in an order of their own: they are read many times."""

    k: int
    allow: Any = None
    deny: Any = None
    exclude_seen: bool = True

    def __post_init__(self) -> None:
        for name in ("allow", "deny"):
            object.__setattr__(self, name, _listed(getattr(self, name), name))

    def unknown(self, items: Any) -> tuple[Any, ...]:
        """Ids in the rules that are not in a vocabulary."""
        rules = [rule for rule in (self.allow, self.deny) if rule is not None]
        lists = [one for rule in rules for one in (rule if rule and isinstance(rule[0], list) else [rule])]
        ids = list(dict.fromkeys(one for some in lists for one in some))
        return tuple(one for one, at in zip(ids, items.index(ids), strict=True) if at < 0)

    def part(self, start: int, stop: int, users: int) -> Asked:
        """The same for some of the users: lists by user are cut, and there must be one for each."""
        allow, deny = (_cut(rule, at, start, stop, users) for at, rule in (("allow", self.allow), ("deny", self.deny)))
        return Asked(self.k, allow, deny, self.exclude_seen)


def _listed(rule: Any, name: str) -> Any:
    """A rule as a list of ids, or a list of such lists; a set is sorted, for it has no order to be known again by."""
    if rule is None:
        return None
    if isinstance(rule, set | frozenset):
        rule = sorted(rule, key=repr)
    each, lists = ranking.rule_lists(rule, name)
    return lists if each else lists[0]


def _cut(rule: Any, name: str, start: int, stop: int, users: int) -> Any:
    if rule is None:
        return None
    each, lists = ranking.rule_lists(rule, name)
    if not each:
        return lists[0]
    if len(lists) != users:
        raise ParameterError(f"{name} has {len(lists)} lists for {users} users; expected one list for each")
    return lists[start:stop]


@dataclass(frozen=True)
class Written:
    """What `recommend_all` wrote.

    Attributes
    ----------
    folder : where the files are
    files : how many there are
    rows : in all of them
    users : who were asked for
    empty : how many of them have no history: their scores hold no information
    unknown_items : ids in allow or deny that the model does not know; they were left out
    resumed : files of a former, stopped call that were kept
    """

    folder: Path
    files: int
    rows: int
    users: int
    empty: int
    unknown_items: tuple[Any, ...]
    resumed: int = 0


def recommend_all(
    model: Recommender,
    folder: str | Path,
    asked: Asked,
    batch: int | None,
    threads: int,
    progress: Stage,
    cluster: Cluster | None,
) -> Written:
    """See `Recommender.recommend_all`."""
    log = model.log_
    cuts = _cuts(log.n_users, asked.k, batch)
    asked.part(0, 0, log.n_users)  # wrong lists, before anything is written
    ranking.recommend(model.weights_, _histories(model, 0, 0), log.items, k=asked.k)  # a wrong k, likewise
    path = Path(folder).absolute()
    make_folder(path, "name another one")
    done = _begin(path, _request(model, asked, cuts))
    todo = [number for number in range(len(cuts)) if number not in done]
    found = (
        _there(model, path, asked, cuts, todo, cluster) if cluster else _here(model, path, asked, cuts, todo, threads)
    )
    for number in found:
        progress("users", float(cuts[number][1] - cuts[number][0]))
    rows = sum(_rows(path / name_of(number)) for number in range(len(cuts)))
    (path / REQUEST).unlink(missing_ok=True)
    empty = int((np.diff(log.matrix.indptr) == 0).sum())
    return Written(path, len(cuts), rows, log.n_users, empty, asked.unknown(log.items), len(done))


def name_of(number: int) -> str:
    """The name of a part."""
    return f"part-{number:05}.parquet"


def _cuts(users: int, k: Any, batch: int | None) -> list[tuple[int, int]]:
    if batch is None:
        batch = max(1, min(USERS, ROWS // k)) if isinstance(k, int) and k >= 1 else USERS
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1:
        raise ParameterError(f"batch = {batch!r}; expected a whole number of at least 1, or None")
    return [(start, min(start + int(batch), users)) for start in range(0, users, int(batch))]


def _histories(model: Recommender, start: int, stop: int) -> ranking.Histories:
    at = np.arange(start, stop)
    return ranking.Histories(model.log_.matrix[start:stop], model.log_.users.take(at))


def _write(model: Recommender, folder: Path, number: int, cut: tuple[int, int], asked: Asked, threads: int) -> None:
    """One part."""
    import pyarrow.parquet as pq

    rules: dict[str, Any] = {"allow": asked.allow, "deny": asked.deny, "exclude_seen": asked.exclude_seen}
    found = ranking.recommend(
        model.weights_, _histories(model, *cut), model.log_.items, k=asked.k, threads=threads, **rules
    )
    with whole_file(folder / name_of(number)) as file:
        pq.write_table(found.to_arrow(), file)


def _here(
    model: Recommender, folder: Path, asked: Asked, cuts: list[tuple[int, int]], todo: list[int], threads: int
) -> Iterator[int]:
    for number in todo:
        own = asked.part(*cuts[number], model.log_.n_users)
        _write(model, folder, number, cuts[number], own, threads)
        yield number


def _there(
    model: Recommender, folder: Path, asked: Asked, cuts: list[tuple[int, int]], todo: list[int], cluster: Cluster
) -> Iterator[int]:
    """The parts on the workers, which map the model from a file beside them."""
    from monogram.cluster.client import Run

    if not todo:
        return
    run, users = Run(cluster), model.log_.n_users
    try:
        model.save(folder / MODEL)
        with run.stage("ranking for everyone"):
            tasks = (
                run.submit(task, str(folder), n, cuts[n], asked.part(*cuts[n], users), name=f"rank-{n}") for n in todo
            )
            ahead = 2 * sum(int(one["nthreads"]) for one in cluster.workers().values()) + 2
            for number, _ in zip(todo, run.stream(tasks, ahead=ahead), strict=True):
                yield number
            with suppress(OSError):  # a worker that was lost has let go of it
                cluster.client.run(forget)
    finally:
        (folder / MODEL).unlink(missing_ok=True)


def task(folder: str, number: int, cut: tuple[int, int], asked: Asked) -> None:
    """One part, on a worker; one thread, since a worker has as many tasks at once as it has threads."""
    path = Path(folder)
    if not (path / MODEL).exists():
        raise ClusterError(
            f"a worker does not see {path / MODEL}, which lies beside the output: the workers need the folder under "
            "the same name (a shared file system)"
        )
    stamp = (path / MODEL).stat()
    _write(_held(path / MODEL, stamp.st_mtime_ns, stamp.st_ino), path, number, cut, asked, 1)


@lru_cache(maxsize=1)
def _held(path: Path, *_: int) -> Recommender:
    """The model of a file, mapped; once for all parts of a process, as long as it is the same file."""
    return files.load(path, verify=False)


def forget() -> None:
    """Let go of the model, so that its file can go."""
    _held.cache_clear()


def _request(model: Recommender, asked: Asked, cuts: list[tuple[int, int]]) -> dict[str, Any]:
    """By what the parts of a stopped call are known again: the model to the last bit, the rules, and the batches."""
    held = hashlib.sha256()
    for tensor in [*model.weights_.tensors().values(), *files.log_tensors(model.log_)[1].values()]:
        _digest(held, np.asarray(tensor))
    rules = [asked.k, asked.exclude_seen, *(_cut(rule, "", 0, len(cuts) and cuts[-1][1], len(cuts) and cuts[-1][1])
             for rule in (asked.allow, asked.deny))]  # fmt: skip
    held.update(json.dumps(rules, default=str).encode())
    return {"monogram": __version__, "model": model.name, "batch": cuts[0][1] if cuts else 0, "mark": held.hexdigest()}


def _digest(held: Any, tensor: Any) -> None:
    held.update(f"{tensor.dtype} {tensor.shape}".encode())
    flat = tensor.reshape(1) if tensor.ndim == 0 else tensor
    rows = max(1, SLAB // max(1, flat[:1].nbytes))
    for start in range(0, len(flat), rows):
        held.update(np.ascontiguousarray(flat[start : start + rows]).view(np.uint8))


def _begin(folder: Path, request: dict[str, Any]) -> set[int]:
    """The parts of the same request that are there; anything else in the folder is an error. The request is noted."""
    there = {one.name for one in folder.iterdir()} - {REQUEST, MODEL}
    left = {name for name in there if LEFT.fullmatch(name)}
    strange = sorted(name for name in there - left if not PART.fullmatch(name))
    if strange or (there and _noted(folder) != request):
        what = f"holds {strange[0]}" if strange else "holds parts of another request, or of one that is done"
        raise StorageError(f"{folder} {what}; name an empty or a new folder, or remove what is there")
    for name in left:
        (folder / name).unlink(missing_ok=True)
    with whole_file(folder / REQUEST) as file:
        file.write(json.dumps(request).encode())
    return {int(name[5:-8]) for name in there - left}


def _noted(folder: Path) -> Any:
    try:
        return json.loads((folder / REQUEST).read_bytes())
    except (OSError, ValueError):
        return None


def _rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)
