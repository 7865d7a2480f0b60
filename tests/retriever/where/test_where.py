"""Metadata conditions: what they select, and every message."""

import math
import re
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import QueryError
from ragidx.retriever.where.answers import mask
from ragidx.retriever.where.binding import bind
from ragidx.retriever.where.conditions import Condition

from ...raising import message_of

SCHEMA = {
    "subject": "string",
    "year": "int",
    "price": "float",
    "open": "bool",
    "doc_id": "string",
    "my field": "string",
}
TABLE = pa.table(
    {
        "subject": ["history", "chemistry", None, "His\ntory"],
        "year": pa.array([1900, 2000, None, 2**62 + 1], pa.int64()),
        "price": pa.array([1.5, None, -2.0, 3.0], pa.float64()),
        "open": [True, False, None, True],
        "my field": ['a"b', "c'd", "e`f", None],
    }
)


def rows(text: str, table: pa.Table = TABLE) -> list[int]:
    return [int(row) for row in mask(bind(text, SCHEMA), table).nonzero()[0]]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("city == 'Zürich'", [0, 1]),
        ("city != 'Zürich'", [2]),
        ("city in ('Zürich', 'Oslo')", [0, 1, 2]),
        ("city starts with 'Zü'", [0, 1]),
        ("city contains 'ür'", [0, 1]),
        ("city matches '^Zü.ich'", [0, 1]),
        ("tags contains 'Zürich'", [0, 1]),
    ],
)
def test_a_text_is_found_whatever_its_unicode_form(condition: str, form: str, expected: list[int]) -> None:
    names = ["Zürich", unicodedata.normalize("NFD", "Zürich"), "Oslo"]
    lists = pa.array([[name] for name in names], pa.large_list(pa.large_string()))
    schema = {"city": "string", "tags": "list"}

    found = mask(bind(unicodedata.normalize(form, condition), schema), pa.table({"city": names, "tags": lists}))

    assert found.nonzero()[0].tolist() == expected


def told(text: str, schema: dict[str, str] = SCHEMA) -> str:
    return message_of(QueryError, lambda: bind(text, schema))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('subject == "history"', [0]),
        ("subject != 'history'", [1, 3]),
        ('subject < "d"', [1, 3]),
        ("year >= 1900 and year < 2001", [0, 1]),
        ("year == 4611686018427387905", [3]),
        ("year == 4611686018427387904", []),
        ("year > 4611686018427387904.0", [3]),
        ("year > 1999.5", [1, 3]),
        ("year >= 1999.5", [1, 3]),
        ("year < 1999.5", [0]),
        ("year <= 1999.5", [0]),
        ("year == 1999.5", []),
        ("year != 1999.5", [0, 1, 3]),
        ("year == 2000.0", [1]),
        ("year < 1e300", [0, 1, 3]),
        ("not year < 1e300", []),
        ("year != 99999999999999999999", [0, 1, 3]),
        ("price == -2", [2]),
        ("price > -2.5e0 and price <= 1.5", [0, 2]),
        ("price in (3, 1.5)", [0, 3]),
        ("open == true", [0, 3]),
        ("open != TRUE", [1]),
        ("open in (true, false)", [0, 1, 3]),
        ("year in (1900, 2000.0, 1999.5, 99999999999999999999)", [0, 1]),
        ("year not in (1900)", [1, 3]),
        ("not year in (1900)", [1, 3]),
        ("year is null", [2]),
        ("year is not null", [0, 1, 3]),
        ("not year is null", [0, 1, 3]),
        ('subject starts with "his"', [0]),
        ('subject contains "stry"', [1]),
        ('subject matches "^h|y$"', [0, 1, 3]),
        (r'subject matches "\\s"', [3]),
        (r'subject == "His\ntory"', [3]),
        (r'`my field` == "a\"b" or `my field` == "c\u0027d"', [0, 1]),
        ("`my field` contains '`'", [2]),
        ("year == 1900 or year == 2000 and open == true", [0]),
        ("(year == 1900 or year == 2000) and open == false", [1]),
        ("NOT (Year IS NULL OR open == True)".replace("Year", "year"), [1]),
    ],
)
def test_a_condition_selects_the_rows_that_it_names(text: str, expected: list[int]) -> None:
    assert rows(text) == expected


@pytest.mark.parametrize("text", ["price == 0", "price in (0, 7)", "price in (-0.0)", "price >= 0 and price <= -0.0"])
def test_both_zeros_are_one_number(text: str) -> None:
    assert rows(text, pa.table({"price": [0.0, -0.0, 1.0]})) == [0, 1]
    assert rows(f"not ({text})", pa.table({"price": [0.0, -0.0, 1.0]})) == [2]


