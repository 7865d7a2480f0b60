"""Numbers of a workbook, as their format shows them."""

from __future__ import annotations

import datetime
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.readers.office.cell_formats import BUILT_IN, formatter, plain

ACCOUNTS = '_("$"* #,##0.00_);_("$"* \\(#,##0.00\\);_("$"* "-"??_);_(@_)'


@pytest.mark.parametrize(
    ("code", "value", "shown"),
    [
        ("", "12.0", "12"),
        ("General", "4.1500000000000004", "4.15"),
        ("General", "1E-3", "0.001"),
        ("General", "-0", "0"),
        ("General", "-0.0", "0"),
        ('General" kg"', "2.5", "2.5 kg"),
        ("@", "7", "7"),
        ("0", "2.5", "3"),
        ("0.00", "2.675", "2.68"),
        ("0.###", "5", "5"),
        (".00", "5.25", "5.25"),
        ("0.00", "-0.001", "0.00"),
        ("#,##0.00", "-1234.567", "-1,234.57"),
        ("#,##0", "999", "999"),
        ("#,##0,", "1234567", "1,235"),
        ('0.0,,"M"', "1234567", "1.2M"),
        ("0%", "0.185", "19%"),
        ("0.00%", "0.185", "18.50%"),
        ('0" crates"', "33", "33 crates"),
        ("00000", "815", "00815"),
        ("000-00-0000", "12345678", "012-34-5678"),
        ("(000) 000-0000", "5551234567", "(555) 123-4567"),
        ("#,##0.00\\ [$€-407];[Red]\\-#,##0.00\\ [$€-407]", "-1234.5", "-1,234.50 €"),
        (ACCOUNTS, "1234.5", "$1,234.50"),
        (ACCOUNTS, "-1234.5", "$(1,234.50)"),
        (ACCOUNTS, "0", "$-"),
        ('"yes";"yes";"no"', "0", "no"),
        (";;;", "7", "7"),
        # What is not understood gives the plain number.
        ("# ?/?", "0.5", "0.5"),
        ("0.00E+00", "12345.678", "12345.678"),
        ("[>100]0;0.0", "5", "5"),
        ("0.00", "words", "words"),
        ("0.00", "nan", "nan"),
        ("0.00", "1e300", "1E+300"),
        ("0", "9" * 400, "9" * 400),
        # Dates and times.
        ("d/m/yy", "45964", "2025-11-03"),
        ("[$-F800]dddd\\,\\ mmmm\\ dd", "45964", "2025-11-03"),
        ('yyyy"年"m"月"', "45964", "2025-11-03"),
        ("dd.mm.yyyy hh:mm", "46427.604166666664", "2027-02-09 14:30"),
        ("h:mm AM/PM", "0.75", "18:00"),
        ("hh:mm:ss.00", "0.50000289", "12:00:00.25"),
        ("[h]:mm", "1.2958333333", "31:06"),
        ("[mm]:ss", "0.5", "720:00"),
        ("[s]", "0.5", "43200"),
        ("yyyy", "1", "1900-01-01"),
        ("yyyy", "61", "1900-03-01"),
        ("yyyy", "-1", "-1"),
        ("yyyy", "1e300", "1E+300"),
        ('0 "days"', "3", "3 days"),
    ],
)
def test_a_number_is_shown_as_its_format_says(code: str, value: str, shown: str) -> None:
    assert formatter(code)(value) == shown


def test_a_workbook_may_count_from_1904() -> None:
    assert formatter("yyyy-mm-dd", from_1904=True)("0") == "1904-01-01"


@given(number=st.integers(-(10**15), 10**15), n_decimals=st.integers(0, 4), grouped=st.booleans())
def test_decimals_and_thousands_are_those_of_python(number: int, n_decimals: int, *, grouped: bool) -> None:
    value = f"{number / 10**n_decimals:.{n_decimals}f}"
    decimals = f".{'0' * n_decimals}" if n_decimals else ""

    shown = formatter(f"#,##0{decimals}" if grouped else f"0{decimals}")(value)

    assert float(shown.replace(",", "")) == float(plain(value))
    assert shown == (f"{float(value):,.{n_decimals}f}" if grouped else f"{float(value):.{n_decimals}f}")


@given(days=st.integers(61, 2_900_000))
def test_every_day_from_march_1900_is_its_date(days: int) -> None:
    assert formatter("yyyy-mm-dd")(str(days)) == str(datetime.date(1899, 12, 30) + datetime.timedelta(days))


@given(seed=st.integers(0, 2**32), value=st.one_of(st.floats().map(repr), st.text(max_size=5)))
def test_no_code_is_refused(seed: int, value: str) -> None:
    rng = random.Random(seed)
    code = "".join(rng.choice('0#?.,%;@"\\[]$-/ EeymdhsAP*_<=5é') for _ in range(rng.randint(0, 12)))

    assert isinstance(formatter(code)(value), str)
    assert [formatter(code)(value) for code in BUILT_IN.values()]
