"""Engines of text recognition: the models in the wheel of the extra `ocr`, and tesseract, where it is installed.

    picture, grey -> the same upright, and what stands in it: texts with their boxes in pixels and a confidence

`auto` reads by faster-paddle's model `tiny`, and where that is not sure again by `small`, which takes three times as
long and also knows Japanese. Both are in the wheel; `medium` would be downloaded, and is never named. Languages,
`deu+eng`, are tesseract's: a process a page. Nothing here connects to anything.

Of a script that they do not know, engines make something without an error: `tiny` Latin letters, `small` spaces and
commas, tesseract words of the language that was named. What gives them away, on pages in 24 languages (docs/ocr.md): of
a known script `small` reads 0.99 of the letters of `tiny` or more, of others 0.86 at most, Vietnamese included, whose
letters with two marks are missing; and tesseract's mean confidence is 0.7 or more with the right language, 0.5 at most
with another.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ragidx.corpora.errors import RagidxError, missing_extra, unknown_name

if TYPE_CHECKING:
    from PIL.Image import Image

AUTO, OFF = "auto", "off"

Ask: TypeAlias = Callable[[bytes, str], str]
"""A picture as PGM and languages -> tesseract's table; a worker, which may start no program, asks its build."""

_SURE = 0.975  # mean confidence of `tiny`: below, it misses up to a word in six, of Turkish
_KNOWN = 0.9  # confidence of a line
_KNOWN_SHORT, _SHORT = 0.6, 8  # confidence of one of fewer letters, such as a cell
_LETTERS = 0.93  # of those of `tiny`: with fewer, `small` does not know the script of a line
_NAMED = 0.6  # mean confidence of tesseract
_LANGUAGES = re.compile(r"\w+(\+\w+)*", re.ASCII)
_PGM = re.compile(rb"P5 (\d{1,5}) (\d{1,5}) 255\n")
_TIMEOUT_S = 120.0
_WORD_LEVEL = "5"  # of tesseract's table
_WIDE = 1.0  # of the height of a word: a wider gap is between cells
_SPACE = 0.3  # of it, between words
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


class Recognised(NamedTuple):
    """A text of a page: a line, or the part of one without a wide gap.

    Args:
        text: the text.
        confidence: of the engine, 0 to 1.
        left, top, right, bottom: pixels; y grows downwards.
    """

    text: str
    confidence: float
    left: float
    top: float
    right: float
    bottom: float

    @property
    def n_letters(self) -> int:
        """Letters and digits of the text."""
        return sum(map(str.isalnum, self.text))


def check_engine(setting: str) -> None:
    """Whether pages can be read so here: `off`, `auto`, or languages of tesseract with `+` between them.

    Raises:
        RagidxError: a package or tesseract is missing.
        SpecError: it has no such language; with those that it has.
    """
    if setting == OFF:
        return
    needed = {"PIL": "pillow"} | ({"faster_paddle": "faster-paddle"} if setting == AUTO else {})
    if missing := [name for module, name in needed.items() if importlib.util.find_spec(module) is None]:
        raise missing_extra(f"`ocr={setting}` needs", missing, "ocr")
    if setting == AUTO:
        return
    if shutil.which("tesseract") is None:
        raise RagidxError(
            f"`ocr={setting}` needs tesseract, which is not installed",
            "install it with its languages (Debian: tesseract-ocr, tesseract-ocr-deu), or give `ocr=auto`",
        )
    known = languages()
    for name in setting.split("+"):
        if name not in known:
            fault = unknown_name("language of tesseract", name, known)
            raise type(fault)(fault.message, f"{fault.hint}; or auto, which reads Latin and Chinese", where="`ocr`")


