"""A static model is trained from texts and a teacher's vectors: its folder, what it learnt, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, ModelError, SpecError
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.pipelines.experiments.train.static_models import whitening
from ragidx.pipelines.experiments.train.teacher import read_teacher

from ....raising import message_of

WORDS = ["bee", "wasp", "ant", "moth", "fly", "beetle", "river", "lake", "sea", "delta", "canal", "harbour"]
"""Six each of two subjects."""


def texts(n: int) -> list[str]:
    drawn = np.random.default_rng(0)
    return [" ".join(drawn.choice(WORDS[6 * (number % 2) :][:6], 6)) + f" {number}" for number in range(n)]


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """The vectors that mini has of 1,200 texts, in the files of a teacher; `text/` has the texts."""
    return write_teacher(tmp_path, texts(1_200))


def write_teacher(folder: Path, written: list[str], **changed: Any) -> Path:
    (folder / "text").mkdir()
    lines = [json.dumps({"id": f"d{number}", "text": f"{text}\n\nmore"}) for number, text in enumerate(written)]
    (folder / "text" / "documents.jsonl").write_text("\n".join(lines[:-100]))
    (folder / "text" / "pairs.jsonl").write_text("\n".join(json.dumps({"query": text}) for text in written[-100:]))
    n = len(written) - 100
    rows = {
        "file": ["documents.jsonl"] * n + ["pairs.jsonl"] * 100,
        "id": [f"d{number}" for number in range(n)] + [None] * 100,
        "start": [0] * n + [None] * 100,
        "end": [*map(len, written[:n])] + [None] * 100,
        "row": [None] * n + [*range(100)],
    }
    (folder / "teacher").mkdir()
    pq.write_table(pa.table(rows | changed), folder / "teacher" / "rows.parquet")
    vectors = ragidx.load_embedder("mini", filter="none").embed_document(written)
    np.save(folder / "teacher" / "vectors.i8.npy", np.rint(vectors * 127).astype(np.int8))
    return folder / "teacher"


def test_the_texts_of_a_teacher_are_those_that_its_rows_name(teacher: Path) -> None:
    found, vectors = read_teacher(teacher, teacher.parent / "text")

    assert found == texts(1_200)
    assert vectors.shape == (1_200, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_model_without_layers_learns_the_vectors_of_its_teacher(teacher: Path, tmp_path: Path) -> None:
    stages = list[str]()
    report = ragidx.train.mini(
        tmp_path / "text",
        teacher="mini",
        vectors=teacher,
        out=tmp_path / "own",
        dim=64,
        stored=32,
        epochs=3,
        cache=None,
        on_progress=lambda stage: stages.append(stage.name),
    )

    assert (report.n_texts, report.n_held_out, report.dim, report.stored) == (1_080, 120, 64, 32)
    assert report.cosine > 0.5
    assert len(report.losses) == 3
    assert report.losses[-1] < report.losses[0]
    assert stages[0] == "reading texts and their vectors"
    assert stages[-1] == "writing the folder"
    own = ragidx.load_encoder(str(tmp_path / "own"))
    assert isinstance(own, StaticEncoder)
    assert own.hidden == 64
    (tmp_path / "docs").mkdir()
    for number, text in enumerate(texts(12)):
        (tmp_path / "docs" / f"{number}.txt").write_text(text)
    index = ragidx.build(tmp_path / "docs", tmp_path / "index", model=str(tmp_path / "own"))
    assert index.info().dim == 32
    assert {int(hit.doc_id.removesuffix(".txt")) % 2 for hit in index.search("river sea", 5, mode="dense")} == {1}
    assert index.spec.filter == ragidx.FilterSpec("truncation", dim=32)


def test_the_teacher_encodes_the_texts_where_it_has_not(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts(1_000)))
    made: Callable[..., Any] = lambda out: ragidx.train.mini(  # noqa: E731
        tmp_path / "docs.jsonl", teacher="mini", out=tmp_path / out, pairs=0, epochs=1, cache=tmp_path / "cache"
    )

    first = made("first")
    assert (first.n_texts, first.n_pairs, first.teacher) == (900, 0, "mini")
    assert made("second").losses == first.losses
    for name in ("model.safetensors", "tokenizer.json", "preset.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_a_table_of_a_model_encodes_the_questions_of_its_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    for number, text in enumerate(texts(1_100)[:40]):
        Path(f"docs/{number}.txt").write_text(text)
    Path("more.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts(1_100)))
    stages = list[str]()

    report = ragidx.train.questions(
        "mini-decoder", text="more.jsonl", limit=1_050, cache=None, on_progress=lambda stage: stages.append(stage.name)
    )

    assert (report.folder, report.n_texts, report.dim) == ("questions.safetensors", 945, 256)
    assert report.cosine > 0.8  # the model is a sum of rows, too
    assert stages[:2] == ["reading more.jsonl", "encoding, 0 of 1,050"]
    index = ragidx.build("docs", "index", model="mini-decoder", questions="questions.safetensors")
    assert (index.spec.questions, index.generation) == ("table", 2)
    assert index.report is not None
    assert index.report.generation == 2
    by_model = ragidx.Index("index", questions="model").searcher.encode(["river sea", "bee"])
    cosines = (index.searcher.encode(["river sea", "bee"]) * by_model).sum(axis=1)
    assert cosines.min() > 0.5
    assert index.build().generation == 2  # the table stays
    assert index.build(questions="questions.safetensors").generation == 3
    for call, message in (
        (
            lambda: ragidx.build("docs", "other", questions="questions.safetensors"),
            "questions.safetensors: the table was trained on vectors of another model or method\n"
            "  hint: train one on these: `ragidx train questions MODEL`, with the options of the build",
        ),
        (
            lambda: ragidx.build("docs", "none", questions="more.jsonl"),
            "more.jsonl: the file holds no table of questions\n"
            "  hint: name a file that `ragidx train questions MODEL` wrote",
        ),
        (
            lambda: ragidx.build("docs", "none", questions="no.file"),
            "no.file: the file of questions cannot be read\n"
            "  hint: name a file that `ragidx train questions MODEL` wrote",
        ),
    ):
        assert message_of(SpecError, call) == message
    assert not Path("none").exists()
    assert not Path("other").exists()


def test_whitening_gives_directions_of_falling_deviation_to_the_rest_of_the_power() -> None:
    drawn = np.random.default_rng(2)
    rows = (drawn.standard_normal((4_000, 5)) * [1, 4, 2, 8, 0.5]).astype(np.float32)

    for power, deviations in ((0, [8, 4, 2, 1, 0.5]), (0.5, [8, 4, 2, 1, 0.5]), (1, [1] * 5)):
        made = (rows @ whitening(rows, power)).std(axis=0)
        np.testing.assert_allclose(made, np.array(deviations) ** (1 - power if power else 1), rtol=0.1)


def test_what_cannot_be_trained_is_refused_before_anything_is_encoded(teacher: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    (tmp_path / "full").mkdir()
    for options, message in (
        ({"epochs": 0}, "`epochs`: epochs=0 is out of range\n  hint: give 1 or more"),
        ({"pairs": -1}, "`pairs`: pairs=-1 is out of range\n  hint: give 0 or more"),
        ({"power": 1.5}, "`power`: power=1.5 is out of range\n  hint: give from 0 to 1"),
        ({"dim": 400}, "`dim`: dim=400 is wider than 384\n  hint: give at most 384"),
        ({"dim": 64, "stored": 65}, "`stored`: stored=65 is wider than 64\n  hint: give at most 64"),
        (
            {"out": tmp_path / "full"},
            f"{tmp_path / 'full'}: the folder is there already\n  hint: name another with `out`, or remove it",
        ),
    ):
        asked: dict[str, Any] = {"teacher": "mini", "vectors": teacher, "out": tmp_path / "new", "cache": None}
        said = message_of(SpecError, lambda asked=asked | options: ragidx.train.mini(text, **asked))
        assert said == message
    other = {"teacher": "mini-decoder", "vectors": teacher, "out": tmp_path / "new"}
    said = message_of(SpecError, lambda: ragidx.train.mini(text, **other))
    assert said == (
        f"{teacher}: the vectors are 384 wide, those of the teacher 256\n"
        "  hint: name the model that made them with `teacher`"
    )
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.txt").write_text("bees")
    said = message_of(
        CorpusError, lambda: ragidx.train.mini(tmp_path / "few", teacher="mini", out=tmp_path / "new", cache=None)
    )
    assert said == f"{tmp_path / 'few'}: 1 texts teach nothing\n  hint: give 1,000 or more"
    assert not (tmp_path / "new").exists()


def test_faults_of_a_teachers_files_are_named(tmp_path: Path) -> None:
    folder = write_teacher(tmp_path, texts(1_200))
    text, rows, vectors = tmp_path / "text", folder / "rows.parquet", folder / "vectors.i8.npy"

    def said() -> str:
        return message_of(CorpusError, lambda: read_teacher(folder, text))

    numbers = np.load(vectors)
    np.save(vectors, numbers[:5])
    assert said() == (
        f"{folder}: vectors.i8.npy holds int8 (5, 384), for 1,200 rows\n  hint: take both files of one teacher"
    )
    np.save(vectors, np.concatenate([numbers[:7], 0 * numbers[:1], numbers[8:]]))
    assert said() == (f"{vectors}: the vector of row 7 is zero\n  hint: leave rows without a vector out of both files")
    np.save(vectors, numbers)
    (text / "pairs.jsonl").write_text('{"query": "one"}')
    assert said() == (
        f"{text / 'pairs.jsonl'}: a row's text is not there: IndexError list index out of range\n"
        "  hint: take the texts that the teacher read"
    )
    (text / "pairs.jsonl").unlink()
    assert said() == (
        f"{text / 'pairs.jsonl'}: no such file\n"
        "  hint: name the folder that the paths in the teacher's rows begin in with `text`"
    )
    rows.write_text("none")
    assert said() == (
        f"{folder}: the teacher's files cannot be read\n"
        "  hint: the folder holds rows.parquet with file, id, start, end, row, and vectors.i8.npy"
    )


def test_a_tokenizer_that_puts_nothing_around_a_text_is_read_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    for path in Path(ragidx.load_encoder("mini").files.folder).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    written = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(written | {"post_processor": None}))

    bare, mini = (ragidx.load_encoder(name) for name in (str(folder), "mini"))

    assert bare.rendered(["a river"], None)[0].ids == mini.rendered(["a river"], None)[0].ids[1:-1]
    assert (bare.encode_document(["a river"]) == mini.encode_document(["a river"])).all()


def test_the_tokenizer_of_a_model_has_to_be_known(tmp_path: Path) -> None:
    said = message_of(
        ModelError,
        lambda: ragidx.train.questions("openai:embed", text=tmp_path, endpoint="http://127.0.0.1:9/v1", cache=None),
    )
    assert said == (
        "openai:embed: a table is made of tokens, and the tokenizer of the endpoint's model is not known\n"
        "  hint: name a model that is here"
    )


def test_a_damaged_table_is_an_error_of_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in Path(ragidx.load_encoder("mini").files.folder).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "model.safetensors").write_bytes(b"none")

    assert message_of(ModelError, lambda: ragidx.load_encoder(str(folder))) == (
        f"{folder / 'model.safetensors'}: '{folder}' is a table of tokens, and its file cannot be read\n"
        "  hint: copy or train it again: `ragidx train mini`"
    )


def test_a_file_of_something_else_is_no_place_for_a_table_of_questions(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")

    said = message_of(SpecError, lambda: ragidx.train.questions("mini-decoder", text=tmp_path, out=notes))

    assert said == f"{notes}: the file is no table of questions\n  hint: name another"
    assert notes.read_text() == "mine"
