"""Mail: a .eml is one Document, each message of a .mbox one; attachments are read by the readers of their endings.

    message -> subject, blank line, text; from, to, date, message_id, title and author as metadata

`mail_parts` says which parts are the text. An attachment is named `a.eml/report.pdf`, below the message, and a message
inside a message is one; what is inside another file is not opened further. Long headers are refused before the parser,
whose time grows with their square, and so are parts that nest deep.
"""

from __future__ import annotations

import datetime
import email
import email.utils
import functools
import hashlib
import io
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from email import policy
from email.message import Message
from typing import IO

from ragidx.corpora.limits import UnreadableError, shown_bytes
from ragidx.corpora.readers.decoding import is_binary, marked_encoding
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.packed.archive import member_name
from ragidx.corpora.readers.packed.mail_parts import DEPTH, FAULTS, HEADER_CHARS, Parts, header_text, parts_of
from ragidx.corpora.readers.registry import is_known, member_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place, Scalar

_PART_HEADER = re.compile(rb"^content-[a-z-]{1,40}:[^\n]*(?:\n[ \t][^\n]*)*", re.IGNORECASE | re.MULTILINE)
_BOUNDARY = re.compile(
    rb"^(?:content-type:[^\n]*(?:\n[ \t][^\n]*)*?boundary\s*=\s*\"?([^\"\n;]+)|--([^\n]+))",
    re.IGNORECASE | re.MULTILINE,
)
_SNIFFED_BYTES = 1 << 13
_READ_FIELDS = frozenset({"subject", "from", "to", "cc", "keywords", "date", "message-id"})


def read_eml(file: SourceFile) -> Iterator[Document]:
    """A message and its attachments."""
    yield from _documents(file, bytes(file.data(file.limits.mail_bytes)))


def read_mbox(file: SourceFile) -> Iterator[Document]:
    """The messages of a mailbox, and their attachments. The id is the Message-ID, else the number of the message."""
    taken: set[bytes] = set()
    with file.stream() as stream:
        for number, (line, data) in enumerate(_messages(stream, file.limits.mail_bytes), start=1):
            try:
                if data is None:
                    raise UnreadableError(f"a message of more than {shown_bytes(file.limits.mail_bytes)}")
                record = _record(data, number, taken)
                yield from _documents(file, data, record, (Place(0, line=line),))
            except UnreadableError as fault:
                file.skip(str(fault), f":{line}")


def _messages(stream: IO[bytes], limit: int) -> Iterator[tuple[int, bytes | None]]:
    """The line where each message begins, and its bytes; None: they are too many."""
    data, size, start, blank = bytearray(), 0, 0, True
    for number, line in enumerate(iter(lambda: stream.readline(limit + 1), b""), start=1):
        if blank and line.startswith(b"From "):
            if start:
                yield start, bytes(data) if size <= limit else None
            data, size, start = bytearray(), 0, number
        elif start:
            size += len(line)
            if size <= limit:
                data += line[1:] if line.startswith(b">From ") else line
        elif line.strip():
            raise UnreadableError("not a mailbox: it does not begin with 'From '")
        blank = not line.strip()
    if start:
        yield start, bytes(data) if size <= limit else None


def _record(data: bytes, number: int, taken: set[bytes]) -> str:
    """The id of a message in its mailbox."""
    end = min((at for mark in (b"\n\n", b"\r\n\r\n") if (at := data.find(mark)) >= 0), default=len(data))
    found = re.search(rb"^message-id:\s{0,100}<?([\x21-\x3b\x3d\x3f-\x7e]{3,250})>?[ \t]*\r?$", data[:end], re.I | re.M)
    name = found[1].decode() if found else str(number)
    key = hashlib.blake2b(name.encode(), digest_size=8).digest()
    if key in taken:
        name = str(number)
    taken.add(key)
    return name


def _documents(file: SourceFile, raw: bytes, record: str = "", begins: tuple[Place, ...] = ()) -> Iterator[Document]:
    """The message, then its attachments.

    Args:
        file: the file that has the message.
        raw: bytes of the message.
        record: id of the message in a mailbox.
        begins: where in the mailbox.

    Raises:
        UnreadableError: it is no message, or beyond a bound.
    """
    data = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if any(len(found[0]) > HEADER_CHARS for found in _PART_HEADER.finditer(data)):
        raise UnreadableError(f"a mail with a header of more than {HEADER_CHARS:,} characters")
    _check_depth(data)
    doc_id = file.doc_id(record)
    try:
        message = email.message_from_bytes(data, policy=policy.compat32)
        at = doc_id.removeprefix(file.source.name)
        parts = parts_of(message, file, at)
        head = functools.partial(message.get, failobj="")
        metadata = head_metadata(header_text(head("from")), head, _date(str(head("date"))))
        if message.get("date") and "date" not in metadata:
            file.skip("the field 'date': not a date", at)
    except RecursionError as fault:
        raise UnreadableError("a mail nested too deep") from fault
    except FAULTS as fault:
        raise UnreadableError(f"not a mail: {type(fault).__name__}") from fault
    if not metadata and not parts.attached:
        raise UnreadableError("not a mail: it has no header")
    file.leave("fields of mails", n_other_fields(message), at)
    yield from message_documents(file, doc_id, metadata, parts, begins)


