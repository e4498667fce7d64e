"""A moment is a number on the time axis of a log, however it is written."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from monogram.data.interactions import Interactions
from monogram.data.moments import moment_in
from monogram.errors import ParameterError

ONES = sp.csr_array(np.eye(2, dtype=np.float32))
DATES = Interactions.from_csr(ONES, times=np.array(["2026-01-01", "2026-05-01"], "datetime64[s]"))
PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600, "d": 1 / 86_400}


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), st.integers(-14, 14))
def test_a_date_is_the_time_that_the_reader_would_give_it(moment, hours):
    expected = int(np.datetime64(moment, "us").astype(np.int64))
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))
    for value in (moment, moment.isoformat(), there, there.isoformat(), np.datetime64(moment)):
        assert moment_in(DATES, value) == expected


@pytest.mark.parametrize("unit", PER_SECOND)
def test_a_date_has_the_unit_of_the_log(unit):
    log = Interactions.from_csr(ONES, times=[10, 20], time_unit=unit)
    expected = 20_000 * 86_400 * PER_SECOND[unit]
    assert moment_in(log, date(2024, 10, 4)) == pytest.approx(expected, rel=1e-15)
    assert moment_in(log, "2024-10-04T00:00:00Z") == pytest.approx(expected, rel=1e-15)
    assert moment_in(log, 12.5) == 12.5


def test_a_number_stays_and_a_date_of_a_log_without_times_is_in_microseconds():
    number = np.int64(1_767_225_600_000_007)
    assert moment_in(DATES, number) == number
    assert moment_in(Interactions.from_csr(ONES), "1970-01-02") == 86_400_000_000


def test_a_date_needs_a_known_unit():
    with pytest.raises(ParameterError, match="unknown unit; give a number, or name the unit"):
        moment_in(Interactions.from_csr(ONES, times=[10, 20]), "2026-05-01")


@pytest.mark.parametrize(
    "value",
    ["", "now", "today", "NaT", "2026-13-01", "x" * 100, float("nan"), float("inf"), 10**400, True, None, [],
     np.datetime64("NaT"), pd.NaT],
)  # fmt: skip
def test_what_is_no_moment(value):
    with pytest.raises(ParameterError, match=r"^the time = .{1,80}; expected a date such as '2026-05-01'"):
        moment_in(DATES, value, "the time = {}")


@pytest.mark.parametrize("value", [20250201, 1_736_467_200, 0, -5, 1_736_467_200_000, 10**18, np.int64(7), 7.5])
def test_a_number_that_is_no_time_of_a_log_of_dates(value):
    with pytest.raises(ParameterError, match=r"at = .*unit us since 1970.*give a date such as .*1777593600000000"):
        moment_in(DATES, value)


def test_numbers_of_a_log_that_has_no_unix_times_stay():
    small = Interactions.from_csr(ONES, times=[10, 20], time_unit="s")
    unix = Interactions.from_csr(ONES, times=[1_700_000_000, 1_800_000_000])
    assert moment_in(small, 20250201) == 20250201
    assert moment_in(unix, 1_736_467_200) == 1_736_467_200
    assert moment_in(unix, "1971-01-01") == 31_536_000
    with pytest.raises(ParameterError, match="unit s since 1970"):
        moment_in(unix, 20250201)
