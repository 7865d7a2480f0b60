"""Rules as in a .gitignore file, matched in time that neither their number nor their asterisks multiply.

    lines -> Rules; path below their folder -> True: excluded, False: included again, None: no rule is about it

pathspec says what a rule means. A rule with a plain name in it is asked only about paths that have this name, and one
with many asterisks is matched by RE2, which does not backtrack. No rule is compiled before a path needs it.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexMatchResult
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from ragidx.corpora.errors import SpecError

MAX_RULE_CHARS = 4096  # as long as a path can be
MAX_WILD_RULES = 10_000  # without a plain name: each is asked about each path

_WILD = re.compile(r"[*?\[\\]")
_MOST_WAYS = 2  # the power of a path's length that `re` may take
_HARD_COST = 100  # what a rule for RE2 counts among those without a plain name


class IgnoreRules:
    """Rules in their order; the last that is about a path decides, as in git.

    Raises:
        ValueError: a line is no rule, or the rules are too many; the text says so.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines = [unicodedata.normalize("NFC", line) for line in lines]  # as paths are
        self._always: list[int] = []
        self._by_name: dict[str, list[int]] = {}
        self._specs: dict[tuple[int, ...], GitIgnoreSpec] = {}
        for number, line in enumerate(lines):
            if is_rule(line):
                name = _plain_name(line)
                (self._by_name.setdefault(name, []) if name else self._always).append(number)
        if sum(_HARD_COST if _is_hard(lines[number]) else 1 for number in self._always) > MAX_WILD_RULES:
            raise ValueError(f"more than {MAX_WILD_RULES} rules without a plain name")

    def check(self, path: str) -> bool | None:
        """Whether a path is excluded; a folder's ends with a slash."""
        named = tuple(sorted({number for name in path.split("/") for number in self._by_name.get(name, ())}))
        if named not in self._specs:
            numbers = sorted([*self._always, *named])
            self._specs[named] = GitIgnoreSpec(filter(None, (_pattern(self._lines[number]) for number in numbers)))
        found: bool | None = self._specs[named].check_file(path).include
        return found


def rules_of(lines: Sequence[str], where: str) -> IgnoreRules:
    """The rules that a user writes.

    Raises:
        SpecError: they are no rules, or too many; `where` names the option.
    """
    try:
        return IgnoreRules(lines)
    except ValueError as fault:
        raise SpecError(str(fault), "write it as in a .gitignore file", where=where) from fault


def is_rule(line: str) -> bool:
    """Whether a line is a rule; else it is a comment, or one that git leaves out.

    Raises:
        ValueError: it is neither.
    """
    if len(line) > MAX_RULE_CHARS:
        raise ValueError(f"a rule of more than {MAX_RULE_CHARS} characters")
    try:
        return GitIgnoreSpecPattern.pattern_to_regex(line)[1] is not None
    except GitIgnorePatternError as fault:
        raise ValueError(str(fault).lower()) from fault


@functools.lru_cache(4096)
def _pattern(line: str) -> GitIgnoreSpecPattern | None:
    """A rule to match with; None for brackets whose range is upside down, which match nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of "[[", which `re` may read in another way one day
        try:
            return _Linear(line) if _is_hard(line) else GitIgnoreSpecPattern(line)
        except re.error:
            return None


def _plain_name(line: str) -> str:
    """The last part of a rule that is a name without wildcards: each path that the rule is about has it; or empty."""
    if "\\" in line:
        return ""
    parts = line.rstrip().removeprefix("!").split("/")
    return next((part for part in reversed(parts) if part and not _WILD.search(part)), "")


def _is_hard(line: str) -> bool:
    """Whether the ways in which asterisks can share out a path multiply too often for `re`."""
    parts = [part for part in line.split("/") if "*" in part]
    return sum(1 if part == "**" else part.count("*") - 1 for part in parts) > _MOST_WAYS


class _Linear(GitIgnoreSpecPattern):
    """A rule that RE2 matches."""

    __slots__ = ("_text",)

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self._text = self.pattern_to_regex(line)[0]

    def match_file(self, file: str) -> Any:
        """As of the base class."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            found = pc.extract_regex(pa.scalar(file), f"(?P<all>{self._text})").as_py()
        except (pa.ArrowInvalid, UnicodeEncodeError):  # RE2 does not take it: no UTF-8, or too large
            return None
        # The named groups are all that pathspec asks of a match.
        return None if found is None else RegexMatchResult(SimpleNamespace(groupdict=lambda: found))  # type: ignore[arg-type]
