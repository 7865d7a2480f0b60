r"""JSON Lines, JSON, and standard input: records, one Document each.

    bytes -> records -> Documents

Lines end at b"\n" alone: U+2028 is text. JSON Lines stream; a .json file with one value is parsed whole, within
`Limits.json_bytes`. Which field is the text is not known here.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple, TypeAlias

from ragidx.corpora.errors import printable
from ragidx.corpora.limits import ReadOptions, UnreadableError, read_all, shown_bytes
from ragidx.corpora.readers.decoding import is_binary
from ragidx.corpora.readers.fields import TEXT_FIELDS, check_text
from ragidx.corpora.readers.records.documents import Record, paths_of, record_documents
from ragidx.corpora.readers.records.paths import at
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document
from ragidx.corpora.sources import LineSpan, Source

OnRepeat: TypeAlias = Callable[[str], object]

_LISTS = ("documents", "data", "records")
_TURNS = ({"role", "content"}, {"speaker", "text"}, {"from", "value"})  # keys of the turns of a conversation
_DISCARD_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 20
_BLANK_BYTES = 1 << 20  # blank lines at the top that are skipped, to see what a file is


def read_json_lines(file: SourceFile) -> Iterator[Document]:
    """One object a line. Any other line is skipped."""
    with file.stream() as stream:
        span, limit = file.source.span, file.limits.line_bytes
        lines = stream if span is None else _Lines(stream, span)
        if span is not None and span.start:
            taken, n_before = [(span.n_lines + 1, lines.readline(limit + 1))], span.n_records
        else:
            head, n_before = _head(lines, limit), 0
            taken = [(head.number, head.line)]
        yield from record_documents(file, _line_records(file, lines, taken, n_before))


def spans(source: Source, starts: Sequence[int], options: ReadOptions) -> list[LineSpan]:
    """A file of JSON Lines, cut before the first lines that begin at these bytes or later; none where it is refused.

    Raises:
        UnreadableError: it is no longer a regular file.
        OSError: it cannot be read.
    """
    file = SourceFile(source=source, options=options, on_skip=lambda skip: None)
    parts, limit = list[LineSpan](), file.limits.line_bytes
    with file.stream() as stream:
        head = _head(stream, limit)
        if head.data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or is_binary(head.line):
            return []
        stream.seek(0)
        place = n_lines = n_records = 0
        begun, wanted = (0, 0, 0), list(starts)
        while line := stream.readline(limit + 1):
            if wanted and place >= wanted[0]:
                parts.append(LineSpan(begun[0], place, *begun[1:]))
                begun, wanted = (place, n_lines, n_records), [start for start in wanted if start > place]
            place += len(line)
            n_lines += 1
            n_records += not line.isspace()
            if len(line) > limit and not line.endswith(b"\n"):
                place += _discard_line(stream)
    parts.append(LineSpan(begun[0], place, *begun[1:]))
    return parts


class _Lines:
    """The lines of a part of a file."""

    def __init__(self, stream: IO[bytes], span: LineSpan) -> None:
        stream.seek(span.start)
        self._stream, self._left = stream, span.stop - span.start

    def readline(self, size: int) -> bytes:
        """The next line, or its first bytes; empty at the end of the part."""
        line = self._stream.readline(min(size, self._left))
        self._left -= len(line)
        return line


def read_json(file: SourceFile) -> Iterator[Document]:
    """An array of objects, an object that has one under `documents`, `data` or `records`, one object, or JSON Lines."""
    limit = file.limits.line_bytes
    with file.stream() as stream:
        head = _head(stream, limit)
        second = _next_filled(stream, limit, head.number + 1) if _is_object(head.line) else None
        if second:
            taken = [(head.number, head.line), second]
            yield from record_documents(file, _line_records(file, stream, taken))
            return
        text = file.decoded(read_all(stream, file.limits.json_bytes, head.data))
    yield from record_documents(file, _value_records(file, text))


def read_standard_input(file: SourceFile) -> Iterator[Document]:
    """JSON Lines if the first line that is not blank is a JSON object; else the whole of it as one text."""
    with file.stream() as stream:
        head = _head(stream, file.limits.line_bytes)
        if _is_object(head.line):
            yield from record_documents(file, _line_records(file, stream, [(head.number, head.line)]))
            return
        text = file.decoded(read_all(stream, file.limits.document_bytes, head.data))
    check_text(text)
    yield Document(file.doc_id(), text)


class _Head(NamedTuple):
    """The beginning of a stream up to its first line that is not blank, to see what it is."""

    data: bytes  # all that was taken from the stream
    line: bytes  # that line, without a byte order mark
    number: int  # its number, from 1


def _head(stream: IO[bytes] | _Lines, limit: int) -> _Head:
    lines: list[bytes] = []
    size = 0
    while line := stream.readline(limit + 1):
        lines.append(line)
        size += len(line)
        if size > min(limit, _BLANK_BYTES) or not line.isspace():
            break
    data = b"".join(lines)
    return _Head(data, lines[-1].removeprefix(codecs.BOM_UTF8) if lines else b"", max(1, len(lines)))


def _next_filled(stream: IO[bytes], limit: int, number: int) -> tuple[int, bytes] | None:
    """The next line with something in it and its number; None at the end of the stream."""
    while line := stream.readline(limit + 1):
        if not line.isspace():
            return number, line
        number += 1
    return None


def _is_object(line: bytes) -> bool:
    """Whether a line by itself is a JSON object."""
    if not line.lstrip().startswith(b"{") or not line.rstrip().endswith(b"}"):
        return False
    try:
        _parsed(line, lambda reason: None, "latin-1")  # as good as any for what is ASCII
    except UnreadableError:
        return False
    return True


def _line_records(
    file: SourceFile, stream: IO[bytes] | _Lines, taken: list[tuple[int, bytes]], count: int = 0
) -> Iterator[Record]:
    """The records of the lines already taken from the stream, and of the rest of it; `count`: of those before them."""
    limit, encoding = file.limits.line_bytes, _encoding(file, taken[0][1])
    rest = enumerate(iter(lambda: stream.readline(limit + 1), b""), start=taken[-1][0] + 1)
    for number, line in itertools.chain(taken, rest):
        if not line or line.isspace():
            continue
        place = f":{number}"
        if len(line) > limit and not line.endswith(b"\n"):
            count += 1
            _discard_line(stream)
            file.skip(f"a line of more than {shown_bytes(limit)}", place)
            continue
        try:
            value = _parsed(line, functools.partial(file.skip, at=place), encoding)
            items = [value] if file.fields.records is None else _items_at(value, file.fields.records)
        except UnreadableError as fault:
            count += 1
            file.skip(str(fault), place)
            continue
        for item in items:
            count += 1
            if isinstance(item, dict):
                yield Record(count, item, number)
            else:
                file.skip("not a JSON object", place)


def _encoding(file: SourceFile, line: bytes) -> str:
    """The encoding of all lines, by the beginning of the file, or by its first line where it is read once.

    Raises:
        UnreadableError: it is binary, or its lines do not end at a newline of one byte.
    """
    encoding = file.encoding_of(file.head(_SAMPLE_BYTES) or line).removesuffix("-sig")
    if "\n".encode(encoding) != b"\n":
        name = "UTF-16" if encoding.startswith(("utf-16", "utf_16")) else encoding
        raise UnreadableError(f"JSON Lines in {name}: convert the file to UTF-8")
    return encoding


def _discard_line(stream: IO[bytes] | _Lines) -> int:
    """Read the rest of a line; how many bytes that were."""
    count = 0
    while block := stream.readline(_DISCARD_BYTES):
        count += len(block)
        if block.endswith(b"\n"):
            break
    return count


def _value_records(file: SourceFile, text: str) -> Iterator[Record]:
    value = loaded(text, file.skip)
    outer: dict[str, Any] = {}
    if file.fields.records is not None:
        value = _items_at(value, file.fields.records)
    elif isinstance(value, dict):
        value, outer = _found(file, value)
    for number, item in enumerate(value if isinstance(value, list) else [value], start=1):
        if isinstance(item, dict):
            yield Record(number, outer | item)
        else:
            file.skip("not a JSON object", f"#{number}")


def _found(file: SourceFile, value: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The records of an object, and the fields around them, which belong to each; it may itself be the one record."""
    said = file.fields.text
    found = [[text for _, text in at(value, path)] for path in (TEXT_FIELDS if said is None else paths_of(value, said))]
    texts = [text for each in found for text in each] if said is None or all(found) else []  # `title` may be around
    lists = {name: items for name, items in value.items() if isinstance(items, list)}
    name = None if texts else next(filter(lists.__contains__, _LISTS), None)
    if name is None and not any(isinstance(text, str) for text in texts):
        names = [each for each, items in lists.items() if _are_records(items)]
        is_most = len(names) == 1 and 2 * len(json.dumps(value[names[0]])) >= len(json.dumps(value))
        name = names[0] if is_most else None
    if name is None:
        return value, {}
    return value[name], {around: field for around, field in value.items() if around != name}


