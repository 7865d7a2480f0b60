"""Records become Documents: which fields are the text, which the id, and why a record is skipped.

    Record(number, fields, line) -> Document(name#id, text, metadata)

Used by every format that holds many records (JSON, CSV, Parquet, Arrow). File formats are not known here. The text is,
in this order: the field that the user names; the fields that an earlier build found in the file; the first of
`TEXT_FIELDS` that holds words; what `field_rule` finds; every field. The id is the field that the user names; one of
`ID_FIELDS`; the field that `field_rule` found when the file was first read; the number of the record.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ragidx.corpora.errors import lone_surrogate
from ragidx.corpora.field_settings import PATHS
from ragidx.corpora.headings import TITLE_CHARS, one_line_title
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.fields import (
    ID_FIELDS,
    TEXT_FIELDS,
    ToScalar,
    check_text,
    from_value,
    metadata_of,
    zoned_time,
)
from ragidx.corpora.readers.layouts import Layout
from ragidx.corpora.readers.records.field_rule import FieldJudge
from ragidx.corpora.readers.records.paths import at, flattened, picked
from ragidx.corpora.readers.records.rendering import kind_name, one_line, text_of
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place, Scalar

_SHOWN_FIELDS = 8
_MANY_FIELDS = 64  # of a record that is read as lines: of more, only the outer ones are metadata
_TITLES = ("title", "heading")  # of a record with one of `TEXT_FIELDS`: `name` or `subject` may be no title there


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file, before its text and id are found.

    Args:
        number: place of the record in the file, from 1; broken records count.
        fields: values by name, None if missing.
        line: line on which the record begins in the file, from 1; None where that is not known.
    """

    number: int
    fields: Mapping[str, object]
    line: int | None = None

    @property
    def at(self) -> str:
        """The place of the record, after the file's name in a report."""
        return f"#{self.number}" if self.line is None else f":{self.line}"


def record_documents(
    file: SourceFile, records: Iterable[Record], to_scalar: ToScalar = lambda _, value: from_value(value)
) -> Iterator[Document]:
    """One Document a record; a broken record is skipped."""
    layout, records = decided(file, iter(records))
    reader, is_said = _Reader(file, to_scalar, layout), any(getattr(file.fields, name) for name in PATHS)
    for record in records:
        if is_said:
            reader.note(record)
        try:
            document = reader.document(record)
        except UnreadableError as fault:
            file.skip(str(fault), record.at)
        else:
            yield document
    if file.source.span is None:  # else another part may have what this one lacks
        reader.report_missing()


def check_chosen(names: Collection[str], chosen: str | None) -> None:
    """Whether the text that the user names can be in records of these fields.

    Raises:
        UnreadableError: no field is there; the reason names those found.
    """
    paths = paths_of(names, chosen)
    if paths and not any(path in names or path.partition(".")[0].removesuffix("[]") in names for path in paths):
        raise UnreadableError(_missing(paths[0], names, "`text_field`"))


def decided(file: SourceFile, records: Iterator[Record]) -> tuple[Layout, Iterator[Record]]:
    """The layout, and all records."""
    if file.source.beir:
        return Layout(None), records
    judge, taken, fault = FieldJudge(), list[Record](), None
    try:
        while not judge.is_full and (record := next(records, None)) is not None:
            taken.append(record)
            judge.add(record.fields)
    except Exception as raised:  # noqa: BLE001 - of any format: it comes behind the records that were before it
        fault = raised
    known = file.layouts.known.get(file.source.name)
    by_user: dict[str, Any] = {} if file.fields.text is None else {"text": None, "title": None}
    layout = dataclasses.replace(judge.layout(), **by_user)
    if file.fields.id is not None:
        layout = dataclasses.replace(layout, id=None)
    if known is not None and file.source.span is not None:  # it was decided by the beginning of the file
        layout = known
    elif known is not None and _fits(known, layout, taken):
        layout = dataclasses.replace(known, n_records=layout.n_records)
    if taken:
        file.layouts.decided(file.source.name, layout)
    return dataclasses.replace(layout, **by_user), itertools.chain(taken, _ending(fault, records))


def _ending(fault: Exception | None, records: Iterator[Record]) -> Iterator[Record]:
    if fault is not None:
        raise fault
    yield from records


