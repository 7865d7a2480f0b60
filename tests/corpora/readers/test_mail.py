"""Mail: bodies, headers, attachments, mailboxes, and messages that would stop the parser."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import EmailMessage
from email.mime.base import MIMEBase

import pytest

from ragidx.corpora.limits import MIB, Limits, ReadOptions

from ..conftest import ReadBytes
from ..fuzz.office_files import zipped


def message(text: str = "Baikal is deep.\n", subject: str = "Lakes", **headers: str) -> EmailMessage:
    made = EmailMessage()
    made["From"] = "Ada Byron <ada@example.org>"
    made["To"] = "ben@example.org"
    made["Subject"] = subject
    made["Date"] = "Mon, 02 Nov 2026 10:00:00 +0100"
    made["Message-ID"] = headers.pop("message_id", "<one@example.org>")
    for name, value in headers.items():
        made[name] = value
    made.set_content(text)
    return made


def test_a_message_is_its_subject_and_text_with_its_headers_as_metadata(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.eml", bytes(message("Größe: 1642 m\n", "Seen in Asien – tief")))

    (document,) = found.documents
    assert (document.id, document.text) == ("a.eml", "Seen in Asien – tief\n\nGröße: 1642 m")
    assert document.metadata == {
        "title": "Seen in Asien – tief",
        "author": "Ada Byron",
        "from": "Ada Byron <ada@example.org>",
        "to": "ben@example.org",
        "date": datetime(2026, 11, 2, 9, tzinfo=UTC),
        "message_id": "one@example.org",
    }
    assert found.reasons == []


def test_plain_text_comes_before_html_and_html_is_read_where_it_is_alone(read_bytes: ReadBytes) -> None:
    both = message("Plain words.\n")
    both.add_alternative("<p>Words, <b>plain</b>.</p>", subtype="html")
    alone = message()
    alone.set_content("<h1>Deep</h1><p>Page.</p>", subtype="html")

    assert read_bytes("a.eml", bytes(both)).texts == ["Lakes\n\nPlain words."]
    assert read_bytes("b.eml", bytes(alone)).texts == ["Lakes\n\n# Deep\n\nPage."]


def test_attachments_are_read_by_their_readers_one_level_deep(read_bytes: ReadBytes) -> None:
    made = message()
    made.add_attachment(b"id,text\n7,Tahoe\n", maintype="text", subtype="csv", filename="rows.csv")
    made.add_attachment(b"text\nVostok\n", maintype="text", subtype="csv", filename="../../rows.csv")
    made.add_attachment(zipped({"a.txt": "x"}), maintype="application", subtype="zip", filename="x.zip")
    inner = message("Inner.\n", "Forwarded")
    inner.add_attachment(b"Too deep.", maintype="text", subtype="plain", filename="deep.txt")
    made.add_attachment(inner)

    found = read_bytes("a.eml", bytes(made))

    assert [(document.id, document.text) for document in found.documents] == [
        ("a.eml", "Lakes\n\nBaikal is deep."),
        ("a.eml/rows.csv#7", "Tahoe"),
        ("a.eml/2-rows.csv#1", "Vostok"),
        ("a.eml/message.eml", "Forwarded\n\nInner."),
    ]
    assert found.reasons == [
        ("a.eml/x.zip", "an archive inside another file"),
        ("a.eml/message.eml/deep.txt", "an attachment of a mail inside another file"),
    ]


def test_a_mailbox_gives_a_document_a_message(read_bytes: ReadBytes) -> None:
    first, second, third = message("One.\n"), message("Two.\n", message_id="<two@x>"), message("Three.\n")
    second.add_attachment(b"Attached.", maintype="text", subtype="plain", filename="b.txt")
    del third["Message-ID"]
    box = b"".join(b"From x@y Mon Nov 02 10:00:00 2026\n" + bytes(made) + b"\n" for made in (first, second, third))
    box = box.replace(b"Three.", b"Three.\n\n>From here on.\nFrom the middle.")

    found = read_bytes("in.mbox", box)

    assert [(document.id, document.text) for document in found.documents] == [
        ("in.mbox#one@example.org", "Lakes\n\nOne."),
        ("in.mbox#two@x", "Lakes\n\nTwo."),
        ("in.mbox#two@x/b.txt", "Attached."),
        ("in.mbox#3", "Lakes\n\nThree.\n\nFrom here on.\nFrom the middle."),
    ]
    assert found.reasons == []
    lines = box.decode().split("\n")
    starts = [number for number, line in enumerate(lines, start=1) if line.startswith("From x@y")]
    own = [document for document in found.documents if not document.id.endswith("/b.txt")]
    assert [next(document.positions([0]))[0] for document in own] == starts


def test_a_bad_message_does_not_lose_the_others(read_bytes: ReadBytes) -> None:
    start = b"From x@y Mon Nov 02 10:00:00 2026\n"
    large = b"Subject: x\n\n" + (b"x" * 99 + b"\n") * (MIB // 90)
    box = start + b"no header at all\n\n" + start + large + b"\n" + start + bytes(message("Good.\n"))

    found = read_bytes("in.mbox", box, ReadOptions(limits=Limits(mail_bytes=MIB)))

    assert found.texts == ["Lakes\n\nGood."]
    assert found.reasons == [
        ("in.mbox:1", "not a mail: it has no header"),
        ("in.mbox:4", "a message of more than 1 MiB"),
    ]


LONG = "a mail with a header of more than 10,000 characters"
HEAD = b"Subject: Lakes\nMIME-Version: 1.0\n"


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.eml", HEAD + b"Content-Type: text/plain; a=\"" + b";" * 500_000 + b"\n\nx", LONG),
        ("a.eml", HEAD + b"Content-Type: text/plain" + b"\n ;x=y" * 50_000 + b"\n\nx", LONG),
        ("a.eml", b"\xff\xfe\x00" * 50, "not a mail: it has no header"),
        ("a.mbox", b"\nSubject: x\n\nText.\n", "not a mailbox: it does not begin with 'From '"),
    ],
    ids=["header", "folded", "binary", "no mailbox"],
)  # fmt: skip
def test_what_is_no_mail_or_would_stop_the_parser_is_skipped_at_once(
    read_bytes: ReadBytes, name: str, data: bytes, reason: str
) -> None:
    assert read_bytes(name, data).reasons == [(name, reason)]


@pytest.mark.parametrize(
    "header",
    [
        b"Subject: =?utf-8?q?" + b"=?a?q?" * 100_000,
        b"Subject: =?nope?b?####?= =?utf-8?b?\xff?=",
        b"From: =?ut\xe6-8?q?J=C3=B6rg?= <a@b.c>",
        b"From: " + b"(" * 100_000,
        b"From: " + b'"' * 5_000 + b"<a@b",
        b"Date: " + b"9" * 5_000,
        b"Date: Mon, 99 Foo 99999999999 99:99:99 +9999",
        b"Content-Type: text/plain; charset*0*=%ff'%ff; charset=\xff\xff",
        b"Content-Disposition: attachment; filename*0*=x'%ff%; filename=\xff\xfe",
        b"Content-Type: multipart/mixed",
        b"Content-Transfer-Encoding: base64",
        b"Content-Transfer-Encoding: x-uuencode",
        b"Content-Type: message/rfc822",
    ],
    ids=lambda header: header[:40],
)
def test_no_header_ends_the_reading(read_bytes: ReadBytes, header: bytes) -> None:
    found = read_bytes("a.eml", header + b"\nTo: ben@example.org\n\nBaikal is deep.\n")

    assert found.documents or found.reasons
    assert not any("defect" in reason for _, reason in found.reasons)


def test_a_sender_of_brackets_alone_loses_no_message(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes("a.eml", b"Subject: Lakes\nFrom: " + b"(a@b," * 1900 + b"\n\nDeep.\n").documents

    assert document.text == "Lakes\n\nDeep."
    assert "author" not in document.metadata


def test_a_part_of_unknown_bytes_is_reported_and_the_message_read(read_bytes: ReadBytes) -> None:
    made = message()
    picture = MIMEBase("text", "plain")
    picture.set_payload(b"\x00\x01\x02" * 30)
    made.make_mixed()
    made.attach(picture)

    found = read_bytes("a.eml", bytes(made))

    assert found.texts == ["Lakes\n\nBaikal is deep."]
    assert found.reasons == [("a.eml", "binary file")]
