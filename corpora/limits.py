"""Options and limits of readers, and the error by which they skip a file.

Sizes are in bytes, times in seconds. Nothing here opens anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

MIB = 1 << 20
GIB = 1 << 30
NOT_ITS_FORMAT = "damaged, or of another format than its ending says"
"""Of a file that the library of its format refuses at once."""

RATIO_FROM_BYTES = 64 * MIB  # below this, a high ratio does no harm


class UnreadableError(Exception):
    """A file or a record is skipped; the text is the reason of its Skip, the detail after a colon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds against hostile or broken files. Records stream: their files may be large."""

    document_bytes: int = 2 * GIB  # a file that becomes one document, unpacked
    json_bytes: int = 256 * MIB  # a .json file that is not JSON Lines: it is parsed whole
    line_bytes: int = 64 * MIB  # a line of JSON Lines, a line or a field of CSV
    unpacked_bytes: int = 256 * GIB  # what one .gz, .zst, .bz2 or .xz expands to
    unpacked_ratio: int = 200  # expanded / packed, of whatever is packed; checked from `RATIO_FROM_BYTES` on
    archive_members: int = 10_000  # entries of a .zip or .tar
    archive_bytes: int = GIB  # what the members of one unpack to, by the bytes that are read
    archive_ratio: int = 100  # unpacked / packed; checked from `RATIO_FROM_BYTES` on
    mail_bytes: int = 64 * MIB  # one message
    office_text_bytes: int = 64 * MIB  # Markdown from the converter
    ocr_pages: int = 2_000  # of a file, read by text recognition; more are left out
    picture_pixels: int = 100_000_000  # of a picture, by its header
    worker_memory_bytes: int = 2 * GIB  # address space of a process that reads files
    pdf_worker_memory_bytes: int = GIB  # the same where it reads a PDF, in which a form may draw itself
    worker_cpu_s: float = 120.0  # its CPU time from one document to the next, and 1 s more for each MiB of the file


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Fields to read from structured files. Each may be several settings `GLOB=VALUE`: `field_settings` has the form.

    Args:
        text_field: the field that is the text, or several with `+` between them; None: decided once a file.
        id_field: the field that is the id; None: the first of `readers.fields.ID_FIELDS`, else the record's number.
        limits: bounds on files.
        records: where the records of a JSON file are, as a path.
        fields: further settings by name: title, speaker, context, metadata, encoding, html and ocr, as
            `field_settings.FieldSettings`.
    """

    text_field: str | tuple[str, ...] | None = None
    id_field: str | tuple[str, ...] | None = None
    limits: Limits = field(default_factory=Limits)
    records: tuple[str, ...] | None = None
    fields: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


def check_growth(count: int, packed: int, limits: Limits) -> None:
    """Refuse what is read of a file, in bytes or characters, where it is too much for so many bytes.

    Raises:
        UnreadableError: it is.
    """
    if count > RATIO_FROM_BYTES and count > limits.unpacked_ratio * packed:
        raise UnreadableError(f"expands to more than {limits.unpacked_ratio} times its size")


def shown_bytes(count: int) -> str:
    """A size with its unit, exact for the round numbers that limits are.

    >>> shown_bytes(64 * MIB), shown_bytes(2 * GIB), shown_bytes(1000)
    ('64 MiB', '2 GiB', '1000 bytes')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"


def read_all(stream: IO[bytes], limit: int, head: bytes = b"") -> bytearray:
    """`head` and the rest of `stream`.

    Raises:
        UnreadableError: together they are more than `limit` bytes.
    """
    data = bytearray(head)
    while len(data) <= limit and (block := stream.read(MIB)):
        data += block
    if len(data) > limit:
        raise UnreadableError(f"larger than {shown_bytes(limit)}")
    return data