def _fits(known: Layout, found: Layout, records: Iterable[Record]) -> bool:
    """Whether the layout of an earlier build still finds text in these records; `found`: what they would have now."""
    if known.text is None or (found.text is None and not known.text):
        return found.text is None
    return not known.text or any(value for each in records for path in known.text for _, value in at(each.fields, path))


class _Reader:
    """Makes the documents of one file.

    Args:
        file: the file, with the user's settings, which takes the reports.
        to_scalar: function that makes a scalar of a field's name and value.
        layout: the layout that `decided` gave.
    """

    def __init__(self, file: SourceFile, to_scalar: ToScalar, layout: Layout) -> None:
        self._file, self._to_scalar, self._layout = file, to_scalar, layout
        self._seen: set[bytes] = set()  # digests of 8 bytes
        self._messages: dict[str, str] = {}  # the first record's serves all, so that skips can be counted
        self._first: Mapping[str, object] | None = None
        self._unseen: dict[str, str] = {}  # paths that the user names and no record has had, and their settings

    def note(self, record: Record) -> None:
        """See which fields that the user names a record has."""
        if self._first is None:
            self._first = record.fields
            said = {name: getattr(self._file.fields, name) for name in PATHS}
            self._unseen = {path: name for name in said for path in paths_of(record.fields, said[name])}
        if self._unseen:
            unseen = (path for path in self._unseen if next(at(record.fields, path), None) is None)
            self._unseen = {path: self._unseen[path] for path in unseen}

    def report_missing(self) -> None:
        """Report, at the end of the file, the fields that the user names and no record has."""
        for path, name in self._unseen.items():
            self._file.skip(_missing(path, self._first or (), f"`{name}`"))

    def document(self, record: Record) -> Document:
        """The document of a record.

        Raises:
            UnreadableError: it has no text, or no id of its own.
        """
        file, fields = self._file, record.fields
        paths = self._text_paths(fields)
        text = text_of(fields, paths, file.fields.speaker)
        check_text(text)
        if file.fields.context and (context := _context(fields, file.fields.context)):
            text = f"{context}\n{text}"
            check_text(text)
        field, value = self._id(fields)
        record_id = str(record.number) if field is None else _id(value, field)
        if not self._is_new(record_id):
            if field is None or field != self._layout.id:
                raise UnreadableError(f"its id was seen before in this file: '{record_id}'")
            file.skip(f"its id was seen before in this file, and has its number now: '{record_id}'", record.at)
            record_id = f"{record_id}~{record.number}"
            self._is_new(record_id)
        leave = {*paths, *(path.partition("[]")[0] for path in paths)}
        metadata = self._metadata(record, leave if field == self._layout.id else {field, *leave})
        title = metadata.get("title")
        if file.source.beir and isinstance(title, str) and title.strip():
            text = f"{title} {text}"
        # The bare id of a BEIR document names no file whose line this could be.
        parts = () if record.line is None or file.source.beir else (Place(0, line=record.line),)
        return Document(file.doc_id(record_id), text, metadata, heading=self._title(record, paths), parts=parts)

    def _is_new(self, record_id: str) -> bool:
        """Whether no record before has the id. Two of ten million ids share a digest in one file of 300,000."""
        n_before = len(self._seen)
        self._seen.add(hashlib.blake2b(record_id.encode(), digest_size=8).digest())
        return len(self._seen) > n_before

    def _text_paths(self, fields: Mapping[str, object]) -> tuple[str, ...]:
        if self._layout.text is not None:
            return self._layout.text
        chosen = self._file.fields.text
        paths = paths_of(fields, chosen) if chosen is not None else _usual(fields)
        if not any(True for path in paths for _ in at(fields, path)):
            missing = _missing(paths[0] if paths else TEXT_FIELDS[0], fields, "`text_field`")
            raise UnreadableError(self._messages.setdefault("text", missing))
        return paths

    def _title(self, record: Record, text: Collection[str]) -> str:
        fields, said = record.fields, self._file.fields.title
        if said is not None:
            paths = paths_of(fields, said)
        elif self._layout.title is not None:
            paths = (self._layout.title,)
        else:  # that of a BEIR document is in its text
            usual = () if self._layout.text is not None or self._file.source.beir else _TITLES
            paths = tuple(name for name in usual if name not in text and _is_title(fields.get(name)))[:1]
        title = " ".join(filter(None, (one_line(fields, path) for path in paths)))
        if lone_surrogate(title) is not None:
            return ""
        self._file.leave("ends of long titles", len(title) > TITLE_CHARS, record.at)
        return one_line_title(title)

    def _id(self, fields: Mapping[str, object]) -> tuple[str | None, object]:
        """The field that is the id, and its value; None: the record's number is the id."""
        chosen = self._file.fields.id
        if chosen is None:
            names = filter(None, (*ID_FIELDS, self._layout.id))
            return next(((name, fields[name]) for name in names if _is_id(fields.get(name))), (None, None))
        found = next(at(fields, chosen), None)
        if found is None:
            raise UnreadableError(self._messages.setdefault("id", _missing(chosen, fields, "`id_field`")))
        return chosen, found[1]

    def _metadata(self, record: Record, leave: Collection[str | None]) -> dict[str, Scalar]:
        """Every other field that has a value, typed; what cannot be kept is skipped."""
        leave = leave if self._file.fields.metadata is None else ()
        fields = {name: value for name, value in self._fields(record).items() if not (name in leave or value is None)}
        return metadata_of(fields, self._scalar, functools.partial(self._file.skip, at=record.at))

    def _scalar(self, name: str, value: object) -> Scalar:
        if name not in self._layout.times:
            return self._to_scalar(name, value)
        if (time := zoned_time(value)) is None and value != "":
            raise ValueError("not a time with a zone, as the values before")
        return time

    def _fields(self, record: Record) -> Mapping[str, object]:
        """The fields that may be metadata; of a record whose text is all of them, those that are not data."""
        said = self._file.fields.metadata
        fields = flattened(
            record.fields if said is None else picked(record.fields, paths_of(record.fields, said)),
            lambda name: self._file.skip(f"the field '{name}': there is another", record.at),
        )
        if self._layout.text != () or said is not None:
            return fields
        if len(fields) > _MANY_FIELDS or self._layout.n_records == 1:
            fields = {name: value for name, value in fields.items() if name in record.fields}
        return {name: value for name, value in fields.items() if not isinstance(value, list | tuple) or _is_list(value)}


