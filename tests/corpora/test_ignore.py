"""Rules of .gitignore files mean what pathspec says, in bounded time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from ragidx.corpora import ignore
from ragidx.corpora.ignore import IgnoreRules
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import sources

from .conftest import plant, walk

PATHS = st.lists(st.text("ab.c", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)
LINES = st.lists(st.text("ab.c/*?!#[]\\ -", max_size=9), max_size=5)
MANY_STARS = st.lists(st.sampled_from(["*", "a", "b", "?", "**/", "/"]), min_size=3, max_size=12).map("".join)


def test_a_bracket_in_brackets_is_one_without_a_warning() -> None:
    rules = IgnoreRules(["[[]"])

    assert (rules.check("["), rules.check("a")) == (True, None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # what pathspec itself compiles
@settings(max_examples=200)
@given(lines=LINES | MANY_STARS.map(lambda line: [line]), path=PATHS, slash=st.booleans())
def test_rules_mean_what_pathspec_says(lines: list[str], path: str, slash: bool) -> None:
    path = f"{path}/" if slash else path
    try:
        expected = GitIgnoreSpec.from_lines(lines)
    except re.error:  # a range such as [b-a], which git leaves out
        return
    except GitIgnorePatternError:
        with pytest.raises(ValueError, match="invalid git pattern"):
            IgnoreRules(lines)
        return

    assert IgnoreRules(lines).check(path) == expected.check_file(path).include


@pytest.mark.parametrize("rule", ["*a" * 30 + "*b", "**/a/" * 30 + "b"])
def test_a_rule_of_thirty_asterisks_is_decided_at_once(rule: str, tmp_path: Path) -> None:
    plant(tmp_path, "a" * 200, "/".join("c" + "a" * 60))
    (tmp_path / ".gitignore").write_text(rule + "\n")

    names, _ = walk(tmp_path)

    assert len(names) == 2


def test_a_path_is_asked_about_by_the_rules_that_name_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    class Counted(ignore.GitIgnoreSpecPattern):  # type: ignore[misc]
        def match_file(self, file: str) -> object:
            nonlocal asked
            asked += 1
            return super().match_file(file)

    monkeypatch.setattr(ignore, "GitIgnoreSpecPattern", Counted)
    rules = IgnoreRules([*(f"rule{number}" for number in range(2000)), "docs/rule7/*.md", "*.log"])

    found = [rules.check(f"docs/rule{number}/a.md") for number in (7, 5000)]

    assert found == [True, None]
    assert asked < 10


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "count"), [("*?", 10_001), ("*a*b*c*d", 101)])
def test_more_rules_without_a_name_than_can_be_asked_are_reported(rule: str, count: int, tmp_path: Path) -> None:
    plant(tmp_path, "a.txt")
    (tmp_path / ".gitignore").write_text(f"{rule}\n" * count)

    found: list[Skip] = []
    names = [source.name for source in sources(tmp_path, on_skip=found.append)]

    assert names == ["a.txt"]
    assert found[0] == Skip(".gitignore", "more than 10000 rules without a plain name")


def test_a_range_that_is_upside_down_matches_nothing() -> None:
    assert IgnoreRules(["[b-a]", "*.log"]).check("a.log") is True
    assert IgnoreRules(["[b-a]"]).check("a") is None


def test_a_rule_that_is_no_utf_8_matches_nothing(tmp_path: Path) -> None:
    plant(tmp_path, "a.txt")
    (tmp_path / ".gitignore").write_bytes(b"*a*\xff*a*b*\n")

    assert walk(tmp_path)[0] == ["a.txt"]
