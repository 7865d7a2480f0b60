"""Mail of Outlook (.msg), by python-oxmsg: a message is a document, as one of a .eml, and its attachments are.

    compound file -> subject, blank line, text; from, to, date, title and author as metadata

A body that is there as RTF alone is read as an attachment `body.rtf`; a message inside a message is a document.
"""

from __future__ import annotations

import datetime
import email
import importlib.util
import struct
from collections.abc import Iterator
from email import policy
from typing import Any

from ragidx.corpora.errors import check_machine, first_line, install
from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import MIB, UnreadableError
from ragidx.corpora.readers.html_page import page_text, parsed
from ragidx.corpora.readers.packed.mail import head_metadata, message_documents, n_other_fields
from ragidx.corpora.readers.packed.mail_parts import HEADER_CHARS, Parts, Text, decoded, header_text, one_of
from ragidx.corpora.readers.source_file import SourceFile
from ragidx.corpora.records import Document, Scalar

_HEADS = {"subject": 0x0037, "to": 0x0E04, "cc": 0x0E03, "message-id": 0x1035}
_BODY, _HTML, _RTF = 0x1000, 0x1013, 0x1009
_SENDER, _ADDRESS, _SMTP, _SENT, _BCC, _HEAD = 0x0C1A, 0x0C1F, 0x5D01, 0x0039, 0x0E02, 0x007D
_LONG_NAME, _SHORT_NAME, _SHOWN_NAME, _DATA, _INNER = 0x3707, 0x3704, 0x3001, 0x3701, "__substg1.0_3701000D"
_ROOT_HEADER, _INNER_HEADER, _ATTACHED_HEADER = 32, 24, 8  # bytes before the properties
_RTF_BYTES = 16 * MIB
_RTF_START = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor "
    b"MS Sans SerifSymbolArialTimes New RomanCourier"
    b"{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
"""What the dictionary of compressed RTF begins with (MS-OXRTFCP 2.1.3.1.1)."""


def read_msg(file: SourceFile) -> Iterator[Document]:
    """A message and its attachments."""
    if importlib.util.find_spec("oxmsg") is None:
        raise UnreadableError(f"needs the extra 'docs': {install('docs')}")
    data = bytes(file.data(file.limits.mail_bytes))
    try:
        from oxmsg import Message

        storage = Message.load(data)._storage
    except Exception as fault:  # the libraries raise anything
        check_machine(fault, file.source.name)
        raise UnreadableError(f"cannot be read as a mail of Outlook: {first_line(fault)}") from fault
    yield from _documents(file, storage, file.doc_id(), _ROOT_HEADER)


def _documents(file: SourceFile, storage: Any, doc_id: str, header: int) -> Iterator[Document]:
    """The message in a storage, then its attachments."""
    props, at = _Properties(storage, header), doc_id.removeprefix(file.source.name)
    parts = Parts()
    parts.texts = _texts(file, props, parts.left)
    head = email.message_from_string(props.text(_HEAD)[:HEADER_CHARS], policy=policy.compat32)
    parts.left.leave("fields of mails", n_other_fields(head) + bool(props.text(_BCC)))
    parts.attached, inner = _attached(storage)
    if not parts.texts and (rtf := props.data(_RTF)):
        parts.attached.insert(0, ("body.rtf", _unpacked(rtf)))
    yield from message_documents(file, doc_id, _metadata(props), parts)
    for number, message in enumerate(inner, start=1):
        name = "message.msg" if number == 1 else f"{number}-message.msg"
        if file.depth or header == _INNER_HEADER:
            file.skip("an attachment of a mail inside another file", f"{at}/{name}")
        else:
            yield from _documents(file, message, f"{doc_id}/{name}", _INNER_HEADER)


def _texts(file: SourceFile, props: _Properties, left: Tally) -> list[Text]:
    """The plain text, or the page where that has the words."""
    texts: list[tuple[str, list[Text]]] = []
    if plain := props.text(_BODY).strip():
        texts.append(("text/plain", [Text(plain)]))
    page = props.text(_HTML) or decoded(file, props.data(_HTML), props.charset())
    if page.strip():
        of_page = Tally()
        words = page_text(parsed(page, of_page), of_page, whole=file.fields.html == "whole")
        texts.append(("text/html", [Text(words, of_page)]))
    return one_of(texts, left)


def _attached(storage: Any) -> tuple[list[tuple[str, bytes]], list[Any]]:
    """Names and bytes of files, and the storages of messages."""
    files: list[tuple[str, bytes]] = []
    messages: list[Any] = []
    for each in storage.iter_attachment_storages():
        inner = [one for one in each.storages if one.name == _INNER]
        if inner:
            messages += inner
            continue
        props = _Properties(each, _ATTACHED_HEADER)
        name = props.text(_LONG_NAME) or props.text(_SHORT_NAME) or props.text(_SHOWN_NAME)
        files.append((header_text(name) or f"part-{len(files) + 1}", props.data(_DATA)))
    return files, messages


class _Properties:
    """The properties of a storage; empty where one is not there or cannot be read."""

    def __init__(self, storage: Any, header: int) -> None:
        from oxmsg.properties import Properties

        self._props = Properties(storage, properties_header_offset=header)

    def text(self, number: int) -> str:
        """A text, with plain newlines."""
        found = self._value(self._props.str_prop_value, number)
        return found.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "") if isinstance(found, str) else ""

    def data(self, number: int) -> bytes:
        """Bytes."""
        found = self._value(self._props.binary_prop_value, number)
        return found if isinstance(found, bytes) else b""

    def time(self, number: int) -> datetime.datetime | None:
        """A time, in UTC."""
        found = self._value(self._props.date_prop_value, number)
        return found.astimezone(datetime.UTC) if isinstance(found, datetime.datetime) else None

    def charset(self) -> str:
        """The encoding of a page in bytes."""
        try:
            return str(self._props.body_encoding)
        except Exception:  # noqa: BLE001  # of damaged properties
            return ""

    def _value(self, take: Any, number: int) -> object:
        try:
            found: object = take(number)
            return found
        except Exception as fault:  # noqa: BLE001  # of damaged properties
            check_machine(fault, "a mail of Outlook")
            return None


def _metadata(props: _Properties) -> dict[str, Scalar]:
    name, address = header_text(props.text(_SENDER)), header_text(props.text(_SMTP) or props.text(_ADDRESS))
    sender = f"{name} <{address}>" if name and address else name or address
    return head_metadata(sender, lambda field: props.text(_HEADS[field]) if field in _HEADS else "", props.time(_SENT))


def _unpacked(data: bytes) -> bytes:
    """Compressed RTF (MS-OXRTFCP): a dictionary of 4 KiB; each control bit is a byte, or a reference of two."""
    if len(data) < 16:
        return b""
    size, method = struct.unpack("<4xI4s", data[:12])
    if method != b"LZFu":
        return data[16 : 16 + size]
    window = bytearray(_RTF_START.ljust(4096, b"\0"))
    out, at, write = bytearray(), 16, len(_RTF_START)
    while at < len(data) and len(out) < min(size, _RTF_BYTES):
        control, at = data[at], at + 1
        for bit in range(8):
            if at >= len(data):
                break
            if not control >> bit & 1:
                run, at = data[at : at + 1], at + 1
            else:
                reference, at = int.from_bytes(data[at : at + 2], "big"), at + 2
                start = reference >> 4
                if start == write:
                    return bytes(out)
                run = bytes(window[(start + n) % 4096] for n in range((reference & 15) + 2))
            for byte in run:
                window[write] = byte
                write = (write + 1) % 4096
            out += run
    return bytes(out)
