"""A mail is known by its header, whatever the name of its file; a text that only looks like one stays a text."""

from __future__ import annotations

import gzip
import importlib.util
import string
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.readers.mail_lines import HEAD_BYTES, mail_ending
from ragidx.corpora.readers.registry import is_packed, is_plain
from ragidx.corpora.sources import sources

from ..conftest import ReadBytes
from ..fuzz.office_files import zipped
from .test_mail import message

IN_MAILDIR = "1700000000.M1P1.host:2,S"
POSTMARK = b"From x@y Mon Nov 02 10:00:00 2026\n"


def with_picture() -> EmailMessage:
    made = message("The heron stands.\n")
    made.add_attachment(bytes(range(256)) * 40, maintype="image", subtype="png", filename="heron.png")
    made.add_attachment(b"id,text\n7,Tahoe\n", maintype="text", subtype="csv", filename="rows.csv")
    return made


@pytest.mark.parametrize("name", [IN_MAILDIR, "1700000000.M1P1.host.pl", "51121", "1.", "msg_01.txt"])
def test_a_message_of_any_name_is_read_as_an_eml_is(name: str, read_bytes: ReadBytes) -> None:
    found, as_eml = read_bytes(name, bytes(with_picture())), read_bytes("a.eml", bytes(with_picture()))

    assert found.texts == as_eml.texts == ["Lakes\n\nThe heron stands.", "Tahoe"]
    assert found.ids == [name, f"{name}/rows.csv#7"]
    assert found.documents[0].metadata == as_eml.documents[0].metadata
    assert [one.file["file.ext"] for one in found.documents] == [".eml", ".csv"]
    assert found.reasons == []
    assert found.kinds == as_eml.kinds == {"pictures": 1}


def test_a_message_is_known_in_an_archive_and_below_gz(read_bytes: ReadBytes) -> None:
    data = bytes(message())

    assert read_bytes("mail.zip", zipped({"cur/1.host": data})).texts == ["Lakes\n\nBaikal is deep."]
    assert read_bytes("51121.gz", gzip.compress(data)).texts == ["Lakes\n\nBaikal is deep."]


def test_a_mailbox_without_its_ending_gives_a_document_a_message(read_bytes: ReadBytes) -> None:
    box = POSTMARK + bytes(message("One.\n")) + b"\n" + POSTMARK + bytes(message("Two.\n", message_id="<two@x>"))

    found = read_bytes("Inbox.2026", box)

    assert found.ids == ["Inbox.2026#one@example.org", "Inbox.2026#two@x"]
    assert [one.file["file.ext"] for one in found.documents] == [".mbox"] * 2


def test_the_messages_of_a_test_suite_are_read_as_if_they_were_named_eml(read_bytes: ReadBytes) -> None:
    spec = importlib.util.find_spec("test.test_email")
    if spec is None or spec.origin is None:
        pytest.skip("this Python comes without its test suite")
    files = sorted((Path(spec.origin).parent / "data").glob("msg_*.txt"))

    known = [path for path in files if mail_ending(path.read_bytes()[:HEAD_BYTES]) == ".eml"]

    assert len(known) >= 0.75 * len(files)
    for path in known:
        assert read_bytes(path.name, path.read_bytes()).texts == read_bytes("a.eml", path.read_bytes()).texts


def test_a_message_is_read_in_a_worker_as_its_attachments_may_be_anything(tmp_path: Path) -> None:
    (tmp_path / IN_MAILDIR).write_bytes(bytes(with_picture()))
    (tmp_path / "note.txt").write_text("From: Ada\nTo: Ben\nSubject: lunch\n\nAt noon.\n")
    mail, note = sources(tmp_path, on_skip=lambda skip: None)

    assert (is_plain(mail), is_packed(mail)) == (False, True)
    assert (is_plain(note), is_packed(note)) == (True, False)


NO_MAIL = {
    "a note": b"From: Ada\nTo: Ben\nSubject: lunch\nDate: Monday\n\nAt noon.\n",
    "a setting, which has no empty line": b"from: a@b.org\nto: c@d.org\ncontent-type: text/plain\nevery: 5\n",
    "prose": b"From: the first page to the last, Subject: all of it.\nAnd more.\n\nDate: 2 Nov 2026 10:00\n",
    "an answer of a server": b"Date: Mon, 02 Nov 2026 10:00:00 GMT\nContent-Type: text/html\nServer: x\n\n<p>Hi</p>\n",
    "a package": b"Metadata-Version: 2.1\nName: x\nAuthor-email: a@b.org\nContent-Type: text/markdown\n\n# x\n",
    "a header below other lines": b"Forwarded.\n" + bytes(message()),
    "a letter": b"From Monday to Friday the mill is open.\nFrom: Ada\nSubject: the mill\n\nDear Ben,\n",
    "a mailbox of notes": POSTMARK + b"Dear Ben,\n\nthe mill.\n",
    "nothing": b"",
}


@pytest.mark.parametrize("data", NO_MAIL.values(), ids=NO_MAIL)
def test_what_is_no_message_stays_a_text(data: bytes) -> None:
    assert mail_ending(data) == ""


NAMES = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=12)
WORDS = st.text(string.printable.replace("\n", "").replace("\r", ""), max_size=30)
PEOPLE = st.sampled_from(["From", "To", "Cc", "Sender", "Reply-To", "Subject"])


@given(fields=st.lists(st.tuples(PEOPLE | NAMES.map("x-".__add__), WORDS), min_size=1), body=st.text())
def test_fields_that_people_write_make_no_message(fields: list[tuple[str, str]], body: str) -> None:
    note = "".join(f"{name}: {value}\n" for name, value in fields) + f"\n{body}"

    assert mail_ending(note.encode()[:HEAD_BYTES]) == ""


@given(
    subject=st.text(string.ascii_letters + " ", min_size=1), names=st.lists(NAMES), body=st.text(), crlf=st.booleans()
)
def test_any_message_is_known_and_also_by_a_beginning(subject: str, names: list[str], body: str, crlf: bool) -> None:
    made = message(subject=subject)
    for name in names:
        made[f"X-{name}"] = "word " * 60
    data = made.as_bytes().partition(b"\n\n")[0] + b"\n\n" + body.encode()
    data = data.replace(b"\n", b"\r\n") if crlf else data

    assert mail_ending(data[:HEAD_BYTES]) == ".eml"
