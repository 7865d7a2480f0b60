"""`ragidx.toml`: the index, the options of a build and the sources, in a file beside the documents.

file -> defaults of a command's options, and the sources of `ragidx build`

The file is found in the working folder or above it, or named by `--config`. What is typed on the command line, and
$RAGIDX_INDEX, win over it. Paths are relative to it: those of the index and of sources always, those of other options
where something is there.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.field_settings import OTHERS, check_fields
from ragidx.corpora.limits import shown_bytes
from ragidx.pipelines.cli.keywords import GONE, KeywordOption

NAME = "ragidx.toml"
_Refuse: TypeAlias = Callable[[str, str, str], SpecError]
F = TypeVar("F", bound=Callable[..., Any])

_SOURCES = "ragidx.sources"  # where a command finds the sources of the file, in click's `meta`
_VALUES = "ragidx.values"  # the values of the file that became options
_GLOBS = ("include", "exclude")
_SOURCE_KEYS = ("name", "path", *_GLOBS)
_FIELD_OPTIONS = {"text": "text_field", "id": "id_field", "records": "records"}
_FILE_KEYS = ("match", *_FIELD_OPTIONS, *OTHERS)
_FIELDS = "fields"  # the keyword of a build that no option of the command line has
_TABLES = ("index", "source", "files")
_PATH = "path"
_FILES = {"FILE", "PATH", "DIR"}  # words for the values of options that name files
_MOST_BYTES, _MOST_DOTS = 256 << 10, 100
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DOTTED = re.compile(rf"(?<![\w-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{_MOST_DOTS + 1}}}")
_ONCE = {"index", "as_json", "plan", "watch", "ray"}  # options that are no keywords, and are for one build


class _Value(NamedTuple):
    """A value of an option: the option's parameter, its name in messages, and what finds `ragidx.toml:LINE`."""

    parameter: str
    option: str
    value: str
    place: Callable[[], str]


@dataclass(frozen=True)
class Config:
    """What a file says.

    Attributes:
        index: the index folder, None where the file names none.
        options: names of the options of `ragidx build`, as its parameters are called.
        sources: name -> path, or a table of `path`, `include` and `exclude`.
        values: value of each option that is set, with its line.
    """

    index: str | None
    options: Mapping[str, Any]
    sources: Mapping[str, str | Mapping[str, Any]]
    values: Sequence[_Value] = ()


def config_option(function: F) -> F:
    """`--config FILE`; sets the defaults of the command's other options."""
    return click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_take,
        help=f"Settings [default: {NAME} here or in a folder above].",
    )(function)


def configured_sources() -> Mapping[str, str | Mapping[str, Any]]:
    """The sources of the file that the running command read, without globs for which others were typed."""
    context = click.get_current_context()
    found: Mapping[str, str | Mapping[str, Any]] = context.meta.get(_SOURCES, {})
    typed = [key for key in _GLOBS if context.get_parameter_source(key) == ParameterSource.COMMANDLINE]
    return {
        name: one if isinstance(one, str) else {key: value for key, value in one.items() if key not in typed}
        for name, one in found.items()
    }


def taken_fields(options: dict[str, Any]) -> dict[str, Any]:
    """The keyword `fields` of a build: what the options in its place say, which are taken out, then the file.

    Other settings of fields have no option.
    """
    from ragidx.retriever.keywords import FieldKeywords

    of_file: Mapping[str, Any] = (click.get_current_context().default_map or {}).get(_FIELDS, {})
    found = {name: list(said) for name, said in of_file.items()}
    for name in FieldKeywords.__annotations__:
        if said := options.pop(name, None):
            found[name] = [*said, *found.get(name, ())]
    return found


def place_of(context: click.Context, option: str, message: str) -> str:
    """Where in the file the value is that a failure is about; empty: it was typed, or is no value of the file.

    Args:
        context: context of the command that failed.
        option: option that the failure names as its place; empty: the value that its message quotes counts.
        message: message of the failure.
    """
    named = [
        one
        for one in context.meta.get(_VALUES, ())
        if option in ("", one.option)
        and (one.parameter == _FIELDS or context.get_parameter_source(one.parameter) == ParameterSource.DEFAULT_MAP)
    ]
    quoted = [one for one in named if f"'{one.value}'" in message]
    found = quoted or (named if option else [])
    return found[0].place() if found else ""


def found_config(folder: Path) -> Path | None:
    """The file of a folder, else that of the nearest folder above."""
    return next((one / NAME for one in (folder, *folder.parents) if (one / NAME).is_file()), None)


