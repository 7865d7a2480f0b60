"""Pictures with text: PNG, JPEG, TIFF with all its pages, WebP.

    path -> Converted, with pages as its places where there are several

What a picture is its first bytes say, not its ending. Its size is read before its pixels are.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits, UnreadableError
from ragidx.corpora.readers.ocr.pages import Scans
from ragidx.corpora.readers.office.converter import Converted, about_of
from ragidx.corpora.records import paged
from ragidx.corpora.sources import NO_PICTURE_TEXT, PICTURE

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")


def convert(path: Path, ending: str, limits: Limits, scans: Scans | None = None) -> Converted:
    """The text of a picture.

    Raises:
        UnreadableError: it is not asked for, too large, damaged, or has no text.
    """
    if scans is None:
        raise UnreadableError(PICTURE)
    from PIL import Image, UnidentifiedImageError

    left, pages = Tally(), list[tuple[int, str]]()
    Image.MAX_IMAGE_PIXELS = None  # `_check` is before
    try:
        with Image.open(path, formats=_FORMATS) as picture:
            n_frames = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
            n_read = min(n_frames, limits.ocr_pages)
            left.leave("scanned pages", n_frames - n_read, f"#page={n_read + 1}")
            for number in range(1, n_read + 1):
                at = f"#page={number}" if n_frames > 1 else ""
                try:
                    picture.seek(number - 1)
                    _check(picture, limits)
                    lines = scans.lines(functools.partial(_grey, picture), left, at, number / n_read)
                except (MemoryError, UnreadableError):
                    raise
                except Exception:  # Pillow raises anything
                    if n_frames == 1:
                        raise
                    left.leave("damaged parts", 1, at)
                    continue
                pages.append((number, "\n".join(lines)))
    except UnidentifiedImageError as fault:
        raise UnreadableError("damaged, or no PNG, JPEG, TIFF or WebP") from fault
    text, places = paged(pages)
    if not text and not left.is_loss:
        raise UnreadableError(NO_PICTURE_TEXT)
    return Converted(
        text=text, places=places if n_frames > 1 else (), markdown=False, about=about_of("", "", (), {}), left=left
    )


def _check(picture: Image, limits: Limits) -> None:
    wide, high = picture.size
    if wide * high > limits.picture_pixels:
        most = limits.picture_pixels // 1_000_000
        raise UnreadableError(f"a picture of more than {most} million pixels: {wide:,} x {high:,}")


def _grey(picture: Image) -> Image:
    """A picture in 8 bits of grey, upright as its camera says, on white paper."""
    from PIL import Image, ImageOps

    picture.draft("L", (4_000, 4_000))  # of a JPEG, less is decoded
    upright = ImageOps.exif_transpose(picture)
    if upright.mode.startswith("I"):
        return upright.convert("I").point(lambda value: value / 256).convert("L")
    if upright.has_transparency_data:
        paper = Image.new("RGBA", upright.size, "white")
        paper.alpha_composite(upright.convert("RGBA"))
        return paper.convert("L")
    return upright.convert("L")
