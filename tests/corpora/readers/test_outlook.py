"""Mail of Outlook, made by hand: texts, attachments, damaged files."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pytest

from ..conftest import ReadBytes
from ..fuzz.msg_files import compound, msg, storage

pytest.importorskip("oxmsg", reason="needs the extra 'docs'")

SUBJECT, BODY, HTML, RTF = 0x0037, 0x1000, 0x1013, 0x1009
HEAD = {0x0C1A: "Ada Byron", 0x0C1F: "ada@example.org", 0x0E04: "Ben; Lena", 0x0E03: "Carl"}
SENT = 134065368000000000  # 100 ns since 1601


@pytest.mark.wheel
def test_a_message_is_its_subject_and_text_with_what_its_head_says(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes(
        "a.msg", msg({SUBJECT: "Lakes", BODY: "Größe:\r\n1642 m\r\n", 0x0039: SENT, **HEAD})
    ).documents

    assert (document.id, document.text) == ("a.msg", "Lakes\n\nGröße:\n1642 m")
    assert document.metadata == {
        "title": "Lakes",
        "author": "Ada Byron",
        "from": "Ada Byron <ada@example.org>",
        "to": "Ben; Lena",
        "cc": "Carl",
        "date": datetime(2025, 11, 2, 6, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    ("bodies", "text", "left"),
    [
        ({BODY: " ", HTML: b"<nav>Home</nav><p>Deep.</p>"}, "Lakes\n\nDeep.", {"words of navigation": 1}),
        ({BODY: "Deep.", HTML: b"<p>Deep.</p>"}, "Lakes\n\nDeep.", {"alternatives of mails": 1}),
        (
            {BODY: "See the page.", HTML: "<p>Größe 1642</p>".encode()},
            "Lakes\n\nGröße 1642",
            {"alternatives of mails": 1},
        ),
        ({BODY: "word " * 3_000}, f"Lakes\n\n{'word ' * 3_000}".strip(), {}),
        ({}, "Lakes", {}),
    ],
)
def test_the_text_is_the_plain_one_unless_the_page_has_the_words(
    bodies: dict[int, str | bytes | int], text: str, left: dict[str, int], read_bytes: ReadBytes
) -> None:
    found = read_bytes("a.msg", msg({SUBJECT: "Lakes", **bodies}))

    assert found.texts == [text]
    assert found.kinds == left


def test_a_body_of_compressed_rtf_alone_is_read(read_bytes: ReadBytes) -> None:
    start = b"{\\rtf1\\ansi"  # in the dictionary at 0
    plain = b" Baikal is deep.}"
    runs = b"\x01" + struct.pack(">H", 0 << 4 | len(start) - 2) + plain[:7]
    runs += b"".join(b"\0" + plain[at : at + 8] for at in range(7, len(plain), 8))
    packed = struct.pack("<II4sI", len(runs) + 12, len(start + plain), b"LZFu", 0) + runs

    found = read_bytes("a.msg", msg({SUBJECT: "Lakes", RTF: packed}))

    assert [(document.id, document.text.strip()) for document in found.documents] == [
        ("a.msg", "Lakes"),
        ("a.msg/body.rtf", "Baikal is deep."),
    ]


def test_attachments_are_documents_as_those_of_other_mails(read_bytes: ReadBytes) -> None:
    inner = storage(24, {SUBJECT: "Inner", BODY: "Vostok."})
    files = [("rows.csv", b"id,text\n7,Tahoe\n"), ("p.png", b"\x89PNG\x00"), ("a.boat", b"\0\1\2" * 2_000)]

    found = read_bytes("a.msg", msg({SUBJECT: "Lakes", BODY: "Deep."}, *files, message=inner))

    assert [(document.id, document.text) for document in found.documents] == [
        ("a.msg", "Lakes\n\nDeep."),
        ("a.msg/rows.csv#7", "Tahoe"),
        ("a.msg/message.msg", "Inner\n\nVostok."),
    ]
    assert found.kinds == {"pictures": 1, "attachments of unknown kinds": 1}
    assert found.reasons == []


GOOD = msg({SUBJECT: "Lakes", BODY: "Deep."})


@pytest.mark.parametrize("data", [b"plain", GOOD[:700], compound({}), GOOD[:512] + bytes(2_000)])
def test_a_damaged_file_is_a_line(data: bytes, read_bytes: ReadBytes) -> None:
    found = read_bytes("a.msg", data)

    assert found.documents == []
    assert [where for where, _ in found.reasons] == ["a.msg"]
    assert not any("defect" in reason for _, reason in found.reasons)