def read_config(path: Path, options: Mapping[str, click.Option]) -> Config:
    """What a file says.

    Args:
        path: place of the file.
        options: options of `ragidx build`, by their names in a file.

    Raises:
        SpecError: it cannot be read, is no TOML, or has a key that is unknown or of another type; with its line.
    """
    text, data = _loaded(path)

    def line(key: str, table: str = "", number: int = 0) -> str:
        return f"{path}:{_line(text, key, table, number)}"

    def refusing(table: str = "", number: int = 0) -> _Refuse:
        """Failures of a table, the one of this number of those with its name."""
        return lambda key, message, hint: SpecError(message, hint, where=line(key, table, number))

    _check(data, _TABLES, refusing())
    index, in_index = data.get("index", {}), refusing("index")
    if not isinstance(index, dict):
        raise in_index("index", "'index' is no table", "write [index]")
    for name in ("source", "files"):
        tables = data.get(name, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise refusing()(name, f"'{name}' is no list of tables", f"write [[{name}]]")
    _check(index, (_PATH, *options), in_index)
    if not isinstance(index.get(_PATH, ""), str):
        raise _of_another_type(_PATH, in_index)
    sources: dict[str, str | Mapping[str, Any]] = {}
    for number, table in enumerate(data.get("source", [])):
        refuse = refusing("source", number)
        _check(table, _SOURCE_KEYS, refuse)
        name, place = _source(table, path.parent, refuse)
        if name in sources:
            raise refuse("source", f"two sources have the name '{name}'", "give one of them another name")
        globs = {key: _texts(table[key], key, refuse) for key in _GLOBS if key in table}
        sources[name] = {"path": place, **globs} if globs else place
    named = {
        options[key].name or key: _beside(path.parent, options[key], _option(key, value, options[key], in_index))
        for key, value in index.items()
        if key != _PATH
    }
    values = [
        _Value(options[key].name or key, f"--{key}", str(setting), partial(line, key, "index"))
        for key in index.keys() - {_PATH}
        for setting in _several(index[key])
    ]
    of_files = []
    for number, table in enumerate(data.get("files", [])):
        for key, said in _field_settings(table, refusing("files", number)):
            option = f"--{_FIELD_OPTIONS[key].replace('_', '-')}" if key in _FIELD_OPTIONS else f"`{key}`"
            of_files.append(_Value(_FIELD_OPTIONS.get(key, _FIELDS), option, said, partial(line, key, "files", number)))
    for parameter in _FIELD_OPTIONS.values():
        if settings := [setting.value for setting in of_files if setting.parameter == parameter]:
            named[parameter] = [*settings, *named.get(parameter, [])]
    if fields := {
        key: settings
        for key in OTHERS
        if (settings := [setting.value for setting in of_files if setting.option == f"`{key}`"])
    }:
        named[_FIELDS] = fields
    folder = os.path.relpath(path.parent / index[_PATH]) if _PATH in index else None
    return Config(folder, named, sources, [*values, *of_files])


def options_of_file(command: click.Command) -> dict[str, click.Option]:
    """The options of `ragidx build`, which `command` is, by their names in a file: `chunk-size`."""
    return {
        option.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.expose_value and parameter.name not in _ONCE
        if not (isinstance(parameter, KeywordOption) and parameter.said.once)
        for option in parameter.opts
        if option.startswith("--")
    }


def _take(context: click.Context, _: click.Parameter, value: str | None) -> None:
    path = found_config(Path.cwd()) if value is None else Path(value)
    if path is None:
        return
    group = context.find_root().command  # by it: `build` has this option, too, and cannot be imported here
    build = group.get_command(context, "build") if isinstance(group, click.Group) else None
    config = read_config(path, options_of_file(build or context.command))
    several = {option.name for option in context.command.params if option.multiple}
    defaults: dict[str, Any] = {}
    if config.index is not None:
        defaults["index"] = [config.index] if "index" in several else config.index
    if context.command.name == "add-source":  # what it reads is read as later builds read it
        read = (*_FIELD_OPTIONS.values(), _FIELDS)
        defaults |= {name: value for name, value in config.options.items() if name in read}
    if context.command.name == "build":
        defaults |= config.options
        context.meta[_SOURCES] = config.sources
    context.meta[_VALUES] = config.values
    context.default_map = {**(context.default_map or {}), **defaults}


def _check(table: Iterable[str], known: tuple[str, ...], refuse: _Refuse) -> None:
    """Refuse a key that is not known."""
    for key in table:
        if key not in known:
            if key in GONE:
                raise refuse(key, f"the key '{key}' is gone", GONE[key])
            fault = unknown_name("key", key, known)
            raise refuse(key, fault.message, fault.hint)


def _source(table: Mapping[str, Any], folder: Path, refuse: _Refuse) -> tuple[str, str]:
    """Name and path of a source."""
    path, name = table.get("path"), table.get("name")
    if path is None:
        raise refuse("source", "a source has no path", 'write path = "docs"')
    for key in ("path", "name"):
        if not isinstance(table.get(key), str | None):
            raise _of_another_type(key, refuse)
    place = os.path.relpath(folder / path)
    return Path(os.path.normpath(Path.cwd() / place)).name if name is None else name, place


def _option(key: str, value: object, option: click.Option, refuse: _Refuse) -> Any:
    """The value of an option of a build, as the command line would have it."""
    if not _has_type_of(value, option):
        raise _of_another_type(key, refuse)
    said = _as_typed(value, option)
    try:
        option.type_cast_value(click.Context(click.Command("build")), said)
    except click.UsageError as fault:
        raise refuse(key, f"the value of '{key}': {fault.message}", f"as `ragidx build --{key}` takes it") from fault
    return said


def _beside(folder: Path, option: click.Option, said: Any) -> Any:
    """A value of an option; a file or folder that is there, relative to the `folder` of the settings, is that one."""
    place = os.path.relpath(folder)
    front = "head:" if option.name == "filter" else ""  # other filters are names
    if not (front or _FILES & {*(option.metavar or "").split("|")}) or place == os.curdir:
        return said
    if isinstance(said, list):
        return [_beside(folder, option, one) for one in said]
    name = said.removeprefix(front)
    if not said.startswith(front) or not name or not os.path.exists(folder / name):  # noqa: PTH110 - of any text
        return said
    from ragidx.indexer.models.locate import BUNDLED

    return said if option.name == "model" and name in BUNDLED else front + os.path.join(place, name)  # noqa: PTH118


def _of_another_type(key: str, refuse: _Refuse) -> SpecError:
    return refuse(key, f"the value of '{key}' is of another type", "see the examples of `ragidx init`")


def _texts(value: object, key: str, refuse: _Refuse) -> list[str]:
    """A text or a list of texts, as a list."""
    texts = _several(value)
    if not all(isinstance(one, str) for one in texts):
        raise _of_another_type(key, refuse)
    return texts


def _several(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _field_settings(table: Mapping[str, Any], refuse: _Refuse) -> Iterator[tuple[str, str]]:
    """The keys of a table `[[files]]`, each with the setting `GLOB=FIELD` that it is."""
    from ragidx.retriever.keywords import FieldKeywords

    _check(table, _FILE_KEYS, refuse)
    if not isinstance(table.get("match"), str):
        raise refuse("files", "an entry of 'files' has no match", 'write match = "data/*.csv"')
    for key, value in table.items():
        if key == "match":
            continue
        setting = f"{table['match']}={'+'.join(_texts(value, key, refuse))}"
        try:
            check_fields({key: setting} if key in FieldKeywords.__annotations__ else {})
        except SpecError as fault:
            raise refuse(key, fault.message, fault.hint) from fault
        yield key, setting


def _loaded(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file, and what it is as TOML."""
    try:
        text = _text_of(path)
        return text, tomllib.loads(text)
    except OSError as fault:
        raise SpecError(f"cannot be read: {fault.strerror}", "name another file", where=str(path)) from fault
    except (ValueError, RecursionError) as fault:
        raise SpecError(f"is no TOML: {fault}", "`ragidx init` writes an example", where=str(path)) from fault


def _text_of(path: Path) -> str:
    """The text of a file, bounded: what TOML's parser takes of it grows with the square of the dots in a key.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no plain file, too long, not UTF-8, or has a key of too many parts.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no plain file")
    with path.open("rb") as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it has more than {shown_bytes(_MOST_BYTES)}")
    text = data.decode()
    if _DOTTED.search(text):
        raise ValueError(f"a key has more than {_MOST_DOTS} dots")
    return text


def _has_type_of(value: object, option: click.Option) -> bool:
    """Whether a value of TOML can be one of an option: true and false are no numbers and no texts."""
    if isinstance(option, click.Option) and option.is_flag:
        return isinstance(value, bool)
    values = _several(value) if option.multiple else [value]
    return all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in values)


def _as_typed(value: Any, option: click.Option) -> Any:
    """A value as the command line would have it: text, a list of texts, or a flag."""
    if isinstance(value, list):
        return [str(one) for one in value]
    if option.multiple:
        return [str(value)]
    return value if isinstance(value, bool) else str(value)


def _line(text: str, key: str, table: str, number: int) -> int:
    """The line of a key in a table, the one of this number of those with its name; else the first of the table."""
    lines = text.splitlines()
    heads = [place for place, line in enumerate(lines) if re.match(r"\s*\[+[^\],]+\]+\s*(#|$)", line)]
    own = [place for place in heads if re.match(rf"\s*\[+\s*{table}\s*\]", lines[place])]
    first = own[number] if number < len(own) else 0
    end = next((place for place in heads if place > first), len(lines))
    pattern = re.compile(rf"""^\s*\[*\s*(?:\w+\.)*["']?{re.escape(key)}["']?\s*(=|\]|\.)""")
    places = [*range(first, end if own else len(lines)), *range(len(lines))]
    return next((place for place in places if pattern.match(lines[place])), first) + 1
