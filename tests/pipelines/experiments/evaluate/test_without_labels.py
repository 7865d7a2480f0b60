"""An evaluation on queries that are made of the corpus, from a corpus and from an index."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx import Grid, Questions
from ragidx.corpora.errors import CorpusError
from ragidx.corpora.headings import SEPARATOR
from ragidx.corpora.records import Chunk
from ragidx.pipelines.cli.demo import sample_corpus
from ragidx.pipelines.experiments.evaluate.sources.source import IndexSource
from ragidx.pipelines.experiments.evaluate.synthetic import synthetic, taken_out

from ....measuring import evaluated
from ....raising import message_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "sample"
    ragidx.build(sample_corpus(), path, filter="none")
    return path


def _content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_an_index_is_measured_on_its_own_sentences_and_stays_as_it_is(index: Path) -> None:
    before = _content(index)

    (task,) = ragidx.evaluate(
        index, grid=Grid(filter="truncation", tau=[1, 16]), questions=Questions.made(seed=3)
    ).tasks

    assert _content(index) == before
    assert task.synthetic == "sentence"
    assert len(task.query_ids) > 80
    means = {row.name: row.means["ndcg@10"] for row in task.rows}
    assert means["dim=384 dense"] > means["dim=24 dense"] + 0.1
    assert max(means.values()) < 1


def test_the_same_seed_gives_the_same_values(index: Path) -> None:
    options = {"without_labels": True, "filter": "truncation", "tau": 2, "mode": "dense"}

    values = [evaluated(index, seed=seed, **options).tasks[0].values["ndcg@10"] for seed in (1, 1, 2)]

    np.testing.assert_array_equal(values[0], values[1])
    assert values[0].shape != values[2].shape or (values[0] != values[2]).any()


def test_changed_chunks_alone_have_other_vectors_and_those_of_their_text(index: Path) -> None:
    source = IndexSource(index, {})
    everything = np.arange(source.n_rows)
    before, chunks = source.rows(everything), list(source.chunks())
    changed = taken_out(synthetic(source.chunks), chunks)

    source.change(changed)

    after, now = source.rows(everything), list(source.chunks())
    differ = [row for row, chunk in enumerate(chunks) if chunk.id in changed]
    assert [row for row in everything if now[row] != chunks[row]] == differ
    same = np.setdiff1d(everything, differ)
    np.testing.assert_array_equal(after[same], before[same])
    assert (after[differ] != before[differ]).any(axis=1).all()
    titles = {row: now[row].heading.partition(SEPARATOR)[0] for row in differ if not now[row].bare}
    texts = [f"{titles[row]}\n\n{now[row].text}" if titles.get(row) else now[row].text for row in differ]
    embedder = ragidx.load_embedder("mini", filter="none")
    np.testing.assert_allclose(after[differ], embedder.embed_document(texts), atol=1e-3)


def test_another_way_of_cutting_loses_the_same_queries(index: Path) -> None:
    source = IndexSource(index, {})
    made = synthetic(source.chunks)
    texts: dict[str, str] = {}
    for chunk in source.chunks():
        text = texts.get(chunk.doc_id, "").ljust(chunk.start)
        texts[chunk.doc_id] = text[: chunk.start] + chunk.text
    rng = random.Random(1)
    cut = []
    for doc_id, text in texts.items():
        ends = sorted({rng.randrange(1, len(text)) for _ in range(3)} | {len(text)})
        cut += [Chunk(doc_id, start, end, text[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    changed = taken_out(made, cut)

    for name, query in made.texts.items():
        (doc_id,) = made.qrels[name]
        left = "".join(changed.get(chunk.id, chunk).text for chunk in cut if chunk.doc_id == doc_id)
        assert "".join(query.split()) not in "".join(left.split())
        assert len("".join(left.split())) < len("".join(texts[doc_id].split()))
    assert {chunk.doc_id for chunk in changed.values()} == {
        doc_id for judged in made.qrels.values() for doc_id in judged
    }


def test_too_few_documents_are_refused_by_name(tmp_path: Path) -> None:
    for number in range(3):
        text = f"Only the file with the number {number} has a sentence as this one. Two of them. And some more."
        (tmp_path / f"{number}.txt").write_text(text, "utf-8")

    assert message_of(CorpusError, lambda: ragidx.evaluate(tmp_path, questions=Questions.made())) == (
        f"{tmp_path}: 0 of 3 documents can be asked for by a sentence of their own (3 have three sentences and one of 6"
        " to 40 words that can be taken out; 3 x another document nearly equals it): nothing can be concluded from "
        "fewer than 20\n"
        "  hint: give a larger corpus, or queries and judgements"
    )
