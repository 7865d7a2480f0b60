r"""Front matter: the fields above a Markdown text, in YAML between `---` or in TOML between `+++`.

    "---\nyear: 1967\n---\n\nText." -> {"year": 1967}, "Text."

YAML is read as version 1.2 has it: `12:30` and `yes` are text; a number is one where its text comes back from it, so
that `3.10` and `007` are text, too. Where it is no YAML or TOML, but each line is `name: value`, the lines are the
fields. Otherwise the block is text. YAML is data: no tags, no aliases, bounded size.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, NamedTuple

import yaml

from ragidx.corpora.readers.fields import exact_number, from_text

_TOP_CHARS = 1 << 16  # it is looked for here
_FRONT = re.compile(
    r"(?:---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)|\+\+\+[ \t]*\n(?P<toml>.*?)^\+\+\+)[ \t]*(?:\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PAIR = re.compile(r"(?P<name>[^\W\d][\w .-]{0,99}?)[ \t]*[:=](?:[ \t]+(?P<value>.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(?P<value>.*)")


class FrontMatter(NamedTuple):
    """What is above a text, and the text."""

    fields: dict[str, object]
    body: str
    is_guess: bool = False  # whether it was read line by line


def front_matter(text: str) -> FrontMatter:
    r"""The fields above a Markdown text, and the text below them. What is no list of fields is text.

    >>> front_matter("---\nyear: 1967\nat: 12:30\n---\n\n# Pulsars\n")
    FrontMatter(fields={'year': 1967, 'at': '12:30'}, body='# Pulsars\n', is_guess=False)
    >>> front_matter("---\ntitle: Re: pulsars\n---\n\n# Pulsars\n")
    FrontMatter(fields={'title': 'Re: pulsars'}, body='# Pulsars\n', is_guess=True)
    """
    found = _FRONT.match(text, 0, _TOP_CHARS) if text.startswith(("---", "+++")) else None
    if found is None:
        return FrontMatter({}, text)
    block = found["yaml"] if found["toml"] is None else found["toml"]
    fields = _yaml(block) if found["toml"] is None else _toml(block)
    lines = _lines(block) if fields is None else None
    if fields is None and lines is None:
        return FrontMatter({}, text)
    return FrontMatter(fields or lines or {}, text[found.end() :].lstrip("\n"), lines is not None)


class _YamlLoader(yaml.SafeLoader):  # type: ignore[misc]  # no stubs
    """Plain data without aliases: a few of them expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def _time(loader: Any, node: Any) -> object:
    try:
        return loader.construct_yaml_timestamp(node)
    except ValueError:  # no such day
        return loader.construct_scalar(node)


def _number(loader: Any, node: Any) -> object:
    text = loader.construct_scalar(node)
    number = exact_number(text)
    return text if number is None else number


_OLD = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_YamlLoader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in _OLD]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_YamlLoader.add_implicit_resolver(_OLD[0], re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF"))
_YamlLoader.add_implicit_resolver(_OLD[2], re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"), list("-+."))
_YamlLoader.add_implicit_resolver("!number", re.compile(r"-?[0-9][0-9.e+-]*"), list("-0123456789"))
_YamlLoader.add_constructor("!number", _number)
_YamlLoader.add_constructor("tag:yaml.org,2002:timestamp", _time)


def _yaml(text: str) -> dict[str, object] | None:
    """The fields of a mapping; None if it is no such thing."""
    try:
        value: object = yaml.load(text, Loader=_YamlLoader)  # a SafeLoader
        return {str(name): field for name, field in value.items()} if isinstance(value, dict) else None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None  # the constructors of dates, numbers and booleans raise what int() and friends do


def _toml(text: str) -> dict[str, object] | None:
    """The fields of a table; None if it is none."""
    try:
        return tomllib.loads(text, parse_float=from_text)
    except (ValueError, RecursionError):
        return None


def _lines(text: str) -> dict[str, object] | None:
    """The fields of lines `name: value`, each with what is indented below it; None: there are others."""
    parts: dict[str, list[str]] = {}
    lists: dict[str, list[str]] = {}
    name = ""
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        if pair := _PAIR.fullmatch(line):
            name = pair["name"]
            parts.setdefault(name, []).append(_bare(pair["value"] or ""))
        elif name and (item := _ITEM.fullmatch(line)):
            lists.setdefault(name, []).append(_bare(item["value"]))
        elif name and line[0] in " \t":
            parts[name].append(line.strip())
        else:
            return None
    found: dict[str, object] = {name: from_text(" ".join(filter(None, texts))) for name, texts in parts.items()}
    for name, items in lists.items():
        found[name] = [*filter(None, parts[name]), *items]
    return found or None


def _bare(text: str) -> str:
    """A value without the quotes around it."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
