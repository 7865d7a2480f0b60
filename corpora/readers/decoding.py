r"""Bytes become text: byte order mark, what the user says, strict UTF-8, what a document declares, then a guess.

    bytes -> str, every newline "\n"

Guesses are chardet's, on a sample, among the encodings in which people keep text; each is reported by its caller, since
a short text fits many. Binary data is refused; no character is ever replaced by U+FFFD. Formats are not known here.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
import warnings
from collections.abc import Callable
from typing import TypeAlias

from ragidx.corpora.limits import UnreadableError

_MARKS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CODECS = """
    windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257
    windows-1258 cp874 iso-8859-2 iso-8859-5 iso-8859-6 iso-8859-7 iso-8859-8 iso-8859-9 iso-8859-13 iso-8859-15
    iso-8859-16 koi8-r koi8-u mac-roman cp850 cp852 cp866 cp932 euc-jp gb18030 big5hkscs cp949
"""
_GUESSES = _CODECS.split()  # without a list, a short text may be of an encoding that nobody has used for decades
_WEB_NAMES = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
_SAMPLE_BYTES = 1 << 16
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1b"))
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_ISO_2022_JP = re.compile(rb"\x1b\$[@B][\x21-\x7e]+\x1b\([BJ]")  # it is ASCII, so valid UTF-8
_FEW_BLOCKS = 6  # of 256 characters, in a text of a script with an alphabet

_OTHER_ALPHABETS = re.compile("[\u0370-\u06ff]+")  # Greek, Cyrillic, Hebrew, Arabic
_MIXED = re.compile("(?<=[A-Za-z])[\u0370-\u06ff]+|(?<![\u0370-\u06ff])[\u0370-\u06ff]++(?=[A-Za-z])")
_C1 = re.compile("[\x80-\x9f]")

OnGuess: TypeAlias = Callable[[str], object]
"""Called with the name of an encoding that was guessed."""


def decode(
    data: bytes | bytearray, *, declared: str = "", said: str = "", on_guess: OnGuess = lambda name: None
) -> str:
    r"""The text of a file, newlines `\r\n` and `\r` turned into `\n`.

    Args:
        data: all of its bytes.
        declared: the encoding that the document names; tried after UTF-8.
        said: the encoding that the user names; only a byte order mark counts more.
        on_guess: called where the encoding is a guess.

    Raises:
        UnreadableError: the bytes are binary, broken UTF-8, or do not fit the encoding that is said or marked.
    """
    encoding = marked_encoding(data) or said
    if not encoding and is_binary(data):
        encoding = _unmarked_utf16(data)
        if not encoding:
            raise UnreadableError("binary file")
        on_guess(encoding)
    try:
        if encoding or not _ISO_2022_JP.search(data):
            text = data.decode(encoding or "utf-8")
        else:
            text = _decode_japanese(data, declared, on_guess)
    except UnicodeDecodeError as fault:
        if encoding:
            raise UnreadableError(f"cannot be decoded as {encoding}: byte {fault.start}") from fault
        text = _decode_other(data, fault.start, declared, on_guess)
    except UnicodeError as fault:  # of some codecs, without a place
        raise UnreadableError(f"cannot be decoded as {encoding}") from fault
    if "\0" in text:
        raise UnreadableError("binary file")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def sample_encoding(sample: bytes, *, said: str = "", on_guess: OnGuess = lambda name: None) -> str:
    """The encoding of a file that is decoded while it streams, from its first bytes; arguments as of `decode`.

    Raises:
        UnreadableError: as `decode`.
    """
    known = marked_encoding(sample) or said
    if known:
        return known
    encoding = "utf-8"
    if is_binary(sample):
        encoding = _unmarked_utf16(sample)
        if not encoding:
            raise UnreadableError("binary file")
    elif _ISO_2022_JP.search(sample) and sample.isascii():
        encoding = "iso2022_jp"
    else:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(sample)  # a character cut at the end is not a fault
        except UnicodeDecodeError as fault:
            around = _around(sample, fault.start)
            encoding = "utf-8" if _means_utf8(around) else _guesses(around)[0]
    if encoding != "utf-8":
        on_guess(encoding)
    return encoding


def marked_encoding(data: bytes | bytearray) -> str | None:
    """The codec of the byte order mark; None if there is none."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), None)


