"""The commands, one file each. Results go to stdout, diagnostics to stderr."""

from monogram.cli.app import main

__all__ = ["main"]
