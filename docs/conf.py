"""Sphinx configuration. The tables of commands, parameters and errors are generated from the code during the build."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generated

import monogram

project = "Monogram"
author = "The Monogram authors"
copyright = "The Monogram authors, Apache-2.0"
version = release = monogram.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
default_role = "literal"

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"Monogram {release}"
html_copy_source = False
html_show_sphinx = False


def fill(_app: Any, _page: str, source: list[str]) -> None:
    """Replace the markers in a page by the generated parts."""
    source[0] = generated.fill(source[0])


def setup(app: Any) -> None:
    """Register `fill`; Sphinx calls this function."""
    app.connect("source-read", fill)