def is_binary(data: bytes | bytearray) -> bool:
    """Whether bytes without a byte order mark are binary: in 64 KiB, a NUL or over 1 % control characters."""
    sample = bytes(data[:_SAMPLE_BYTES])
    return 0 in sample or len(sample) - len(sample.translate(None, _CONTROLS)) > 2 + len(sample) // 100


def is_text(sample: bytes | bytearray) -> bool:
    """Whether the first bytes of a file look like text, in any encoding."""
    return marked_encoding(sample) is not None or not is_binary(sample) or bool(_unmarked_utf16(sample))


def _unmarked_utf16(data: bytes | bytearray) -> str:
    """Which UTF-16 bytes with NULs are; empty: they are binary."""
    sample = bytes(data[: min(_SAMPLE_BYTES, len(data) // 2 * 2)])
    letters = sample.translate(None, b"\0" + _CONTROLS)
    if len(letters) < 2 or (letters.isascii() and len(letters) > 0.6 * len(sample)):
        return ""  # ASCII and some NULs
    fitting = {}
    for name in ("utf_16_le", "utf_16_be"):
        try:
            text = codecs.getincrementaldecoder(name)().decode(sample)
        except UnicodeDecodeError:
            continue
        kinds = {unicodedata.category(letter) for letter in set(text) - set("\t\n\v\f\r")}
        if kinds.isdisjoint(("Cc", "Cn", "Co", "Cs")):
            fitting[name] = len({ord(letter) >> 8 for letter in text})
    if not fitting:
        return ""
    best = min(fitting, key=lambda name: fitting[name])
    if fitting[best] <= min(_FEW_BLOCKS, len(sample) // 8):
        return best
    import chardet  # not of what is UTF-8

    with warnings.catch_warnings(action="ignore"):  # that neither fits
        likely = chardet.detect(sample, include_encodings=["utf-16-le", "utf-16-be"])["encoding"]
    return "" if likely is None else str(likely).replace("-", "_") if len(fitting) > 1 else best


def _decode_japanese(data: bytes | bytearray, declared: str, on_guess: OnGuess) -> str:
    """ISO-2022-JP, or else what only looks like it."""
    try:
        text = data.decode("iso2022_jp")
    except UnicodeDecodeError:
        return data.decode()
    if "2022" not in declared:
        on_guess("iso2022_jp")
    return text


def _decode_other(data: bytes | bytearray, position: int, declared: str, on_guess: OnGuess) -> str:
    """Text that is not UTF-8; `position` is the first invalid byte."""
    around = _around(data, position)
    encoding = _web_encoding(declared)
    if not encoding and _means_utf8(around):
        raise UnreadableError(f"broken UTF-8: byte {position}")
    if encoding:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as fault:
            raise UnreadableError(f"cannot be decoded as {encoding}: byte {fault.start}") from fault
    for name in _guesses(around):
        try:
            text = data.decode(name)
        except UnicodeDecodeError:  # beyond the sample
            continue
        on_guess(name)
        return text
    raise UnreadableError(f"not UTF-8, and no other encoding fits: byte {position}")


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


_KNOWN = frozenset(codecs.lookup(name).name for name in [*_GUESSES, "iso2022_jp"])


def _guesses(sample: bytes) -> list[str]:
    """The encodings that fit a sample, the likeliest first.

    Raises:
        UnreadableError: none does.
    """
    import chardet  # not of what is UTF-8

    found = chardet.detect_all(sample, ignore_threshold=True, include_encodings=_GUESSES)
    names = dict.fromkeys(codecs.lookup(one["encoding"]).name for one in found if one["encoding"])
    if not names:
        raise UnreadableError("binary file")
    return sorted(names, key=lambda name: _is_odd(sample.decode(name, "ignore")))


def _is_odd(text: str) -> bool:
    """Whether a text has control characters, or letters of another alphabet within Latin words: `citt\u0430`."""
    mixed = 2 * len(_MIXED.findall(text))
    return mixed >= (len(_OTHER_ALPHABETS.findall(text)) or 1) or _C1.search(text) is not None
