"""Queries made of a corpus: what is taken, what is left, and what is said where nothing can be."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.records import Chunk
from ragidx.pipelines.experiments.evaluate.synthetic import synthetic, taken_out
from ragidx.pipelines.experiments.evaluate.tasks import Judged

from ....raising import message_of

WORDS = [f"{first}{second}{third}" for first in "bdfgk" for second in "aeiou" for third in "lmnrst"]


def _sentence(rng: random.Random, n: int = 8) -> str:
    return " ".join(rng.choices(WORDS, k=n)).capitalize() + "."


def _text(number: int, n_sentences: int = 4) -> str:
    rng = random.Random(number)
    return " ".join(_sentence(rng) for _ in range(n_sentences))


def _whole(texts: Iterable[str], heading: str = "") -> Callable[[], list[Chunk]]:
    """One chunk a document."""
    chunks = [Chunk(f"d{number}", 0, len(text), text, heading) for number, text in enumerate(texts)]
    return lambda: chunks


def _cut(doc_id: str, text: str, spans: Sequence[tuple[int, int]]) -> list[Chunk]:
    return [Chunk(doc_id, start, end, text[start:end]) for start, end in spans]


def _words_of(text: str) -> str:
    words = " ".join(re.findall(r"[^\W_]+", text.casefold()))
    return f" {words} "


def _text_of(made: Judged, name: str, texts: Sequence[str]) -> str:
    (doc_id,) = made.qrels[name]
    return texts[int(doc_id[1:])]


TEXTS = [_text(number) for number in range(40)]


def test_each_query_is_a_sentence_of_one_document_and_is_in_no_chunk_any_more() -> None:
    made = synthetic(_whole(TEXTS))

    assert (made.synthetic, len(made.texts), made.texts.keys()) == ("sentence", 40, made.qrels.keys())
    left = taken_out(made, _whole(TEXTS)())
    for name, query in made.texts.items():
        ((doc_id, relevance),) = made.qrels[name].items()
        text = _text_of(made, name, TEXTS)
        changed = left[f"{doc_id}:0-{len(text)}"]
        assert relevance == 1
        assert query in text
        assert sum(query in other for other in TEXTS) == 1
        assert _words_of(query) not in _words_of(changed.text)
        assert changed.text == " ".join(text.replace(query, "").split())


def test_what_cannot_be_drawn_is_counted() -> None:
    made = synthetic(_whole(TEXTS))

    assert made.notes == ("Of 40 documents 40 have a sentence that can be asked for, not 300.",)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1), size=st.integers(60, 200), overlap=st.integers(0, 50), repeated=st.integers(0, 3)
)
@settings(max_examples=12, deadline=None)
def test_no_part_of_a_query_is_left_in_chunks_that_overlap(seed: int, size: int, overlap: int, repeated: int) -> None:
    rng = random.Random(seed)
    texts, chunks = [], []
    for number in range(60):
        parts = [_sentence(rng) for _ in range(8)]
        parts += rng.choices(parts, k=repeated)
        texts.append(" ".join(rng.sample(parts, len(parts))))
        starts = range(0, len(texts[-1]), size - overlap)
        chunks += _cut(f"d{number}", texts[-1], [(at, min(at + size, len(texts[-1]))) for at in starts])

    try:
        made = synthetic(lambda: chunks, seed=seed)
    except CorpusError:  # borders cut most sentences
        return

    left = taken_out(made, chunks)
    for name, query in made.texts.items():
        (doc_id,) = made.qrels[name]
        text = _text_of(made, name, texts)
        spans = [match.span() for match in re.finditer(re.escape(query), text)]
        for chunk in (chunk for chunk in chunks if chunk.doc_id == doc_id):
            inside = [(start, end) for start, end in spans if start < chunk.end and chunk.start < end]
            assert all(chunk.start <= start and end <= chunk.end for start, end in inside)
            changed = left.get(chunk.id, chunk)
            assert (changed != chunk) == bool(inside)
            assert query not in changed.text
            assert "".join(changed.text.split()) == "".join(chunk.text.replace(query, "").split())


@given(seed=st.integers(0, 2**32 - 1), order=st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_documents(seed: int, order: random.Random) -> None:
    chunks = _whole(TEXTS)()
    other = order.sample(chunks, len(chunks))

    made = synthetic(lambda: chunks, seed=seed, n=25)

    assert made == synthetic(lambda: other, seed=seed, n=25)
    assert len(made.texts) == 25
    assert made.texts != synthetic(lambda: chunks, seed=seed + 1, n=25).texts


def test_the_chunks_are_read_twice() -> None:
    calls, chunks = [], _whole(TEXTS)

    def counted() -> list[Chunk]:
        calls.append(1)
        return chunks()

    synthetic(counted)

    assert len(calls) == 2


def test_every_occurrence_goes_whatever_its_case_and_spaces() -> None:
    once = "The second law of motion says nothing here."
    again = "THE SECOND LAW\nof motion, says nothing here"
    texts = [f"{once} {again}; {once}", *TEXTS]

    made = [synthetic(_whole(texts), seed=seed) for seed in range(3)]

    for name, query in ((name, query) for one in made for name, query in one.texts.items()):
        assert not query.startswith("The second"), name  # of this document nothing would be left


def test_other_occurrences_leave_what_is_around_them() -> None:
    taken = "The second law of motion says nothing here."
    around = "Before that it says"
    texts = [f"{around}: THE SECOND LAW\nof motion says nothing here! {taken} Ok then. So be it. {taken}", *TEXTS]

    made = synthetic(_whole(texts))

    name = next(name for name, judged in made.qrels.items() if "d0" in judged)
    assert made.texts[name] == taken
    assert taken_out(made, _whole(texts)())[f"d0:0-{len(texts[0])}"].text == "Before that it says: Ok then. So be it."


def test_documents_that_another_equals_or_nearly_equals_are_not_drawn() -> None:
    rng = random.Random(1007)
    long = " ".join(_sentence(rng) for _ in range(20))
    nearly = long.replace(long.split()[50], "otherwise")
    texts = [*TEXTS, TEXTS[0], long, nearly]

    made = synthetic(_whole(texts))

    drawn = {int(doc_id[1:]) for judged in made.qrels.values() for doc_id in judged}
    assert drawn == set(range(1, 40))
    assert made.notes == (
        "Not drawn: 4 x document: another document nearly equals it.",
        "Of 43 documents 39 have a sentence that can be asked for, not 300.",
    )


def test_a_document_that_is_a_part_of_another_is_not_drawn() -> None:
    rng = random.Random(1008)
    texts = [*TEXTS, f"{_sentence(rng)} {TEXTS[5]} {' '.join(_sentence(rng) for _ in range(30))}"]

    made = synthetic(_whole(texts))

    drawn = {int(doc_id[1:]) for judged in made.qrels.values() for doc_id in judged}
    assert 5 not in drawn


def test_a_sentence_that_is_in_another_document_is_not_asked_for() -> None:
    shared = "Every one of these files begins with the same eleven words"
    rng = random.Random(1009)
    texts = [f"{shared}. Short one. Another.", *(f"{shared}, and then {_text(90 + number)}" for number in range(2))]
    texts += [f"{_sentence(rng)} {text}" for text in TEXTS]

    made = synthetic(_whole(texts))

    assert not any(query.startswith(shared) for query in made.texts.values())
    assert "Not drawn: 1 x document: its sentence is in another, too." in made.notes


def test_a_sentence_that_all_documents_have_costs_none_of_them() -> None:
    notice = "This page is a part of the manual of the old machine."
    texts = [f"{notice} {_text(number, n_sentences=2)}" for number in range(40)]

    made = synthetic(_whole(texts))

    assert len(made.texts) == 40
    assert notice not in made.texts.values()


@pytest.mark.slow
def test_a_sentence_that_a_piece_of_a_long_document_ends_in_is_seen() -> None:
    inside = synthetic(_whole(TEXTS)).texts["s1"]
    long = "".join(_sentence(random.Random(2000 + n)) + " " for n in range(8_000))
    at = (1 << 18) - len(inside) // 2
    texts = [*TEXTS, f"{long[:at]} {inside} {long[at:]}"]

    made = synthetic(_whole(texts))

    assert inside not in made.texts.values()
    assert len(made.texts) == 41  # another sentence asks for its document


@pytest.mark.parametrize(
    "text",
    [
        "One sentence of six words only. And then another with seven words.",
        "Too short. It is. So is it. And here. No more.",
        "| a | table | of | many | words |\n| b | c | d | e | f |.\n\n# A heading of quite a few words.\n\nOk. So. On.",
        "x = [1, 2, 3, 4, 5, 6, 7]; y = f(x)[1:7] + (1.5 * 2.5) / {0, 9}; z = x[y[1] - 2] ** 3 % 7.\n\nOk. So. On.",
        f"{' '.join(['word'] * 41)}. Ok then. So be it. On it goes.",
        "The text has a heading in front\n\nand has no marks at all behind its lines\n\nas poems and lists have not",
    ],
)
def test_what_is_no_prose_or_too_short_or_long_is_not_asked_for(text: str) -> None:
    made = synthetic(_whole([text, *TEXTS]))

    assert "d0" not in {doc_id for judged in made.qrels.values() for doc_id in judged}


def test_a_chunk_that_would_be_left_empty_keeps_its_sentence() -> None:
    chunks = []
    for number, text in enumerate(TEXTS):
        ends = [match.end() for match in re.finditer(r"\.", text)]
        spans = [(0, ends[2]), (ends[2] + 1, ends[3])]  # the last sentence is alone
        chunks += _cut(f"d{number}", text, spans)

    made = [synthetic(lambda: chunks, seed=seed) for seed in range(4)]

    assert all(chunk.start == 0 for one in made for chunk in taken_out(one, chunks).values())


def test_two_characters_of_a_script_without_spaces_count_as_a_word() -> None:
    rng = random.Random(3)
    letters = [chr(code) for code in range(0x4E00, 0x4E40)]
    lengths = (11, 12, 80, 81)
    texts = ["".join("".join(rng.choices(letters, k=n)) + "。" for n in lengths) for _ in range(40)]

    made = synthetic(_whole(texts))

    assert {len(query) for query in made.texts.values()} == {13, 81}
    left = taken_out(made, _whole(texts)())
    for name, query in made.texts.items():
        (doc_id,) = made.qrels[name]
        text = _text_of(made, name, texts)
        assert left[f"{doc_id}:0-{len(text)}"].text == text.replace(query, "")


def test_a_title_is_the_outermost_heading_and_goes_from_text_and_headings() -> None:
    chunks = []
    for number, body in enumerate(TEXTS):
        title = f"The tale of {WORDS[number]} and {WORDS[-number]}"
        text = f"# {title}\n\n{body}\n\n## Part\n\nMore of {title}, yes."
        middle = text.index("## Part")
        for start, end, heading in ((0, middle - 2, title), (middle, len(text), f"{title} > Part")):
            chunks.append(Chunk(f"d{number}", start, end, text[start:end], heading))

    made = synthetic(lambda: chunks, kind="title")
    left = taken_out(made, chunks)

    assert len(made.texts) == 40
    for name, query in made.texts.items():
        (doc_id,) = made.qrels[name]
        first, last = (left[chunk.id] for chunk in chunks if chunk.doc_id == doc_id)
        body = TEXTS[int(doc_id[1:])]
        assert query.startswith("The tale of")
        assert (first.heading, first.text) == ("", f"# \n\n{body}")
        assert (last.heading, last.text) == ("Part", "## Part\n\nMore of yes.")


def test_without_headings_the_first_sentence_is_the_title() -> None:
    made = synthetic(_whole(TEXTS), kind="title")
    left = taken_out(made, _whole(TEXTS)())

    assert len(made.texts) == 40
    for name, query in made.texts.items():
        (doc_id,) = made.qrels[name]
        text = _text_of(made, name, TEXTS)
        assert text == f"{query} {left[f'{doc_id}:0-{len(text)}'].text}"


def test_a_corpus_that_is_too_small_is_refused() -> None:
    assert message_of(CorpusError, lambda: synthetic(_whole(TEXTS[:19]))) == (
        "19 of 19 documents can be asked for by a sentence of their own (19 have three sentences and one of 6 to 40 "
        "words that can be taken out): nothing can be concluded from fewer than 20\n"
        "  hint: give a larger corpus, or queries and judgements"
    )


def test_titles_that_are_too_few_are_refused() -> None:
    chunks = _whole(["One. Two words. And the rest of it."] * 30)

    assert message_of(CorpusError, lambda: synthetic(chunks, kind="title")) == (
        "0 of 30 documents can be asked for by a title of their own (0 have a title of 3 to 40 words that can be taken "
        "out): nothing can be concluded from fewer than 20\n"
        "  hint: give a larger corpus, or queries and judgements"
    )


def test_a_corpus_that_is_too_uniform_is_refused() -> None:
    shared = [f"{TEXTS[20]} {text}" for text in TEXTS[:10]]

    assert message_of(CorpusError, lambda: synthetic(_whole([*TEXTS[:18], *TEXTS[:18], *shared]))) == (
        "0 of 46 documents can be asked for by a sentence of their own (36 x another document nearly equals it; 10 x "
        "its sentence is in another, too): nothing can be concluded from fewer than 20\n"
        "  hint: give a larger corpus, or queries and judgements"
    )


def test_vectors_without_texts_cannot_be_asked_for() -> None:
    chunks = [Chunk(f"d{number}", 0, 400, "") for number in range(40)]

    assert message_of(CorpusError, lambda: synthetic(lambda: chunks)).startswith(
        "0 of 40 documents can be asked for by a sentence of their own (0 have three sentences"
    )
