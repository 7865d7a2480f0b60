"""Mail by its first lines, whatever the name of its file: messages of a Maildir, of a news spool, of a test suite.

    first bytes -> the ending of what they begin: `.eml`, `.mbox`, or none

The lines up to the first empty one are header fields as RFC 5322 writes them, among them `From` and at least two more
that are known, one of which a program wrote: a note that begins with `From: Anna` and `Subject: lunch` stays a text.
"""

from __future__ import annotations

import re

HEAD_BYTES = 1 << 13
"""How much of a file is looked at; a longer header is judged by its beginning."""

_BEGINNING = re.compile(rb"From |[!-9;-~]{1,80}:")
_FIELD = re.compile(rb"([!-9;-~]{1,80}):[ \t]*(.*)")
_LINE_END = re.compile(rb"\r\n?|\n")
_POSTMARK = re.compile(  # the line above a message of a mailbox; its date is that of `asctime`
    rb"From \S.{0,200}?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) +[A-Z][a-z]{2} +\d{1,2} +\d\d:\d\d(?::\d\d)? .{0,20}\d{4}"
)

_IDS = rb"<[^<>\s]+>"
_BY_PEOPLE = dict.fromkeys((b"from", b"to", b"cc", b"sender", b"reply-to", b"subject"), re.compile(rb"\S"))
_BY_PROGRAMS = {
    name: re.compile(shape, re.IGNORECASE)
    for name, shape in {
        b"date": rb"(?:[a-z]{3},? *)?\d{1,2} +[a-z]{3} +\d{2,4} +\d{1,2}:\d\d",
        b"message-id": _IDS,
        b"in-reply-to": _IDS,
        b"references": _IDS,
        b"received": rb"(?:from|by|with|id|via)\s|\(",
        b"return-path": rb"<[^<>\s]*>",
        b"delivered-to": rb"\S+@\S+",
        b"mime-version": rb"1\.0",
        b"content-type": rb"[a-z]+/[\w.+-]+",
        b"content-transfer-encoding": rb"7bit|8bit|binary|base64|quoted-printable",
        b"newsgroups": rb"[\w+-]+(?:\.[\w+-]+)+",
        b"nntp-posting-host": rb"\S+\.\S+",
    }.items()
}
_LEAST = 3


def mail_ending(head: bytes) -> str:
    r"""`.eml` or `.mbox`, if these first bytes of a file begin such a one; else nothing.

    >>> mail_ending(b"From: Ada <a@b.org>\nSubject: Lakes\nDate: Mon, 2 Nov 2026 10:00:00 +0100\n\nDeep.\n")
    '.eml'
    >>> mail_ending(b"From: Ada\nTo: Ben\nSubject: Lakes\n\nA note.\n")
    ''
    """
    if not _BEGINNING.match(head):  # most files
        return ""
    lines = _LINE_END.split(head)[:-1]  # the last may go on
    is_box = bool(lines) and _POSTMARK.match(lines[0]) is not None
    header, blank = lines[is_box:], b"" in lines
    if not (blank or len(head) >= HEAD_BYTES) or not _is_header(header[: header.index(b"")] if blank else header):
        return ""
    return ".mbox" if is_box else ".eml"


def _is_header(lines: list[bytes]) -> bool:
    """Whether these lines are fields of a message."""
    people, programs = set[bytes](), set[bytes]()
    for place, line in enumerate(lines):
        if line[:1] in b" \t" and place:
            continue
        field = _FIELD.fullmatch(line)
        if field is None:
            return False
        name = field[1].lower()
        for known, found in ((_BY_PEOPLE, people), (_BY_PROGRAMS, programs)):
            if name in known and known[name].match(field[2]):
                found.add(name)
    return b"from" in people and bool(programs) and len(people) + len(programs) >= _LEAST
