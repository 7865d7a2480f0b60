r"""Bytes become text: byte order mark, strict UTF-8, the encoding a document declares, then a guess on a sample.

    bytes -> str, every newline "\n"

Binary data is refused; no character is ever replaced by U+FFFD. Formats are not known here.
"""

from __future__ import annotations

import codecs
import re

from ragidx.corpora.limits import UnreadableError

_MARKS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# In the order preferred among equals: a short Western text fits many of them.
_CODECS = "cp1252 cp1250 iso8859_2 cp1255 cp1251 koi8_r cp1253 cp1254 cp1256 cp932 euc_jp gb18030 big5hkscs cp949"
_GUESSES = _CODECS.split()
_WEB_NAMES = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
_SAMPLE_BYTES = 1 << 16
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")


def decode(data: bytes | bytearray, *, declared: str = "") -> str:
    r"""The text of a file, newlines `\r\n` and `\r` turned into `\n`.

    Args:
        data: all of its bytes.
        declared: the encoding that the document names; tried after UTF-8.

    Raises:
        UnreadableError: the bytes are binary, broken UTF-8, or fit no encoding.
    """
    marked = marked_encoding(data)
    if marked is None and is_binary(data):
        raise UnreadableError("binary file")
    encoding = marked or "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as fault:
        if marked:
            raise UnreadableError(f"cannot be decoded as {marked}: byte {fault.start}") from fault
        text = _decode_other(data, fault.start, declared)
    if "\0" in text:
        raise UnreadableError("binary file")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def sample_encoding(sample: bytes) -> str:
    """The encoding of a file that is decoded while it streams, from its first bytes.

    Raises:
        UnreadableError: as `decode`.
    """
    marked = marked_encoding(sample)
    if marked:
        return marked
    if is_binary(sample):
        raise UnreadableError("binary file")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # a character cut at the end is not a fault
    except UnicodeDecodeError as fault:
        around = _around(sample, fault.start)
        return "utf-8" if _means_utf8(around) else _guess(around, fault.start)
    return "utf-8"


def marked_encoding(data: bytes | bytearray) -> str | None:
    """The codec of the byte order mark; None if there is none."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def is_binary(data: bytes | bytearray) -> bool:
    """Whether bytes without a byte order mark are binary: in 64 KiB, a NUL or over 1 % control characters."""
    sample = bytes(data[:_SAMPLE_BYTES])
    return 0 in sample or len(sample) - len(sample.translate(None, _CONTROLS)) > 2 + len(sample) // 100


def _decode_other(data: bytes | bytearray, position: int, declared: str) -> str:
    """Text that is not UTF-8; `position` is the first invalid byte."""
    around = _around(data, position)
    encoding = _web_encoding(declared)
    if not encoding and _means_utf8(around):
        raise UnreadableError(f"broken UTF-8: byte {position}")
    encoding = encoding or _guess(around, position)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as fault:
        raise UnreadableError(f"cannot be decoded as {encoding}: byte {fault.start}") from fault


def _around(data: bytes | bytearray, position: int) -> bytes:
    """A sample about a byte, from the start of a line if there is one: there a character starts in every encoding."""
    start = max(0, position - _SAMPLE_BYTES)
    if start:
        start = data.find(b"\n", start, position) + 1 or start
    return bytes(data[start : position + _SAMPLE_BYTES])


def _means_utf8(sample: bytes) -> bool:
    """Whether UTF-8 was meant: only then do valid sequences outnumber stray bytes."""
    sequences = _UTF8_SEQUENCE.findall(sample)
    strays = len(_NOT_ASCII.findall(sample)) - sum(map(len, sequences))
    return bool(sequences) and len(sequences) >= strays


def _web_encoding(declared: str) -> str:
    """The codec for a name found in a document, as browsers read it; empty where it is unknown or UTF-8."""
    try:
        name = codecs.lookup(declared).name
    except (LookupError, ValueError):
        return ""
    name = _WEB_NAMES.get(name, name)
    # codecs.lookup also knows codecs that are not text encodings (hex, zlib).
    return "" if name.startswith("utf") or name not in _KNOWN else name


_KNOWN = frozenset(codecs.lookup(name).name for name in [*_GUESSES, "iso8859_15", "koi8_u", "iso2022_jp", "mac_roman"])


def _guess(sample: bytes, position: int) -> str:
    """The encoding that fits a sample best, the first of `_GUESSES` among equals."""
    from charset_normalizer import from_bytes

    matches = [near for match in from_bytes(sample, cp_isolation=_GUESSES) for near in (match, *match.submatch)]
    fitting = [match for match in matches if match.encoding in _GUESSES]
    if not fitting:
        raise UnreadableError(f"not UTF-8, and no other encoding fits: byte {position}")
    best = min(fitting, key=lambda match: (match.chaos, _GUESSES.index(match.encoding)))
    return best.encoding
