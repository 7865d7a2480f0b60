"""Small good files of every format, and ways to break them.

PDF and office files are apart: each starts a process of its own, with limits, that takes a second.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from msg_files import msg
from office_files import docx, epub, filled_pdf, pptx, tarred, xlsx, zipped

from ragidx.corpora.readers.office.converter import ENDINGS
from ragidx.corpora.readers.registry import READERS

ROWS = [
    {"id": "a", "text": "One text, and more.", "year": 1967, "tags": ["x", "y"], "of": {"a": {"b": 1.5}}, "on": True},
    {"id": "b", "text": 'Grüße, 東京: "quoted", a;b\tc', "year": None, "tags": [], "of": {"a": None}, "on": None},
]
TABLE = pa.table(
    {
        "text": pa.array(["One text.", "One text.", "Two texts."]).dictionary_encode(),
        "year": [1967, None, 2001],
        "tags": [["x", "y"], None, []],
        "of": [{"a": "b", "n": 1}, None, {"a": "b", "n": 2}],
    }
)
NUMBERS = [[0.5, 1.0, -2.0], [3.0, 0.0, 1.0], [1.0, 2.0, 4.0]]
VECTORS = pa.table(
    {
        "id": ["a", "b", "c"],
        "vector": pa.array([NUMBERS[0], None, NUMBERS[2]], pa.list_(pa.float32(), 3)),
        "text": pa.array(["One text.", "One text.", None]).dictionary_encode(),
        "doc_id": ["a", "a", None],
        "year": [1967, None, 2001],
    }
)
RAGGED = pa.table({"embedding": pa.array([*NUMBERS[:2], [1.0]], pa.list_(pa.float64())), "on": [True, None, False]})
MARKDOWN = """---
title: Pulsars
year: 1967
tags: [a, {b: c}]
---

# One

text `code`

```
x
```

Two
---

- a
"""
RST = "Pulsars\n=======\n\n:year: 1967\n:note: goes\n   on\n\n.. note:: x\n\nA *star*.\n"
HTML = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>Pulsars</title><meta name="author" content="Bell">
<style>p {}</style></head><body><nav class="toc">Home</nav><main><h1>One<a class="headerlink">#</a></h1><p>A <b>star</b>
<pre><code>x &lt; y</code></pre><ul><li>a<li>b</ul><table><tr><th>a<td>b</table><svg><p>x</svg>
<!-- c --><select><option>1</select></main><footer>f</footer></body></html>"""
CSV = 'id,text,year\na,"One, two",1967\nb,"three\nfour",\nc;d,e,f,g\n'


def _parquet(packing: str, table: pa.Table = TABLE) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=packing, row_group_size=2)
    return sink.getvalue()


def _ipc(make: Callable[..., object], packing: str | None, table: pa.Table = TABLE) -> bytes:
    sink = io.BytesIO()
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as file:  # type: ignore[attr-defined]
        file.write_table(table, max_chunksize=2)
    return sink.getvalue()


def _npy(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


MAIL = """From: =?utf-8?q?J=C3=B6rg?= <a@b.c>
To: d@e.f
Subject: Pulsars
Date: Tue, 01 Oct 2024 10:00:00 +0000
Message-ID: <x@y>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

Gr=C3=BC=C3=9Fe from the observatory.
--b
Content-Type: text/csv
Content-Disposition: attachment; filename="a.csv"
Content-Transfer-Encoding: base64

aWQsdGV4dAphLE9uZSB0ZXh0Lgo=
--b--
"""
CELLS = [
    {"cell_type": "markdown", "source": ["# Pulsars\n", "A star."]},
    {"cell_type": "code", "source": "print(1)", "outputs": [{"output_type": "stream", "text": ["1\n"]}]},
    {"cell_type": "code", "source": "1/0", "outputs": [{"output_type": "error", "ename": "E", "evalue": "by zero"}]},
]
SRT = "1\n00:00:01,000 --> 00:00:03,000\nA <i>star</i>\n\n2\n00:00:09,000 --> 00:00:10,000\nthat blinks.\n"
RTF = r"{\rtf1\ansi{\fonttbl{\f0 Arial;}}{\info{\title Pulsars}}\pard A star \'fc\u8364? blinks.\par {\*\x y} end}"
TEX = "\\documentclass{a}\\title{Pulsars}\\begin{document}\\section{One}A star. % c\n\\emph{x} $y$\\end{document}"
ODT = """<?xml version="1.0"?><o:document-content xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><o:body><o:text><t:h t:outline-level="1">Pulsars</t:h>
<t:p>A star<t:s t:c="2"/>blinks.</t:p></o:text></o:body></o:document-content>"""
MEMBERS = {"docs/a.md": MARKDOWN.encode(), "b.csv": CSV.encode(), ".hidden": b"x"}


_LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
_ARROW = [_ipc(pa.ipc.new_file, None), _ipc(pa.ipc.new_stream, "zstd"), _ipc(pa.ipc.new_file, "lz4")]
_BY_ENDING: dict[str, list[bytes]] = {
    ".md": [MARKDOWN.encode()],
    ".rst": [RST.encode()],
    ".html": [HTML.encode(), HTML.replace("utf-8", "utf-16").encode("utf-16")],
    ".jsonl": [_LINES],
    ".ndjson": [_LINES],
    ".json": [json.dumps({"documents": ROWS}).encode(), json.dumps(ROWS, indent=1).encode(), _LINES],
    ".csv": [CSV.encode(), CSV.replace(",", ";").encode("utf-16")],
    ".tsv": [CSV.replace(",", "\t").encode("cp1252")],
    ".parquet": [_parquet("snappy"), _parquet("zstd"), _parquet("none")],
    ".eml": [MAIL.encode()],
    ".mbox": [f"From a@b.c Tue Oct  1 10:00:00 2024\n{MAIL}\nFrom d@e.f\n{MAIL}".encode()],
    ".ipynb": [json.dumps({"cells": CELLS, "metadata": {"title": "Pulsars"}, "nbformat": 4}).encode()],
    ".msg": [msg({0x37: "Pulsars", 0x1000: "A star.", 0x1013: b"<p>A star.</p>"}, ("a.csv", CSV.encode()))],
    ".epub": [epub("<p>A star.</p>")],
    ".zip": [zipped(MEMBERS)],
    ".tar": [tarred(MEMBERS)],
    ".srt": [SRT.encode()],
    ".vtt": [f"WEBVTT\n\n{SRT}".replace(",000", ".000").encode()],
    ".tex": [TEX.encode()],
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _ARROW),
}

