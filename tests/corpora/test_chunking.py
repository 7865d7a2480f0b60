"""Chunks: offsets, coverage, token capacity, heading paths, and time."""

import os
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import SpecError
from ragidx.corpora.headings import sections
from ragidx.corpora.records import Chunk, Document
from ragidx.corpora.spec import ChunkSpec

from ..raising import message_of

GOLDEN = Path(os.environ.get("RAGIDX_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "models"
TITLE = "A house by the 海"
TEXTS = [
    "The lease was signed in Bergen on the third of May. It runs for nine years, and the rent is due in advance.",
    "Das Übermaß an Höflichkeit störte. 日本語の文章。 مرحبا بالعالم. שלום עולם. naïve café 👩‍👩‍👧 🇳🇴",
]


@cache
def word_pieces() -> tokenizers.Tokenizer:
    """Lower case, accents dropped, a word unknown as a whole where a letter is: as in BERT."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


@cache
def byte_pairs() -> tokenizers.Tokenizer:
    """Every byte is known, an emoji is several tokens: as in GPT-2. `</s>` is a special token."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


@cache
def golden(name: str) -> tokenizers.Tokenizer:
    path = GOLDEN / name / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"no golden tokenizer {name}: set RAGIDX_GOLDEN to the folder of golden cases")
    return tokenizers.Tokenizer.from_file(str(path))


TOKENIZERS = {
    "word pieces": word_pieces,
    "byte pairs": byte_pairs,
    "llama2-tiny": lambda: golden("llama2-tiny"),
    "qwen2-tiny": lambda: golden("qwen2-tiny"),
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


def count(tokenizer: tokenizers.Tokenizer, text: str) -> int:
    """Tokens of a text alone, counted apart from the code under test."""
    copy = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = True
    return len(copy.encode(text, add_special_tokens=False).ids)


def cut(
    text: str, *, markdown: bool = False, tokenizer: tokenizers.Tokenizer | None = None, **spec: object
) -> list[Chunk]:
    chunker = Chunker(ChunkSpec(**spec), tokenizer or byte_pairs(), limit=512)
    return list(chunker.chunks(Document("d", text, markdown=markdown)))


def assert_lawful(
    document: Document, chunker: Chunker, tokenizer: tokenizers.Tokenizer, limit: int, plain: Chunker | None = None
) -> None:
    chunks = list(chunker.chunks(document))
    if plain is not None:
        assert [chunk.id for chunk in plain.chunks(document)] == [chunk.id for chunk in chunks]
    covered = bytearray(len(document.text))
    paths = sections(document.text) if document.markdown else []
    for chunk in chunks:
        assert document.text[chunk.start : chunk.end] == chunk.text
        assert chunk.text.strip()
        path = next((section.path for section in reversed(paths) if section.start <= chunk.start), "")
        assert chunk.heading in (path, f"{TITLE} > {path}" if path else TITLE)
        assert len(chunk.text) == 1 or count(tokenizer, chunk.text) <= chunker.capacity
        assert len(chunk.text) == 1 or count(tokenizer, chunker.encoded_text(chunk)) <= limit
        covered[chunk.start : chunk.end] = b"\1" * len(chunk.text)
    assert [chunk.end for chunk in chunks] == sorted({chunk.end for chunk in chunks})
    assert not [at for at, seen in enumerate(covered) if not seen and not document.text[at].isspace()]


# known values


def test_a_short_document_is_one_chunk_without_the_white_space_around_it() -> None:
    assert cut("\n  One line.\n\n") == [Chunk("d", 3, 12, "One line.")]


@pytest.mark.parametrize("text", ["", " ", "\n\r\n\t\u2028\u3000", "\x1c\x1d"])
@pytest.mark.parametrize("size", [8, None])
def test_a_blank_document_has_no_chunk(text: str, size: int | None) -> None:
    assert cut(text, size=size) == []


def test_paragraphs_come_before_sentences_and_sentences_before_words() -> None:
    text = "One two three. Four five six.\n\nSeven eight. Nine ten."

    assert [chunk.text for chunk in cut(text, size=26)] == ["One two three. Four five six.", "Seven eight. Nine ten."]
    assert [chunk.text for chunk in cut(text, size=13)] == [
        "One two three.",
        "Four five six.",
        "Seven eight.",
        "Nine ten.",
    ]


def test_offsets_count_characters_and_not_bytes() -> None:
    chunks = cut("naïve 👩‍👩‍👧 café.\n\n日本語の文章。", size=28)

    assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 17), (19, 26)]
    assert chunks[1].text == "日本語の文章。"


