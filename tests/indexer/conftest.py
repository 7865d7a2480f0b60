"""Small kits: for the store, documents of short texts whose vectors follow from the text alone; for FAISS, files.

And what tests of faults share: an operation done once without any, an index with every kind of file, closed folders.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_index import make_index
from fault_operations import OPERATIONS, Reference
from numpy.typing import NDArray

from ragidx.corpora.records import Scalar
from ragidx.indexer.ann import making
from ragidx.indexer.ann.faiss_files import check_ann, map_ann, map_vectors, vectors_header, write
from ragidx.indexer.ann.index_types import IndexOptions, Recipe
from ragidx.indexer.ann.repeats import Repeats
from ragidx.indexer.store.files import ANN, VECTORS
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.rows import Row
from ragidx.indexer.writing import StoreWriter


class StoreKit:
    """What a build does to a store, without a model: `build` makes the index hold just these documents."""

    dim = 8
    fingerprint = "f" * 64

    def rows(self, doc_id: str, texts: Sequence[str], **metadata: Scalar) -> list[Row]:
        doc_hash = self.hash("\0".join([*texts, repr(sorted(metadata.items()))]))
        return [
            Row(
                f"{doc_id}:{n}-{n + 1}",
                doc_id,
                n,
                n + 1,
                text,
                f"{doc_id} > {n}",
                self.hash(text),
                doc_hash,
                metadata,
                owner=1,
            )
            for n, text in enumerate(texts)
        ]

    def hash(self, text: str) -> bytes:
        return hashlib.sha256(text.encode()).digest()[:16]

    def vectors(self, rows: Sequence[Row], dim: int = dim) -> NDArray[np.float32]:
        """Unit vectors that depend on the text alone."""
        seeds = [int.from_bytes(row.text_hash[:8], "little") for row in rows]
        raw = np.array([np.random.default_rng(seed).standard_normal(dim) for seed in seeds]).reshape(-1, dim)
        return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)

    def queries(self, n: int, dim: int = dim, seed: int = 0) -> NDArray[np.float32]:
        raw = np.random.default_rng(seed).standard_normal((n, dim))
        return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)

    def writer(self, path: Path, **changes: object) -> StoreWriter:
        """A writer; `index_type` is short for the options of the index, `compact` is whether dead rows are dropped."""
        options = {"spec": {}, "fingerprint": self.fingerprint, "dim": self.dim}
        index, compacts = IndexOptions(str(changes.pop("index_type", "flat"))), bool(changes.pop("compact", True))
        writer = StoreWriter(path, **(options | {"index": index} | changes))
        writer.compacts = compacts
        return writer

    def add(self, writer: StoreWriter, rows: Sequence[Row], dim: int = dim) -> int:
        """Add rows as a build does; how many had to be encoded."""
        known = writer.reuse([row.text_hash for row in rows])
        fresh = self.vectors(rows, dim)
        vectors = [known.get(row.text_hash, vector) for row, vector in zip(rows, fresh, strict=True)]
        writer.add(rows, np.array(vectors, np.float32).reshape(-1, dim))
        return sum(row.text_hash not in known for row in rows)

    def build(self, path: Path, documents: Mapping[str, Sequence[str]], **changes: object) -> tuple[Manifest, int]:
        """Commit just these documents; the manifest, and how many chunks had to be encoded."""
        encoded = 0
        with self.writer(path, **changes) as writer:
            known = writer.known_documents()
            for doc_id, texts in documents.items():
                rows = self.rows(doc_id, texts)
                if rows and known.get(doc_id) == rows[0].doc_hash:
                    writer.known_documents().keep(doc_id)
                    continue
                writer.delete_document(doc_id)
                encoded += self.add(writer, rows, int(changes.get("dim", self.dim)))
            writer.delete_others()
            return writer.commit({}, len(documents)), encoded


class AnnKit:
    """A segment's vectors and what is made of them, as files in a folder, without a store around them."""

    def clustered(self, n: int, dim: int = 32, seed: int = 0, centres: int = 200) -> NDArray[np.float32]:
        """Unit vectors around centres, as texts of a corpus are: neighbours are nearer than chance has them."""
        rng = np.random.default_rng(seed)
        middles = np.random.default_rng(99).standard_normal((centres, dim))  # the same for rows and questions
        raw = middles[rng.integers(centres, size=n)] + 0.5 * rng.standard_normal((n, dim))
        return (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)

    def write(self, folder: Path, vectors: NDArray[np.float32]) -> Any:
        """A vectors.faiss in the folder; the same, mapped."""
        rows, dim = vectors.shape
        path = folder / VECTORS
        path.write_bytes(vectors_header(dim, rows) + vectors.astype("<f2").tobytes())
        return map_vectors(path, dim, rows)

    def make(self, folder: Path, factory: str, vectors: Any, repeats: Repeats | None = None) -> Path:
        """The ann.faiss of mapped vectors, beside them; of all of them, unless the `repeats` are given."""
        index = making.make(Recipe.parse(factory), folder / VECTORS, vectors.d, vectors.ntotal, repeats=repeats)
        with (folder / ANN).open("wb") as file:
            write(index, file.write)
            if repeats is not None:
                file.write(repeats.to_bytes())
        return folder / ANN

    def maker(self, folder: Path, vectors: Any) -> Callable[[str], Any]:
        """`made(factory)`: what is made of mapped vectors, mapped; each once."""

        @functools.cache
        def made(factory: str) -> Any:
            path = self.make(folder, factory, vectors).rename(folder / factory)  # a mapped file is never written to
            return self.open(path, factory, vectors)

        return made

    def open(self, path: Path, factory: str, vectors: Any, repeats: Repeats | None = None) -> Any:
        """An ann.faiss as a segment opens it before the first search."""
        recipe = Recipe.parse(factory)
        index = map_ann(path, recipe, vectors, 0 if repeats is None else len(repeats))
        check_ann(path, recipe, index, np.ones(vectors.ntotal, np.bool_) if repeats is None else repeats.kept)
        return index


@pytest.fixture(scope="session")
def ann_kit() -> AnnKit:
    return AnnKit()


@pytest.fixture(scope="session")
def kit() -> StoreKit:
    return StoreKit()


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that is not there yet; in memory where that can be: a process that is killed does not lose its disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder) / "copy"


@pytest.fixture(scope="module")
def reference(kit: StoreKit, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """`reference(operation)`: what it does without a fault, found out once."""
    made: dict[str, Reference] = {}

    def of(name: str) -> Reference:
        if name not in made:
            made[name] = Reference.of(OPERATIONS[name], kit, tmp_path_factory.mktemp("reference"))
        return made[name]

    return of


@pytest.fixture(scope="session")
def every_kind(kit: StoreKit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with every kind of file, to be copied: two segments with graphs, deletions, a blob and a journal."""
    path = tmp_path_factory.mktemp("every-kind") / "index"
    make_index(kit, path)
    return path


@pytest.fixture
def closed(kit: StoreKit) -> Iterator[Callable[[Mapping[str, Sequence[str]]], Path]]:
    """`closed(documents)`: an index in a folder that this process may read and not write, from then on."""
    with ExitStack() as stack:
        yield lambda documents: stack.enter_context(_closed(kit, documents))


@contextmanager
def _closed(kit: StoreKit, documents: Mapping[str, Sequence[str]]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        index = Path(folder) / "index"
        kit.build(index, documents)
        folders = [index, *(path for path in index.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        (index / "LOCK").chmod(0o444)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        yield index
        if is_root:
            os.seteuid(0)
        for path in folders:
            path.chmod(0o755)
