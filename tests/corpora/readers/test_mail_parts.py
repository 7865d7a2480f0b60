"""Which parts of a mail are its text, what is counted, and mails that would stop the parser."""

from __future__ import annotations

import base64
import random
from email.message import EmailMessage, Message
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.limits import ReadOptions

from ..conftest import ReadBytes

HEAD = b"From: Ada <ada@example.org>\nSubject: Lakes\nMIME-Version: 1.0\n"
PAGE = "<p>The <b>heron</b> costs nine euro.</p>"


def part(kind: str, body: str | bytes, *headers: str, encoding: str = "") -> bytes:
    data = body.encode() if isinstance(body, str) else body
    if encoding:
        data, headers = base64.encodebytes(data), (*headers, "Content-Transfer-Encoding: base64")
    return "\n".join([f"Content-Type: {kind}", *headers, "", ""]).encode() + data


def multi(kind: str, *parts: bytes, mark: str = "b1") -> bytes:
    inner = b"".join(f"--{mark}\n".encode() + each + b"\n" for each in parts)
    return f'Content-Type: multipart/{kind}; boundary="{mark}"\n\n'.encode() + inner + f"--{mark}--\n".encode()


HTML = part("text/html; charset=utf-8", PAGE)
EVENT = """BEGIN:VCALENDAR
BEGIN:VTIMEZONE
DTSTART:19700101T000000
END:VTIMEZONE
BEGIN:VEVENT
SUMMARY:Count of
  herons\\, spring
DTSTART;TZID=Europe/Berlin:20260105T120000
LOCATION:Weir
ATTENDEE;CN="Lena Dahl";ROLE=REQ:mailto:lena@example.org
UID:4711
END:VEVENT
END:VCALENDAR
"""
SHOWN = "Count of herons, spring\n2026-01-05 12:00\nWeir\nLena Dahl"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (multi("alternative", part("text/plain", "\n"), HTML), "The heron costs nine euro."),
        (multi("alternative", part("text/plain", "This message requires an HTML viewer."), HTML), "The heron"),
        (multi("alternative", part("text/plain", "The heron costs 9 euro!"), HTML), "The heron costs 9 euro!"),
        (multi("alternative", HTML), "The heron costs nine euro."),
        (multi("alternative", part("text/plain", "one two three four five"), part("text/html", "<p>All here.")),
         "one two three four five"),
        (multi("mixed", HTML, part("text/plain", "-- \nList of herons")), "The heron costs nine euro.\n\n\n-- \nList"),
        (multi("mixed", part("text/plain", "Above"), part("image/png", b"x"), part("text/plain", "Below")),
         "Above\n\nBelow"),
        (multi("related", HTML, part("text/plain", "Plain")), "The heron costs nine euro.\n\n\nPlain"),
        (multi("alternative", part("text/plain", "Body"), part("text/calendar", EVENT)), f"Body\n\n{SHOWN}"),
        (part("text/calendar", EVENT), SHOWN),
        (part("text/enriched", "<bold>Deep</bold> <<lake> <param>red</param>"), "Deep <lake>"),
        (part("text/plain; format=flowed; delsp=yes", "Tanga \nnyika \nis\ndeep\n"), "Tanganyikais\ndeep"),
        (part("text/plain; format=flowed", "> One \n> two\nThree \nfour\n-- \nAda\n"), "> One two\nThree four\n--"),
        (part("text/plain; charset=iso-2022-jp", "港の時計".encode("iso2022_jp")), "港の時計"),
        (part("text/plain; charset=utf-16", "Überfähre".encode("utf-16"), encoding="base64"), "Überfähre"),
        (part("text/plain; charset=us-ascii", "Überfähre".encode("cp1252")), "Überfähre"),
    ],
)  # fmt: skip
def test_the_text_of_a_mail_is_in_the_parts_that_hold_it(message: bytes, text: str, read_bytes: ReadBytes) -> None:
    found = read_bytes("a.eml", HEAD + message)

    assert found.reasons == []
    (document,) = found.documents
    assert document.text.startswith(f"Lakes\n\n{text}")


def test_people_without_a_name_are_their_addresses_and_other_fields_of_an_event_are_counted(
    read_bytes: ReadBytes,
) -> None:
    event = 'ORGANIZER:MAILTO:ada@example.org\nATTENDEE;DIR="ldap://x":mailto:bo@example.org\nCATEGORIES:Lakes\nURL:http://x\n'
    event += "SUMMARY:Count\nBEGIN:VALARM\nDESCRIPTION:Bell\nEND:VALARM\n"
    calendar = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\n{event}END:VEVENT\nEND:VCALENDAR\n"

    found = read_bytes("a.eml", HEAD + part("text/calendar", calendar))

    assert found.texts == ["Lakes\n\nada@example.org\nbo@example.org\nCount"]
    assert found.kinds == {"fields of mails": 2}