def test_neighbours_share_text_when_an_overlap_is_asked_for() -> None:
    text = " ".join(f"w{number}" for number in range(60))

    apart = cut(text, size=40)
    shared = cut(text, size=40, overlap=12)

    assert all(left.end < right.start for left, right in pairwise(apart))
    assert all(left.end > right.start for left, right in pairwise(shared))


def test_a_model_that_leaves_less_than_the_size_sets_the_capacity_and_keeps_the_share_of_overlap() -> None:
    chunker = Chunker(ChunkSpec(size=256, overlap=128), byte_pairs(), limit=16)
    chunks = list(chunker.chunks(Document("d", " ".join(f"w{number}" for number in range(60)))))

    assert chunker.capacity == 16
    assert max(count(byte_pairs(), chunk.text) for chunk in chunks) <= 16
    assert len(chunks) < 40


def test_a_whole_document_is_one_chunk_however_long() -> None:
    text = "# A\n" + "word " * 2000

    chunks = cut(text, size=None, titles=True, markdown=True)

    assert chunks == [Chunk("d", 0, len(text) - 1, text[:-1], "A")]
    assert Chunker(ChunkSpec(size=None, titles=True), byte_pairs(), limit=9).encoded_text(chunks[0]) == text[:-1]


def test_a_word_longer_than_a_chunk_is_cut_inside_and_never_before_a_mark() -> None:
    text = "e\u0301" * 400

    chunks = cut(text, size=32)

    assert "".join(chunk.text for chunk in chunks) == text
    assert not any(chunk.text.startswith("\u0301") for chunk in chunks)


def test_a_special_token_in_a_text_counts_as_its_characters() -> None:
    text = "</s>" * 50
    assert len(byte_pairs().encode(text).ids) == 50  # parsed, as tokenizers do by default

    chunks = cut(text, size=32)

    assert "".join(chunk.text for chunk in chunks) == text
    assert max(count(byte_pairs(), chunk.text) for chunk in chunks) <= 32
    assert len(chunks) > 4


def test_the_tokenizer_given_is_left_as_it_was() -> None:
    tokenizer = tokenizers.Tokenizer.from_str(byte_pairs().to_str())
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)

    chunks = cut("one two three four five six " * 20, size=16, tokenizer=tokenizer)

    assert len(chunks) > 5
    assert tokenizer.truncation is not None
    assert tokenizer.padding is not None
    assert tokenizer.encode_special_tokens is False


def test_a_model_without_room_for_text_is_refused() -> None:
    assert message_of(SpecError, lambda: Chunker(ChunkSpec(), byte_pairs(), limit=-3)) == (
        "`max_length`: the model leaves room for -3 tokens of text after its prompt and special tokens\n"
        "  hint: use a shorter template or instruction, or a model with a longer context"
    )


# headings


MARKDOWN = """# Guide

Opening words of the guide.

## Install

Type make and wait for it.

```sh
# not a heading
make
```

Setext
------

Last words.
"""


def test_a_chunk_carries_the_heading_path_of_the_place_where_it_starts() -> None:
    chunks = cut(MARKDOWN, size=40, markdown=True)

    assert [(chunk.heading, chunk.text.split("\n")[0]) for chunk in chunks] == [
        ("Guide", "# Guide"),
        ("Guide > Install", "## Install"),
        ("Guide > Install", "```sh"),
        ("Guide > Setext", "Setext"),
    ]


