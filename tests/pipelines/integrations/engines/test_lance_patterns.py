"""`matches` at LanceDB: each pattern finds the texts that RE2 finds, or is refused by name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import QueryError
from ragidx.pipelines.index import Index
from ragidx.pipelines.integrations.engines.target import Target
from ragidx.retriever.where.binding import bind

pytest.importorskip("lancedb", reason="needs lancedb, of the extra 'test'")

_WORDS = r"a ab aab A é É ß ſ s S k K \ a\b _ - ^ [ ] & ~ < { a{,2} a.b Ω α 日 🦊 x{y} (a) a|b #x 1 ١ % a_b C"
TEXTS = [*_WORDS.split(), "", " ", "a b", "a\nb", "\n", "a\n", "\t", "\v", "\u00a0", "\u2028", "K", "e\u0301", "a\0b"]
_PARTS = r"""
a b k s S A é ß 日 _ - . ^ $ { } ] # & ~ && % \b \d \D \w \W \s \S \n \t \v \f \a \A \z \x41 \x{e9} \x{212a} \101 \07 \.
\\ \- \_ \& \] \[ {,2} \Q.\E \Q[a \C \B \< \> \pL \p{Greek} \p{^Greek} \PN [ab] [^a] [a-k] []a] [^]a] [a-] [-a] [\d-z]
[a\]b] [[:alpha:]] [[:^space:]x] [\W] [^\s\d] [a-b-c] [--a] [a&&b] [a~~b] [[a] [\n\\] [^\x00-\x7f] [[.a.]] (?i) (?i:k)
(?i)s (?i)[^k] (?i)\w (?s). (?s:.) (?m)^b$ (?m:a$) (?U)a+ (?P<n>a) (?<m>b) (?:) () \b{start}a \x{d800} .{1000} a{2}
"""
ATOMS = _PARTS.split()
REPEATS = ["", "", "", "", "*", "+", "?", "*?", "??", "{2}", "{1,2}", "{0,}", "{2,}?", "|"]
PATTERNS = st.recursive(
    st.tuples(st.sampled_from([*ATOMS, " ", "\n", "\0"]), st.sampled_from(REPEATS)).map("".join),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?m:"]), inner, st.just(")")).map("".join)
    ),
    max_leaves=5,
)
REFUSED = [r"\C", r"\B", r"\pL", r"\p{Greek}", r"\p{^Greek}", r"\PN", "(?i)é", r"\x{d800}", "(?i)*"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table of texts."""
    folder = tmp_path_factory.mktemp("patterns")
    index = Index.create(folder / "index")
    index.add([ragidx.Document(str(number), "A text.", {"s": text}) for number, text in enumerate(TEXTS)])
    index.export(f"lancedb:{folder}/lance")
    opened = Target.parse(f"lancedb:{folder}/lance").open()
    yield opened
    opened.close()


def found_by(table: Any, pattern: str) -> list[str]:
    """The texts that a pattern finds in LanceDB."""
    written = "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in pattern)
    condition = bind(f'`s` matches "{written}"', {"s": "string"})
    rows = [number for batch in table.select(condition, ["doc_id"]) for number in batch.column(0).to_pylist()]
    return [TEXTS[number] for number in sorted(map(int, rows))]


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(pattern=PATTERNS)
def test_a_pattern_finds_what_it_finds_in_an_index(table: Any, pattern: str) -> None:
    try:
        expected = pc.match_substring_regex(pa.array(TEXTS), pattern).to_pylist()
    except pa.ArrowInvalid:
        return
    try:
        found = found_by(table, pattern)
    except QueryError:
        assert any(part in pattern for part in ("\\C", "\\B", "\\p", "\\P", "(?i", "\\x{d800}"))
        return
    assert found == [text for text, matches in zip(TEXTS, expected, strict=True) if matches]


@pytest.mark.parametrize("pattern", [one for one in ATOMS if one not in REFUSED])
def test_a_part_of_a_pattern_means_what_it_means_in_an_index(table: Any, pattern: str) -> None:
    try:
        expected = pc.match_substring_regex(pa.array(TEXTS), pattern).to_pylist()
    except pa.ArrowInvalid:
        with pytest.raises(QueryError, match="the regular expression is broken"):
            found_by(table, pattern)
        return
    assert found_by(table, pattern) == [text for text, matches in zip(TEXTS, expected, strict=True) if matches]


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_depends_on_the_engine_is_refused_by_name(table: Any, pattern: str) -> None:
    with pytest.raises(QueryError, match="LanceDB cannot compare 's' by matches with ") as fault:
        found_by(table, f"a|{pattern}" if pattern != "(?i)*" else "a(?i)*")
    assert fault.value.hint == "write the condition in another way, or ask the index"