def _are_records(items: list[Any]) -> bool:
    """Whether a list is one of objects, and not the turns of one conversation."""
    is_of_objects = bool(items) and all(isinstance(item, dict) for item in items)
    return is_of_objects and not any(turn <= items[0].keys() for turn in _TURNS)


def _items_at(value: Any, path: str) -> list[Any]:
    """What is at the path that the user names; a list there is the list of its items.

    Raises:
        UnreadableError: there is nothing.
    """
    found = [item for _, one in at(value, path) for item in (one if isinstance(one, list) else [one])]
    if not found:
        raise UnreadableError(f"there is nothing at '{path}'; say where the records are with `records`")
    return found


def _parsed(line: bytes, on_repeat: OnRepeat, encoding: str = "utf-8") -> Any:
    try:
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode(encoding)
    except UnicodeDecodeError as fault:
        at = f"byte {fault.start}"
        raise UnreadableError(f"broken UTF-8: {at}" if encoding == "utf-8" else f"not {encoding}: {at}") from fault
    return loaded(text, on_repeat)


def loaded(text: str, on_repeat: OnRepeat) -> Any:
    """A JSON value; of a key that comes twice the last value counts, and one such key is reported.

    Raises:
        UnreadableError: the text is not JSON.
    """
    repeated: list[str] = []

    def joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and not repeated:
            repeated.append(Counter(name for name, _ in pairs).most_common(1)[0][0])
        return found

    try:
        value = json.loads(text, object_pairs_hook=joined)
    except json.JSONDecodeError as fault:
        place = f"line {fault.lineno} column {fault.colno}" if fault.lineno > 1 else f"column {fault.colno}"
        raise UnreadableError(f"not valid JSON: {fault.msg}, {place}") from fault
    except ValueError as fault:  # an integer of thousands of digits
        raise UnreadableError("not valid JSON: a number of too many digits") from fault
    except RecursionError as fault:
        raise UnreadableError("not valid JSON: nested too deep") from fault
    if repeated:
        on_repeat(f"the key '{printable(repeated[0])}' is given twice: the last value counts")
    return value