def languages() -> list[str]:
    """The languages that tesseract has here; `osd` and `equ` are none."""
    said = subprocess.run(
        ["tesseract", "--list-langs"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    return [name for name in said.stdout.splitlines()[1:] if _LANGUAGES.fullmatch(name) and name not in ("osd", "equ")]


def recognised(picture: Image, setting: str, ask: Ask) -> tuple[Image, list[Recognised], float]:
    """A picture turned upright by some degrees at most, what is known of it, and which share of its letters that is.

    Raises:
        OSError: the engine fails, or tesseract takes more than 120 s.
    """
    if setting != AUTO:
        found = _of_table(ask(_pgm(picture), setting))
        return picture, found, float(not found or confidence(found) >= _NAMED)
    from PIL import Image

    try:
        straight = _engine("tiny").prepare(_png(picture), deskew=True)
        first = found = _of_bounds(_engine("tiny").ocr(straight))
        if first and confidence(first) < _SURE:
            found = _of_bounds(_engine("small").ocr(straight))
    except MemoryError:
        raise
    except BaseException as fault:  # a panic of Rust is no Exception
        if isinstance(fault, Exception) or type(fault).__name__ == "PanicException":
            raise OSError(f"faster-paddle: {fault}") from fault
        raise
    known = [one for one in found if one.confidence >= (_KNOWN if one.n_letters >= _SHORT else _KNOWN_SHORT)]
    if found is not first:
        known = [one for one in known if one.n_letters >= _LETTERS * _letters_in(one, first)]
    n_letters = max(sum(one.n_letters for one in each) for each in (first, found))
    share = sum(one.n_letters for one in known) / n_letters if n_letters else 1.0
    return Image.open(io.BytesIO(straight)).convert("L"), known, share


def confidence(found: Sequence[Recognised]) -> float:
    """Mean over the characters; 0 where there is none."""
    n_chars = sum(len(one.text) for one in found)
    return sum(one.confidence * len(one.text) for one in found) / n_chars if n_chars else 0.0


def tesseract(pgm: bytes, names: str) -> str:
    """The table (TSV) of the words of a picture, by a process of one thread.

    Raises:
        OSError: as `recognised`.
    """
    head = _PGM.match(pgm)  # a worker may say anything
    if not _LANGUAGES.fullmatch(names) or head is None or len(pgm) - head.end() != int(head[1]) * int(head[2]):
        raise OSError("no picture, or no languages")
    try:
        done = subprocess.run(
            ["tesseract", "stdin", "stdout", "-l", names, "tsv"],
            input=pgm,
            capture_output=True,
            check=True,
            timeout=_TIMEOUT_S,
            env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        )
    except subprocess.SubprocessError as fault:
        raise OSError(f"tesseract: {fault}") from fault
    return done.stdout.decode("utf-8", "replace")


@functools.cache
def _engine(size: str) -> Any:
    import faster_paddle

    return faster_paddle.OcrEngine(model_size=size, threads=1)


def _of_bounds(result: Any) -> list[Recognised]:
    """What faster-paddle found, one by one: its own text has the lines in a wrong order."""
    each = (
        Recognised(one["text"].strip(), one["confidence"], *one["topLeftCoord"], *one["bottomRightCoord"])
        for one in result["bounds"].values()
    )
    return [one for one in each if one.text]


def _of_table(table: str) -> list[Recognised]:
    """The words of tesseract's table, those of a line without a wide gap as one."""
    found: list[Recognised] = []
    last: tuple[str, ...] = ()
    for row in table.splitlines():
        cells = row.split("\t")
        if len(cells) != 12 or cells[0] != _WORD_LEVEL or not cells[11].strip():
            continue
        left, top, wide, high = map(float, cells[6:10])
        word = Recognised(cells[11].strip(), float(cells[10]) / 100, left, top, left + wide, top + high)
        line, last = last, tuple(cells[1:5])
        found.append(word)
        if line == last and -_WIDE * high < left - found[-2].right < _WIDE * max(
            high, found[-2].bottom - found[-2].top
        ):
            found[-2:] = [_joined(found[-2], word)]
    return found


def _letters_in(box: Recognised, found: Sequence[Recognised]) -> float:
    """How many letters of other lines are in the box of one."""
    n_letters = 0.0
    for one in found:
        if box.top < (one.top + one.bottom) / 2 < box.bottom:
            shared = min(one.right, box.right) - max(one.left, box.left)
            n_letters += one.n_letters * max(0.0, shared) / max(1.0, one.right - one.left)
    return n_letters


def _joined(one: Recognised, other: Recognised) -> Recognised:
    """Two words of a line; of Thai, Chinese and the like, which have no spaces between words, without one."""
    n, m = len(one.text), len(other.text)
    is_near = other.left - one.right < _SPACE * (other.bottom - other.top)
    between = "" if is_near and _UNSPACED.match(one.text[-1]) and _UNSPACED.match(other.text) else " "
    return Recognised(
        f"{one.text}{between}{other.text}",
        (one.confidence * n + other.confidence * m) / (n + m),
        min(one.left, other.left),
        min(one.top, other.top),
        max(one.right, other.right),
        max(one.bottom, other.bottom),
    )


def _png(picture: Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _pgm(picture: Image) -> bytes:
    return b"P5 %d %d 255\n" % picture.size + picture.tobytes()
