"""The loop from chunks to vectors: windows, each text once, what has no vector, what is not finite."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import ragidx
from ragidx.corpora.errors import ModelError
from ragidx.indexer.digests import digest
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.store.rows import Row
from ragidx.pipelines.ingest.encode import WINDOW_CHARS, WINDOW_CHUNKS, encode, windows
from ragidx.pipelines.ingest.report import Progress
from ragidx.pipelines.ingest.workers.chunks import Item


def _item(number: int, text: str) -> Item:
    return Item(Row(f"c{number}", f"d{number}", 0, len(text), text, "", digest(text), b"", {}), text)


def test_a_window_ends_after_as_many_chunks_or_characters() -> None:
    short, long = _item(0, "a"), _item(1, "b" * (WINDOW_CHARS // 2))

    assert [len(window) for window in windows([short] * (2 * WINDOW_CHUNKS + 1))] == [WINDOW_CHUNKS, WINDOW_CHUNKS, 1]
    assert [len(window) for window in windows([short, long, short, long, short])] == [4, 1]
    assert list(windows([])) == []


@pytest.mark.slow
def test_each_text_goes_through_the_model_once_and_a_zero_vector_is_left_out() -> None:
    embedder, told = Embedder(ragidx.load_encoder("mini")), list[Progress]()
    progress = Progress(on_progress=told.append)
    items = [_item(number, text) for number, text in enumerate(["a mill", "\u200b", "the sea", "a mill"])]

    parts = list(encode(items, embedder, progress))

    found = {key: vector for keys, vectors in parts for key, vector in zip(keys, vectors, strict=True)}
    assert found.keys() == {digest("a mill"), digest("the sea")}
    np.testing.assert_array_equal(found[digest("a mill")], embedder.embed_document(["a mill"])[0])
    assert (progress.n_encoded, progress.n_chunks, told) == (3, 0, [progress])
    assert progress.n_tokens > 0
    assert progress.seconds > 0


def test_ids_that_a_worker_gave_are_taken_and_such_as_no_text_has_are_not() -> None:
    embedder, progress = Embedder(ragidx.load_encoder("mini")), Progress()
    tokenizer, mill = embedder.encoder.tokenizer, embedder.embed_document(["a mill"])

    def vector(ids: list[int]) -> Any:
        item = dataclasses.replace(_item(0, "the sea"), ids=np.array(ids, "<u4").tobytes())
        return np.concatenate([found for _, found in encode([item], embedder, progress)])

    np.testing.assert_array_equal(vector(tokenizer.ids(["a mill"])[0]), mill)
    np.testing.assert_array_equal(vector([2**32 - 1]), embedder.embed_document(["the sea"]))


def test_a_vector_that_is_not_finite_ends_a_build_with_the_name_of_the_chunk(
    tiny_model: Callable[..., Path], small_corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "nan"
    shutil.copytree(tiny_model("llama"), folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][:] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    options = {"model": str(folder), "method": "classical", "layer": 0, "filter": "none", "device": "cpu"}

    with pytest.raises(ModelError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", include=["mill.md"], **options)

    assert str(fault.value) == (
        "mill.md:0-64: the model gave a vector that is not finite\n"
        "  hint: try `dtype=float32`; if it stays, exclude the document"
    )
