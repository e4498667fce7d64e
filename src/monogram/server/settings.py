"""The settings of a server, from the command line. They hold the digest of the API key, never the key."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monogram.errors import ParameterError

KEY_VARIABLE = "MONOGRAM_KEY"
SHORTEST_KEY = 16


@dataclass(frozen=True)
class Settings:
    """The settings of `monogram serve`.

    Attributes
    ----------
    models : name → file
    key : SHA-256 of the API key, or None
    events : database of events, a path or a URL of PostgreSQL; None without updates
    refresh, snapshot : seconds between two updates of the model, and between two writes of its file
    expand : expand dual weights that rank slowly
    body : most bytes of a request's body
    timeout, reading, grace : seconds to answer a request, to receive one, and to shut down
    gather : seconds for which concurrent requests are collected into a batch
    """

    models: Mapping[str, str]
    items: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    key: bytes | None = field(default=None, repr=False)
    cors: tuple[str, ...] = ()
    watch: bool = False
    verify: bool = False
    expand: bool = True
    events: str | None = field(default=None, repr=False)  # a URL may hold a password
    refresh: float = 1.0
    snapshot: float = 60.0
    body: int = 1_000_000
    timeout: float = 30.0
    reading: float = 10.0
    grace: float = 10.0
    gather: float = 0.002

    def __post_init__(self) -> None:
        if not self.models:
            raise ParameterError("no model file was given; expected at least one")
        for name, low in (("port", 0), ("workers", 1), ("body", 1)):
            if getattr(self, name) < low:
                raise ParameterError(f"{flag(name)} = {getattr(self, name)}; expected at least {low}")
        for origin in self.cors:
            if not re.fullmatch(r"https?://[^/*\s@]+", origin):
                raise ParameterError(
                    f"--cors {origin!r}; expected an origin such as https://shop.example, without a path"
                )
        if self.port > 65535:
            raise ParameterError(f"port = {self.port}; expected at most 65535")
        for name in ("timeout", "reading", "grace", "refresh", "snapshot"):
            if not 0 <= getattr(self, name) < 1e6 or (name in ("timeout", "reading") and not getattr(self, name)):
                raise ParameterError(f"{flag(name)} = {getattr(self, name)}; expected seconds above 0")
        if self.key is None and not is_loopback(self.host):
            raise ParameterError(
                f"host = {self.host!r} is reachable from other machines, which requires an API key: put one of at "
                f"least {SHORTEST_KEY} characters into a file and give --key-file FILE, or set {KEY_VARIABLE}"
            )
        if self.events is not None and (self.workers > 1 or len(self.models) > 1):
            raise ParameterError(
                f"updates change one model in one process; got {len(self.models)} models and {self.workers} workers. "
                "Give one file and workers 1, and serve the others from another process"
            )

    @property
    def updates(self) -> bool:
        """Whether the server accepts events."""
        return self.events is not None


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return {"body": "--max-body", "reading": "--read-timeout"}.get(name, f"--{name}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(path: str | None, environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The digest of the key in a file, else in the environment variable; None without a key."""
    if path is not None:
        try:
            key = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ParameterError(f"the key file {path} cannot be read: {reason}") from error
    elif KEY_VARIABLE in environment:
        key = environment[KEY_VARIABLE].strip()
    else:
        return None
    if not key.isascii() or not key.isprintable():
        raise ParameterError("the API key has characters that an HTTP header cannot hold; expected printable ASCII")
    if len(key) < SHORTEST_KEY:
        raise ParameterError(f"the API key has {len(key)} characters; expected at least {SHORTEST_KEY}")
    return digest(key.encode())


def digest(key: bytes) -> bytes:
    """The SHA-256 of a key: the only form in which it is stored."""
    return hashlib.sha256(key).digest()


def parse_models(files: list[str]) -> dict[str, str]:
    """Name → file, from arguments such as shop.mono or shop=models/today.mono."""
    paths: dict[str, str] = {}
    for text in files:
        name, equals, path = text.partition("=")
        if not equals or os.path.exists(text):
            name, path = Path(text).stem, text
        if not name or "/" in name or not path:
            raise ParameterError(f"{text!r}; expected a model file, or NAME=FILE with a name without slashes")
        if name in paths:
            raise ParameterError(f"two models are called {name!r}; name one of them: other={path}")
        paths[name] = path
    return paths
