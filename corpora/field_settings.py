"""What a user says of files, mostly of fields of structured ones: `[GLOB=]FIELD[+FIELD]`, the first that fits a file.

    "data/*.csv=description+resolution", "title"  ->  of a file: "description+resolution", "title", or None

Globs are those of `include`. Fields are not known here.
"""

from __future__ import annotations

import codecs
import functools
from collections.abc import Mapping, Sequence
from encodings.aliases import aliases
from typing import TYPE_CHECKING, NamedTuple

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.limits import ReadOptions

if TYPE_CHECKING:
    from ragidx.corpora.ignore import IgnoreRules


class FieldSettings(NamedTuple):
    """The settings of one file; None: not said. Each but `encoding` is a path, or several with `+` between them."""

    text: str | None = None
    id: str | None = None  # one path
    records: str | None = None  # one path
    title: str | None = None  # becomes the heading of the document
    speaker: str | None = None  # one path: who says a turn of a conversation
    context: str | None = None  # a line in front of the text
    metadata: str | None = None  # the only fields that become metadata
    encoding: str | None = None  # of any file of text: a codec's name
    html: str | None = None  # what of pages is read: "main" or "whole"
    ocr: str | None = None  # what reads scanned pages and pictures: "auto", or languages of tesseract


OTHERS = FieldSettings._fields[3:]
"""The names of `ReadOptions.fields`."""

PATHS = OTHERS[:4]
"""Those that are paths of fields."""

_HTML = ("main", "whole")

_MOST = 1_000  # settings of one kind


def settings_of(options: ReadOptions, name: str) -> FieldSettings:
    """What was said of a file."""
    given = (options.text_field, options.id_field, options.records, *map(options.fields.get, OTHERS))
    found = FieldSettings(*(setting_for(settings, name) for settings in given))
    return found._replace(ocr=None) if found.ocr == "off" else found


def setting_for(given: str | Sequence[str] | None, name: str) -> str | None:
    """The value of the first setting that fits a file.

    >>> setting_for(("data/*.csv=notes", "body"), "data/a.csv"), setting_for(("data/*.csv=notes", "body"), "b.csv")
    ('notes', 'body')
    """
    for text in (given,) if isinstance(given, str) else given or ():
        glob, value = text.split("=", 1) if "=" in text else ("", text)
        if not glob or _rules(glob).check(name):
            return value
    return None


def check_settings(given: str | Sequence[str] | None, option: str, *, glob: bool = False) -> tuple[str, ...] | None:
    """Settings as a tuple; None: there are none.

    Args:
        given: one or several.
        option: name of the option, for messages.
        glob: whether a setting without a glob is an error.

    Raises:
        SpecError: one has no value, no glob where it must, or a glob that is not valid.
    """
    from ragidx.corpora.ignore import rules_of

    settings = (given,) if isinstance(given, str) else tuple(given or ())
    if len(settings) > _MOST:
        raise SpecError(
            f"{len(settings):,} settings, and each is compared with each file",
            f"write at most {_MOST:,}; one glob may be about many files",
            where=f"`{option}`",
        )
    for text in settings:
        front, sign, value = text.partition("=")
        shape = "GLOB=PATH" if glob else f"[GLOB=]{_VALUES.get(option, 'FIELD')}"
        if (sign and not (front and value)) or not text or (glob and not sign):
            raise SpecError(f"{text!r} is not {shape}", f"write it as {_EXAMPLES[option]}", where=f"`{option}`")
        if sign:
            rules_of([front], f"`{option}`")
    return settings or None


def check_fields(given: Mapping[str, str | Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    """`ReadOptions.fields`, without those of which nothing is said.

    Raises:
        SpecError: as `check_settings`, a name is not one of `OTHERS`, or there is no such encoding or part of a page.
    """
    found = {}
    for name, settings in (given or {}).items():
        if name not in OTHERS:
            fault = unknown_name("setting", name, OTHERS)
            raise SpecError(fault.message, fault.hint, where="`fields`")
        if checked := check_settings(settings, name):
            found[name] = tuple(map(_with_codec, checked)) if name == "encoding" else checked
        for setting in checked or () if name == "html" else ():
            if (value := setting.rpartition("=")[2]) not in _HTML:
                fault = unknown_name("part of a page", value, _HTML)
                raise SpecError(fault.message, fault.hint, where="`html`")
    return found


def _with_codec(setting: str) -> str:
    """A setting of an encoding, by the name of its codec.

    Raises:
        SpecError: there is no such codec, or it is not one of text.
    """
    *glob, name = setting.split("=", 1)
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)  # refused by what codecs.lookup also knows: hex, zlib
    except (LookupError, ValueError) as fault:
        names = (*aliases, *aliases.values())
        known = {one.replace("_", "-") for one in names if aliases.get(one, one) not in _NO_TEXT}
        raise SpecError(
            unknown_name("encoding", name, known).message,
            "name one that Python knows, such as cp1252 or utf-16",
            where="`encoding`",
        ) from fault
    return "=".join([*glob, codec])


_NO_TEXT = frozenset({"base64_codec", "bz2_codec", "hex_codec", "quopri_codec", "rot_13", "uu_codec", "zlib_codec"})

_VALUES = {"encoding": "NAME", "html": "PART", "ocr": "off|auto|LANG+LANG"}
"""What is said where it is no field."""

_EXAMPLES = {
    "text_field": "description, or 'data/*.csv=description+resolution'",
    "id_field": "ticket_id, or 'data/*.csv=ticket_id'",
    "records": "'policies.json=policies[]'",
    "title": "subject, or 'data/*.csv=product'",
    "speaker": "messages[].role, or 'chat.jsonl=messages[].role'",
    "context": "product+city, or 'data/*.csv=product+city'",
    "metadata": "opened+city, or 'data/*.csv=opened+city'",
    "encoding": "cp1250, or 'notes/*.txt=cp1250'",
    "html": "whole, or 'intranet/*.html=whole'",
    "ocr": "auto, or 'letters/*.pdf=deu+eng'",
}


@functools.lru_cache(maxsize=8 * _MOST)
def _rules(glob: str) -> IgnoreRules:
    from ragidx.corpora.ignore import IgnoreRules  # every command imports this module, few match a glob

    return IgnoreRules([glob])
