"""`monogram recommend`: ranked items for known users, for histories, or for all users."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.history import advice, asked_at, check_times, with_times
from monogram.cli.output import check_output, print_json, print_stderr, print_table, print_unknown_ids, quoted_ids
from monogram.cli.shared_options import AskedAt, ClusterAddress, HistoryTimes, Json, Threads
from monogram.cli.suggestions import suggestion
from monogram.cli.table_formats import Format, format_of_name, print_text, text_chunks, write
from monogram.errors import DataError, ParameterError, UnknownIdError

BATCH_USERS = 2_000  # ranked at a time, with at most BATCH_ROWS rows
BATCH_ROWS = 100_000
TABLE_USERS = 20  # of all users, shown in a table
VERIFIED = 256 * 10**6  # bytes of a model file up to which its checksums are always compared


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    user: Annotated[
        list[str] | None, typer.Option("--user", metavar="ID", help="A known user; may be repeated.")
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--history",
            metavar="A,B",
            help='Items of a history in order, the oldest first, such as a,b or "a, with comma",b; may be repeated.',
        ),
    ] = None,
    times: HistoryTimes = None,
    at: AskedAt = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of items in each list.")] = 10,
    allow: Annotated[
        str | None,
        typer.Option("--allow", metavar="FILE", help="File of item ids, one per line: recommend only these."),
    ] = None,
    deny: Annotated[
        str | None,
        typer.Option("--deny", metavar="FILE", help="File of item ids, one per line: never recommend these."),
    ] = None,
    keep_seen: Annotated[bool, typer.Option("--keep-seen", help="Also rank the items of the history.")] = False,
    form: Annotated[
        Format | None, typer.Option("--format", help="Format; by default a table, or the extension of --output.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File to write instead of stdout; or, for all users, a folder NAME/."
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="With --user or --history: compare a file above 256 MB with its checksums too."),
    ] = False,
    threads: Threads = None,
    cluster: ClusterAddress = None,
    as_json: Json = False,
) -> None:
    """Recommend items for known users, a history, or all users.

    With neither --user nor --history, for all users of the training log: in batches, so that memory does not grow with
    the number of users. In a folder each batch is a Parquet file; the same command on the folder of an interrupted run
    resumes it.
    """
    from monogram.models import clusters
    from monogram.models.files import load

    if user and history:
        raise ParameterError("both --user and --history were given; expected one of them, or neither for all users")
    rules: dict[str, Any] = {"k": k, "allow": None, "deny": None, "exclude_seen": not keep_seen, "threads": threads}
    rules["at"] = asked_at(at)
    if output is not None and (output.endswith(("/", "\\")) or Path(output).is_dir()):
        if user or history or form not in (None, Format.parquet):
            raise ParameterError(
                f"--output {output} is a folder, which is for all users and for Parquet only; name a file instead"
            )
        rules |= {"allow": read_ids(allow), "deny": read_ids(deny)}
        with clusters.connection(cluster) as connected:
            to_folder(load(model), output, rules | {"cluster": connected}, as_json)
        return
    if cluster is not None:
        raise ParameterError("--cluster is for the lists of all users in a folder: add --output NAME/")
    chosen = choose_format(form, output, as_json)
    if output is not None:
        check_output(output, model, allow, deny)
    histories = with_times(history or [], times or [])
    rules |= {"allow": read_ids(allow), "deny": read_ids(deny)}
    complete = verify or not (user or history) or _size(model) <= VERIFIED
    fitted = load(model, verify=complete)
    check_times(fitted, history or [], times or [])
    request = Request(fitted, user or [], history or [], histories, rules)
    if chosen is Format.table:
        show(request)
    elif output is None:
        print_text(text_chunks(request.tables(), chosen))
    else:
        write(request.tables(), chosen, output)
        print_stderr(f"{request.rows:,} rows in {output}")
    request.print_problems()


def to_folder(model: Any, output: str, rules: dict[str, Any], as_json: bool) -> None:
    """Write the lists of all users as Parquet files to a folder."""
    result = model.recommend_all(output, **rules)
    print_stderr(f"{result.rows:,} rows in {result.files:,} files in {output}")
    if result.resumed:
        print_stderr(f"{result.resumed:,} of the files existed already, from an interrupted run")
    if result.empty:
        print_stderr(f"users without a history, whose scores are not personal: {result.empty:,}")
    print_unknown_ids("items", result.unknown_items)
    if as_json:
        print_json(dataclasses.asdict(result))


def _size(path: str) -> int:
    """Bytes of a file; 0 where there is none, which `load` reports."""
    try:
        return os.path.getsize(path)
    except (OSError, ValueError):
        return 0


def choose_format(form: Format | None, output: str | None, as_json: bool) -> Format:
    """The format according to the flags and the extension of the output."""
    if as_json and form not in (None, Format.json):
        raise ParameterError(f"--json and --format {form} contradict each other; give one of them")
    if as_json or form is not None:
        chosen = form or Format.json
    elif output is None:
        chosen = Format.table
    else:
        chosen = format_of_name(output, otherwise=", or give --format")
    if chosen is Format.table and output is not None:
        raise ParameterError("--format table is for stdout; with --output use csv, json or parquet")
    if chosen is Format.parquet and output is None:
        raise ParameterError("--format parquet needs a file: add --output NAME.parquet")
    return chosen


def read_ids(path: str | None) -> list[str] | None:
    """Ids from a file, one per line; blank lines are skipped."""
    if path is None:
        return None
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8, one id per line") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return [line.removesuffix("\r") for line in lines if line.strip()]


@dataclass
class Request:
    """The users or histories to recommend for, and the ids that could not be used."""

    model: Any
    users: list[str]
    texts: list[str]  # the histories as written on the command line
    histories: list[Any]
    rules: dict[str, Any]
    rows: int = 0
    unknown_users: list[Any] = field(default_factory=list)
    unknown_items: dict[Any, None] = field(default_factory=dict)
    empty: list[Any] = field(default_factory=list)  # the first five; `empty_count` counts all
    empty_count: int = 0

    @property
    def all_users(self) -> bool:
        """Whether the request is for all users."""
        return not self.users and not self.histories

    def tables(self, most: int | None = None) -> Iterator[Any]:
        """The lists as Arrow tables, batch by batch; of all users at most the first `most`."""
        for batch in self._all_users(most) if self.all_users else self._named():
            self.unknown_users += batch.unknown_users
            self.unknown_items |= dict.fromkeys(batch.unknown_items)
            self.empty += batch.empty[: 5 - len(self.empty)]
            self.empty_count += len(batch.empty)
            self.rows += len(batch)
            yield batch.to_arrow()

    def _named(self) -> Iterator[Any]:
        from monogram.engine.topk.few import one_request

        with one_request():
            result = self.model.recommend(self.users or None, self.histories or None, **self.rules)
        if self.users and len(result.unknown_users) == len(self.users):
            raise UnknownIdError(
                f"the model knows no user {quoted_ids(self.users)}; for a new user, give a history with --history"
                + suggestion(self.users, self.model.log_.users)
            )
        yield result

    def _all_users(self, most: int | None) -> Iterator[Any]:
        import numpy as np

        from monogram import ranking

        log, recency = self.model.log_, self.model.recency_rule()
        rules = dict(self.rules)
        at = rules.pop("at")
        end = min(most or log.n_users, log.n_users)
        batch = max(1, min(BATCH_USERS, BATCH_ROWS // max(1, rules["k"])))
        for start in range(0, end, batch):
            rows = np.arange(start, min(start + batch, end))
            histories = ranking.training_histories(rows, log, recency, at)
            yield ranking.recommend(self.model.weights_, histories, log.items, **rules)

    def print_problems(self) -> None:
        """Print to stderr the unknown ids and the empty histories."""
        items = list(self.unknown_items)
        print_unknown_ids("users", self.unknown_users, suggestion(self.unknown_users, self.model.log_.users))
        print_unknown_ids("items", items, advice(self.texts, items, self.model.log_.items))
        if self.empty_count:
            subject = "histories without a known item" if self.texts else "users without a history"
            ids = [self.texts[number] for number in self.empty] if self.texts else self.empty
            print_stderr(f"{subject}, whose scores are not personal: {quoted_ids(ids, self.empty_count)}")


def show(request: Request) -> None:
    """Print the lists as a table; for all users only the first of them."""
    print_table([row for table in request.tables(TABLE_USERS) for row in table.to_pylist()])
    number = request.model.log_.n_users
    if request.all_users and number > TABLE_USERS:
        print_stderr(f"the first {TABLE_USERS} of {number:,} users; for all add --format csv, or --output NAME.csv")