def test_a_digest_is_its_messages(read_bytes: ReadBytes) -> None:
    message = multi("digest", b"\nSubject: One\n\nBaikal", b"\nSubject: Two\n\nVostok")

    assert read_bytes("a.eml", HEAD + message).texts == ["Lakes", "One\n\nBaikal", "Two\n\nVostok"]


def test_what_no_reader_reads_of_a_mail_is_counted(read_bytes: ReadBytes) -> None:
    message = multi(
        "mixed",
        multi("alternative", part("text/plain", "Heron costs nine euro."), HTML, mark="b2"),
        multi(
            "report",
            part("text/plain", "Not delivered."),
            part("message/delivery-status", "Reporting-MTA: dns; x\n\nAction: failed\n"),
            part("text/rfc822-headers", "Subject: x\n"),
            mark="b3",
        ),
        part("application/pgp-signature", "-----BEGIN"),
        part("application/pkcs7-signature; name=smime.p7s", b"\x00", encoding="base64"),
        part("application/x-pkcs7-mime", b"\x00", encoding="base64"),
        multi("encrypted", part("application/pgp-encrypted", "Version: 1"), mark="b4"),
        part("image/png", b"\x89PNG\x00", encoding="base64"),
        part("application/octet-stream; name=photo.jpg", b"\xff\xd8\x00", encoding="base64"),
        part("application/x-boat; name=a.boat", b"\x00\x01\x02", encoding="base64"),
        part("application/octet-stream; name*=utf-8''%C3%9Cbersicht.txt", "Words.", encoding="base64"),
    )

    found = read_bytes("a.eml", HEAD + message)

    assert found.texts == ["Lakes\n\nHeron costs nine euro.\n\nNot delivered.", "Words."]
    assert found.reasons == []
    assert found.kinds == {
        "alternatives of mails": 1,
        "delivery reports": 2,
        "signatures": 2,
        "encrypted parts": 2,
        "pictures": 2,
        "attachments of unknown kinds": 1,
    }
    assert [one.where for one in found.left if one.kind.startswith("attach")] == ["a.eml/a.boat"]


def test_a_part_of_rtf_is_read_as_such_and_a_file_that_is_elsewhere_is_counted(read_bytes: ReadBytes) -> None:
    elsewhere = part(
        'message/external-body; access-type=URL; URL="https://example.org/a"', "Content-Type: text/plain\n\n"
    )

    found = read_bytes("a.eml", HEAD + multi("mixed", part("text/rtf", "{\\rtf1 The heron.}"), elsewhere))

    assert found.texts[1:] == ["The heron."]
    assert found.kinds["attachments of unknown kinds"] == 1


def test_what_a_page_of_a_mail_leaves_out_is_counted_if_it_is_the_text(read_bytes: ReadBytes) -> None:
    page = part("text/html", f"<nav>Home page</nav>{PAGE}")
    whole = ReadOptions(fields={"html": ("whole",)})

    assert read_bytes("a.eml", HEAD + page).kinds == {"words of navigation": 2}
    assert read_bytes("b.eml", HEAD + page, whole).kinds == {}
    both = multi("alternative", part("text/plain", "The heron costs nine euro."), page)
    assert read_bytes("c.eml", HEAD + both).kinds == {"alternatives of mails": 1}


def test_the_place_of_an_attachment_whose_name_is_a_whole_file_is_cut(read_bytes: ReadBytes) -> None:
    named = f'Content-Disposition: attachment; filename="{"n" * 3_000}.bin"'
    long = part("application/octet-stream", b"\x00\x01" * 50, named)

    found = read_bytes("a.eml", HEAD + multi("mixed", part("text/plain", "The heron."), long))

    assert [one.where for one in found.left if one.kind == "attachments of unknown kinds"] == [f"a.eml/{'n' * 199}"]


def test_copies_and_keywords_are_metadata(read_bytes: ReadBytes) -> None:
    (document,) = read_bytes("a.eml", b"Cc: Lena <lena@example.org>\nKeywords: eels, weirs\n\nDeep.\n").documents

    assert document.metadata == {"cc": "Lena <lena@example.org>", "keywords": "eels, weirs"}


def nested(depth: int, end: bytes = b"") -> bytes:
    head = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(depth))
    return HEAD + head + b"Content-Type: text/plain\n\nword\n" + end