MATRIX = np.array(NUMBERS, np.float32)
VECTOR_FILES = [
    *((".parquet", _parquet(packing, table)) for packing, table in (("snappy", VECTORS), ("none", RAGGED))),
    *((".arrow", _ipc(pa.ipc.new_file, packing, table)) for packing, table in ((None, VECTORS), ("lz4", RAGGED))),
    (".ipc", _ipc(pa.ipc.new_stream, "zstd", VECTORS)),
    *((".npy", _npy(array)) for array in (MATRIX, np.asfortranarray(MATRIX), MATRIX.astype(">f8"))),
    (".npy.gz", gzip.compress(_npy(MATRIX.astype(np.float16)), mtime=0)),
]


def seeds() -> list[tuple[str, bytes]]:
    """(ending, bytes): of every ending that has a reader, and packed ones."""
    text = [MARKDOWN.encode(), "Grüße\r\naus Köln".encode("cp1252"), "日本語のテキスト。".encode("utf-16")]
    found = [(ending, data) for ending in READERS if ending not in ENDINGS for data in _BY_ENDING.get(ending, text)]
    packed = [(f"{ending}.{name}", pack(data)) for name, pack in _PACKINGS.items() for ending, data in found[:4]]
    packed.append((".tar.xz", lzma.compress(tarred(MEMBERS))))
    return [*found, (".unknown", text[1]), *packed, (".jsonl.gz", gzip.compress(_LINES, mtime=0)), *VECTOR_FILES]


def office_seeds() -> list[tuple[str, bytes]]:
    """The same of the endings that the converter reads, each by a process of its own."""
    odt = zipped({"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": ODT.encode()})
    made = {".pdf": filled_pdf(), ".docx": docx("Pulsars", "A star."), ".pptx": pptx(), ".xlsx": xlsx()}
    made |= {".odt": odt, ".ods": _ods(), ".odp": odt, ".rtf": RTF.encode()}
    return [(ending, made[ending]) for ending in ENDINGS if ending in made]  # others have the reader of one of these


def _ods() -> bytes:
    names = 'xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    names += ' xmlns:b="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
    row = '<b:table-row b:number-rows-repeated="9"><b:table-cell b:number-columns-repeated="7" o:string-value="star"/>'
    sheet = f'<b:table b:name="T">{row}</b:table-row></b:table>'
    return zipped({"content.xml": f"<o:d {names}><o:body><o:spreadsheet>{sheet}</o:spreadsheet></o:body></o:d>"})


_PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "zst": zstandard.compress,
}

PIECES = [
    *(b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\ud800", b'"', b"\\", b"\n", b"\r"),
    *(b"[" * 999, b'{"a":' * 999, b"- " * 999, b"> " * 99, b"\t" * 99, b"&a *a", b"!!python/x", b"? [a]\n: b\n"),
    *(b"<div>" * 999, b"<b id=a>" * 99, b"</x>", b"<!--", b"<select>", b"<table>" * 99, b"---\n"),
    *(b"0x" + b"f" * 6000, b"9" * 5000, b"1e999", b"NaN"),
    *((2**31 - 1).to_bytes(4, "little"), (2**62).to_bytes(8, "little"), (-1).to_bytes(8, "little", signed=True)),
]

Step = tuple[str, float, float, int]
"""(what to do, where and how much as shares of the file, which piece or bit)."""

STEPS = ("cut", "flip", "repeat", "splice", "nest", "drop", "replace")


def mutated(data: bytes, steps: Iterable[Step]) -> bytes:
    """A file after some steps, of at most 1 MiB."""
    for what, place, share, number in steps:
        at = int(place * len(data))
        end = at + 1 + int(share * share * (len(data) - at))
        piece = PIECES[number % len(PIECES)]
        match what:
            case "cut":
                data = data[:at]
            case "flip":
                data = data[:at] + bytes([data[at] ^ (1 << number % 8)]) + data[at + 1 :] if data[at:] else data
            case "repeat":
                data = data[:at] + data[at:end] * (2 + number % 50) + data[end:]
            case "splice":
                data = data[:at] + piece + data[at:]
            case "nest":
                data = data[:at] + piece * (1 + number % 20) + data[at:end] + piece[::-1] + data[end:]
            case "drop":
                data = data[:at] + data[end:]
            case _:
                data = data[:at] + piece + data[at + len(piece) :]
        data = data[: 1 << 20]
    return data
