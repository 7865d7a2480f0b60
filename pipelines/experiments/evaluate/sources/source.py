"""What is measured: vectors with their documents, and the queries that are asked of them.

An index or a corpus -> rows, (n, dim) float32 a block, with the document of each; queries -> (q, dim) float32, encoded
by the same model, given as vectors, or taken from among the rows, which then are searched no more. Raw vectors (filter
none) have the model's own lengths where a corpus was encoded, and length 1 in an index; every filter can be applied to
them. An index of filtered vectors is swept under its own filter. What is measured, and how, is not known here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, ModelError, SpecError
from ragidx.corpora.records import Chunk
from ragidx.indexer.arrays import Floats, Ints, slices
from ragidx.indexer.encoders import Encoder
from ragidx.indexer.filters.fitting import FilterSample, as_questions, lowest
from ragidx.indexer.lexical.stemming import AUTO
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.instructions import instruction as sentence_of
from ragidx.indexer.specs import FilterSpec, IndexSpec
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.retriever.models import ModelPlace, stored_filter
from ragidx.retriever.query_vectors import read_query_vectors
from ragidx.retriever.rows import FolderRows, unit_queries
from ragidx.retriever.searcher import Searcher

HELD_OUT = 256  # chunks that ask where there are no queries, at most a tenth of all

NOTHING_TO_SEARCH = "there is no vector to search"

_BLOCK_BYTES = 32 << 20
_SEED = 0
_OPENING = {
    "model",
    "adapters",
    "pooler",
    "device",
    "dtype",
    "endpoint",
    "instruction",
    "questions",
}  # options that an index leaves open
_UNSAID = (None, (), "auto")


def mean_tokens(encoder: Encoder, texts: Sequence[str], instruction: str | None = None) -> float | None:
    """Tokens that the model reads of a text, on average; with an instruction, which may be empty, of queries.

    None: there is no text, or a server reads it whose tokenizer is not here.
    """
    if not texts or (encoder.usage is not None and encoder.spec.tokenizer is None):
        return None
    return float(np.mean([row.n_tokens for row in encoder.rendered(texts, instruction)]))


class VectorSource(ABC):
    """Vectors of a corpus, each with a chunk and a document, some of which may be held out.

    Attributes:
        name: name of the source, as the user gave it.
        spec: how the vectors were made.
        hidden: width of the model's own vectors.
        dim: width of these vectors.
        n_documents: number of documents that the vectors are from.
        notes: notes on what was skipped.
        given: (q, dim) vectors of the queries, in their order, where they came as vectors; None: they are encoded.
        stemmer: the stemmer of the chunks' words.
        instruction: the instruction of queries, as it was named; empty: none; None: the model's own, or no model.
        questions: what encodes the queries, where an index is asked by a table or its model; None: there is one way.
        is_unit: whether the vectors have unit length as far as float16 goes, and are compared as they are.
    """

    name: str
    spec: IndexSpec
    hidden: int
    dim: int
    n_documents: int
    notes: tuple[str, ...] = ()
    given: Floats | None = None
    questions: str | None = None
    instruction: str | None = None
    is_unit = False
    stemmer = AUTO
    _vectors: RawVectors  # of the model; an index is encoded by its own
    _changed: Mapping[str, Chunk] = MappingProxyType({})  # in place of those with these ids
    _changed_rows: Ints = np.zeros(0, np.int64)  # their numbers, rising
    _changed_vectors: Floats = np.zeros((0, 0), np.float32)
    _searched: Ints  # the numbers of the rows that are

    @property
    def n_rows(self) -> int:
        """How many rows are searched."""
        return len(self._searched)

    @property
    def is_raw(self) -> bool:
        """Whether every filter can be applied to the vectors."""
        kept = self.spec.filter
        return kept.name == "none" and not kept.center and not kept.adapted

    @property
    def model(self) -> str:
        """The name of the model that made the vectors, else what the user says of it."""
        made_by = "" if self.spec.precomputed is None else self.spec.precomputed.made_by
        return made_by if self.spec.encoder is None else self.spec.encoder.model

    @property
    def tokens(self) -> float | None:
        """Tokens that the model reads of a row's text, on average, with the template and all copies; None: they are not
        counted, as of an index, whose rows have all been read alike.
        """
        return None

    @property
    def encoder(self) -> Encoder:
        """The model that made the vectors, loaded when it is first asked for."""
        return self._vectors.encoder

    @property
    def files(self) -> ModelFiles:
        """The model's files, which filters are made of."""
        return self.encoder.files

    def encode(self, queries: Sequence[str]) -> Floats:
        """(q, dim) vectors of queries, in the space of the rows; zero where the model gives no vector for one.

        Raises:
            QueryError: the model of an index gives no vector for a query.
            ModelError: the model is not here, or is another.
        """
        return self._vectors.queries(queries)

    def sample(self, spec: FilterSpec) -> FilterSample:
        """The sample that a filter is fitted on: the chunks with the lowest random keys."""
        return self._sample(spec, lowest(spec.seed, self._names("chunk_id"), spec.sample))

    def _sample(self, spec: FilterSpec, drawn: Sequence[int]) -> FilterSample:
        """Of rows that were drawn, in the order of their random keys."""
        embeddings = self.rows(np.sort(np.array(drawn, np.int64))) if spec.wants_embeddings else None
        ids = self.encoder.tokenizer.ids(self._encoded_texts(drawn)) if spec.counts_tokens else None
        return FilterSample(embeddings, ids, self._questions(spec, drawn) if spec.center else None)

    def _questions(self, spec: FilterSpec, drawn: Sequence[int]) -> Floats:
        """(m, dim) of sentences of these rows, which stand for questions."""
        rows = set(drawn)
        texts = {row: chunk.text for row, chunk in enumerate(self.chunks()) if row in rows}
        return self.encode(as_questions([texts[row] for row in drawn], spec.seed))

    def _encoded_texts(self, rows: Sequence[int]) -> list[str]:
        """The texts of some rows, as they are encoded."""
        texts = self._names("text")
        return [texts[row] for row in sorted(rows)]

    @abstractmethod
    def _rows(self, numbers: Ints) -> Floats:
        """Some of all rows, held out or not: (n, dim), copied."""

    def _encode_texts(self, texts: Sequence[str]) -> Floats:
        """(n, dim) of documents, in the space of the rows."""
        return self._vectors.texts(texts)

    @abstractmethod
    def _stored_chunks(self) -> Iterator[Chunk]:
        """The chunks of all rows, in order."""

    def rows(self, numbers: Ints) -> Floats:
        """Some of all rows, held out or not: (n, dim), copied."""
        vectors = self._rows(numbers)
        places = np.flatnonzero(np.isin(numbers, self._changed_rows))
        if places.size:
            vectors[places] = self._changed_vectors[np.searchsorted(self._changed_rows, numbers[places])]
        return vectors

    def change(self, chunks: Mapping[str, Chunk]) -> None:
        """From now on search these chunks in place of those with these ids; nothing is written."""
        chunker = chunker_of(self.encoder, self.spec.chunk)
        rows = {number: chunks[chunk.id] for number, chunk in enumerate(self._stored_chunks()) if chunk.id in chunks}
        texts = [chunker.encoded_text(chunk) for chunk in rows.values()]
        self._changed, self._changed_rows = chunks, np.array(list(rows), np.int64)
        self._changed_vectors = np.zeros((len(texts), self.dim), np.float32)
        full = [place for place, text in enumerate(texts) if text.strip()]
        if full:
            self._changed_vectors[full] = self._encode_texts([texts[place] for place in full])
        self._searched = np.setdiff1d(self._searched, np.delete(self._changed_rows, full))  # nothing is left of these

    def chunks(self) -> Iterator[Chunk]:
        """The chunks of all rows, held out or not, in order."""
        for chunk in self._stored_chunks():
            yield self._changed.get(chunk.id, chunk)

    @abstractmethod
    def _names(self, column: str) -> list[str]:
        """`chunk_id`, `doc_id` or `text` of all rows."""

    def blocks(self) -> Iterator[Floats]:
        """The rows that are searched, in order."""
        return map(self.rows, slices(self._searched, max(1, _BLOCK_BYTES // (4 * self.dim))))

    def texts(self) -> Iterator[str]:
        """The text of each row that is searched, its headings in front, in order."""
        searched = set(self._searched.tolist())
        chunks = (chunk for number, chunk in enumerate(self.chunks()) if number in searched)
        return (f"{chunk.heading}\n{chunk.text}" if chunk.heading else chunk.text for chunk in chunks)

    def doc_ids(self) -> list[str]:
        """The document of each row that is searched."""
        names = self._names("doc_id")
        return [names[row] for row in self._searched.tolist()]

    def hold_out(self) -> Floats:
        """Take some rows, which from now on are not searched: (q, dim), at most a tenth.

        Raises:
            CorpusError: there are fewer than two.
        """
        if self.n_rows < 2:
            alone = "one chunk alone has nothing to be compared with"
            raise CorpusError(alone if self.n_rows else NOTHING_TO_SEARCH, "add documents", where=self.name)
        count = max(1, min(HELD_OUT, self.n_rows // 10))
        drawn = np.sort(np.array(lowest(_SEED, self._names("chunk_id"), count), np.int64))
        self._searched = np.setdiff1d(self._searched, drawn)
        return self.rows(drawn)


class IndexSource(VectorSource):
    """The live rows of a committed state of an index, as they are stored.

    Args:
        path: path of the index.
        options: where its model is now, and how it runs: model, adapters, pooler, device, dtype, endpoint; the
            instruction; and what encodes questions.
        query_vectors: a file of the vectors of the queries; None: its model encodes them.

    Raises:
        IndexFormatError: the index is damaged.
        SpecError: an option says how vectors are made.
        QueryError: the query vectors cannot be read, or are not of the index's width.
    """

    is_unit = True

    def __init__(
        self, path: str | Path, options: Mapping[str, Any], query_vectors: str | os.PathLike[str] | None = None
    ) -> None:
        made = {name for name in options.keys() - _OPENING if options[name] not in _UNSAID}
        if "chunks" in made:
            made |= {f"chunks.{name}" for name in options["chunks"].given}
            made.remove("chunks")
        if made:
            names = ", ".join(f"`{name}`" for name in sorted(made))
            raise SpecError(
                f"the index says how its vectors are made: {names} cannot be chosen",
                "remove it, or name a corpus in place of the index",
                where=str(path),
            )
        store = FolderRows.open(path)
        opening = {name: options[name] for name in _OPENING - {"instruction"} if options.get(name) is not None}
        self._searcher = Searcher(store, ModelPlace(**opening))
        self.questions = options.get("questions")
        self._instruction: str | None = options.get("instruction")
        self.instruction = sentence_of(self._instruction)
        self._store, self.name, self.spec = store, str(path), self._searcher.spec
        self.dim, self.n_documents = store.manifest.dim, store.manifest.n_documents
        kept = stored_filter(store, self.spec.filter)
        self.hidden = self.dim if kept is None else kept.hidden
        self._searched = np.arange(store.n_rows)
        if store.manifest.lexical is not None:
            self.stemmer = store.manifest.lexical.stemmer
        self.given = None if query_vectors is None else self._read(Path(query_vectors))

    @property
    def encoder(self) -> Encoder:
        """The index's own model."""
        return self._searcher.encoder

    def encode(self, queries: Sequence[str]) -> Floats:
        """(q, dim) vectors of queries, of unit length, through the index's filter."""
        if self.spec.encoder is None:
            raise ModelError(
                "the index holds precomputed vectors: it has no model that encodes a text query",
                "name the model that made them when the index is built: ragidx build --vectors FILE --model M "
                "--rebuild; or measure it with the vectors of the queries, in their order: `questions.vectors=FILE`",
                where=self.name,
            )
        return self._searcher.encode(queries, self._instruction)

    def _encode_texts(self, texts: Sequence[str]) -> Floats:
        return self._searcher.embedder.embed_document(texts)

    def _stored_chunks(self) -> Iterator[Chunk]:
        return (chunk for _, chunk in self._store.chunks())

    def _read(self, path: Path) -> Floats:
        """Query vectors of unit length; of the width that was given before a shrink, they are cut as the rows were."""
        found = read_query_vectors(path)
        precomputed = self.spec.precomputed
        input_dim = None if precomputed is None else precomputed.input_dim
        return unit_queries(found, self.dim, input_dim, index=self.name, file=path)

    def _rows(self, numbers: Ints) -> Floats:
        return self._store.vectors(numbers)

    def _names(self, column: str) -> list[str]:
        return [name for _, batch in self._store.batches([column]) for name in batch.column(0).to_pylist()]
