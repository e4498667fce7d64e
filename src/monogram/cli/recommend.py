"""`monogram recommend`: ranked items for known users, for histories, or for everyone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from monogram.cli.alike import hint
from monogram.cli.common import (
    ClusterAddress,
    Json,
    Threads,
    answer,
    draw,
    few,
    not_over,
    talk,
    tell_unknown,
)
from monogram.cli.history import advice, parse_history
from monogram.cli.tables import Format, by_ending, print_text, text_of, write
from monogram.errors import DataError, ParameterError, UnknownIdError

USERS = 2_000  # ranked at a time, and never more rows than the next number
ROWS = 100_000
SHOWN = 20


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file, as written by fit.")],
    user: Annotated[
        list[str] | None, typer.Option("--user", metavar="ID", help="A known user; may be repeated.")
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--history", metavar="A,B", help='Items someone used, such as a,b or "a, with comma",b; may be repeated.'
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many items each gets.")] = 10,
    allow: Annotated[
        str | None, typer.Option("--allow", metavar="FILE", help="File of item ids, one a line: only these.")
    ] = None,
    deny: Annotated[
        str | None, typer.Option("--deny", metavar="FILE", help="File of item ids, one a line: none of these.")
    ] = None,
    keep_seen: Annotated[bool, typer.Option("--keep-seen", help="Also rank what is in the history.")] = False,
    form: Annotated[
        Format | None, typer.Option("--format", help="A table, or what the ending of --output says.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File to write instead of stdout; or for everyone a folder, NAME/."
        ),
    ] = None,
    threads: Threads = None,
    cluster: ClusterAddress = None,
    as_json: Json = False,
) -> None:
    """Ranked items for known users, a history, or everyone.

    With neither --user nor --history, everyone in the log the model learned from: in batches, so that memory does
    not grow with the number of users. Into a folder they go as Parquet files, one a batch; the same command on the
    folder of one that was stopped goes on where it ended.
    """
    from monogram.models import clusters
    from monogram.models.files import load

    if user and history:
        raise ParameterError("both --user and --history were given; expected one of them, or neither for all users")
    rules: dict[str, Any] = {"k": k, "allow": None, "deny": None, "exclude_seen": not keep_seen, "threads": threads}
    if output is not None and (output.endswith(("/", "\\")) or Path(output).is_dir()):
        if user or history or form not in (None, Format.parquet):
            raise ParameterError(
                f"--output {output} is a folder: it is for everyone, and for Parquet; name a file instead"
            )
        rules |= {"allow": read_ids(allow), "deny": read_ids(deny)}
        with clusters.connection(cluster) as held:
            to_folder(load(model), output, rules | {"cluster": held}, as_json)
        return
    if cluster is not None:
        raise ParameterError("--cluster ranks for everyone into a folder: add --output NAME/")
    chosen = choose_format(form, output, as_json)
    if output is not None:
        not_over(output, model, allow, deny)
    histories = [parse_history(text) for text in history or ()]
    rules |= {"allow": read_ids(allow), "deny": read_ids(deny)}
    asked = Request(load(model), user or [], history or [], histories, rules)
    if chosen is Format.table:
        show(asked)
    elif output is None:
        print_text(text_of(asked.tables(), chosen))
    else:
        write(asked.tables(), chosen, output)
        talk(f"{asked.rows:,} rows in {output}")
    asked.tell()


def to_folder(model: Any, output: str, rules: dict[str, Any], as_json: bool) -> None:
    """Lists for everyone as Parquet files in a folder."""
    found = model.recommend_all(output, **rules)
    talk(f"{found.rows:,} rows in {found.files:,} files in {output}")
    if found.resumed:
        talk(f"{found.resumed:,} of the files were there already, from a call that was stopped")
    if found.empty:
        talk(f"users without a history, so their scores say nothing: {found.empty:,}")
    tell_unknown("items", found.unknown_items)
    if as_json:
        answer(dataclasses.asdict(found))


def choose_format(form: Format | None, output: str | None, as_json: bool) -> Format:
    """The format that the flags and the name of the output ask for."""
    if as_json and form not in (None, Format.json):
        raise ParameterError(f"--json and --format {form} contradict each other; give one of them")
    if as_json or form is not None:
        chosen = form or Format.json
    elif output is None:
        chosen = Format.table
    else:
        chosen = by_ending(output, otherwise=", or give --format")
    if chosen is Format.table and output is not None:
        raise ParameterError("--format table is for the screen; with --output use csv, json or parquet")
    if chosen is Format.parquet and output is None:
        raise ParameterError("--format parquet needs a file: add --output NAME.parquet")
    return chosen


def read_ids(path: str | None) -> list[str] | None:
    """Ids from a file, one a line; blank lines do not count."""
    if path is None:
        return None
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8, one id a line") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return [line.removesuffix("\r") for line in lines if line.strip()]


@dataclass
class Request:
    """Who is asked for, and what was noticed on the way."""

    model: Any
    users: list[str]
    texts: list[str]  # the histories as they were given
    histories: list[list[str]]
    rules: dict[str, Any]
    rows: int = 0
    unknown_users: list[Any] = field(default_factory=list)
    unknown_items: dict[Any, None] = field(default_factory=dict)
    empty: list[Any] = field(default_factory=list)  # the first few; their number is beside it
    empty_count: int = 0

    @property
    def everyone(self) -> bool:
        """Whether nobody in particular was asked for."""
        return not self.users and not self.histories

    def tables(self, most: int | None = None) -> Iterator[Any]:
        """The answer, batch by batch, as Arrow tables; of everyone at most the first users."""
        for found in self._everyone(most) if self.everyone else self._named():
            self.unknown_users += found.unknown_users
            self.unknown_items |= dict.fromkeys(found.unknown_items)
            self.empty += found.empty[: 5 - len(self.empty)]
            self.empty_count += len(found.empty)
            self.rows += len(found)
            yield found.to_arrow()

    def _named(self) -> Iterator[Any]:
        found = self.model.recommend(self.users or None, self.histories or None, **self.rules)
        if self.users and len(found.unknown_users) == len(self.users):
            raise UnknownIdError(
                f"the model knows no user {few(self.users)}; for someone new, give what they used with --history"
                + hint(self.users, self.model.log_.users)
            )
        yield found

    def _everyone(self, most: int | None) -> Iterator[Any]:
        import numpy as np

        from monogram import ranking

        log = self.model.log_
        end = min(most or log.n_users, log.n_users)
        batch = max(1, min(USERS, ROWS // max(1, self.rules["k"])))
        for start in range(0, end, batch):
            at = np.arange(start, min(start + batch, end))
            asked = ranking.Histories(log.matrix[at], log.users.take(at))
            yield ranking.recommend(self.model.weights_, asked, log.items, **self.rules)

    def tell(self) -> None:
        """Say on stderr what could not be answered as asked."""
        items = list(self.unknown_items)
        tell_unknown("users", self.unknown_users, hint(self.unknown_users, self.model.log_.users))
        tell_unknown("items", items, advice(self.texts, items, self.model.log_.items))
        if self.empty_count:
            what = "histories without a known item" if self.texts else "users without a history"
            who = [self.texts[one] for one in self.empty] if self.texts else self.empty
            talk(f"{what}, so their scores say nothing: {few(who, self.empty_count)}")


def show(asked: Request) -> None:
    """A table on the screen; of everyone the first users only."""
    draw([row for table in asked.tables(SHOWN) for row in table.to_pylist()])
    everyone = asked.model.log_.n_users
    if asked.everyone and everyone > SHOWN:
        talk(
            f"the first {SHOWN} of {everyone:,} users; for all add --format csv, or --output NAME.csv (.json, .parquet)"
        )
