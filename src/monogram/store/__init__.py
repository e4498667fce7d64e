"""Model files: one safetensors file with a JSON header; memory-mapped, checksummed, never pickled.

The package knows no model: it stores a header and named arrays. `monogram.models.files` stores models with it.
"""

from monogram.safe import leftovers
from monogram.store.format import FORMAT, JSON, RowSource
from monogram.store.reader import StoredFile, load, read_header
from monogram.store.writer import save

__all__ = ["FORMAT", "JSON", "RowSource", "StoredFile", "leftovers", "load", "read_header", "save"]
