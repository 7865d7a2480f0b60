"""Mail: a .eml is one Document, each message of a .mbox one; attachments are read by the readers of their endings.

    message -> subject, blank line, text; from, to, date, message_id, title and author as metadata

The plain text is taken where there is one, else the HTML part. An attachment is named `a.eml/report.pdf`, below the
message, and a message inside a message is one; what is inside another file is not opened further. Long
headers are refused before the parser, whose time grows with their square.
"""

from __future__ import annotations

import datetime
import email
import email.errors
import email.header
import email.utils
import hashlib
import io
import mimetypes
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import policy
from email.message import Message
from typing import IO, Any

from ragidx.corpora.limits import UnreadableError, shown_bytes
from ragidx.corpora.readers.decoding import decode
from ragidx.corpora.readers.fields import check_text
from ragidx.corpora.readers.html_page import page_text, parsed
from ragidx.corpora.readers.packed.archive import member_name
from ragidx.corpora.readers.registry import member_documents
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Place, Scalar

_HEADER_CHARS = 10_000
_PART_HEADER = re.compile(rb"^content-[a-z-]{1,40}:[^\n]*(?:\n[ \t][^\n]*)*", re.IGNORECASE | re.MULTILINE)
_FAULTS = (
    *(ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError, ArithmeticError),
    email.errors.MessageError,
)
"""What the email package raises on malformed input."""


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


@dataclass(slots=True)
class _Parts:
    """The leaves of a message."""

    plain: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    attached: list[tuple[str, bytes]] = field(default_factory=list)  # name and bytes


def _documents(file: SourceFile, raw: bytes, record: str = "", begins: tuple[Place, ...] = ()) -> Iterator[Document]:
    """The message, then its attachments.

    Args:
        file: that has it.
        raw: its bytes.
        record: its id in a mailbox.
        begins: where in the mailbox.

    Raises:
        UnreadableError: it is no message, or beyond a bound.
    """
    data = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if any(len(found[0]) > _HEADER_CHARS for found in _PART_HEADER.finditer(data)):
        raise UnreadableError(f"a mail with a header of more than {_HEADER_CHARS:,} characters")
    doc_id = file.doc_id(record)
    try:
        message = email.message_from_bytes(data, policy=policy.compat32)
        parts = _parts(file, message, f"#{record}" if record else "")
        metadata = _metadata(message)
        if message.get("date") and "date" not in metadata:
            file.skip("the field 'date': not a date", f"#{record}" if record else "")
    except _FAULTS as fault:
        raise UnreadableError(f"not a mail: {type(fault).__name__}") from fault
    if not metadata and not parts.attached:
        raise UnreadableError("not a mail: it has no header")
    body = "\n\n".join(part for part in (parts.plain or parts.pages) if part.strip())
    text = f"{metadata.get('title', '')}\n\n{body}".strip()
    try:
        check_text(text)
    except UnreadableError as fault:
        file.skip(str(fault), f"#{record}" if record else "")
    else:
        yield Document(doc_id, text, metadata, parts=begins)
    below = doc_id.removeprefix(file.source.name)
    yield from _attachments(file, parts.attached, below)


def _parts(file: SourceFile, message: Message, at: str) -> _Parts:
    """The leaves of a message, in their order."""
    found = _Parts()
    waiting: list[Any] = [message]
    while waiting:
        part = waiting.pop()
        kind = part.get_content_type()
        payload = part.get_payload()
        if kind == "message/rfc822" and isinstance(payload, list):
            found.attached += [(_file_name(part, "message.eml"), inner.as_bytes()) for inner in payload]
        elif isinstance(payload, list):
            waiting += reversed(payload)
        else:
            data = part.get_payload(decode=True) or b""
            is_body = part.get_content_disposition() != "attachment" and not part.get_filename()
            if kind in ("text/plain", "text/html") and is_body:
                _add_body(file, found, part, data, at)
            else:
                ending = mimetypes.guess_extension(kind) or ""
                found.attached.append((_file_name(part, f"part-{len(found.attached) + 1}{ending}"), data))
    return found


def _add_body(file: SourceFile, found: _Parts, part: Message, data: bytes, at: str) -> None:
    charset = part.get_content_charset("")
    try:
        declared = charset if isinstance(charset, str) else ""
        said = file.fields.encoding if file.fields.encoding and not declared else ""
        text = decode(data, declared=declared, said=said, on_guess=file.guessed)
        if part.get_content_type() == "text/plain":
            found.plain.append(text)
        else:
            found.pages.append(page_text(parsed(text)))
    except UnreadableError as fault:
        file.skip(str(fault), at)


def _file_name(part: Message, default: str) -> str:
    name = _header(part.get_filename() or "")
    return name.replace("\\", "/").rpartition("/")[2] or default


def _attachments(file: SourceFile, attached: list[tuple[str, bytes]], below: str) -> Iterator[Document]:
    """The documents of attachments; `below`: the record of the message, after the file's name."""
    taken: set[str] = set()
    for number, (raw, data) in enumerate(attached, start=1):
        where = below.lstrip("/")
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
        yield from member_documents(file, name, io.BufferedReader(io.BytesIO(data)), len(data), record=where)


def _metadata(message: Message) -> dict[str, Scalar]:
    """What the headers say."""
    sender, to = _header(message.get("from", "")), _header(message.get("to", ""))
    found = {
        "title": _header(message.get("subject", "")),
        "author": _author(sender),
        "from": sender,
        "to": to,
        "date": _date(str(message.get("date", ""))),
        "message_id": _header(message.get("message-id", "")).strip("<> "),
    }
    return {key: value for key, value in found.items() if value}


def _author(sender: str) -> str:
    try:
        name, address = email.utils.parseaddr(sender)
    except _FAULTS:  # thousands of brackets
        return ""
    return name or address


def _date(text: str) -> datetime.datetime | None:
    """In UTC; a date without a zone is taken for one."""
    try:
        found = email.utils.parsedate_to_datetime(text[:100])
        return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found.astimezone(datetime.UTC)
    except _FAULTS:
        return None


def _header(raw: object) -> str:
    """A header as text, of at most 10,000 characters."""
    text = str(raw)[:_HEADER_CHARS]
    try:
        parts = email.header.decode_header(text)
        text = str(email.header.make_header(parts))
    except _FAULTS:
        pass
    plain = text.encode("utf-8", "replace").decode()
    words = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", plain))
    return " ".join(words.split())
