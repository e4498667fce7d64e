"""`monogram serve`: models over HTTP, and a web page."""

from __future__ import annotations

from typing import Annotated

import typer

from monogram.cli.shared_options import Threads
from monogram.errors import ParameterError


def command(
    models: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]MODEL...", help="Model files; NAME is by default the name of the file."),
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; an address other than localhost requires an API key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 chooses a free port, which is logged.")] = 8000,
    items: Annotated[
        str | None,
        typer.Option("--items", metavar="FILE", help="Titles and other columns of items (csv, tsv, parquet)."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Number of processes; all map the same model file.")] = 1,
    threads: Threads = None,
    key_file: Annotated[
        str | None,
        typer.Option("--key-file", metavar="FILE", help="File with the API key; or set MONOGRAM_KEY."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Allow requests from this origin, such as https://shop.example."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Reload a model when its file is replaced.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every model file with its checksums when it is loaded.")
    ] = False,
    expand: Annotated[
        bool,
        typer.Option(
            "--expand/--no-expand",
            help="Expand the weights of a dual model that would rank slowly, if memory allows; the file stays.",
        ),
    ] = True,
    updates: Annotated[
        bool,
        typer.Option(
            "--updates", help="Accept events and requests to forget users; for one full-rank model and one worker."
        ),
    ] = False,
    events: Annotated[
        str | None,
        typer.Option(
            "--events",
            metavar="FILE|URL",
            envvar="MONOGRAM_EVENTS",
            help="Where events are stored: an SQLite file (by default MODEL.events), or postgresql://…",
        ),
    ] = None,
    refresh: Annotated[
        float, typer.Option("--refresh", help="Seconds for which events are collected before the model is updated.")
    ] = 1.0,
    snapshot: Annotated[
        float, typer.Option("--snapshot", help="Seconds between writes of the model file with --updates.")
    ] = 60.0,
    max_body: Annotated[int, typer.Option("--max-body", help="Maximum size of a request body in bytes.")] = 1_000_000,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which a request fails.")] = 30.0,
    read_timeout: Annotated[
        float, typer.Option("--read-timeout", help="Seconds within which a request must be received.")
    ] = 10.0,
    grace: Annotated[float, typer.Option("--grace", help="Seconds to finish open requests at shutdown.")] = 10.0,
) -> None:
    """Serve models over HTTP, with a web page.

    SIGTERM stops the server after open requests are finished. SIGHUP reloads the model files.
    """
    from monogram.server import run
    from monogram.server.settings import Settings, parse_models, read_key

    run.require_extra()
    files = parse_models(models)
    if events is not None and not updates:
        raise ParameterError("--events (or MONOGRAM_EVENTS) requires a server that accepts events: add --updates")
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
        expand=expand,
        events=database,
        refresh=refresh,
        snapshot=snapshot,
        body=max_body,
        timeout=timeout,
        reading=read_timeout,
        grace=grace,
    )
    run.serve(settings)
