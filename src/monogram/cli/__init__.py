"""The commands, one file each. Data goes to stdout, talk to stderr."""

from monogram.cli.app import main

__all__ = ["main"]
