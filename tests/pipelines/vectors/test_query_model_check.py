"""Whether a model made the precomputed vectors: texts are encoded again, and a model that did not is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.digests import digest
from ragidx.pipelines.vectors import build_vectors
from ragidx.pipelines.vectors.query_model import N_TEXTS

from ...raising import message_of
from .conftest import INDEX, TEXTS, WITHOUT, build_with_tiny

pytestmark = pytest.mark.slow  # a model is loaded, again and again


# whether it made the vectors


@pytest.mark.usefixtures("v")
def test_a_model_that_did_not_make_the_vectors_is_refused_and_nothing_is_committed(folder: Path) -> None:
    with pytest.raises(SpecError) as fault:
        build_with_tiny(method="echo")

    assert fault.value.where == "v.parquet"
    assert fault.value.message.startswith(
        "'tiny' did not make these vectors: of 6 texts encoded again, the median cosine"
    )
    assert fault.value.hint == f"name the model, `method`, `pooling` and `filter` that made them, {WITHOUT}"
    assert not (folder / INDEX).exists()


SOME = [f"Text number {n} is about {n * n}." for n in range(300)]
MANY = SOME * 16  # more than the 4,096 rows that are read at once


def test_a_model_that_made_none_of_the_first_vectors_is_refused_before_the_rest_is_read(
    folder: Path, write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write_texts(np.tile(encode(SOME), (16, 1)), list(MANY))
    read: list[int] = []

    with pytest.raises(SpecError, match="'tiny' did not make these vectors: of 32 texts encoded again, the median cos"):
        build_with_tiny(method="echo", on_progress=lambda progress: read.append(progress.n_chunks))

    assert max(read) <= 4096
    assert not (folder / INDEX).exists()


@pytest.mark.parametrize(("n_mended", "is_refused"), [(800, False), (4000, True)])
def test_a_beginning_that_is_unlike_the_rest_is_no_reason_to_refuse(
    n_mended: int, is_refused: bool, write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    """Of the first batch some texts are as they were, so it is the sample of all that says the word."""
    mended = range(14, 14 + n_mended)
    vectors = np.tile(encode(SOME), (16, 1))
    write_texts(vectors, [f"{text} It was mended." if n in mended else text for n, text in enumerate(MANY)])

    if not is_refused:
        assert build_with_tiny().queries.n_checked == 32
        return
    with pytest.raises(SpecError, match="'tiny' did not make these vectors: of 32 texts encoded again"):
        build_with_tiny()


def test_one_wrong_text_among_many_is_told_and_no_reason_to_refuse(
    write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write_texts(encode(TEXTS), ["The text was mended later.", *TEXTS[1:]])

    queries = build_with_tiny().queries

    assert queries.median_cosine == pytest.approx(1, abs=1e-5)
    assert queries.least_cosine < 0.99


def test_the_figures_of_a_refusal_are_the_cosines(write_texts: Callable[..., str], encode: Callable[..., Any]) -> None:
    unit = encode(TEXTS[:1]) / np.linalg.norm(encode(TEXTS[:1]))
    aside = np.random.default_rng(0).standard_normal((1, 32))
    aside -= (aside @ unit.T) * unit
    aside /= np.linalg.norm(aside)
    write_texts(0.8 * unit + 0.6 * aside, TEXTS[:1])

    assert message_of(SpecError, build_with_tiny) == (
        "v.parquet: 'tiny' did not make these vectors: of 1 text encoded again, the median cosine with these vectors "
        "is 0.8000 (least 0.8000), and 0.9900 is asked for\n"
        f"  hint: name the model, `method`, `pooling` and `filter` that made them, {WITHOUT}"
    )


def test_where_all_texts_are_near_each_other_0_99_is_not_enough(write_texts: Callable[..., str]) -> None:
    whole = {"model": "mini-decoder", "method": "classical", "layer": -1}
    write_texts(ragidx.load_encoder(**whole).encode_document(TEXTS))

    with pytest.raises(SpecError) as fault:
        build_vectors("v.parquet", INDEX, model="mini-decoder", method="reba")
    report = build_vectors("v.parquet", INDEX, **whole, dtype="bfloat16")

    told = r"is (0\.\d{4}) \(.*and (0\.\d{4}) is asked for, since different texts have (0\.\d{4}) here$"
    found = re.search(told, fault.value.message)
    assert found
    median, asked, others = map(float, found.groups())
    assert 0.99 < median < asked
    assert asked == pytest.approx(1 - 0.02 * (1 - others), abs=2e-4)
    assert report.queries.median_cosine > 0.9999


@pytest.mark.parametrize("texts", [[], [None] * 6, [" "] * 6])
def test_without_texts_only_the_width_is_looked_at(
    texts: list[str | None], write_texts: Callable[..., str], encode: Callable[..., Any]
) -> None:
    write_texts(encode(TEXTS), texts)

    report = build_with_tiny(method="echo")

    assert report.to_json()["queries"] == {
        "encoder": str(ragidx.Index(INDEX).spec.encoder),
        "n_checked": 0,
        "median_cosine": None,
        "least_cosine": None,
    }
    with pytest.raises(SpecError, match="'tiny' makes vectors of 16 or 32 dimensions, these have 33"):
        build_with_tiny(write_texts(np.eye(33), []), rebuild=True)


def test_texts_are_drawn_by_the_hash_of_the_id_whatever_their_order(folder: Path, encode: Callable[..., Any]) -> None:
    made = encode(SOME)
    given = made + 0.005 * np.abs(made).max() * np.random.default_rng(0).standard_normal(made.shape)
    able = sorted((n for n in range(300) if n % 5), key=lambda n: digest(f"d{n}"))[:N_TEXTS]
    lengths = np.linalg.norm(made, axis=1) * np.linalg.norm(given, axis=1)
    cosines = ((made * given).sum(axis=1) / lengths)[able]

    for order in (list(range(300)), list(range(300))[::-1]):
        columns = {"id": [f"d{n}" for n in order], "text": [SOME[n] if n % 5 else "" for n in order]}
        pq.write_table(pa.table(columns | {"vector": [given[n].tolist() for n in order]}), folder / "v.parquet")

        queries = build_with_tiny(rebuild=True).queries

        assert queries.n_checked == N_TEXTS
        assert queries.median_cosine == pytest.approx(np.median(cosines), abs=1e-5)
        assert queries.least_cosine == pytest.approx(cosines.min(), abs=1e-5)


# what is refused


@pytest.mark.usefixtures("v")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "nowhere"},
            "`model`: no model 'nowhere': neither bundled, nor a GGUF file, a folder or an id of the form owner/name\n"
            "  hint: `ragidx models` lists what is bundled and shows what else can be named; " + WITHOUT,
        ),
        (
            {"filter": ragidx.FilterSpec("truncation", dim=8)},
            "`model`: 'tiny' makes vectors of 8 dimensions with that filter, these have 32\n"
            f"  hint: name the model that made them, {WITHOUT}",
        ),
        (
            {"filter": ragidx.FilterSpec("pca", dim=32)},
            "`filter`: filter 'pca' is fitted on a corpus, and there is none here\n  hint: build an index with "
            "it, or take a filter that needs none",
        ),
        (
            {"model": None},
            "method says how a model encodes questions, and no model is named\n"
            "  hint: name with model the one that made the vectors, or remove method",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str, folder: Path) -> None:
    assert message_of((SpecError, ModelError), lambda: build_with_tiny(**options)) == message
    assert not (folder / INDEX).exists()
