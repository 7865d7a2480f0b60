"""A store writes where it was told to, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before the import, which reads it
pytest.importorskip("langchain_core", reason="the extra `langchain` is not installed")
pytest.importorskip("llama_index.core", reason="the extra `llamaindex` is not installed")
pytest.importorskip("haystack", reason="the extra `haystack` is not installed")

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from ragidx.frameworks import haystack, langchain, llamaindex

EMBEDDING = DeterministicFakeEmbedding(size=8)
DOCUMENTS = [Document(page_content="The mill.")]


@pytest.mark.parametrize(
    "make",
    [
        lambda: langchain.RagidxVectorStore.from_documents(DOCUMENTS, EMBEDDING),
        lambda: langchain.RagidxVectorStore.from_texts(["The mill."], EMBEDDING),
        lambda: langchain.RagidxVectorStore(embedding=EMBEDDING),
        llamaindex.RagidxVectorStore,
        haystack.RagidxDocumentStore,
    ],
)
def test_a_store_without_a_place_is_an_error_and_writes_nothing(
    make: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises((TypeError, ValueError), match=r"index|path"):
        make()

    assert list(tmp_path.iterdir()) == []
