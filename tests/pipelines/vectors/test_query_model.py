"""Questions in words for precomputed vectors: the model that encodes them, in later builds and narrower indexes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, ModelError, SpecError
from ragidx.indexer.specs import Precomputed
from ragidx.indexer.store import Store
from ragidx.pipelines.maintain.rewrite import reindex, shrink
from ragidx.pipelines.vectors import build_vectors

from ...raising import message_of
from .conftest import INDEX, TEXTS, WITHOUT, build_with_tiny, first_hit

pytestmark = pytest.mark.slow  # a model is loaded, again and again

HINT = "remove the option to update the index, name another `index`, or replace this one with `rebuild=True`"


# a model, and what it answers


@pytest.mark.usefixtures("v")
def test_a_text_finds_its_given_vector() -> None:
    report = build_with_tiny()

    spec = ragidx.Index(INDEX).spec
    assert [first_hit(text) for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]
    assert report.queries is not None
    assert (report.queries.n_checked, report.device, report.dtype) == (6, "cpu", "float32")
    assert report.queries.least_cosine == pytest.approx(1, abs=1e-5)
    assert (report.model, report.method, report.n_encoded, report.dim) == ("tiny", "vectors", 0, 32)
    assert (spec.precomputed, spec.filter.name, len(spec.weights)) == (Precomputed(), "none", 64)
    assert spec.encoder is not None
    assert (spec.encoder.method, spec.encoder.model) == ("classical", "tiny")
    assert Store.open(INDEX).manifest.fingerprint == spec.fingerprint()


def test_a_question_and_its_instruction_are_encoded_as_those_of_a_corpus_are(
    write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write_texts(encode(TEXTS, method="echo"))
    build_with_tiny(method="echo", instruction="Find the answer")
    given, made = ragidx.Index(INDEX), ragidx.load_encoder("tiny", method="echo")

    for instruction in (None, "Find the mill", ""):
        raw = made.encode_query(["a mill"], "Find the answer" if instruction is None else instruction)
        np.testing.assert_allclose(
            given.searcher.encode(["a mill"], instruction), raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6
        )


@pytest.mark.parametrize(
    "options", [{}, {"filter": ragidx.FilterSpec(tau=2.0)}, {"filter": ragidx.FilterSpec("embedfilter", dim=16)}]
)
def test_vectors_as_wide_as_the_default_filter_leaves_them_went_through_it(
    options: dict[str, Any], write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    kept = ragidx.EmbedFilter.from_encoder(ragidx.load_encoder("tiny", method="classical"), tau=2)
    write_texts(kept(encode(TEXTS)))

    report = build_with_tiny(**options)

    assert (report.dim, ragidx.Index(INDEX).spec.filter.name) == (16, "embedfilter")
    assert [first_hit(text) for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]


def test_vectors_that_were_cut_need_the_filter_to_be_named(
    write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write_texts(encode(TEXTS)[:, :24])

    assert message_of(SpecError, build_with_tiny) == (
        "`model`: 'tiny' makes vectors of 16 or 32 dimensions, these have 24\n  hint: say what was kept of "
        f"their first dimensions with `filter=truncation` `filter.dim=24`, name the model that made them, {WITHOUT}"
    )
    build_with_tiny(filter=ragidx.FilterSpec("truncation", dim=24))
    assert [first_hit(text) for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]


@pytest.mark.slow
def test_a_sentence_transformer_answers_for_its_vectors(
    tiny_sentence_transformer: Path, write_texts: Callable[..., str]
) -> None:
    write_texts(ragidx.load_encoder(str(tiny_sentence_transformer)).encode_document(TEXTS))

    report = build_vectors("v.parquet", INDEX, model=str(tiny_sentence_transformer))
    shrink(INDEX, dim=16)

    assert report.queries.n_checked == 6
    assert ragidx.Index(INDEX).searcher.encode(["a mill"]).shape == (1, 16)
    assert len(ragidx.Index(INDEX).search("a mill")) == 6


@pytest.mark.usefixtures("v")
def test_langchain_asks_such_an_index_too() -> None:
    from ragidx.frameworks.langchain import RagidxRetriever

    build_with_tiny()

    assert [found.page_content for found in RagidxRetriever(index=INDEX, k=1).invoke(TEXTS[1])] == [TEXTS[1]]


@pytest.mark.usefixtures("v")
def test_a_model_that_has_moved_is_named_and_one_that_has_changed_is_refused(folder: Path) -> None:
    build_with_tiny()
    (folder / "tiny").rename(folder / "moved")

    hits = ragidx.Index(INDEX, model="moved").search(TEXTS[0], k=1)
    (folder / "moved/config.json").write_text((folder / "moved/config.json").read_text() + "\n")

    assert hits[0].chunk_id == "d0"
    assert message_of(ModelError, lambda: ragidx.Index(INDEX, model="moved").search(TEXTS[0])) == (
        "ragidx-index: 'moved' is not the model this index was made with: its files have changed\n"
        "  hint: name the right folder with `model`, or build the index again with `rebuild=True`"
    )


# the next build


@pytest.mark.usefixtures("v")
def test_the_next_build_keeps_the_model_and_loads_no_torch() -> None:
    build_with_tiny()
    code = (
        "import sys, ragidx\nfrom ragidx.pipelines.vectors import build_vectors\n"
        f"report = build_vectors('v.parquet', {INDEX!r})\n"
        "print(report.committed, report.queries.n_checked, report.queries.encoder)\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == f"False None {ragidx.Index(INDEX).spec.encoder}\n[]\n"


def test_what_changed_is_replaced_and_questions_go_on(
    v: str, write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    build_with_tiny(v)
    texts = ["Another lease was signed.", *TEXTS[1:]]
    write_texts(encode(texts), texts)

    report = build_vectors(v, INDEX)

    assert (report.n_changed, report.n_unchanged) == (1, 5)
    assert first_hit(texts[0]) == ("d0", 1.0)


@pytest.mark.usefixtures("v")
def test_the_same_model_again_is_checked_and_commits_nothing(folder: Path) -> None:
    build_with_tiny()

    again = build_with_tiny(method=None)
    shutil.copytree(folder / "tiny", folder / "copy")
    moved = build_with_tiny(model="copy")

    assert (again.committed, again.queries.n_checked) == (False, 6)
    assert moved.n_unchanged == 6
    assert ragidx.Index(INDEX).spec.encoder.model == "copy"


@pytest.mark.usefixtures("v")
def test_another_model_or_method_is_an_error_and_rebuild_replaces_it(tiny_model: Callable[..., Path]) -> None:
    build_with_tiny()
    other = os.path.relpath(tiny_model("gpt2"))  # a long path would be cut in the message
    method = "`method` is 'classical' in the index, 'echo' now; `template` is 'classical' in the index, 'echo' now"
    kept = "`filter` is 'none' in the index, 'truncation' now; `filter.dim` is not set in the index, 24 now"
    for options, what in (
        ({"method": "echo"}, method),
        ({"model": other}, f"`model` is 'tiny' in the index, '{other}' now"),
        ({"filter": ragidx.FilterSpec("truncation", dim=24)}, kept),
    ):
        said = message_of(SpecError, lambda options=options: build_with_tiny(**options))
        assert said == f"{INDEX}: the index was built with other options: {what}\n  hint: {HINT}"

    build_vectors("v.parquet", INDEX, rebuild=True)

    assert ragidx.Index(INDEX).spec.encoder is None


@pytest.mark.usefixtures("v")
def test_an_index_without_a_model_gets_one_by_a_rebuild() -> None:
    build_vectors("v.parquet", INDEX)

    assert message_of(SpecError, build_with_tiny) == (
        "ragidx-index: the index was built with other options: `model` is not set in the index, 'tiny' now\n"
        f"  hint: {HINT}"
    )
    build_with_tiny(rebuild=True)
    assert first_hit(TEXTS[3]) == ("d3", 1.0)


# narrower


@pytest.mark.parametrize("width", [32, 16])
def test_after_a_shrink_questions_are_asked_at_that_width_and_the_same_file_is_known(
    width: int, write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    kept = ragidx.EmbedFilter.from_encoder(ragidx.load_encoder("tiny", method="classical"), dim=16)
    vectors = encode(TEXTS) if width == 32 else kept(encode(TEXTS))
    write_texts(vectors)
    build_with_tiny()
    before = ragidx.Index(INDEX).search("a mill", k=6, dim=12, mode="dense")

    shrink(INDEX, dim=12)
    after = ragidx.Index(INDEX).search("a mill", k=6, mode="dense")
    again = build_vectors("v.parquet", INDEX)
    checked = build_with_tiny(method=None)
    reindex(INDEX, "eight", dim=8)

    assert [hit.chunk_id for hit in after] == [hit.chunk_id for hit in before]
    assert [hit.score for hit in after] == pytest.approx([hit.score for hit in before], abs=1e-3)
    assert (again.committed, again.n_unchanged, again.dim, again.to_json()["input_dim"]) == (False, 6, 12, width)
    assert (checked.committed, checked.queries.n_checked) == (False, 6)
    assert checked.queries.least_cosine == pytest.approx(1, abs=1e-5)
    assert [first_hit(text, "eight") for text in TEXTS] == [(f"d{n}", 1.0) for n in range(len(TEXTS))]


@pytest.mark.usefixtures("v")
def test_after_a_shrink_narrow_vectors_are_taken_too_and_no_others(
    write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    build_with_tiny()
    shrink(INDEX, dim=12)

    narrow = build_vectors(write_texts(encode(TEXTS)[:, :12], name="narrow.parquet"), INDEX)
    other = write_texts(encode(TEXTS)[:, :20], name="other.parquet")

    assert (narrow.n_changed, narrow.dim, narrow.input_dim) == (6, 12, None)
    assert first_hit(TEXTS[2]) == ("d2", 1.0)
    assert message_of(CorpusError, lambda: build_vectors(other, INDEX)) == (
        "other.parquet: the file holds vectors of 20 dimensions; those of the index, or of the files before, have 12\n"
        "  hint: vectors of two models do not mix: choose another `index`, or replace this one with `rebuild=True`"
    )
