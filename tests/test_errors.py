"""Messages that mention options: one text for Python, one for the command line, from the same parts."""

from __future__ import annotations

import copy
import pickle

import pytest

import monogram as mg
from monogram.cli.flags import flag_of
from monogram.errors import DataError, Message, MonogramWarning, Option, UnknownIdError, render

MESSAGE = Message("name it, as in ", Option("user", '"a b"'), ", or read with ", Option("on_error", '"skip"'))


def test_a_message_is_a_string_in_the_spelling_of_python():
    assert MESSAGE == 'name it, as in user="a b", or read with on_error="skip"'
    assert str(DataError(MESSAGE)) == str(UnknownIdError(MESSAGE)) == MESSAGE


def test_the_command_line_has_its_own_spelling():
    flags = 'name it, as in --user-column "a b", or read with --skip-bad-rows'
    assert render(MESSAGE, flag_of) == flags
    assert render(Message("log.csv: ", MESSAGE), flag_of) == f"log.csv: {flags}"
    assert render(UnknownIdError(MESSAGE), flag_of) == flags
    assert render(MonogramWarning(MESSAGE), flag_of) == flags
    assert flag_of(Option("new_items", "True")) == "--new-items"
    assert flag_of(Option("neighbours", "3")) == "--neighbours 3"
    assert flag_of(Option("keep_gram", "True")) == "--keep-gram"


def test_only_options_are_spelled_anew():
    path = "day=1/user=5/time=2.parquet"
    assert render(Message(path, ": ", Option("time")), flag_of) == f"{path}: --time-column"
    assert render(DataError('user="x"'), flag_of) == 'user="x"'
    assert render(DataError(), flag_of) == ""


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copied_error_keeps_its_options(clone):
    assert render(clone(DataError(MESSAGE)), flag_of) == render(MESSAGE, flag_of)


def test_the_reader_hands_on_a_message(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("customer,sku\na,x\n")
    lines: list[str] = []
    mg.read(path, tell=lines.append)
    assert lines[0].endswith("(guessed; name them with user= and item=)")
    assert render(lines[0], flag_of).endswith("(guessed; name them with --user-column and --item-column)")


def test_rows_in_order_are_a_switch_of_the_command_line():
    assert render(Message(Option("time", '"order"')), flag_of) == "--time-order"
    assert render(Message(Option("time", '"when"')), flag_of) == '--time-column "when"'
    assert render(Message(Option("time_unit", '"s"')), flag_of) == '--time-unit "s"'