@pytest.mark.parametrize("text", ["price == 9007199254740993", "price in (1, 9007199254740993)"])
def test_a_whole_number_that_a_field_with_fractions_rounds_is_refused(text: str) -> None:
    message = told(text)
    said = "'price' has fractions, and rounds whole numbers past 2**53: none of its values is 9007199254740993"
    assert said in message
    assert message.endswith("hint: the nearest that it can hold is 9007199254740992.0")


def test_a_fraction_of_any_size_is_compared() -> None:
    table = pa.table({"price": [9007199254740992.0, 1e300]})
    assert rows("price >= 9007199254740992", table) == [0, 1]
    assert rows("price == 9007199254740992.0 or price > 1e299", table) == [0, 1]


@pytest.mark.parametrize("text", ["year > 5", "not year > 5", "not (year > 5 and open == true)", "year not in (5)"])
def test_a_row_without_a_value_is_selected_by_no_comparison_and_by_no_not(text: str) -> None:
    assert 2 not in rows(text)


def test_what_one_side_decides_is_not_unknown() -> None:
    assert rows("year > 5 or price < 0") == [0, 1, 2, 3]
    assert rows("not (year > 5 and price > 0)") == [2]


def test_a_column_that_a_table_lacks_is_null_in_every_row() -> None:
    assert rows('doc_id == "a" or not doc_id starts with "a" or doc_id in ("a", "b")') == []
    assert rows("doc_id is null") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "columns",
    [
        {"year": pa.array([1, 300], pa.int16()), "subject": pa.array(["a", "b"], pa.large_string())},
        {"year": pa.array([1.0, 300.0]), "subject": pa.array(["a", "b"]).dictionary_encode()},
        {"year": pa.array([1, 300], pa.uint16()), "subject": pa.chunked_array([["a"], ["b"]])},
    ],
)
def test_other_widths_and_dictionaries_compare_as_well(columns: dict) -> None:
    assert rows(
        'year > 299 and year < 100000 and subject in ("b", "c") and subject matches "b"', pa.table(columns)
    ) == [1]


def test_the_fields_that_a_condition_reads_are_known() -> None:
    condition = bind('not (year > 5 and `my field` is null) or price in (1) or subject contains "x"', SCHEMA)

    assert condition.fields == {"year", "my field", "price", "subject"}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("  year>=1900  AND  open==TRUE ", "year >= 1900 and open == true"),
        ("((year > 5))", "year > 5"),
        ("(year > 5 and year < 9) or year == 1", "year > 5 and year < 9 or year == 1"),
        ("not (not (year > 5))", "not not year > 5"),
        ("not (year in (1,2))", "year not in (1, 2)"),
        ("not (year is null)", "year is not null"),
        ("price > 5", "price > 5.0"),
        ("subject Starts With 'a\"b\u2028'", r'subject starts with "a\"b\u2028"'),
        ("`my field` == '' and `year` == 1", '`my field` == "" and year == 1'),
    ],
)
def test_a_condition_can_be_written_in_more_than_one_way(text: str, same: str) -> None:
    assert bind(text, SCHEMA) == bind(same, SCHEMA)


def test_a_field_named_like_a_word_of_the_language_is_written_in_backticks() -> None:
    schema = {"not": "int", "a`b": "int", "starts": "string", "x.y-z": "int"}

    condition = bind("`not` == 1 and `a\\`b` == 2 and starts starts with 's' and x.y-z>-1", schema)

    assert [(part.op, part.field, *part.values) for part in condition.parts] == [
        ("==", "not", 1),
        ("==", "a`b", 2),
        ("starts with", "starts", "s"),
        (">", "x.y-z", -1),
    ]


FIELDS = "fields: doc_id, my field, open, price, subject, year"
OPS = "== != < <= > >=, in, not in, is null, is not null, starts with, contains, matches"