@pytest.mark.parametrize(
    ("message", "n_words", "reasons"),
    [
        (HEAD + multi("mixed", *[part("text/plain", "word")] * 5_000), 5_000, []),
        (HEAD + multi("mixed", *[multi("mixed", part("text/plain", "word"), mark="b2")] * 1_000), 1_000, []),
        (nested(40), 1, []),
        (nested(1_000), 0, ["a mail nested deeper than 50 parts"]),
        (nested(900, b"line\n" * 100_000), 0, ["a mail nested deeper than 50 parts"]),
        (HEAD + b"Content-Type: message/rfc822\n\n" * 1_000 + b"\nword", 0, ["a mail nested too deep"]),
        (HEAD + part("text/plain; format=flowed", "word \n" * 100_000), 100_000, []),
        (HEAD + part("text/enriched", "<param>" * 50_000 + "<a" * 50_000), 0, []),
    ],
    ids=["parts", "siblings", "forty", "deep", "deep and long", "messages", "flowed", "enriched"],
)
def test_a_mail_that_would_stop_its_parser_is_bounded(
    message: bytes, n_words: int, reasons: list[str], read_bytes: ReadBytes
) -> None:
    found = read_bytes("a.eml", message)

    assert [reason for _, reason in found.reasons] == reasons
    assert sum(text.count("word") for text in found.texts) == n_words


WORDS = st.lists(st.integers(100, 999).map("w{}".format), min_size=1, max_size=5).map(" ".join)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(
    plain=WORDS, page=WORDS, files=st.lists(WORDS, max_size=3), encoding=st.sampled_from(["base64", "quoted-printable"])
)
def test_each_word_of_a_mail_that_the_library_writes_comes_out(
    plain: str, page: str, files: list[str], encoding: str, read_bytes: ReadBytes
) -> None:
    made = EmailMessage()
    made["From"], made["Subject"] = "ada@example.org", "Lakes"
    made.set_content(plain, cte=encoding)
    made.add_alternative(f"<main><p>{page}</p><aside>{plain}</aside></main>", subtype="html", cte=encoding)
    for number, words in enumerate(files):
        made.add_attachment(words.encode(), maintype="text", subtype="plain", filename=f"{number}.txt")
    made.add_attachment(f"<p>{page}</p>", subtype="html", filename="page.html")

    found = read_bytes("a.eml", bytes(made))

    text = " ".join(found.texts)
    assert [word for word in f"{plain} {page} {' '.join(files)}".split() if word not in text] == []
    assert found.reasons == []


class Tree:
    """A random mail as a tree of parts that `email` writes, and what of it is to be read.

    Attributes:
        files: the words of attachments and of mails inside.
        n_alternatives: how many parts have another beside them that is read in their place.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.files: list[str] = []
        self.n_alternatives = 0
        self.message, self.choices = self._part(3)

    def _part(self, depth: int) -> tuple[Message, list[set[str]]]:
        """A part, and the sets of words of which one is the text of it."""
        kind = self._rng.choice(["mixed", "related", "alternative"] * bool(depth) + ["plain", "html", "file", "mail"])
        word = f"w{self._rng.getrandbits(40):x}"
        if kind in ("plain", "html"):
            encoding = self._rng.choice(["utf-8", "iso-8859-1", "utf-16"])
            return MIMEText(f"<p>Ü {word}</p>" if kind == "html" else f"Ü {word}", kind, encoding), [{word}]
        if kind in ("file", "mail"):
            self.files.append(word)
            inner = MIMEText(word)
            if kind == "mail":
                inner["Subject"] = "Lakes"
                return MIMEMessage(inner), [set()]
            inner.add_header("Content-Disposition", "attachment", filename=f"{word}.txt")
            return inner, [set()]
        parts = [self._part(depth - 1) for _ in range(self._rng.randint(1, 3))]
        message = MIMEMultipart(kind, None, [part for part, _ in parts])
        if kind == "alternative":
            texts = [choices for _, choices in parts if choices != [set()]]
            self.n_alternatives += max(0, len(texts) - 1)
            return message, [choice for choices in texts for choice in choices] or [set()]
        combined: list[set[str]] = [set()]
        for _, choices in parts:
            combined = [one | choice for one in combined for choice in choices]
        return message, combined


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_word_of_a_random_tree_of_parts_is_read_or_in_a_counted_alternative(
    seed: int, read_bytes: ReadBytes
) -> None:
    tree = Tree(random.Random(seed))
    tree.message["From"], tree.message["Subject"] = "ada@example.org", "Lakes"

    found = read_bytes("a.eml", bytes(tree.message))

    assert found.reasons == []
    text, *others = found.texts
    assert {word for word in text.split() if word.startswith("w")} in tree.choices
    assert sorted(word for other in others for word in other.split() if word.startswith("w")) == sorted(tree.files)
    assert found.kinds.get("alternatives of mails", 0) == tree.n_alternatives
