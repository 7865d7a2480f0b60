"""The parts of a mail: which of them are its text, which are files, and what is neither.

    message -> Parts(texts, attached)

Of a `multipart/alternative` one part is read: the plain one, unless it has less than half of the words of the richest;
a calendar stays beside it. Everywhere else all parts are, in their order.
"""

from __future__ import annotations

import email.errors
import email.header
import mimetypes
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.message import Message

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import UnreadableError
from ragidx.corpora.readers.decoding import decode
from ragidx.corpora.readers.html_page import page_text, parsed
from ragidx.corpora.readers.source_file import SourceFile

HEADER_CHARS = 10_000
FAULTS = (
    *(ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError, ArithmeticError),
    email.errors.MessageError,
)
"""What the email package raises on malformed input."""

DEPTH = 50
_REPORTS = ("message/delivery-status", "message/disposition-notification", "text/rfc822-headers")
_COUNTED = {
    **dict.fromkeys(_REPORTS, "delivery reports"),
    "multipart/encrypted": "encrypted parts",
    "message/external-body": "attachments of unknown kinds",  # its file is elsewhere
}
_BODIES = frozenset({"text/plain", "text/html", "text/enriched", "text/calendar"})
_DECLARED_FIRST = ("iso-2022", "utf-16", "utf-32", "hz-")  # bytes of these are valid UTF-8, or full of NUL
_MARKS = re.compile(r"[^\w\s]+")
_ENRICHED = re.compile(r"<<|<param>.*?(?:</param>|\Z)|</?[a-z][\w-]{0,60}>", re.IGNORECASE | re.DOTALL)
_FOLDED = re.compile(r"\n[ \t]")
_ESCAPED = re.compile(r"\\([nN,;\\])")
_EVENTS = frozenset({"VEVENT", "VTODO", "VJOURNAL"})
_EVENT_FIELDS = frozenset({"SUMMARY", "LOCATION", "DESCRIPTION", "COMMENT", "CONTACT", "DTSTART", "DTEND", "DUE"})
_PEOPLE = re.compile(r"(?:ORGANIZER|ATTENDEE)[^:]{0,1000}?;CN=(\"[^\"]{1,200}\"|[^;:]{1,200})")
_ADDRESS = re.compile(r"(?:ORGANIZER|ATTENDEE)\b.{0,1000}?mailto:(.{1,200})", re.IGNORECASE)
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\dZ?)?")


@dataclass(slots=True)
class Text:
    """A piece of the text of a mail, and what of it was left out."""

    words: str
    left: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class Parts:
    """What a message holds."""

    texts: list[Text] = field(default_factory=list)
    attached: list[tuple[str, bytes]] = field(default_factory=list)  # name and bytes
    left: Tally = field(default_factory=Tally)  # of what is no piece of the text


def parts_of(message: Message, file: SourceFile, at: str) -> Parts:
    """The parts of a message.

    Args:
        message: the parsed message.
        file: the file that has the message; it reports the reason for each text that cannot be read.
        at: the message in the file.

    Raises:
        UnreadableError: they are nested too deep.
    """
    found = Parts()
    found.texts = _Reader(found, file, at).texts(message, 0)
    return found


@dataclass(slots=True)
class _Reader:
    found: Parts
    file: SourceFile
    at: str

    def texts(self, part: Message, depth: int) -> list[Text]:
        """The texts of a part and of what is in it; files go to `found`."""
        if depth > DEPTH:
            raise UnreadableError(f"a mail nested deeper than {DEPTH} parts")
        kind, payload = part.get_content_type(), part.get_payload()
        if kind in _COUNTED:
            self.found.left.leave(_COUNTED[kind])
            return []
        if kind == "message/rfc822" and isinstance(payload, list):
            self.found.attached += [(file_name(part, "message.eml"), _bytes(inner)) for inner in payload]
            return []
        if isinstance(payload, list):
            parts = [each for each in payload if isinstance(each, Message)]
            inner = [(each.get_content_type(), self.texts(each, depth + 1)) for each in parts]
            if kind == "multipart/alternative":
                return one_of(inner, self.found.left)
            return [text for _, texts in inner for text in texts]
        return self._leaf(part, kind)

    def _leaf(self, part: Message, kind: str) -> list[Text]:
        data = part.get_payload(decode=True)
        data = data if isinstance(data, bytes) else b""
        main, _, sub = kind.partition("/")
        is_body = part.get_content_disposition() != "attachment" and not part.get_filename()
        if kind in _BODIES and is_body:
            return self._body(part, kind, data)
        if sub.endswith("-signature") or sub == "pgp-keys":
            self.found.left.leave("signatures")
        elif sub.removeprefix("x-") == "pkcs7-mime":
            self.found.left.leave("encrypted parts")
        elif main == "image" and sub != "svg+xml":
            self.found.left.leave("pictures")
        else:
            ending = ".rtf" if sub == "rtf" else mimetypes.guess_extension(kind) or ""
            self.found.attached.append((file_name(part, f"part-{len(self.found.attached) + 1}{ending}"), data))
        return []

    def _body(self, part: Message, kind: str, data: bytes) -> list[Text]:
        left = Tally()
        try:
            text = decoded(self.file, data, part.get_content_charset(""))
            if kind == "text/html":
                text = page_text(parsed(text, left), left, whole=self.file.fields.html == "whole")
            elif kind == "text/calendar":
                text = _calendar(text, left)
            elif kind == "text/enriched":
                text = _ENRICHED.sub(lambda found: "<" if found[0] == "<<" else "", text)
            elif str(part.get_param("format") or "").lower() == "flowed":
                text = _joined(text, str(part.get_param("delsp") or "").lower() == "yes")
        except UnreadableError as fault:
            self.file.skip(str(fault), self.at)
            return []
        return [Text(text, left)]