@pytest.mark.parametrize(
    ("text", "at", "message", "hint"),
    [
        ("yaer > 5", 1, "unknown field 'yaer'; did you mean 'year'?", FIELDS),
        ("zzz > 5", 1, "unknown field 'zzz'", FIELDS),
        ("year = 5", 6, "expected a comparison after year, found =", "write =="),
        ("year <> 5", 6, "expected a comparison after year, found <>", "write !="),
        ("year", 5, "expected a comparison after year, found the end", f"write one of {OPS}"),
        ("year like 5", 6, "expected a comparison after year, found like", f"write one of {OPS}"),
        ("year > 5 && open == true", 10, "expected and, or, or the end, found &&", "write and"),
        ("year > 5 || open == true", 10, "expected and, or, or the end, found ||", "write or"),
        ("!(year > 5)", 1, "expected a field, found !", "write not"),
        (
            "year == 2020-01-01",
            13,
            "expected and, or, or the end, found -01",
            "join comparisons with and / or, and put text in quotes",
        ),
        ("5 < year", 1, "expected a field, found 5", "a comparison begins with a field, as in year >= 1900"),
        ("year > 5 and", 13, "expected a field, found the end", "a comparison begins with a field, as in year >= 1900"),
        ("and", 1, "expected a field, found and", "a comparison begins with a field, as in year >= 1900"),
        ("(year > 5", 10, "expected ), found the end", "close the bracket"),
        ("subject == history", 12, "expected a value, found history", 'write text in quotes: "history"'),
        ("year == null", 9, "expected a value, found null", "write year is null"),
        ("year == )", 9, "expected a value, found )", "a value is a text in quotes, a number, true or false"),
        ("subject == 5", 12, "'subject' is text, and 5 is a number", 'write it in quotes: "5"'),
        ("subject == true", 12, "'subject' is text, and true is a truth value", 'write it in quotes: "true"'),
        ("year == '5'", 9, "'year' is a number, and '5' is text", "compare it with a number, without quotes"),
        ("price in (1, true)", 14, "'price' is a number, and true is a truth value",
         "compare it with a number, without quotes"),
        ("open == 1", 9, "'open' is a truth value, and 1 is a number", "compare it with true or false"),
        ("open < true", 6, "< does not apply to 'open', a truth value", "use == or !="),
        ("year contains '5'", 6, "contains reads text, and 'year' is a number", "use == != < <= > >= or in"),
        ("subject starts 'x'", 16, "expected with, found 'x'", "write starts with"),
        ("year in 5", 9, "expected (, found 5", "put the values in brackets: in (1, 2)"),
        ("year in (5 6)", 12, "expected ), found 6", "separate values by commas, and close the bracket"),
        ("year in ()", 10, "expected a value, found )", "a value is a text in quotes, a number, true or false"),
        ("year is 5", 9, "expected null, found 5", "write is null or is not null"),
        ("year not 5", 10, "expected in, found 5", "write not before the field, or not in after it"),
        ("subject == 'x", 12, "the ' is not closed", "close it, and write \\ before one inside"),
        ("year > 5;", 9, "';' has no meaning here", "put text in quotes, odd field names in backticks"),
        ("year > 5abc", 8, "'5' has no meaning here", "put text in quotes, odd field names in backticks"),
        (r"subject == 'a\d'", 14, r"unknown escape \d", r"write \\ for a backslash"),
        (r"subject == '\ud800'", 12, "the text holds half of a surrogate pair", "write the character itself"),
        ("year > 1e999", 8, "the number is out of range", "the largest is about 1.8e308, in at most 100 characters"),
        ("year > " + "9" * 101, 8, "the number is out of range",
         "the largest is about 1.8e308, in at most 100 characters"),
        ("subject matches '(a'", 17, "the regular expression is broken: missing ): (a",
         "write it in RE2's syntax, which has no backreferences and no lookaround"),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_where_it_is(text: str, at: int, message: str, hint: str) -> None:
    first = max(0, at - 1 - 50)
    shown = text[first : at - 1 + 30]

    assert told(text) == (
        f"condition, character {at}: {message}\n  {shown}\n  {' ' * (at - 1 - first)}^\n  hint: {hint}"
    )


def test_the_caret_stands_below_the_place_after_wide_and_control_characters() -> None:
    assert told("subject == '日本\n語' or bad == 1") == (
        "condition, character 22: unknown field 'bad'\n"
        "  subject == '日本 語' or bad == 1\n"
        f"  {' ' * 24}^\n"
        f"  hint: {FIELDS}"
    )


def test_of_a_long_condition_the_text_around_the_place_is_shown() -> None:
    assert told("open == true or " * 10 + "bad == 1" + " or open == true" * 10) == (
        "condition, character 161: unknown field 'bad'\n"
        "  r open == true or open == true or open == true or bad == 1 or open == true or op\n"
        f"  {' ' * 50}^\n"
        f"  hint: {FIELDS}"
    )


def test_of_many_fields_thirty_are_listed() -> None:
    schema = {f"f{number:03}": "int" for number in range(40)}

    assert told("zzz == 1", schema) == (
        "condition, character 1: unknown field 'zzz'\n  zzz == 1\n  ^\n"
        f"  hint: fields: {', '.join(sorted(schema)[:30])} and 10 more"
    )


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_condition_is_refused(text: str) -> None:
    assert told(text) == ("condition: the condition is empty\n  hint: write one such as year >= 1900, or remove it")


def test_a_condition_is_bounded_in_length_depth_and_lists() -> None:
    thousand = ", ".join(["1"] * 1000)
    assert len(bind(f"year in ({thousand})", SCHEMA).values) == 1000
    assert bind("(" * 50 + "year > 5" + ")" * 50, SCHEMA).op == ">"
    assert mask(bind("not " * 50 + "year > 5", SCHEMA), TABLE).tolist() == [True, True, False, True]
    assert mask(bind(" or ".join(["year > 5"] * 800), SCHEMA), TABLE).tolist() == [True, True, False, True]

    assert told("year > 5" + " " * 10_000) == (
        "condition: the condition has 10,008 characters\n  hint: at most 10,000 are read"
    )
    assert told("(" * 51 + "year > 5" + ")" * 51) == (
        f"condition, character 52: the condition is more than 50 deep\n  {'(' * 50}year > 5{')' * 22}\n  {' ' * 50}^\n"
        "  hint: remove brackets that change nothing"
    )
    assert told("not " * 51 + "year > 5").endswith("hint: remove brackets that change nothing")
    assert told(f"year in ({thousand}, 1)") == (
        f"condition, character 3010: the list has more than 1,000 values\n  , {'1, ' * 16}1)\n"
        f"  {' ' * 50}^\n  hint: split it into several lists, joined by or"
    )


def test_an_integer_beyond_the_largest_float_is_refused_for_a_float_field() -> None:
    assert "the number is out of range" in told("price > 1" + "0" * 400)


# properties: random conditions over a random table, against plain Python

TEXTS = st.sampled_from(["", "a", "A", "ab", "b.", "日本", "\u2028", '"', "'", "`", "\\", "\n", "e\u0301", "😀"])
INTS = st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 2**53])
FLOATS = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 2.5, 2.0**53, math.inf, -math.inf, math.nan])
VALUES = {"s": TEXTS, "i": INTS, "f": FLOATS, "b": st.booleans()}
KINDS = {"s": "string", "i": "int", "f": "float", "b": "bool"}
TYPES = {"s": pa.string(), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_()}
FINITE = FLOATS.filter(math.isfinite)
LITERALS = {"s": TEXTS, "i": INTS | FINITE | st.sampled_from([2**64, -1e300]), "f": FINITE, "b": st.booleans()}
PATTERNS = ["^a", "b$", ".", "a|b", "[A-Z]"]


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from(sorted(KINDS)))
    ops = ["==", "!=", "in", "is null"] + ([] if field == "b" else ["<", "<=", ">", ">="])
    op = draw(st.sampled_from(ops + ([] if field != "s" else ["starts with", "contains", "matches"])))
    value = st.sampled_from(PATTERNS) if op == "matches" else LITERALS[field]
    most = 3 if op == "in" else 1
    return Condition(op, field, () if op == "is null" else tuple(draw(st.lists(value, min_size=1, max_size=most))))