def _is_title(value: object) -> bool:
    return isinstance(value, str | int | float | list) and not isinstance(value, bool) and value not in ("", [])


def _is_list(value: list[object] | tuple[object, ...]) -> bool:
    return all(isinstance(item, str) for item in value)


def _context(fields: Mapping[str, object], chosen: str) -> str:
    """The line in front of the text: `product: A; city: Oslo`."""
    found = ((path, one_line(fields, path)) for path in paths_of(fields, chosen))
    return "; ".join(f"{path}: {value}" for path, value in found if value)


def paths_of(names: Collection[str], chosen: str | None) -> tuple[str, ...]:
    """The paths of a setting: `a+b` are two, unless a field is called so."""
    if chosen is None:
        return ()
    return (chosen,) if chosen in names else tuple(filter(None, chosen.split("+")))


def _usual(fields: Mapping[str, object]) -> tuple[str, ...]:
    """The first usual name whose value is text, else the first one at all."""
    found = [name for name in TEXT_FIELDS if name in fields]
    return tuple([*(name for name in found if isinstance(fields[name], str)), *found][:1])


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _id(value: object, field: str) -> str:
    if not _is_id(value):
        raise UnreadableError(f"the field '{field}' is not an id but {kind_name(value)}")
    name = unicodedata.normalize("NFC", str(value))
    if lone_surrogate(name) is not None:
        raise UnreadableError("lone surrogate in the id")
    return name


def _missing(field: str, names: Iterable[str], option: str) -> str:
    found = sorted(name.encode("utf-8", "replace").decode() for name in names)
    shown = ", ".join(f"'{name}'" for name in found[:_SHOWN_FIELDS]) or "no field"
    more = f" and {len(found) - _SHOWN_FIELDS} more" if len(found) > _SHOWN_FIELDS else ""
    return f"the field '{field}' is missing (found: {shown}{more}); say which one to read with {option}"