def one_of(inner: list[tuple[str, list[Text]]], left: Tally) -> list[Text]:
    """The one of several alternatives, (kind, texts), that is read, and calendars; `left` takes the others."""
    beside = [text for kind, texts in inner if kind == "text/calendar" for text in texts]
    others = [(kind, texts) for kind, texts in inner if kind != "text/calendar" and texts]
    if not others:
        return beside
    words = [_words_of(text.words for text in texts) for _, texts in others]
    plain = next((at for at, (kind, _) in enumerate(others) if kind == "text/plain"), -1)
    richest = max(range(len(others)), key=lambda at: (at != plain, len(words[at])))
    is_enough = 2 * len(words[plain] & words[richest]) >= len(words[richest])
    taken = plain if plain >= 0 and (is_enough or len(words[plain]) > 2 * len(words[richest])) else richest
    left.leave("alternatives of mails", len(others) - 1)
    return others[taken][1] + beside


def _words_of(texts: Iterable[str]) -> set[str]:
    """The distinct words of texts."""
    return set[str]().union(*(_MARKS.sub(" ", text.lower()).split() for text in texts))


def decoded(file: SourceFile, data: bytes, charset: object) -> str:
    """The text of a part, in the encoding that it declares; of one that does not, as of a file.

    Raises:
        UnreadableError: as `decode`.
    """
    declared = charset if isinstance(charset, str) else ""
    if declared.startswith(_DECLARED_FIRST):
        try:
            return data.decode(declared).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        except (ValueError, LookupError):
            pass
    return decode(data, declared=declared, said="" if declared else file.fields.encoding or "", on_guess=file.guessed)


def file_name(part: Message, default: str) -> str:
    """The name that a part gives its file."""
    name = header_text(part.get_filename() or "")
    return name.replace("\\", "/").rpartition("/")[2] or default


def header_text(raw: object) -> str:
    """A header as text, of at most 10,000 characters."""
    text = str(raw)[:HEADER_CHARS]
    if text.isascii() and text.isprintable() and "=?" not in text:
        return " ".join(text.split())
    try:
        parts = email.header.decode_header(text)
        text = str(email.header.make_header(parts))
    except FAULTS:
        pass
    plain = text.encode("utf-8", "replace").decode()
    words = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", plain))
    return " ".join(words.split())


def _bytes(message: object) -> bytes:
    return message.as_bytes() if isinstance(message, Message) else b""


def _joined(text: str, deletes_space: bool) -> str:
    """The paragraphs of `format=flowed`: a line that ends with a space continues in the next of the same depth."""
    lines: list[list[str]] = []  # each of pieces
    open_depth = -1  # of the line that continues
    for line in text.split("\n"):
        words = line.lstrip(">")
        depth = len(line) - len(words)
        words = words.removeprefix(" ")
        goes_on = words.endswith(" ") and words != "-- "
        piece = words[:-1] if goes_on and deletes_space else words
        if open_depth == depth and words != "-- ":
            lines[-1].append(piece)
        else:
            lines.append([f"{'>' * depth} " if depth else "", piece])
        open_depth = depth if goes_on else -1
    return "\n".join("".join(pieces).rstrip(" ") for pieces in lines)


def _calendar(text: str, left: Tally) -> str:
    """What events say: what, where, when, who; other fields of theirs are counted."""
    lines: list[str] = []
    component = ""
    for line in _FOLDED.sub("", text).split("\n"):
        name, _, value = line.partition(":")
        name = name.partition(";")[0].upper()
        if name == "BEGIN":
            component = value.strip().upper()
        elif component not in _EVENTS or name in ("", "END"):
            continue
        elif name in _EVENT_FIELDS:
            shown = _TIME.sub(_time, value) if name.startswith("D") and name != "DESCRIPTION" else value
            lines.append(_ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], shown).strip())
        elif people := _PEOPLE.match(line) or _ADDRESS.match(line):
            lines.append(people[1].strip('" '))
        else:
            left.leave("fields of mails")
    return "\n".join(dict.fromkeys(filter(None, lines)))


def _time(found: re.Match[str]) -> str:
    day = f"{found[1]}-{found[2]}-{found[3]}"
    return f"{day} {found[4]}:{found[5]}" if found[4] else day
