"""The table of hits: scores, passages, folded places, fields; and notes on what was not found, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import ragidx
from ragidx.corpora.records import FILE_FIELDS
from ragidx.pipelines.cli import passages
from ragidx.retriever.hit import DocumentSpan, Hit
from ragidx.retriever.passages import nearest, stem_of

from ..conftest import Done
from .conftest import QUESTION, hits_of

Run = Callable[..., Done]

CODE = "def mill(river):\n    if river:\n        return 1\n\n    return {\n        'a': 2,\n    }"
TABLE = "| name  | year |\n|-------|------|\n| mill  | 1790 |\n| tower | 1958 |"
UNKNOWN = "No word of the question is in the index: only the vectors count.\n"


def hit(text: str, **more: object) -> Hit:
    fields = {"rank": 1, "score": 1.25, "text": text, "doc_id": "a.txt", "chunk_id": "a.txt:0-9", "start": 0, "end": 9}
    return Hit(**(fields | more))  # type: ignore[arg-type]


@pytest.fixture
def corpus(folder: Path) -> Path:
    """One document of eight chunks, and five equal ones; `long.txt` is one chunk of many sentences."""
    (folder / "corpus").mkdir()
    parts = [f"Part {n} of the story tells of river number {n * n}." for n in range(8)]
    (folder / "corpus/story.md").write_text("---\nyear: 1790\n---\n" + "\n\n".join(parts) + "\n")
    for n in range(5):
        (folder / f"corpus/same{n}.txt").write_text("The same notice hangs in the house.")
    sentences = [f"Sentence {n} is about nothing at all." for n in range(20)]
    sentences[12] = "A giraffe looks over the wall."
    (folder / "corpus/long.txt").write_text(" ".join(sentences))
    return folder / "corpus"


@pytest.fixture
def built(corpus: Path, run: Run) -> Path:
    assert run("build", "corpus", "--chunk-size", "256").status == 0
    return corpus


@pytest.fixture
def parts(corpus: Path, run: Run) -> Path:
    """The story in eight chunks, alone."""
    assert run("build", "corpus/story.md", "--chunk-size", "16").status == 0
    return corpus


def test_a_hit_shows_its_score_and_those_of_both_parts(capsys: pytest.CaptureFixture[str]) -> None:
    passages.show_hits([hit("A mill.", dense=-0.5, bm25=12.345, line=7, heading="Top")], "mill")

    assert capsys.readouterr().out == (
        " #  score  cosine   bm25  source\n 1  1.250  -0.500  12.35  a.txt:7  › Top\n           A mill.\n"
    )


def test_a_hit_of_one_part_shows_its_score(capsys: pytest.CaptureFixture[str]) -> None:
    second = hit("A river.", rank=2, score=1.0, bm25=1.0, start=3_000, end=3_009, chunk_id="a.txt:3000-3009")
    passages.show_hits([hit("A mill.", bm25=1.25), second], "mill")

    assert capsys.readouterr().out == (
        " #  score  source\n 1  1.250  a.txt\n           A mill.\n 2  1.000  a.txt  3,000-3,009\n           A river.\n"
    )


@pytest.mark.parametrize(
    ("scores", "head", "line"),
    [
        ({"dense": 0.25}, " #  score  cosine  source", " 1  1.250   0.250  a.txt"),  # hybrid, no known word: a z
        ({"dense": 1.25}, " #  score  source", " 1  1.250  a.txt"),  # dense
        ({"bm25": 7.5}, " #  score   bm25  source", " 1  1.250   7.50  a.txt"),  # lexical, reranked
    ],
)
def test_a_part_whose_value_is_not_the_score_has_a_column(
    scores: dict[str, float], head: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    passages.show_hits([hit("A mill.", **scores)], "mill")

    assert capsys.readouterr().out.splitlines()[:2] == [head, line]


@pytest.mark.parametrize(
    ("name", "place"), [("a.pdf", "#page=4"), ("b.zip/a.ipynb", "#cell=4"), ("a.ipynb.gz", "#cell=4")]
)
def test_a_page_or_cell_stands_in_the_place_of_a_line(
    name: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    passages.show_hits([hit("A mill.", doc_id=name, chunk_id=f"{name}:0-9", page=4, line=90)], "mill")

    assert capsys.readouterr().out.splitlines()[1] == f" 1  1.250  {name}{place}"


def test_a_hit_without_a_text_has_no_passage(capsys: pytest.CaptureFixture[str]) -> None:
    passages.show_hits([hit("")], "mill")

    assert capsys.readouterr().out == " #  score  source\n 1  1.250  a.txt\n"


@pytest.mark.parametrize(
    ("places", "line"),
    [
        (["b"], "also in b"),
        (["b", "c", "b"], "also in b, c"),
        (["b", "c", "d"], "also in b, c and 1 more document"),
        (["b", "c", "d", "e"], "also in b, c and 2 more documents"),
        (["a.txt", "b"], "also in b"),
        (["a.txt"], "also 1 time more in this document"),
        (["a.txt", "a.txt"], "also 2 times more in this document"),
    ],
)
def test_places_of_equal_passages_are_named(places: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    passages.show_hits([hit("A mill.", also=tuple(DocumentSpan(name, 0, 9) for name in places))], "mill")

    assert capsys.readouterr().out.splitlines()[-1] == f"           {line}"


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_equal_documents_are_one_hit_and_each_is_one_where_that_is_asked_for(run: Run) -> None:
    folded = run("query", "the same notice", "-k", "1")
    whole = run("query", "the same notice", "-k", "5", "--no-fold", "--json")

    assert (folded.status, folded.err) == (0, "")
    assert folded.out.splitlines()[1].endswith("  same0.txt:1")
    assert folded.out.splitlines()[-1] == "           also in same1.txt, same2.txt and 2 more documents"
    assert [found["doc_id"] for found in hits_of(whole)] == [f"same{n}.txt" for n in range(5)]


@pytest.mark.slow
@pytest.mark.usefixtures("parts")
def test_a_document_has_three_hits_in_the_table_and_any_number_for_machines(run: Run) -> None:
    table = run("query", "part of the story", "-k", "6", "--no-fold")
    one = run("query", "part of the story", "-k", "6", "--no-fold", "--per-document", "1")
    machines = hits_of(run("query", "part of the story", "-k", "6", "--json"))

    assert len(re.findall(r"^ \d  ", table.out, re.MULTILINE)) == 3
    assert len(re.findall(r"^ \d  ", one.out, re.MULTILINE)) == 1
    assert len(machines) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_fields_of_the_metadata_are_shown_where_they_are_asked_for(run: Run) -> None:
    shown = run("query", "the story of the river", "-k", "2", "--show", " year ,")
    unknown = run("query", "the story", "--show", "yaer")

    lines = shown.out.splitlines()
    assert lines[1].endswith("story.md:4")
    assert lines[2] == "           year: 1790"
    assert shown.out.count("year:") == 1  # the other document has none
    assert (unknown.status, unknown.out) == (2, "")
    files = ", ".join(sorted(FILE_FIELDS))
    assert unknown.err.splitlines()[-1] == f"Error: --show: the index has no field 'yaer'; known: {files}, year"


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_a_long_passage_is_shown_in_part_or_whole(run: Run) -> None:
    part = run("query", "giraffe", "-k", "1").out
    whole = run("query", "giraffe", "-k", "1", "--full").out

    joined, full = (" ".join(line.strip() for line in out.splitlines()[2:]) for out in (part, whole))
    assert joined.startswith("… Sentence ")
    assert "A giraffe looks over the" in joined
    assert "Sentence 0" not in joined
    assert full == Path("corpus/long.txt").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("full", [(), ("--full",)])
def test_context_is_shown_and_a_field_for_machines(run: Run, full: tuple[str, ...]) -> None:
    asked = ("query", "river number 9", "-k", "1", "--context", "1")
    (found,) = hits_of(run(*asked, "--json"))
    shown = run(*asked, *full).out.splitlines()[2:]

    texts = Path("corpus/story.md").read_text().split("---\n")[2].split("\n\n")
    assert found["text"] == texts[3]
    assert found["context"] == "\n".join(texts[2:5])
    assert [line.strip() for line in shown] == texts[2:5]
    assert found["line"] == 10


# words of the question


def bold(text: str, query: str, language: str | None) -> list[str]:
    """The words of a text that are in bold for a question, on a terminal."""
    with click.Context(click.Command("query"), color=True).scope(), pytest.MonkeyPatch.context() as patch:
        shown: list[str] = []
        patch.setattr(click, "echo", lambda line="", **_: shown.append(line))
        passages.show_hits([hit(text)], query, stem_of(language))
    return re.findall(r"\x1b\[1m(.+?)\x1b\[0m", "\n".join(shown[2:]))


def test_the_words_of_the_question_are_bold_by_their_stems() -> None:
    text = "Signing leases: he signed a lease, and the Leased mills run."

    assert bold(text, "who signs the lease of a mill?", "english") == [
        "Signing",
        "leases",
        "signed",
        "lease",
        "Leased",
        "mills",
    ]
    assert bold(text, "who signs the lease of a mill?", None) == ["leases", "lease", "mills"]


@pytest.mark.parametrize("language", ["german", None])
def test_words_with_accents_and_soft_hyphens_are_bold(language: str | None) -> None:
    assert bold("Das Unter\u00adnehmen, ein Résumé", "unternehmen resume", language) == ["Unter\u00adnehmen", "Résumé"]


@pytest.mark.parametrize("language", ["english", None])
def test_common_words_of_the_question_are_not_bold(language: str | None) -> None:
    text = "This was why it does what it has: a mill is what it is."

    assert bold(text, "why was this what it is, and what does a mill have?", language) == ["mill"]


@pytest.mark.parametrize("text", [CODE, TABLE, "one\ntwo\nthree", "- a point\n- another point\n\n1. first"])
def test_code_tables_and_short_lines_stay_as_they_are(text: str) -> None:
    assert nearest(text, "mill") == (text, 0)


def test_lines_of_prose_are_joined_to_paragraphs() -> None:
    long = "The old mill by the river was leased to a man from the hills, who ran"

    assert nearest(f"{long}\nit for nine years.\n\nAfter that it stood empty.", "")[0] == (
        f"{long} it for nine years.\n\nAfter that it stood empty."
    )
    assert nearest(f"{long}\n- a point", "")[0] == f"{long}\n- a point"
    assert nearest(f"    {long}\nnext", "")[0] == f"    {long}\nnext"


def test_tabs_and_runs_of_empty_lines_are_narrow_and_controls_are_gone() -> None:
    assert nearest("a\tb\n\n\n\nc\x1b[31m\n\n", "")[0] == "a   b\n\nc [31m"


def test_the_heading_that_stands_beside_the_source_is_not_shown_again() -> None:
    assert nearest("# The mill\n\n## Old\n\nIt stands.", "mill")[0] == "It stands."


@pytest.mark.parametrize("gap", ["", " ", ". ", "\n"])  # one word, one sentence, many, lines
@pytest.mark.parametrize("after", ["", ". End" * 9, ". End" * 200])
def test_a_word_of_the_question_is_whole_inside_the_passage(gap: str, after: str) -> None:
    for before in (*range(280, 330), 700):  # characters, across the end of the first window
        text = f"{(('y' + gap) * before)[:before]} PAY_DECLINED_0x3F{after}"

        shown = nearest(text, "PAY_DECLINED_0x3F")[0]

        assert "PAY_DECLINED_0x3F" in shown, before
        assert len(shown) <= 320 + len("…  …"), before


def test_a_line_longer_than_the_terminal_is_wrapped_and_others_are_not() -> None:
    assert passages.wrapped("one two three\n    x = 1", 8) == ["one two", "three", "    x =", "1"]
    assert passages.wrapped("one two\n\n  x = 1", 8) == ["one two", "", "  x = 1"]


# notes


@pytest.mark.slow
@pytest.mark.usefixtures("mini_index")
@pytest.mark.parametrize(
    ("options", "note"),
    [
        (  # nothing is encoded for a note
            ("--mode", "lexical", "--model", "nowhere"),
            "No chunk has a word of the question.\nTry --mode hybrid or other words.\n",
        ),
        (
            ("--min-score", "0.99"),
            f"{UNKNOWN}No chunk matches --min-score.\nThe nearest chunk without that: {{nearest}}.\n"
            "Try a lower --min-score.\n",
        ),
        (
            ("--min-z", "90"),
            f"{UNKNOWN}No chunk matches --min-z.\nThe nearest chunk without that: {{nearest}}, score {{score}}.\n"
            "Try a lower --min-z.\n",
        ),
        (
            ("--min-z", "90", "--where", "year < 0"),
            f"{UNKNOWN}No chunk matches --where and --min-z.\n"
            "The nearest chunk without that: {nearest}, score {score}.\n"
            "Try another condition (`ragidx info` lists the fields) or a lower --min-z.\n",
        ),
    ],
    ids=str,
)
def test_where_nothing_is_found_the_nearest_chunk_and_a_way_are_named(
    run: Run, options: tuple[str, ...], note: str
) -> None:
    best = hits_of(run("query", "zebra", "-k", "1", "--json"))[0]

    done = run("query", "zebra", *options)

    nearest = f"{best['doc_id']}, cosine {best['dense']:.3f}"
    assert done == (0, "", note.format(nearest=nearest, score=f"{best['score']:.3f}"))


@pytest.mark.slow
@pytest.mark.usefixtures("mini_index")
def test_the_nearest_chunk_is_that_of_the_greatest_cosine_where_cosines_were_too_small(run: Run) -> None:
    best = hits_of(run("query", "insects of a house", "-k", "1", "--mode", "dense", "--json"))[0]

    done = run("query", "insects of a house", "--min-score", "0.9")

    assert f"The nearest chunk without that: {best['doc_id']}, cosine {best['dense']:.3f}.\n" in done.err


@pytest.mark.slow
@pytest.mark.usefixtures("mini_index")
def test_a_question_without_a_known_word_is_answered_by_the_vectors_alone(run: Run) -> None:
    done = run("query", "zebra", "-k", "2")

    assert (done.status, done.err) == (0, UNKNOWN)
    assert done.out.startswith(" #  score  cosine  source\n")


@pytest.mark.usefixtures("mini_index")
def test_fewer_chunks_with_a_word_than_were_asked_for_are_counted(run: Run) -> None:
    done = run("query", "lease", "--mode", "lexical")

    assert done.err == "1 hit, 10 were requested: no other chunk has a word of the question.\n"


@pytest.mark.slow
@pytest.mark.usefixtures("parts")
def test_chunks_left_out_by_the_limit_of_a_document_are_not_said_to_be_missing(run: Run) -> None:
    done = run("query", "part of the story", "--no-fold")

    assert len(re.findall(r"^ \d  ", done.out, re.MULTILINE)) == 3
    assert done.err == "3 hits, 10 were requested: a document has at most 3 (--per-document).\n"


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_chunks_that_were_folded_are_not_said_to_be_missing(run: Run) -> None:
    done = run("query", "notice", "--mode", "lexical")

    assert len(re.findall(r"^ \d  ", done.out, re.MULTILINE)) == 1
    assert done.err == "1 hit, 10 were requested: 4 chunks with the same text folded.\n"


@pytest.mark.slow
def test_an_index_without_words_is_searched_by_vectors_and_says_so(run: Run, folder: Path) -> None:
    (folder / "a.txt").write_text("The mill.")
    run("build", "a.txt", "--no-lexical")

    chosen = run("query", "mill", "-k", "1")

    assert (chosen.status, chosen.err) == (0, "")  # it was built so


@pytest.mark.usefixtures("mini_index")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--per-document", "2"), "--per-document and --run exclude each other: a run lists documents, not passages"),
        (("--no-fold",), "--no-fold and --run exclude each other: a run lists documents, not passages"),
        (("--mmr", "0.5"), "--mmr and --run exclude each other: a run lists documents, not passages"),
        (("--context", "1"), "--context and --run exclude each other: a run lists documents, not passages"),
        (("--full",), "--full is for the table: JSON has whole passages and all fields"),
        (("--show", "year"), "--show is for the table: JSON has whole passages and all fields"),
    ],
)
def test_a_run_lists_documents_not_passages(run: Run, options: tuple[str, ...], message: str) -> None:
    Path("queries.jsonl").write_text('{"_id": "q", "text": "dancing bees"}\n')

    done = run("query", "--queries", "queries.jsonl", "--run", "run.trec", *options)

    assert (done.status, done.out, done.err.splitlines()[-1]) == (2, "", f"Error: {message}")
    assert not Path("run.trec").exists()


@pytest.mark.usefixtures("mini_index")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mode", "lexcal"), "--mode: unknown mode 'lexcal'; did you mean 'lexical'?"),
        (("--fusion", "rrf", "--min-z", "1"), "--min-z: rrf gives places, no sums of z-scores"),
    ],
)
def test_an_option_that_is_wrong_is_named_as_it_was_typed(run: Run, options: tuple[str, ...], message: str) -> None:
    done = run("query", QUESTION, *options)

    assert (done.status, done.out, done.err.splitlines()[0]) == (2, "", f"Error: {message}")


@pytest.mark.usefixtures("mini_index")
def test_a_run_is_ranked_as_the_options_say(run: Run) -> None:
    Path("queries.jsonl").write_text('{"_id": "q", "text": "lease bees"}\n')

    done = run("query", "--queries", "queries.jsonl", "--run", "-", "--mode", "lexical")
    lines = run("query", "--queries", "queries.jsonl", "--mode", "lexical").out.splitlines()

    assert sorted(line.split()[2] for line in done.out.splitlines()) == ["facts.jsonl#bees", "lease.txt"]
    assert [found["doc_id"] for found in json.loads(lines[0])["hits"]] == [
        line.split()[2] for line in done.out.splitlines()
    ]


def test_a_condition_whose_chunks_have_no_word_of_the_question_is_not_said_to_match_none(
    run: Run, folder: Path
) -> None:
    with ragidx.Index.create(folder / "own") as index:
        index.add([ragidx.Document("a", "A zebra.", {"n": 1}), ragidx.Document("b", "A mill.", {"n": 2})])

    done = run("query", "zebra", "--index", "own", "--mode", "lexical", "--where", "n == 2")

    assert done.err == (
        "No chunk matches --where and has a word of the question.\n"
        "The nearest chunk without that: a.\n"
        "Try another condition (`ragidx info` lists the fields).\n"
    )
