"""Recommendations for every user of the log in a folder of Parquet files, written by this process or by a cluster."""

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

USERS, ROWS = 10_000, 1_000_000  # most users and rows in a file
REQUEST, MODEL = ".monogram-request.json", ".monogram-model.mono"
PART = re.compile(r"part-\d{5,}\.parquet")
LEFTOVER = re.compile(r"\.(part-|\.monogram-).*\.tmp")  # temporary files of a process that was killed
SLAB = 1 << 24  # bytes of an array that are hashed at once

Range = tuple[int, int]  # first user of a part, and the one after its last


@dataclass(frozen=True)
class BatchRequest:
    """What `recommend_all` computes for every user; see `Recommender.recommend`.

    Rules are stored as lists in a fixed order: they are read for each part, and identify the request.
    """

    k: int
    allow: Any = None
    deny: Any = None
    exclude_seen: bool = True
    at: Any = None

    def __post_init__(self) -> None:
        for name in ("allow", "deny"):
            object.__setattr__(self, name, _as_lists(getattr(self, name), name))

    def unknown(self, items: Any) -> tuple[Any, ...]:
        """Ids in the rules that are not in a vocabulary."""
        rules = [rule for rule in (self.allow, self.deny) if rule is not None]
        lists = [ids for rule in rules for ids in (rule if rule and isinstance(rule[0], list) else [rule])]
        ids = list(dict.fromkeys(id_ for rule_ids in lists for id_ in rule_ids))
        return tuple(ranking.unknown_ids(ids, items.index(ids)))

    def part(self, users: Range, n_users: int) -> BatchRequest:
        """The request for a range of users: of rules by user, only their lists; there must be one for each user."""
        allow, deny = (
            _rule_part(rule, name, users, n_users) for name, rule in (("allow", self.allow), ("deny", self.deny))
        )
        return BatchRequest(self.k, allow, deny, self.exclude_seen, self.at)


def _as_lists(rule: Any, name: str) -> Any:
    """A rule as a list of ids or a list of such lists; a set is sorted, so that the same set is the same list."""
    if rule is None:
        return None
    if isinstance(rule, set | frozenset):
        rule = sorted(rule, key=repr)
    by_user, lists = ranking.rule_lists(rule, name)
    return lists if by_user else lists[0]


def _rule_part(rule: Any, name: str, users: Range, n_users: int) -> Any:
    """The lists of a rule for a range of users; a single list for all users is returned as it is."""
    if rule is None:
        return None
    by_user, lists = ranking.rule_lists(rule, name)
    if not by_user:
        return lists[0]
    if len(lists) != n_users:
        raise ParameterError(f"{name} has {len(lists)} lists for {n_users} users; expected one list for each")
    return lists[slice(*users)]


