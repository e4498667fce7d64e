"""`monogram data`: a list of the public data sets, a description of each, and downloads."""

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
from monogram.cli.output import print_json, print_stderr, print_table
from monogram.cli.shared_options import Json
from monogram.errors import DataError, ParameterError
from monogram.safe import whole_file

if TYPE_CHECKING:
    from monogram.data.public import DataSet

TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18  # bytes

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name from `monogram data list`.")]

command = typer.Typer(
    help="List, describe and download the public data sets of the papers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@command.command("list")
def list_sets(as_json: Json = False) -> None:
    """List all data sets, and which of them are on this machine."""
    from monogram.data import public

    if as_json:
        print_json([_document(data_set) for data_set in public.DATA_SETS.values()])
        return
    print_table(
        [
            {
                "name": data_set.name,
                "users": f"{data_set.users:,}",
                "items": f"{data_set.items:,}",
                "events": f"{data_set.events:,}",
                "protocol": data_set.protocol or "",
                "download": "yes" if data_set.url else "by hand",
                "here": public.find(data_set.name) or "",
            }
            for data_set in public.DATA_SETS.values()
        ]
    )
    where = public.folder()
    print_stderr(f"looked in {where}" if where else f"set {public.VARIABLE} to the folder that holds your copies")


@command.command("show")
def show_set(name: Name, as_json: Json = False) -> None:
    """Describe a data set: source, terms of use, where to put it, how to read it."""
    from monogram.data import public

    data_set = public.get(name)
    if as_json:
        print_json(_document(data_set))
        return
    here = public.find(name)
    lines = {
        data_set.name: data_set.title,
        "size": f"{data_set.users:,} users × {data_set.items:,} items, {data_set.events:,} events",
        "source": data_set.source,
        "terms": data_set.terms,
        "protocol": data_set.protocol or "none of the papers",
        "prepared": data_set.preparation,
        "file": f"{data_set.url} (md5 {data_set.md5})" if data_set.url else "by hand, from the source",
        "put it at": f"${public.VARIABLE}/{data_set.files[0]}",
        "here": str(here or "no"),
    }
    width = max(map(len, lines)) + 2
    text = "".join(f"{label:{width}}{value}\n" for label, value in lines.items())
    print(f"{text}\nTo read it, in ${public.VARIABLE}:\n\n{data_set.reading}", end="", flush=True)


@command.command("download")
def download(
    name: Name,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FOLDER", help="Target; by default MONOGRAM_DATA, else the current folder."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Download a data set. No other command uses the network."""
    from monogram.data import public

    data_set = public.get(name)
    if data_set.url is None or data_set.md5 is None:
        raise ParameterError(
            f"{name} has no permanent file with a published checksum; get it by hand from {data_set.source} "
            f"and put it at ${public.VARIABLE}/{data_set.files[0]} (see: monogram data show {name})"
        )
    target = Path(to) if to is not None else public.folder() or Path()
    path = target / data_set.url.rsplit("/", 1)[-1]
    print_stderr(f"terms: {data_set.terms}")
    if path.exists() and not force:
        _check_present(path, data_set.md5)
    else:
        fetch(data_set.url, path, data_set.md5)
    print_stderr(f"unpack it in {target} so that there is a {data_set.files[0]}, then see: monogram data show {name}")
    if as_json:
        print_json({"name": name, "path": str(path), "md5": data_set.md5})
    else:
        print(path, flush=True)


def fetch(url: str, path: Path, md5: str) -> None:
    """Download a file to a path; it is written only when it is complete and its checksum is right."""
    digest = hashlib.md5(usedforsecurity=False)
    with whole_file(path) as file, _progress() as step:
        for chunk, total in _received(url):
            digest.update(chunk)
            file.write(chunk)
            step(len(chunk), total)
        if digest.hexdigest() != md5:
            raise DataError(
                f"{url} has the checksum {digest.hexdigest()}, expected {md5}: the download is incomplete, or the file "
                "has changed. Nothing was written; try again"
            )


def _received(url: str) -> Iterator[tuple[bytes, int | None]]:
    """The chunks of a file, each with the length of the whole file where it is known."""
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": f"monogram/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while chunk := response.read(CHUNK):
                yield chunk, total
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} could not be fetched: the server answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{url} could not be fetched: {reason}. Nothing was written; check the network and try again"
        ) from error


@contextmanager
def _progress() -> Iterator[Any]:
    """A function to call with the bytes received and the total; it shows progress on terminals only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda received, total: bar.update(task, advance=received, total=total)


def _check_present(path: Path, md5: str) -> None:
    try:
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} exists but cannot be read: {error.strerror or error}") from error
    if actual != md5:
        raise DataError(f"{path} exists with another checksum ({actual}, expected {md5}); --force replaces it")
    print_stderr(f"{path} exists already, with the right checksum")


def _document(data_set: DataSet) -> dict[str, Any]:
    from monogram.data import public

    here = public.find(data_set.name)
    return dataclasses.asdict(data_set) | {"here": None if here is None else str(here)}
