"""A file that is not a journal of Optuna is refused and left unchanged."""

from __future__ import annotations

import pytest

from monogram.errors import DataError
from monogram.tuning.journal import OptunaJournal

pytest.importorskip("optuna")


@pytest.mark.parametrize("held", [b"line one\nline two precious", b"precious", b"[1]\n[2"])
def test_a_file_that_is_no_journal_is_left_as_it_is(tmp_path, held):
    path = tmp_path / "study.optuna"
    path.write_bytes(held)
    with pytest.raises(DataError, match="is not a journal of Optuna"):
        OptunaJournal(tmp_path / "study")
    assert path.read_bytes() == held