@dataclass(frozen=True)
class Written:
    """What `recommend_all` wrote.

    Attributes
    ----------
    folder : where the files are
    files : number of files
    rows : number of rows in all files
    users : number of users
    empty : number of users without a history: their scores hold no information
    unknown_items : ids in allow or deny that the model does not know; they were left out
    resumed : number of files kept from an earlier call that was stopped
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
    request: BatchRequest,
    batch: int | None,
    threads: int,
    progress: Stage,
    cluster: Cluster | None,
) -> Written:
    """See `Recommender.recommend_all`."""
    log = model.log_
    ranges = _ranges(log.n_users, request.k, batch)
    _check(model, request)
    path = Path(folder).absolute()
    make_folder(path, "name another one")
    done = _begin(path, _fingerprint(model, request, ranges))
    todo = [number for number in range(len(ranges)) if number not in done]
    if cluster:
        written = _write_on_cluster(model, path, request, ranges, todo, cluster)
    else:
        written = _write_here(model, path, request, ranges, todo, threads)
    for number in written:
        progress("users", float(ranges[number][1] - ranges[number][0]))
    rows = sum(_count_rows(path / name_of(number)) for number in range(len(ranges)))
    (path / REQUEST).unlink(missing_ok=True)
    empty = int((np.diff(log.matrix.indptr) == 0).sum())
    return Written(path, len(ranges), rows, log.n_users, empty, request.unknown(log.items), len(done))


def name_of(number: int) -> str:
    """The file name of a part."""
    return f"part-{number:05}.parquet"


def _check(model: Recommender, request: BatchRequest) -> None:
    """Raise an error for invalid rules or an invalid k before anything is written."""
    request.part((0, 0), model.log_.n_users)
    ranking.recommend(model.weights_, _histories(model, (0, 0), request), model.log_.items, k=request.k)


def _ranges(users: int, k: Any, batch: int | None) -> list[Range]:
    """The users of each part."""
    if batch is None:
        batch = max(1, min(USERS, ROWS // k)) if isinstance(k, int) and k >= 1 else USERS
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1:
        raise ParameterError(f"batch = {batch!r}; expected a whole number of at least 1, or None")
    return [(start, min(start + int(batch), users)) for start in range(0, users, int(batch))]


def _histories(model: Recommender, users: Range, request: BatchRequest) -> ranking.Histories:
    return ranking.training_histories(np.arange(*users), model.log_, model.recency_rule(), request.at)


def _write_part(
    model: Recommender, folder: Path, number: int, users: Range, request: BatchRequest, threads: int
) -> None:
    """Rank for a range of users and write the file; `request` holds the rules of these users."""
    import pyarrow.parquet as pq

    rules: dict[str, Any] = {"allow": request.allow, "deny": request.deny, "exclude_seen": request.exclude_seen}
    histories = _histories(model, users, request)
    recommendations = ranking.recommend(
        model.weights_, histories, model.log_.items, k=request.k, threads=threads, **rules
    )
    with whole_file(folder / name_of(number)) as file:
        pq.write_table(recommendations.to_arrow(), file)


def _write_here(
    model: Recommender, folder: Path, request: BatchRequest, ranges: list[Range], todo: list[int], threads: int
) -> Iterator[int]:
    """Write the parts in this process; yields the number of each."""
    for number in todo:
        part = request.part(ranges[number], model.log_.n_users)
        _write_part(model, folder, number, ranges[number], part, threads)
        yield number


def _write_on_cluster(
    model: Recommender, folder: Path, request: BatchRequest, ranges: list[Range], todo: list[int], cluster: Cluster
) -> Iterator[int]:
    """Write the parts on the workers, which map the model from a file in the output folder; yields their numbers."""
    from monogram.cluster.client import Run

    if not todo:
        return
    run, users = Run(cluster), model.log_.n_users
    try:
        model.save(folder / MODEL)
        with run.stage("ranking for all users"):
            tasks = (
                run.submit(task, str(folder), n, ranges[n], request.part(ranges[n], users), name=f"rank-{n}")
                for n in todo
            )
            ahead = 2 * sum(int(worker["nthreads"]) for worker in cluster.workers().values()) + 2
            for number, _ in zip(todo, run.stream(tasks, ahead=ahead), strict=True):
                yield number
            with suppress(OSError):  # a worker that was lost holds no mapping
                cluster.client.run(release_model)
    finally:
        (folder / MODEL).unlink(missing_ok=True)


def task(folder: str, number: int, users: Range, request: BatchRequest) -> None:
    """Write one part on a worker, with one thread: a worker runs as many tasks at once as it has threads."""
    path = Path(folder)
    if not (path / MODEL).exists():
        raise ClusterError(
            f"a worker cannot read {path / MODEL}, the model in the output folder; every worker needs the folder under "
            "the same path (a shared file system)"
        )
    status = (path / MODEL).stat()
    model = _mapped_model(path / MODEL, status.st_mtime_ns, status.st_ino)
    _write_part(model, path, number, users, request, 1)


@lru_cache(maxsize=1)
def _mapped_model(path: Path, *_: int) -> Recommender:
    """The model of a file, memory-mapped once for all parts; modification time and inode identify the file."""
    return files.load(path, verify=False)


def release_model() -> None:
    """Release the mapped model, so that its file can be deleted."""
    _mapped_model.cache_clear()


def _fingerprint(model: Recommender, request: BatchRequest, ranges: list[Range]) -> dict[str, Any]:
    """What identifies a request when it resumes: the batch size, and a hash of the model's arrays and of the rules."""
    digest = hashlib.sha256()
    for tensor in [*model.weights_.tensors().values(), *files.log_tensors(model.log_)[1].values()]:
        _add_tensor(digest, np.asarray(tensor))
    users = ranges[-1][1] if ranges else 0
    part = request.part((0, users), users)
    digest.update(json.dumps([request.k, request.exclude_seen, part.allow, part.deny], default=str).encode())
    if model.recency_rule().active:
        digest.update(repr((model.recency_rule(), request.at)).encode())
        for name in ("latest", "order"):
            values = getattr(model.log_, name)
            if values is not None:
                _add_tensor(digest, values)
    batch = ranges[0][1] if ranges else 0
    return {"monogram": __version__, "model": model.name, "batch": batch, "mark": digest.hexdigest()}


def _add_tensor(digest: Any, tensor: Any) -> None:
    """Add an array to a hash, slab by slab, without a copy of the whole array."""
    digest.update(f"{tensor.dtype} {tensor.shape}".encode())
    flat = tensor.reshape(1) if tensor.ndim == 0 else tensor
    rows = max(1, SLAB // max(1, flat[:1].nbytes))
    for start in range(0, len(flat), rows):
        digest.update(np.ascontiguousarray(flat[start : start + rows]).view(np.uint8))


def _begin(folder: Path, fingerprint: dict[str, Any]) -> set[int]:
    """Store the fingerprint of a request, and return the numbers of its parts that are complete already.

    StorageError where the folder has any other content.
    """
    names = {entry.name for entry in folder.iterdir()} - {REQUEST, MODEL}
    leftovers = {name for name in names if LEFTOVER.fullmatch(name)}
    foreign = sorted(name for name in names - leftovers if not PART.fullmatch(name))
    if foreign or (names and _stored_fingerprint(folder) != fingerprint):
        content = foreign[0] if foreign else "parts of another request, or of one that is done"
        raise StorageError(f"{folder} holds {content}; name an empty or a new folder, or remove its content")
    for name in leftovers:
        (folder / name).unlink(missing_ok=True)
    with whole_file(folder / REQUEST) as file:
        file.write(json.dumps(fingerprint).encode())
    return {int(name[5:-8]) for name in names - leftovers}


def _stored_fingerprint(folder: Path) -> Any:
    """The fingerprint stored in the folder; None where there is none."""
    try:
        return json.loads((folder / REQUEST).read_bytes())
    except (OSError, ValueError):
        return None


def _count_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)
