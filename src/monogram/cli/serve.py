"""`monogram serve`: models over HTTP, and a web page."""

from __future__ import annotations

from typing import Annotated

import typer

from monogram.cli.common import Threads
from monogram.errors import ParameterError


def command(
    models: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]MODEL...", help="Model files; the name is the file's, or the one before the =."),
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at; one that others can reach demands an API key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one, and the log says which.")] = 8000,
    items: Annotated[
        str | None,
        typer.Option("--items", metavar="FILE", help="Titles and other columns of items (csv, tsv, parquet)."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes; all map the same model.")] = 1,
    threads: Threads = None,
    key_file: Annotated[
        str | None,
        typer.Option("--key-file", metavar="FILE", help="File with the API key; or set MONOGRAM_KEY."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Let pages of this origin ask, such as https://shop.example."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Reload a model when its file is replaced.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every byte of a file with its checksum.")] = False,
    updates: Annotated[
        bool, typer.Option("--updates", help="Take events and forget users; one full-rank model, one worker.")
    ] = False,
    events: Annotated[
        str | None,
        typer.Option(
            "--events",
            metavar="FILE|URL",
            envvar="MONOGRAM_EVENTS",
            help="Where events are kept: an SQLite file (MODEL.events when not given), or postgresql://…",
        ),
    ] = None,
    refresh: Annotated[float, typer.Option("--refresh", help="Seconds for which events are gathered.")] = 1.0,
    snapshot: Annotated[
        float, typer.Option("--snapshot", help="Seconds between writes of the file of a model that follows events.")
    ] = 60.0,
    max_body: Annotated[int, typer.Option("--max-body", help="Most bytes of a request's body.")] = 1_000_000,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds within which a request is answered.")] = 30.0,
    read_timeout: Annotated[
        float, typer.Option("--read-timeout", help="Seconds within which a request must be received.")
    ] = 10.0,
    grace: Annotated[float, typer.Option("--grace", help="Seconds to finish what was begun, at the end.")] = 10.0,
) -> None:
    """Serve models over HTTP, with a web page.

    SIGTERM stops it when what was begun is done, SIGHUP reloads the model files.
    """
    from monogram.server import run
    from monogram.server.settings import Settings, parse_models, read_key

    run.require_extra()
    files = parse_models(models)
    if events is not None and not updates:
        raise ParameterError("--events (or MONOGRAM_EVENTS) is for a server that takes events: add --updates")
    database = events or f"{next(iter(files.values()))}.events" if updates else None
    settings = Settings(
        files,
        items=items,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        key=read_key(key_file),
        cors=tuple(cors or ()),
        watch=watch,
        verify=verify,
        events=database,
        refresh=refresh,
        snapshot=snapshot,
        body=max_body,
        timeout=timeout,
        reading=read_timeout,
        grace=grace,
    )
    run.serve(settings)