def test_headings_of_plain_text_are_text() -> None:
    assert {chunk.heading for chunk in cut(MARKDOWN, size=24)} == {""}


def titled(document: Document, *, size: int | None = 40, limit: int = 512, **spec: object) -> list[tuple[str, str]]:
    """The heading of each chunk, and the first line of what is encoded; the cuts are those without titles."""
    chunker = Chunker(ChunkSpec(size=size, titles=True, **spec), byte_pairs(), limit=limit)
    chunks, plain = list(chunker.chunks(document)), Chunker(ChunkSpec(size=size), byte_pairs(), limit=limit)
    assert [chunk.id for chunk in chunks] == [chunk.id for chunk in plain.chunks(document)]
    return [(chunk.heading, chunker.encoded_text(chunk).split("\n")[0]) for chunk in chunks]


def test_the_title_is_in_front_of_what_is_encoded_where_the_text_lacks_it() -> None:
    assert titled(Document("d", MARKDOWN, markdown=True)) == [
        ("Guide", "# Guide"),
        ("Guide > Install", "Guide"),
        ("Guide > Install", "Guide"),
        ("Guide > Setext", "Guide"),
    ]
    assert titled(Document("d", "One.\n\nTwo.", heading="A mill"), size=6) == [
        ("A mill", "A mill"),
        ("A mill", "A mill"),
    ]
    assert titled(Document("d", "One.", {"title": "A mill"}), size=None) == [("A mill", "A mill")]


def test_each_part_below_a_heading_of_the_first_level_has_that_for_a_title() -> None:
    text = "# Monday\n\nRain, and a long walk.\n\n# Tuesday\n\nSnow, and a short one."

    assert titled(Document("d", text, {"title": "Monday"}, markdown=True), size=20) == [
        ("Monday", "# Monday"),
        ("Monday", "Monday"),
        ("Tuesday", "# Tuesday"),
        ("Tuesday", "Tuesday"),
    ]


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        ("Owls", "Owls\n====\n\nThey hunt.", ("", "Owls")),  # not twice
        ("Owls", "**OWLS** hunt.", ("", "**OWLS** hunt.")),
        ("Owl", "Owls hunt.", ("Owl", "Owl")),
        ("Guide - Sea site", "# Guide\n\nText.", ("Guide", "# Guide")),
        ("A Guide", "# Guide\n\nText.", ("A Guide > Guide", "A Guide")),
        ("Docs > Owls", "They hunt.", ("Docs › Owls", "Docs › Owls")),
        ("???", "They hunt.", ("???", "???")),
        (1984, "It was a bright day.", ("1984", "1984")),
        (" a\n  b ", "c", ("a b", "a b")),
        *((value, "They hunt.", ("", "They hunt.")) for value in (None, "", " ", True, ["a"], {"a": 1})),
    ],
)
def test_what_a_title_is(title: object, text: str, expected: tuple[str, str]) -> None:
    assert titled(Document("d", text, {"title": title}, markdown=text.startswith("# "))) == [expected]


def test_a_title_of_any_length_takes_nothing_from_the_text() -> None:
    text, long = "x" * 100, Document("d", "y " * 30, heading="word " * 20_000)
    tight = Chunker(ChunkSpec(size=40, titles=True), byte_pairs(), limit=44)
    chunk = Chunk("d", 0, 8, "text " * 2, text)

    ((heading, first),) = titled(long, size=80)

    assert (len(heading), count(byte_pairs(), first)) == (200, 31)
    assert 40 <= count(byte_pairs(), tight.encoded_text(chunk)) <= 44
    assert tight.encoded_text(chunk).endswith("x\n\ntext text ")
    full = Chunk("d", 0, 80, "z" * 44, text)
    assert tight.encoded_text(full) == full.text


def test_an_older_index_has_the_whole_path_in_front() -> None:
    chunker = Chunker(ChunkSpec(size=200, headings=True), byte_pairs(), limit=512)

    assert chunker.encoded_text(Chunk("d", 0, 4, "text", "A > B")) == "A > B\n\ntext"


