"""Which encoding a file is in: guesses over many languages and code pages, what is reported, and what a user says."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.corpora.field_settings import check_fields
from ragidx.corpora.limits import ReadOptions
from ragidx.corpora.readers.decoding import decode
from ragidx.corpora.readers.registry import said_of_fields
from ragidx.corpora.sources import sources

from ..conftest import ReadBytes

NOTES = {
    "bulgarian cp1251": "Мостът над реката беше затворен цяла зима.|Музеят отваря в девет часа и входът е безплатен.",
    "chinese gb18030 big5hkscs": "博物館星期一不開門。|這座橋是一百年前建成的，今年夏天要維修。",
    "croatian cp1250": "Knjižnica će biti zatvorena do četvrtka.|Sljedeći vlak vozi u pet, a šalje se i pošta.",
    "czech cp1250": "Knihovna je v úterý zavřená kvůli opravě střechy.|Nejbližší vlak jede až v pět odpoledne.",
    "danish cp1252": "Museet åbner først klokken ti på søndag.|Færgen sejler til øen hver anden time.",
    "dutch cp1252": "De coördinatie van de dijken ligt bij één bureau.|Zij zijn pas om tien uur geïnformeerd.",
    "english cp1252": "The curator’s note says “closed until May”.|Admission is €12 – children pay half.",
    "estonian cp1257": "Raamatukogu on pühapäeval suletud, sest katust parandatakse.|Järgmine rong väljub kell viis.",
    "finnish cp1252": "Kirjasto on sunnuntaisin kiinni, sillä kattoa korjataan.|Älä jätä pyörää sillan päähän.",
    "french cp1252 iso8859_15 mac_roman": (
        "Le musée ferme à cinq heures l'été.|Le château a été restauré grâce à une collecte."
    ),
    "german cp1252": "Die Bücherei schließt heute früher.|Für Schüler ist der Eintritt ermäßigt.|Täglich ab zehn Uhr",
    "greek cp1253 iso8859_7": "Το μουσείο είναι κλειστό κάθε Δευτέρα.|Η γέφυρα επισκευάζεται ως το φθινόπωρο.",
    "hebrew cp1255": "המוזיאון סגור בימי ראשון בבוקר.|הגשר ייפתח שוב בסוף הקיץ.",
    "hungarian cp1250": "A könyvtár hétfőn zárva tart.|A következő vonat öt órakor indul, késéssel kell számolni.",
    "icelandic cp1252": "Safnið er lokað á mánudögum.|Brúin yfir ána verður löguð í haust.",
    "italian cp1252": "Il museo è chiuso il lunedì.|La biblioteca resterà aperta perché c'è una mostra.",
    "japanese cp932 euc_jp iso2022_jp": "図書館は月曜日に休みます。|この橋は百年前に作られました。",
    "korean cp949": "도서관은 월요일에 문을 닫습니다.|이 다리는 백 년 전에 지어졌습니다.",
    "latvian cp1257": "Bibliotēka pirmdienās ir slēgta, labo jumtu.|Nākamais vilciens atiet piecos vakarā.",
    "lithuanian cp1257": "Muziejus šiandien uždarytas, nes taisomas stogas.|Kitas traukinys išvyksta penktą valandą.",
    "norwegian cp1252": "Biblioteket er stengt på mandager.|Fergen går over fjorden hver time så lenge været er bra.",
    "polish cp1250 iso8859_2": "Biblioteka będzie zamknięta do środy.|Następny pociąg odjeżdża o piątej, spóźniony.",
    "portuguese cp1252": "O museu não abre à segunda-feira.|A estação ficará fechada até ao verão.",
    "romanian cp1250": "Biblioteca este închisă luni dimineaţa.|Următorul tren pleacă la ora cinci şi întârzie.",
    "russian cp1251 koi8_r cp866": "Музей закрыт по понедельникам.|Мост через реку будут ремонтировать до осени.",
    "slovak cp1250": "Knižnica je v utorok zatvorená pre opravu strechy.|Najbližší vlak ide až o piatej, mešká.",
    "slovene cp1250": "Knjižnica je v četrtek zaprta zaradi popravila.|Naslednji vlak odpelje šele ob petih, žal.",
    "spanish cp1252": "El museo cierra mañana.|La estación está cerrada.|¿Dónde está el puente pequeño?",
    "swedish cp1252": "Museet är stängt på måndagar.|Färjan går till ön varje timme.",
    "thai cp874": "พิพิธภัณฑ์ปิดทุกวันจันทร์|สะพานนี้สร้างเมื่อร้อยปีก่อน",
    "turkish cp1254": "Müze pazartesi günleri kapalıdır.|Köprü sonbahara kadar onarılacak.",
    "ukrainian cp1251 koi8_u": "Музей зачинений щопонеділка.|Міст через річку ремонтуватимуть до осені.",
}
"""Language and its code pages; each sentence is a file."""


NOT_RIGHT = 5  # of a hundred; there is none today


def test_encodings_without_a_mark_are_guessed_from_a_sentence() -> None:
    wrong, n_files = [], 0
    for key, sentences in NOTES.items():
        for codec in (*key.split()[1:], "utf_16_le", "utf_16_be"):
            for sentence in sentences.split("|"):
                guessed: list[str] = []
                written = sentence.replace("'", "’") if codec == "mac_roman" else sentence
                found = decode(f"{written}\n".encode(codec), on_guess=guessed.append)
                n_files += 1
                wrong += [] if found == f"{written}\n" else [(codec, guessed, found)]
                assert len(guessed) == 1

    assert n_files > 200
    assert 100 * len(wrong) <= NOT_RIGHT * n_files, wrong


def test_a_word_that_begins_as_utf_8_is_guessed_as_others_are() -> None:
    guessed: list[str] = []

    assert decode("Міст\n".encode("cp1251"), on_guess=guessed.append) == "Міст\n"
    assert guessed == ["cp1251"]


PAGES = {codec: text for key, text in NOTES.items() for codec in key.split()[1:]}


@pytest.mark.slow
@pytest.mark.parametrize("codec", PAGES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), n_words=st.integers(6, 30))
def test_random_text_of_a_code_page_is_told_as_a_guess_and_comes_back_where_the_page_is_said(
    codec: str, seed: int, n_words: int, read_bytes: ReadBytes
) -> None:
    letters = [letter for letter in re.sub(r"\W", "", PAGES[codec]) if letter.encode(codec, "ignore")]
    chance = random.Random(seed)
    drawn = ("".join(chance.choices(letters, k=chance.randint(1, 12))) for _ in range(n_words))
    text = " ".join(drawn)
    data = f"{text}\n".encode(codec)

    guessed = read_bytes("a.txt", data)
    said = read_bytes("a.txt", data, ReadOptions(fields={"encoding": (codec,)}))

    assert (said.texts, said.skips, said.left) == ([f"{text}\n"], [], [])
    told = {} if text.isascii() and not codec.startswith("iso2022") else {"guessed encodings": 1}
    assert (len(guessed.texts), guessed.skips, guessed.kinds) == (1, [], told)


KINDS = [
    ("a.txt", "{}"),
    ("a.unknown", "{}"),
    ("a.md", "# Title\n\n{}"),
    ("a.rst", "{}"),
    ("a.tex", "{}"),
    ("a.org", "{}"),
    ("a.adoc", "{}"),
    ("a.csv", 'id,text\n1,"{}"\n'),
    ("a.tsv", "id\ttext\n1\t{}\n"),
    ("a.jsonl", '{{"text": "{}"}}\n'),
    ("a.json", '{{"text": "{}"}}\n'),
    ("b.json", '[{{"text": "{}"}}]\n'),
    ("a.html", "<p>{}</p>"),
    ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n{}\n"),
    ("a.ipynb", '{{"cells": [{{"cell_type": "markdown", "source": "{}"}}]}}'),
    ("a.eml", "From: a@b.example\nSubject: Note\n\n{}\n"),
]
POLISH = "Następny pociąg odjeżdża o piątej, spóźniony."


@pytest.mark.parametrize(("name", "frame"), KINDS, ids=[name for name, _ in KINDS])
def test_every_reader_guesses_and_counts_it_once_or_takes_what_is_said(
    read_bytes: ReadBytes, name: str, frame: str
) -> None:
    data = frame.format(POLISH).encode("cp1250")

    guessed = read_bytes(name, data)
    said = read_bytes(name, data, ReadOptions(fields={"encoding": ("cp1250",)}))
    other = read_bytes(name, data, ReadOptions(fields={"encoding": ("*.no=cp1252", f"{name}=cp1252")}))

    assert POLISH in guessed.texts[0]
    assert [(one.where, one.kind, one.count) for one in guessed.left] == [(f"{name} (cp1250)", "guessed encodings", 1)]
    assert POLISH in said.texts[0]
    assert said.left == other.left == []
    assert POLISH.encode("cp1250").decode("cp1252") in other.texts[0]


@pytest.mark.parametrize(
    ("name", "data", "encoding", "reason"),
    [
        ("a.txt", b"\x81\xfe\xff", "cp932", "cannot be decoded as cp932: byte 0"),
        ("a.txt", "łódź".encode(), "ascii", "cannot be decoded as ascii: byte 0"),
        ("a.txt", b"abc", "utf-16", "cannot be decoded as utf-16: byte 2"),
        ("a.txt", b"caf\xe9", "idna", "cannot be decoded as idna: byte 3"),
        ("a.csv", b"id,text\n1,one\n", "utf-16", "cannot be decoded as utf-16: the rest of the file is skipped"),
        ("a.jsonl", b'{"text": "a"}\n', "utf-16-le", "JSON Lines in UTF-16: convert the file to UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n', "cp037", "JSON Lines in cp037: convert the file to UTF-8"),
    ],
)
def test_what_the_encoding_that_is_said_cannot_decode_is_skipped(
    read_bytes: ReadBytes, name: str, data: bytes, encoding: str, reason: str
) -> None:
    found = read_bytes(name, data, ReadOptions(fields=check_fields({"encoding": encoding})))

    assert (found.documents, found.reasons) == ([], [(name, reason)])


def test_rows_and_lines_that_the_encoding_that_is_said_cannot_decode_are_skipped(read_bytes: ReadBytes) -> None:
    options = ReadOptions(fields={"encoding": ("ascii",)})

    rows = read_bytes("a.csv", b"id,text\n1,one\n2,\xfe\n3,three\n", options)
    lines = read_bytes("a.jsonl", b'{"text": "one"}\n{"text": "\xfe"}\n', options)

    assert (rows.ids, rows.reasons) == (["a.csv#1", "a.csv#3"], [("a.csv:3", "cannot be decoded as ascii")])
    assert (lines.ids, lines.reasons) == (["a.jsonl#1"], [("a.jsonl:2", "not ascii: byte 10")])


def test_a_byte_order_mark_counts_more_than_what_is_said(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.txt", POLISH.encode("utf-8-sig"), ReadOptions(fields={"encoding": ("cp1250",)}))

    assert (found.texts, found.left) == ([POLISH], [])


def test_of_a_mail_its_own_word_counts_more_than_what_is_said(read_bytes: ReadBytes) -> None:
    head = "From: a@b.example\nSubject: Note\nContent-Type: text/plain; charset={}\n\n"

    found = read_bytes("a.eml", head.format("iso-8859-2").encode() + POLISH.encode("iso8859-2"), SAID)

    assert POLISH in found.texts[0]
    assert found.left == []


SAID = ReadOptions(fields={"encoding": ("cp1252",)})


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("cp1250x", "`encoding`: unknown encoding 'cp1250x'; did you mean 'cp1250'?"),
        ("*.txt=latn1", "`encoding`: unknown encoding 'latn1'; did you mean 'latin1'?"),
        ("hex", "`encoding`: unknown encoding 'hex'\n"),
        ("rot13", "`encoding`: unknown encoding 'rot13'\n"),
        ("x\0", "`encoding`: unknown encoding 'x\0'"),
    ],
)
def test_an_unknown_encoding_is_refused_at_once(setting: str, shown: str) -> None:
    with pytest.raises(SpecError) as refused:
        check_fields({"encoding": setting})

    assert str(refused.value).startswith(shown)
    assert refused.value.hint == "name one that Python knows, such as cp1252 or utf-16"


def test_an_encoding_has_one_name() -> None:
    assert check_fields({"encoding": ["*.txt=latin2", "windows-1250"]}) == {"encoding": ("*.txt=iso8859-2", "cp1250")}


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01\0",
        b"plain words\n\0",
        b"plain words \n\0",
        "café crème\n\0".encode("cp1252"),
        bytes(range(256)) * 8,
        b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0",
        b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom",
        b"PK\x03\x04\x14\0\0\0\x08\0" * 3,
        b" \0\xd1\x91",
    ],
)
def test_binary_data_are_no_utf_16(read_bytes: ReadBytes, data: bytes) -> None:
    found = read_bytes("a.txt", data)

    assert found.reasons == [("a.txt", "binary file")]


def test_escapes_of_a_terminal_are_no_japanese(read_bytes: ReadBytes) -> None:
    text = "\x1b[31mred\x1b[0m and \x1b$ or \x1b(B, café"

    found = read_bytes("a.log", text)

    assert (found.texts, found.left) == ([text], [])


def test_an_encoding_is_guessed_of_a_packed_file(read_bytes: ReadBytes) -> None:
    found = read_bytes("a.txt.gz", gzip.compress(POLISH.encode("cp1250")))

    assert (found.texts, found.kinds) == ([POLISH], {"guessed encodings": 1})


@pytest.mark.parametrize("name", ["a.md", "a.html", "a.srt"])
def test_another_encoding_reads_the_files_again_that_it_is_about(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(POLISH.encode("cp1250"))
    (source,) = sources(tmp_path / name, on_skip=pytest.fail)

    said = [said_of_fields(source, ReadOptions(fields={"encoding": (one,)})) for one in ("cp1250", "*.csv=cp1250")]

    assert said == ["cp1250", ""]
