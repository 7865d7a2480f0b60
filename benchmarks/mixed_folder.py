"""A folder as people have them, made of what packages install, and how much of it is read.

    python benchmarks/mixed_folder.py make DIR    # some 750 files of 40 kinds, the same for the same packages
    python benchmarks/mixed_folder.py read DIR    # files and bytes that gave documents, seconds, what is left out

Files are copied from site-packages where there are such; notebooks, mail, archives, PDF and office files are made from
their texts. Needs the extras `docs` and `plot`.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections import Counter
from email.message import EmailMessage
from pathlib import Path

from figures import record

PACKAGES = Path(sysconfig.get_paths()["purelib"])
COPIED = {
    ".py": 60, ".txt": 55, ".md": 45, ".rst": 34, ".html": 35, ".csv": 38, ".json": 25, ".js": 15, ".css": 15,
    ".c": 15, ".h": 15, ".yaml": 14, ".toml": 14, ".pdf": 11, ".png": 25, ".svg": 15, ".so": 3, ".ttf": 4, ".gz": 6,
    ".npy": 4, ".wav": 2, ".pyi": 15, ".po": 8,
}  # fmt: skip
MOST_BYTES = 400_000


def make(folder: Path) -> None:
    """Write the folder."""
    for ending, count in COPIED.items():
        for number, path in enumerate(_some(ending, count)):
            _put(folder / f"copied/{ending[1:]}/{number:03}-{path.name}", path.read_bytes())
    texts = [path.read_text("utf-8", "ignore") for path in _some(".md", 40) + _some(".rst", 30)]
    code = [path.read_text("utf-8", "ignore") for path in _some(".py", 60)]
    cards = [path.read_bytes() for path in sorted(PACKAGES.glob("*.dist-info/METADATA"))]
    for number, (text, source) in enumerate(zip(texts, code, strict=False)):
        _put(folder / f"notebooks/{number:02}.ipynb", _notebook(text, source))
    for number, card in enumerate(cards[:60]):
        _put(folder / f"mail/{number:02}.eml", _mail(card, texts[number % len(texts)]))
    for number in range(4):
        messages = (_mail(card, "").replace(b"\nFrom ", b"\n>From ") for card in cards[12 * number : 12 * number + 12])
        box = b"".join(b"From x@y\n" + message + b"\n" for message in messages)
        _put(folder / f"mail/box{number}.mbox", box)
    for number, text in enumerate(texts[:20]):
        for ending, data in _forms(text).items():
            _put(folder / f"{ending}/{number:02}.{ending}", data)
    for number, path in enumerate(sorted(PACKAGES.glob("*.dist-info"))[:10]):
        files = sorted(file for file in path.rglob("*") if file.is_file())
        _put(folder / f"archives/{number}.zip", _zip(files))
        _put(folder / f"archives/{number}.tar.gz", _tar(files))


def read(folder: Path) -> None:
    """Read the folder, and record what came of it."""
    from ragidx.corpora.left_out import Left
    from ragidx.corpora.limits import ReadOptions
    from ragidx.corpora.readers.registry import read_file
    from ragidx.corpora.readers.source_file import SourceFile
    from ragidx.corpora.sources import sources

    found, sizes, taken = [], {}, Counter()
    started = time.perf_counter()
    n_chars = 0
    for source in sources(folder, on_skip=found.append):
        sizes[source.name] = source.size
        for document in read_file(SourceFile(source=source, options=ReadOptions(), on_skip=found.append)):
            taken[source.name] += 1
            n_chars += len(document.text)
    seconds = time.perf_counter() - started
    lost = Counter(Path(name).suffix for name in sizes if name not in taken)
    skips = [one.reason for one in found if not isinstance(one, Left)]
    left = sum((Counter({one.kind: one.count}) for one in found if isinstance(one, Left)), Counter())
    record(
        "mixed folder read",
        {
            "files": len(sizes),
            "files_taken": len(taken),
            "bytes": sum(sizes.values()),
            "bytes_taken": sum(sizes[name] for name in taken),
            "documents": taken.total(),
            "characters": n_chars,
            "seconds": round(seconds, 1),
        },
        left_out=dict(lost.most_common()),
        skips=dict(Counter(re.split("[(:]", reason)[0].strip() for reason in skips).most_common()),
        left=dict(left.most_common()),
    )


def _some(ending: str, count: int) -> list[Path]:
    """Files of an ending, drawn by the hash of their path, below a size."""
    found = [path for path in PACKAGES.rglob(f"*{ending}") if path.is_file() and 200 < path.stat().st_size < MOST_BYTES]
    return sorted(found, key=lambda path: hashlib.sha1(path.relative_to(PACKAGES).as_posix().encode()).digest())[:count]


def _put(path: Path, data: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def _notebook(text: str, source: str) -> str:
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 4000, "text/plain": "<Figure>"}}
    parts = [part for part in re.split(r"\n(?=def |class )", source) if part.strip()][:20]
    cells = [{"cell_type": "markdown", "metadata": {}, "source": text[:4000].splitlines(keepends=True)}]
    cells += [{"cell_type": "code", "metadata": {}, "source": part, "outputs": [picture]} for part in parts]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def _mail(card: bytes, attached: str) -> bytes:
    head, _, text = card.decode("utf-8", "ignore").partition("\n\n")
    names = re.findall(r"^(Name|Summary): (.*)", head, re.MULTILINE)
    message = EmailMessage()
    message["From"], message["To"] = "Ada Byron <ada@example.org>", "ben@example.org"
    message["Subject"] = " - ".join(value for _, value in names)[:200]
    message["Date"] = "Mon, 02 Nov 2026 10:00:00 +0000"
    message["Message-ID"] = f"<{hashlib.sha1(card).hexdigest()}@example.org>"
    message.set_content(text or head)
    if attached:
        message.add_attachment(attached.encode(), maintype="text", subtype="markdown", filename="notes.md")
    return bytes(message)


def _forms(text: str) -> dict[str, bytes | str]:
    """A text in formats of which packages install none."""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()][:60]
    ascii_only = [part.encode("ascii", "ignore").decode() for part in paragraphs]
    cues = (
        f"{n}\n00:{n // 60:02}:{n % 60:02},000 --> 00:{n // 60:02}:{n % 60:02},900\n{part[:200]}\n"
        for n, part in enumerate(paragraphs, start=1)
    )
    tex = "\n\n".join(re.sub(r"[\\{}$&#^_%~]", "", part) for part in paragraphs)
    rtf = "\\par ".join(re.sub(r"[\\{}]", "", part) for part in ascii_only)
    return {
        "srt": "\n".join(cues),
        "tex": f"\\documentclass{{article}}\n\\begin{{document}}\n\\section{{Text}}\n{tex}\n\\end{{document}}\n",
        "org": "\n\n".join(f"* Part {n}\n{part}" for n, part in enumerate(paragraphs)),
        "rtf": f"{{\\rtf1\\ansi {rtf}}}",
        "odt": _zip_of({"content.xml": _odf(ascii_only)}),
        "docx": _docx(ascii_only),
        "xlsx": _xlsx(paragraphs),
        "pdf": _pdf(ascii_only),
    }


def _escaped(text: str) -> str:
    return "".join(c for c in text if c.isprintable()).replace("&", "&amp;").replace("<", "&lt;")


def _odf(paragraphs: list[str]) -> str:
    names = " ".join(f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in ("office", "text"))
    body = "".join(f"<text:p>{_escaped(part)}</text:p>" for part in paragraphs)
    text = f"<office:body><office:text>{body}</office:text></office:body>"
    return f"<office:document-content {names}>{text}</office:document-content>"


def _docx(paragraphs: list[str]) -> bytes:
    package = "http://schemas.openxmlformats.org/package/2006"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    rels = "application/vnd.openxmlformats-package.relationships+xml"
    body = "".join(f"<w:p><w:r><w:t>{_escaped(part)}</w:t></w:r></w:p>" for part in paragraphs)
    types = f'<Default Extension="rels" ContentType="{rels}"/><Override PartName="/d.xml" ContentType="{kind}"/>'
    link = f'<Relationship Id="r1" Type="{office}" Target="d.xml"/>'
    return _zip_of(
        {
            "[Content_Types].xml": f'<Types xmlns="{package}/content-types">{types}</Types>',
            "_rels/.rels": f'<Relationships xmlns="{package}/relationships">{link}</Relationships>',
            "d.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
        }
    )


def _xlsx(paragraphs: list[str]) -> bytes:
    from openpyxl import Workbook

    book, sink = Workbook(), io.BytesIO()
    for number, part in enumerate(paragraphs):
        book.active.append([number, "".join(c for c in part if c.isprintable())[:1000]])
    book.save(sink)
    return sink.getvalue()


def _pdf(paragraphs: list[str]) -> bytes:
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    sink = io.BytesIO()
    with PdfPages(sink, metadata={"CreationDate": None}) as pages:
        for number, start in enumerate(range(0, len(paragraphs), 8)):
            figure = Figure()
            for row, part in enumerate(paragraphs[start : start + 8]):
                figure.text(0.05, 0.9 - row / 10, part[:90].replace("$", ""), fontsize=8)
            figure.text(0.5, 0.02, str(number + 1))
            pages.savefig(figure)
    return sink.getvalue()


def _zip_of(members: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return sink.getvalue()


def _zip(files: list[Path]) -> bytes:
    return _zip_of({file.relative_to(PACKAGES).as_posix(): file.read_text("utf-8", "ignore") for file in files})


def _tar(files: list[Path]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for file in files:
            archive.add(file, file.relative_to(PACKAGES).as_posix())
    return sink.getvalue()


if __name__ == "__main__":
    command, target = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        shutil.rmtree(target, ignore_errors=True)
        make(target)
        found = [path for path in target.rglob("*") if path.is_file()]
        print(f"{len(found)} files, {sum(path.stat().st_size for path in found):,} bytes")
    else:
        read(target)