def test_a_heading_stays_with_the_text_below_it() -> None:
    body = " ".join(f"Sentence number {number} is here." for number in range(60))

    chunks = cut(f"# Title\n\n{body}\n\n## Next\n\n{body}", size=128, markdown=True)

    assert [chunk.text.split(" is")[0] for chunk in chunks if chunk.text.startswith("#")] == [
        "# Title\n\nSentence number 0",
        "## Next\n\nSentence number 0",
    ]


# properties


PIECES = st.sampled_from(
    ["\n\n", "\n", "\r\n", "\r", " ", ". ", "\u2028", "\u3000", "# ", "## a\n", "---\n", "```\n", "</s>", "> ", "- ",
     "👩‍👩‍👧", "🇳🇴", "👍🏽", "e\u0301\u0302", "日本語", "。", "مرحبا", "שלום", "ﷺ", "한",
     "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 5]
)  # fmt: skip
ANY_TEXT = st.lists(st.text(max_size=12) | PIECES, max_size=25).map("".join).filter(lambda text: "\0" not in text)


@pytest.mark.slow
@every_tokenizer
@settings(deadline=None, max_examples=60)
@given(
    text=ANY_TEXT,
    markdown=st.booleans(),
    size=st.integers(1, 40),
    overlap=st.integers(0, 39),
    titles=st.booleans(),
    limit=st.integers(1, 60),
)
def test_every_chunk_is_lawful(
    name: str, text: str, markdown: bool, size: int, overlap: int, titles: bool, limit: int
) -> None:
    tokenizer = TOKENIZERS[name]()
    spec = ChunkSpec(size=size, overlap=min(overlap, size - 1), titles=titles)
    plain = Chunker(ChunkSpec(size=size, overlap=spec.overlap), tokenizer, limit=limit)

    document = Document("d", text, {"title": TITLE}, markdown=markdown)
    assert_lawful(document, Chunker(spec, tokenizer, limit=limit), tokenizer, limit, plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word pieces", "byte pairs", "qwen2-tiny"])
@pytest.mark.parametrize("overlap", [0, 20])
@pytest.mark.parametrize("markdown", [False, True])
def test_a_document_of_many_windows_is_cut_as_if_it_were_seen_at_once(
    name: str, markdown: bool, overlap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    paragraphs = [" ".join(f"Word {i * j % 97} of {i}." for j in range(i % 13 + 1)) for i in range(120)]
    text = "\n\n## Part\n".join(paragraphs) + "ab" * 1000
    asked = {"size": 64, "overlap": overlap, "markdown": markdown, "tokenizer": TOKENIZERS[name]()}

    whole = cut(text, **asked)
    monkeypatch.setattr("ragidx.corpora.chunking.chunker._WINDOW_CHARS", 1)

    assert cut(text, **asked) == whole
    assert len(text) > 5 * 2 * 16 * 64


# time


HARD = {
    "prose": "The lease was signed in Bergen. It runs for nine years.\n\n" * 20_000,
    "one word": "abcdefgh" * 125_000,
    "no boundary": "日本語文章" * 40_000,
    "one mark after another": "e" + "\u0301" * 300_000,
    "quotations in quotations": ">" * 300_000,
    "lists in lists": "".join(" " * depth + "- a\n" for depth in range(1000)),
    "one title": "# " + "abc " * 250_000,
    "hashes": "#" * 1_000_000,
    "special tokens": "</s>" * 100_000,
    "decorators": "@a\n" * 300_000,
    "fences below headings": "# a\n```\nb\n```\n" * 30_000,
    "a paragraph that becomes a title": "a\n" * 200_000 + "---\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_time_grows_with_the_length_alone(name: str, markdown: bool) -> None:
    chunker = Chunker(ChunkSpec(titles=True), byte_pairs(), limit=512)

    chunks = list(chunker.chunks(Document("d", HARD[name], {"title": HARD[name]}, markdown=markdown)))

    assert chunks  # 0.1 to 4 s on an idle machine