def message_documents(
    file: SourceFile, doc_id: str, metadata: Mapping[str, Scalar], parts: Parts, begins: tuple[Place, ...] = ()
) -> Iterator[Document]:
    """The document of a message, if it has a text, then those of its attachments."""
    at = doc_id.removeprefix(file.source.name)
    file.left.take(parts.left, at)
    for text in parts.texts:
        file.left.take(text.left, at)
    body = "\n\n".join(text.words for text in parts.texts if text.words.strip())
    words = f"{metadata.get('title', '')}\n\n{body}".strip()
    try:
        check_text(words)
    except UnreadableError as fault:
        file.skip(str(fault), at)
    else:
        yield Document(doc_id, words, metadata, parts=begins)
    yield from _attachments(file, parts.attached, at)


def _check_depth(data: bytes) -> None:
    """Refuse parts that nest deep: the parser compares each line with each boundary that is open.

    Raises:
        UnreadableError: they do.
    """
    if data.lower().count(b"boundary") <= DEPTH:
        return
    opened: list[bytes] = []
    for boundary in _BOUNDARY.finditer(data):
        if boundary[1] is not None:
            opened.append(boundary[1].rstrip())
            if len(opened) > DEPTH:
                raise UnreadableError(f"a mail nested deeper than {DEPTH} parts")
            continue
        line = boundary[2].rstrip()
        for at in range(len(opened) - 1, -1, -1):
            if line in (opened[at], opened[at] + b"--"):
                del opened[at + (line == opened[at]) :]
                break


def _attachments(file: SourceFile, attached: list[tuple[str, bytes]], at: str) -> Iterator[Document]:
    """The documents of attachments of the message at a place; pictures and files without a reader are counted."""
    taken: set[str] = set()
    where = at.lstrip("/")
    for number, (raw, data) in enumerate(attached, start=1):
        try:
            if file.depth:
                raise UnreadableError("an attachment of a mail inside another file")
            name = member_name(raw)
        except UnreadableError as fault:
            file.skip(str(fault), f"{where}/{raw[:100]}")
            continue
        if name in taken:
            name = f"{number}-{name}"
        taken.add(name)
        whole = f"{file.source.name}{where}/{name}"
        if not is_known(whole, file.options) and marked_encoding(data) is None and is_binary(data[:_SNIFFED_BYTES]):
            file.leave(_kind_of(name), 1, f"{where}/{name}")
            continue
        yield from member_documents(file, name, io.BufferedReader(io.BytesIO(data)), len(data), record=where)


def _kind_of(name: str) -> str:
    """The kind of `left.KINDS` of an attachment that no reader reads."""
    if (mimetypes.guess_type(name)[0] or "").startswith("image/"):
        return "pictures"
    return "signatures" if name.lower().endswith((".p7s", ".sig")) else "attachments of unknown kinds"


def head_metadata(sender: str, head: Callable[[str], object], date: datetime.datetime | None) -> dict[str, Scalar]:
    """What the head of a message says; `head` gives its other fields by their names, as they are written."""
    found = {
        "title": header_text(head("subject")),
        "author": _author_of(sender),
        "from": sender,
        "to": header_text(head("to")),
        "cc": header_text(head("cc")),
        "keywords": header_text(head("keywords")),
        "date": date,
        "message_id": header_text(head("message-id")).strip("<> "),
    }
    return {key: value for key, value in found.items() if value}


def n_other_fields(message: Message) -> int:
    """How many fields of the head are not read; those about the form of the message say nothing."""
    names = map(str.lower, message.keys())
    return sum(name not in _READ_FIELDS and not name.startswith(("content-", "mime-")) for name in names)


def _author_of(sender: str) -> str:
    """The name of a sender, else the address."""
    try:
        name, address = email.utils.parseaddr(sender)
    except FAULTS:  # thousands of brackets
        return ""
    return name or address


def _date(text: str) -> datetime.datetime | None:
    """In UTC; a date without a zone is taken for one."""
    try:
        found = email.utils.parsedate_to_datetime(text[:100])
        return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found.astimezone(datetime.UTC)
    except FAULTS:
        return None
