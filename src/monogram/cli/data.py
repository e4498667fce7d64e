"""`monogram data`: what the public data sets are, and, when asked for by name, a download."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monogram._version import __version__
from monogram.cli.common import Json, answer, draw, talk
from monogram.errors import DataError, ParameterError
from monogram.safe import whole_file

if TYPE_CHECKING:
    from monogram.data.public import DataSet

TIMEOUT = 30.0  # seconds without a byte
PIECE = 1 << 18

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `monogram data list`.")]

command = typer.Typer(
    help="The public data sets the papers use.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@command.command("list")
def list_sets(as_json: Json = False) -> None:
    """All of them, and which are on this machine."""
    from monogram.data import public

    if as_json:
        answer([_document(one) for one in public.DATA_SETS.values()])
        return
    draw(
        [
            {
                "name": one.name,
                "users": f"{one.users:,}",
                "items": f"{one.items:,}",
                "events": f"{one.events:,}",
                "protocol": one.protocol or "",
                "download": "yes" if one.url else "by hand",
                "here": public.find(one.name) or "",
            }
            for one in public.DATA_SETS.values()
        ]
    )
    where = public.folder()
    talk(f"looked in {where}" if where else f"set {public.VARIABLE} to the folder that holds your copies")


@command.command("show")
def show_set(name: Name, as_json: Json = False) -> None:
    """One of them: source, terms, where to put it, how to read it."""
    from monogram.data import public

    one = public.get(name)
    if as_json:
        answer(_document(one))
        return
    here = public.find(name)
    lines = {
        one.name: one.title,
        "size": f"{one.users:,} users × {one.items:,} items, {one.events:,} events",
        "source": one.source,
        "terms": one.terms,
        "protocol": one.protocol or "none of the papers",
        "prepared": one.preparation,
        "file": f"{one.url} (md5 {one.md5})" if one.url else "by hand, from the source",
        "put it at": f"${public.VARIABLE}/{one.files[0]}",
        "here": str(here or "no"),
    }
    width = max(map(len, lines)) + 2
    text = "".join(f"{label:{width}}{value}\n" for label, value in lines.items())
    print(f"{text}\nTo read it, in ${public.VARIABLE}:\n\n{one.reading}", end="", flush=True)


@command.command("download")
def download(
    name: Name,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FOLDER", help="Else MONOGRAM_DATA, else the one you are in.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch one of them: the only command that uses the network."""
    from monogram.data import public

    one = public.get(name)
    if one.url is None or one.md5 is None:
        raise ParameterError(
            f"{name} has no lasting file with a published checksum; get it by hand from {one.source} "
            f"and put it at ${public.VARIABLE}/{one.files[0]} (see: monogram data show {name})"
        )
    target = Path(to) if to is not None else public.folder() or Path()
    path = target / one.url.rsplit("/", 1)[-1]
    talk(f"terms: {one.terms}")
    if path.exists() and not force:
        _check_present(path, one.md5)
    else:
        fetch(one.url, path, one.md5)
    talk(f"unpack it in {target} so that there is a {one.files[0]}, then see: monogram data show {name}")
    if as_json:
        answer({"name": name, "path": str(path), "md5": one.md5})
    else:
        print(path, flush=True)


def fetch(url: str, path: Path, md5: str) -> None:
    """A file from the network to a path, whole and with the right checksum, or not at all."""
    digest = hashlib.md5(usedforsecurity=False)
    with whole_file(path) as file, _progress() as step:
        for piece, total in _received(url):
            digest.update(piece)
            file.write(piece)
            step(len(piece), total)
        if digest.hexdigest() != md5:
            raise DataError(
                f"{url} came with the checksum {digest.hexdigest()}, expected {md5}: it was cut off or has changed. "
                "Nothing was kept; try again"
            )


def _received(url: str) -> Iterator[tuple[bytes, int | None]]:
    """The pieces of a file, each with the length of the whole where it is known."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": f"monogram/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while piece := response.read(PIECE):
                yield piece, total
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} could not be fetched: the server answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} could not be fetched: {reason}. Nothing was kept; check the network and try again"
        ) from error


@contextmanager
def _progress() -> Iterator[Any]:
    """What to call with the bytes that came; draws on terminals only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda came, total: bar.update(task, advance=came, total=total)


def _check_present(path: Path, md5: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} is there but cannot be read: {error.strerror or error}") from error
    if found != md5:
        raise DataError(f"{path} is there with another checksum ({found}, expected {md5}); --force replaces it")
    talk(f"{path} is there already, with the right checksum")


def _document(one: DataSet) -> dict[str, Any]:
    from monogram.data import public

    here = public.find(one.name)
    return dataclasses.asdict(one) | {"here": None if here is None else str(here)}
