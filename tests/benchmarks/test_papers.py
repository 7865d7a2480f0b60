"""The programs of `benchmarks/papers/` on the bundled decoder: what each prints, and a property that has to hold."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"
Tables = list[list[list[str]]]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Tables]:
    """Run one with its options; the cells of the tables that it prints."""

    def call(name: str, *options: object) -> Tables:
        monkeypatch.syspath_prepend(str(FOLDER))
        monkeypatch.setattr(sys, "argv", [f"{name}.py", "--device", "cpu", *map(str, options)])
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        del sys.modules["common"]
        blocks = capsys.readouterr().out.split("\n\n")
        tables = [[line.strip("| ").split(" | ") for line in block.splitlines() if line[:1] == "|"] for block in blocks]
        assert all(set(table[1]) == {"---"} for table in tables if table)
        return [[table[0], *table[2:]] for table in tables if table]

    return call


def _rows(table: list[list[str]], name: int = 0) -> dict[str, list[float]]:
    return {row[name]: [float(cell) for cell in row[name + 1 :]] for row in table[1:]}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_a_program_is_short_and_takes_public_names_alone(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")

    assert len(text.splitlines()) <= 110
    assert re.findall(r"^ *(?:from|import) ragidx(?:\.| import).*", text, re.MULTILINE) == []
    assert set(re.findall(r"\bragidx\.([A-Za-z_]+)\b(?!\")", text)) <= {*ragidx.__all__}


def test_a_probe_of_causal_words_knows_nothing_of_what_follows(program: Callable[..., Tables], tmp_path: Path) -> None:
    (table,) = program("word_probes", "--limit", 200, "--out", tmp_path / "p.svg")

    rows = _rows(table)
    assert list(rows) == ["the word's commonest tag", "classical", "echo", "reba", "llm2vec"]
    assert rows["classical"][1] < rows["the word's commonest tag"][1] + 0.05
    assert min(rows["echo"][1], rows["llm2vec"][1]) > rows["classical"][1] + 0.05
    assert (tmp_path / "p.svg").stat().st_size > 5_000


def test_a_probe_learns_from_a_file_of_either_form(program: Callable[..., Tables], tmp_path: Path) -> None:
    lines = tmp_path / "words.tsv"
    lines.write_text("The\tDET\nmill\tNOUN\n\nIt\tPRON\nfell\tVERB\n\n" * 8)
    records = tmp_path / "words.jsonl"
    records.write_text(
        '{"words": ["The", "mill"], "tags": ["DET", "NOUN"]}\n{"words": ["It", "fell"], "tags": ["PRON", "VERB"]}\n' * 8
    )

    (of_lines,), (of_records,) = (program("word_probes", "--data", file) for file in (lines, records))

    assert of_lines == of_records
    assert [row[1] for row in of_lines[1:]] == ["1.000"] * 5


@pytest.mark.parametrize(
    ("text", "line", "fault", "hint"),
    [
        ("The\tDET\nmill\tNOUN\tx\n", 2, "the row has 3 columns, or an empty one", "give a word, a tab and its tag"),
        ("The\tDET\nmill\n", 2, "the row has 1 columns, or an empty one", "give a word, a tab and its tag"),
        ("The\t\n", 1, "the row has 2 columns, or an empty one", "give a word, a tab and its tag"),
        (
            '{"words": ["The", "mill"], "tags": ["DET"]}\n',
            1,
            "2 words have 1 tags",
            'give each word one: {"words": [...], "tags": [...]}',
        ),
    ],
)
def test_ragged_rows_of_a_probe_are_refused_in_a_line(
    program: Callable[..., Tables], tmp_path: Path, text: str, line: int, fault: str, hint: str
) -> None:
    file = tmp_path / "words.tsv"
    file.write_text(text)

    with pytest.raises(SystemExit) as ended:
        program("word_probes", "--data", file)

    assert ended.value.code == f"Error: {file}:{line}: {fault} hint: {hint}"


def test_a_layer_is_most_like_its_neighbours_and_the_last_like_itself(
    program: Callable[..., Tables], tmp_path: Path
) -> None:
    pairs = tmp_path / "dev.tsv"
    pairs.write_text(
        "score\tsentence1\tsentence2\n5\tA mill.\tThe mill.\n0\tA mill.\tSome rain.\n2\tA mill.\tA house.\n"
    )

    (table,) = program("layers", "--data", pairs, "--out", tmp_path / "p.svg")

    rows = _rows([row for row in table if row[0] != "1"])
    assert table[0] == ["layer", "with the layer before", "with the last", "Spearman, 3 pairs"]
    assert list(rows) == ["2", "3", "4"]
    assert rows["4"][1] == 1 > rows["4"][0] == rows["3"][1] > rows["2"][1]
    assert (tmp_path / "p.svg").stat().st_size > 5_000


def test_a_file_that_holds_no_pairs_is_refused_in_a_line(program: Callable[..., Tables], tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("score\ta\tb\n5\tA mill.\tThe mill.\n")

    with pytest.raises(SystemExit, match=r"^Error: .*dev\.tsv: it is no file of pairs: KeyError\('sentence1'\) hint"):
        program("layers", "--data", tmp_path / "dev.tsv")


def test_of_triples_with_one_beginning_echo_gets_more_right_than_classical(
    program: Callable[..., Tables], tmp_path: Path
) -> None:
    table, examples = program("triples", "--limit", 40, "--out", tmp_path / "p.svg")

    rows = _rows(table)
    assert list(rows) == ["classical, mean", "classical, last", "echo, mean", "llm2vec", "reba", "prompteol"]
    assert rows["classical, mean"][0] < 0.5
    assert rows["echo, mean"][0] > rows["classical, mean"][0]
    assert all(abs(early - late - difference) < 0.0015 for *_, early, late, difference in rows.values())
    assert len(examples) == 7
    assert (tmp_path / "p.svg").stat().st_size > 5_000


def test_the_beginnings_of_sentences_are_alike_where_attention_is_causal_alone(
    program: Callable[..., Tables], tmp_path: Path
) -> None:
    beginnings, by_layer = program("cosines", "--out", tmp_path / "p.svg")

    rows = _rows(beginnings)
    assert rows["classical"] == [1, 1, 0, 0]
    assert all(max(rows[name][:2]) < 1 for name in ("echo", "reba", "llm2vec"))
    assert rows["echo"][2] > 0
    assert list(_rows(by_layer)) == ["1", "2", "3", "4"]
    assert all(least <= mean <= 1 for mean, least, _ in _rows(by_layer).values())
    assert (tmp_path / "p.svg").stat().st_size > 5_000


def test_wordings_of_a_prompt_have_a_spread(program: Callable[..., Tables], tmp_path: Path) -> None:
    (table,) = program("prompts", "--limit", 24, "--wordings", 2, "--out", tmp_path / "p.svg")

    assert [row[:2] for row in table[1:]] == [["classical", "2"], ["echo", "2"], ["prompteol", "2"]]
    for _, _, mean, deviation, worst, best, _ in table[1:]:
        assert float(worst) <= float(mean) <= float(best)
        assert float(deviation) == pytest.approx((float(best) - float(worst)) / 2, abs=0.0011)  # of two
    assert (tmp_path / "p.svg").stat().st_size > 5_000


def test_backward_attention_over_one_copy_with_last_pooling_is_classical(
    program: Callable[..., Tables], tmp_path: Path
) -> None:
    (table,) = program("reba", "--limit", 24, "--copies", 2, "--out", tmp_path / "p.svg")

    rows = {tuple(row[:3]): row[3:] for row in table[1:]}
    one, two, mean = rows["reba", "1", "last"], rows["reba", "2", "last"], rows["reba", "2", "mean"]
    assert len(rows) == 10
    assert one == [rows["classical", "1", "last"][0], "+0.000 (p 1)", "+0.000 (p 1)"]
    assert all(row[1][0] in "+-" and "(p " in row[2] for row in (two, mean))
    assert (tmp_path / "p.svg").stat().st_size > 5_000


def test_training_is_scored_by_step_from_three_starts(program: Callable[..., Tables], tmp_path: Path) -> None:
    for number in range(48):
        (tmp_path / f"{number}.txt").write_text(f"The mill of year {number} stands by the river, and turns. " * 4)
    text = ["--text", tmp_path, "--limit", 40, "--batch", 16]
    (table,) = program("samples", *text, "--every", 1, "--out", tmp_path / "p.svg")

    assert table[0] == ["step", "causal", "both ways", "both ways, after MNTP"]
    assert [row[0] for row in table[1:]] == ["0", "1", "2"]
    assert all(0 < float(cell) <= 1 for row in table[1:] for cell in row[1:])
    assert (tmp_path / "p.svg").stat().st_size > 5_000
