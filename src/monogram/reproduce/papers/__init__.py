"""The papers, one module of data for each."""

from __future__ import annotations

from monogram.errors import ParameterError, one_of
from monogram.reproduce.paper import Paper
from monogram.reproduce.papers import closed_form_edlae, deql, edlae, landscape, rg2

PAPERS: dict[str, Paper] = {
    module.PAPER.name: module.PAPER for module in (deql, landscape, closed_form_edlae, rg2, edlae)
}


def get(name: str) -> Paper:
    """The paper of a name; for an unknown name a ParameterError that suggests similar names."""
    if name not in PAPERS:
        raise ParameterError(f"there is no paper {name!r}; {one_of(name, PAPERS)}")
    return PAPERS[name]
