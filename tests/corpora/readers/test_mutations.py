"""Whatever a file holds, its reader gives documents or a report: seeds of the formats with bytes changed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import MIB
from ragidx.corpora.readers.registry import Limits, ReadOptions

from ..conftest import reading
from .test_archive import FILES, tarred, zipped
from .test_mail import message
from .test_markup import ADOC, CONTENT, ORG, TEX, odt
from .test_notebook import code, markdown, notebook
from .test_office import RTF
from .test_pdf import pdf
from .test_subtitles import SRT, VTT

pytestmark = pytest.mark.slow


def _mail() -> bytes:
    made = message("One.\n")
    made.add_attachment(b"id,text\n7,Tahoe\n", maintype="text", subtype="csv", filename="rows.csv")
    made.add_attachment(message("Inner.\n"))
    return bytes(made)


SEEDS: dict[str, bytes] = {
    "a.zip": zipped(FILES),
    "a.tar": tarred(FILES),
    "a.tgz": tarred(FILES, "w:gz"),
    "a.txz": tarred(FILES, "w:xz"),
    "a.eml": _mail(),
    "a.mbox": b"From x\n" + _mail() + b"\nFrom y\n" + bytes(message()),
    "a.ipynb": notebook(markdown("# A"), code(["x"], {"output_type": "stream", "text": ["y"]})).encode(),
    "a.srt": SRT.encode(),
    "a.vtt": VTT.encode(),
    "a.tex": TEX.encode(),
    "a.org": ORG.encode(),
    "a.adoc": ADOC.encode(),
    "a.rtf": RTF,
    "a.odt": odt(CONTENT),
    "a.pdf": pdf([["Baikal"], ["Tanganyika"]], outline=[("Baikal", 0)], info="/Title (Lakes)"),
}
TOKENS = [b"\xff", b"\0", b"\n\n", b"{", b"}", b"\\", b"From ", b"--", b"\\u", b"\\bin9", b"<", b"-->", b"[", b'"',
          b"PK\x03\x04", b"\xed\xa0\x80", b"9" * 30, b"=?utf-8?b?", b"Content-Type: multipart/mixed"]  # fmt: skip

Edit = Callable[[bytes], bytes]


def replaced(place: float, new: bytes, length: int) -> Edit:
    """`length` bytes at a place, as a share of the file, become others."""

    def edit(data: bytes) -> bytes:
        at = int(place * len(data))
        return data[:at] + new + data[at + length :]

    return edit


EDITS = st.lists(
    st.builds(
        replaced,
        st.floats(0, 1),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=4)),
        st.sampled_from([0, 1, 4, 100, 10**9]),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=25, deadline=None)
@given(edits=EDITS)
def test_a_changed_file_gives_documents_or_a_report(name: str, edits: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(reduce(lambda data, edit: edit(data), edits, SEEDS[name]))

        found = reading(path, ReadOptions(limits=Limits(archive_bytes=20 * MIB, worker_cpu_s=20)))

    assert found.documents or found.reasons
    for document in found.documents:
        offsets = [place.offset for place in document.places]
        assert offsets == sorted(offsets)
        assert all(0 <= offset < len(document.text) for offset in offsets)
        for text in (document.id, document.text, *map(str, document.metadata.values())):
            text.encode()  # no half of a surrogate pair
    for where, reason in found.reasons:
        f"{where}{reason}".encode()