def nested(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    joined = st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
    return joined.map(lambda of: Condition(of[0], parts=of[1])) | inner.map(lambda of: Condition("not", parts=(of,)))


CONDITIONS = st.recursive(comparisons(), nested, max_leaves=6)


def answer(condition: Condition, row: dict) -> bool | None:
    """What Python says; None: unknown."""
    inside = [answer(part, row) for part in condition.parts]
    if inside:
        decides = {"and": False, "or": True}.get(condition.op)
        if condition.op == "not":
            return None if inside[0] is None else not inside[0]
        return decides if decides in inside else None if None in inside else not decides
    value = row[condition.field]
    if condition.op == "is null":
        return value is None
    if value is None:
        return None
    first = condition.values[0]
    return {
        "in": lambda: any(value == literal for literal in condition.values),
        "starts with": lambda: value.startswith(first),
        "contains": lambda: first in value,
        "matches": lambda: re.search(first.replace("$", r"\Z"), value) is not None,
        "==": lambda: value == first,
        "!=": lambda: value != first,
        "<": lambda: value < first,
        "<=": lambda: value <= first,
        ">": lambda: value > first,
        ">=": lambda: value >= first,
    }[condition.op]()


@pytest.mark.slow
@settings(deadline=None)
@given(
    condition=CONDITIONS,
    table=st.lists(st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()}), max_size=6),
)
def test_a_condition_selects_what_python_selects(condition: Condition, table: list[dict]) -> None:
    columns = pa.table({name: pa.array([row[name] for row in table], kind) for name, kind in TYPES.items()})

    assert mask(condition, columns).tolist() == [answer(condition, row) is True for row in table]


WORDS = ["year", "subject", "==", "<", "in", "is", "not", "null", "and", "or", "(", ")", ",", "5", "'x'", "`"]


@pytest.mark.slow
@settings(deadline=None)
@given(text=st.text(max_size=30) | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_is_a_condition_or_a_query_error(text: str) -> None:
    try:
        condition = bind(text, SCHEMA)
    except QueryError:
        return

    assert mask(condition, TABLE).shape == (4,)
