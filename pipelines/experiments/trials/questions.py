"""Questions by a table: an index gets a table of tokens that encodes questions as its own model does, but at once.

chunks of an index and their stored vectors, and texts of the user that the model encodes -> `TokenTable` -> answers by
it beside those by the model -> one commit; the table encodes questions where answers are not worse by it

Where nobody judges, sentences that are taken out of documents ask both. A table that was trained on them would know
them, so another one is asked: of a copy of the index without these sentences.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from tokenizers import Tokenizer

from ragidx.corpora.errors import CorpusError, ModelError, SpecError, check_machine
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.devices import check_models
from ragidx.indexer.encoders.methods import ENDPOINT
from ragidx.indexer.encoders.protocol import check_finite, collect
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.filters.filter import stored_units
from ragidx.indexer.filters.fitting import lowest
from ragidx.indexer.specs import MODEL, TABLE, IndexSpec
from ragidx.indexer.store import Store
from ragidx.indexer.token_table import QUESTIONS_NOTE, TokenTable, plain, token_ids
from ragidx.indexer.writing import rewrite
from ragidx.indexer.writing.rewrite import NewForm
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.options import check_margin
from ragidx.pipelines.experiments.evaluate.tasks import Judged, check_together
from ragidx.pipelines.experiments.train.frozen import listed, options_of
from ragidx.pipelines.experiments.train.own_pairs import knowing
from ragidx.pipelines.experiments.train.tables import EPOCHS, spelled, texts_of, train_rows, vectors_of
from ragidx.pipelines.experiments.trials.trial import (
    FORCED,
    NOT_WORSE,
    Comparison,
    Trial,
    TrialReport,
    by_query,
    decided,
    queries_of,
)
from ragidx.pipelines.ingest.corpus import chunker_of
from ragidx.pipelines.ingest.options import build_options, checked
from ragidx.pipelines.ingest.resolve import resolve, resolve_against
from ragidx.retriever.models import QUESTIONS_FILE, stored_filter
from ragidx.retriever.searcher import Searcher
from ragidx.retriever.trial_keywords import QuestionsKeywords

NOTE = "questions"  # of the manifest: what the table was trained on, and how it answers

MOST_CHUNKS = 100_000
FEWEST_CHUNKS = 100


@dataclass(frozen=True, kw_only=True)
class QuestionsReport(TrialReport):
    """What became of the questions of an index; the table is committed in any case.

    Attributes:
        questions: what encodes them from now on: table, or model.
        n_chunks: number of the index's chunks that were trained on.
        n_texts: number of the user's texts that were trained on.
        n_tokens, n_pairs: number of tokens, and of pairs of tokens, that have a row.
        n_bytes: bytes of the table, its tokenizer included.
        table_ms, model_ms: milliseconds for one question, from its text to its vector, both loaded.
        training_seconds: seconds of training the table, without encoding.
    """

    comparison: Comparison
    questions: str
    n_chunks: int
    n_texts: int
    n_tokens: int
    n_pairs: int
    n_bytes: int
    table_ms: float
    model_ms: float
    training_seconds: float


def _check_enough(count: int, index: Path) -> None:
    if count < FEWEST_CHUNKS:
        few = f"the index has {count:,} chunks with a text: nothing is learnt from fewer than {FEWEST_CHUNKS}"
        raise CorpusError(few, "the model encodes its questions", where=str(index))


@dataclass(frozen=True)
class _Texts:
    """What is trained on: texts, and (n, dim) their vectors as the index stores them."""

    texts: list[str]
    vectors: Floats

    def and_others(self, others: _Texts) -> _Texts:
        """Both."""
        return _Texts([*self.texts, *others.texts], np.concatenate([self.vectors, others.vectors]))

    def apart(self, asked: Judged, store: Store) -> _Texts:
        """The texts that hold no query; nor, of sentences that ask for their documents, what is in these."""
        wanted = {doc_id for relevance in asked.qrels.values() for doc_id in relevance} if asked.synthetic else set()
        knows = knowing(
            asked.texts.values(), (chunk.text for _, chunk in store.chunks() if wanted and chunk.doc_id in wanted)
        )
        kept = [place for place, text in enumerate(self.texts) if not knows(text)]
        return _Texts([self.texts[place] for place in kept], self.vectors[kept])


def train_questions(
    shown: Searcher, *, on_progress: OnStage | None = None, **options: Unpack[QuestionsKeywords]
) -> QuestionsReport:
    """Train a table that encodes the questions of an index, and commit it.

    The arguments are those of `Index.train_questions`; `shown` is the index, and where its model is now.

    Raises:
        CorpusError: files have faults, or there are too few chunks to learn from, or too few queries.
        SpecError: the index has no model, or one without layers, or an option is out of range.
        ModelError: the index's model is not here, does not load, or its tokenizer is unknown.
        BusyError: the index is being adapted or upgraded, or another process writes it.
        RagidxError: of the subclass that says what to do; the committed state is what it was.
    """
    began = time.perf_counter()
    how = checked("train_questions", QuestionsKeywords, options)
    text, seed, margin, force = listed(how["text"]), how["seed"], how["margin"], how["force"]
    limit, epochs = how["limit"] or MOST_CHUNKS, how["epochs"] or EPOCHS
    check_margin(margin)
    check_together(how["queries"], how["qrels"])
    check_models("`train questions`")
    index, tell = shown.store.path, Stages(on_progress)
    _ = shown.model_files  # that they are the index's own
    _check_enough(shown.store.manifest.n_chunks, index)  # before the model is loaded; some may be without a text
    if shown.encoder.spec.method == ENDPOINT and shown.encoder.spec.tokenizer is None:
        raise ModelError(
            "a table is made of tokens, and the tokenizer of the endpoint's model is not known",
            "build the index with `tokenizer=FILE`, the model's tokenizer.json",
            where=str(index),
        )
    if isinstance(shown.encoder, StaticEncoder):
        what = f"'{shown.encoder.files.name}' is a table of tokens already: a question takes it as long"
        raise SpecError(what, "a table is for models with layers", where=str(index))
    shown = shown.by_model()
    judged_queries = queries_of(shown, how["queries"], how["qrels"], force=force)
    with Trial(shown, NOTE, judged_queries, margin) as trial:
        tell.expect(2 + len(text) + (1 + epochs) * (1 if judged_queries.synthetic is None else 2))
        run = _Run(shown, limit, epochs, seed, tell)
        more = _Texts([], np.zeros((0, shown.store.manifest.dim), np.float32))
        for path in text:
            tell(f"encoding {path}")
            more = more.and_others(run.encoded(path, how["cache"]))
        own_chunks = run.chunks(shown)
        _check_enough(n_chunks := len(own_chunks.texts), index)
        table, trained = run.table(own_chunks.and_others(more))
        now, apart = trial.now(), more.apart(judged_queries, shown.folder)
        with trial.without(judged_queries, now) as (copy,):
            own_chunks = own_chunks if copy is now else run.chunks(copy)
            same = copy is now and len(apart.texts) == len(more.texts)
            judged = table if same else run.table(own_chunks.and_others(apart))[0]
            tell("asking both")
            comparison, table_ms, model_ms = _compare(copy, judged, judged_queries, margin)
        verdict, data = decided(comparison.verdict, force=force), table.to_bytes()
        encodes = TABLE if verdict in (NOT_WORSE, FORCED) else MODEL
        about: dict[str, Any] = {
            "questions": encodes,
            "n_chunks": n_chunks,
            "n_texts": len(more.texts),
            "n_tokens": len(table.tokens),
            "n_pairs": len(table.pairs),
            "n_bytes": len(data),
            "table_ms": table_ms,
            "model_ms": model_ms,
            "training_seconds": trained,
        }
        tell("writing the table")
        done = trial.commit(
            lambda store: _with_table(store, encodes, data), verdict, comparison, about | {"seed": seed}
        )
    return QuestionsReport(
        index=str(index),
        generation=done.generation,
        committed=True,
        verdict=verdict,
        comparison=comparison,
        seconds=time.perf_counter() - began,
        **about,
    )


def _with_table(store: Store, encodes: str, data: bytes) -> NewForm:
    """The index with the table."""
    base, where = store.manifest, str(store.path)
    spec = dataclasses.replace(IndexSpec.from_json(dict(base.spec), where=where), questions=encodes)
    blobs = {name: store.blob(name) for name in base.files} | {QUESTIONS_FILE: data}
    return NewForm(spec.to_json(), base.fingerprint, base.dim, base.index, blobs, ())


@dataclass(frozen=True, eq=False)
class QuestionFile:
    """A table of questions in a file that `ragidx train questions MODEL` wrote.

    Attributes:
        table: the table, in the space of the model's own vectors.
        vectors: the fingerprint of what decides these.
        where: the file, for messages.
    """

    table: TokenTable
    vectors: str
    where: str

    @classmethod
    def read(cls, file: Path) -> QuestionFile:
        """The table of a file.

        Raises:
            SpecError: there is no such file, or it is none.
        """
        hint = "name a file that `ragidx train questions MODEL` wrote"
        try:
            data = file.read_bytes()
        except OSError as fault:
            check_machine(fault, file)
            raise SpecError("the file of questions cannot be read", hint, where=str(file)) from fault
        try:
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            note = json.loads(header["__metadata__"][QUESTIONS_NOTE])
            return cls(TokenTable.read(data), str(note["vectors"]), str(file))
        except (ValueError, KeyError, TypeError) as fault:
            raise SpecError("the file holds no table of questions", hint, where=str(file)) from fault

    def check(self, spec: IndexSpec) -> None:
        """Whether an index with such vectors can take it.

        Raises:
            SpecError: its vectors are of another model or method, or the index was adapted.
        """
        if spec.encoder is None or spec.encoder_fingerprint() != self.vectors:
            hint = "train one on these: `ragidx train questions MODEL`, with the options of the build"
            raise SpecError("the table was trained on vectors of another model or method", hint, where=self.where)
        if spec.filter.adapted:
            hint = "train one of the index: `ragidx train questions`"
            raise SpecError("the index was adapted, and the table knows its model alone", hint, where=self.where)

    def into(self, index: Path) -> int:
        """Put it into an index, where it encodes questions; the new generation.

        Raises:
            SpecError: as of `check`.
        """

        def with_table(store: Store) -> NewForm:
            spec = IndexSpec.from_json(dict(store.manifest.spec), where=str(index))
            self.check(spec)
            own = stored_filter(store, spec.filter)
            data = (self.table if own is None else self.table.through(own.matrix)).to_bytes()
            counts = {"n_tokens": len(self.table.tokens), "n_pairs": len(self.table.pairs)}
            return dataclasses.replace(_with_table(store, TABLE, data), notes={NOTE: {"file": self.where, **counts}})

        return rewrite.replace(index, with_table).manifest.generation


def questions_for(file: Path, index: Path, options: Mapping[str, Any] | None) -> QuestionFile:
    """The table of a file, for an index that a build with these options makes or updates; None: of vectors.

    Raises:
        SpecError: as of `QuestionFile.check`, before anything is encoded; or an option is wrong.
    """
    found = QuestionFile.read(file)
    if options is not None:
        found.check(resolve(index, build_options(**options)).spec)
    return found


@dataclass(frozen=True)
class _Run:
    """How tables are trained for an index."""

    shown: Searcher
    limit: int
    epochs: int
    seed: int
    tell: Stages
    singles: dict[int, Floats] = field(default_factory=dict)

    def table(self, known: _Texts) -> tuple[TokenTable, float]:
        """A table of these texts, and how many seconds it took, without encoding."""
        backend = self.shown.encoder.tokenizer.texts
        tokenizer = plain(type(backend).from_str(backend.to_str()))  # the model's own stays as it is
        ids = token_ids(tokenizer, known.texts)
        single = self._single(tokenizer, np.unique(np.concatenate(ids)))
        began = time.perf_counter()
        made = train_rows(ids, known.vectors, single, epochs=self.epochs, seed=self.seed, tell=self.tell)
        return made.table(tokenizer), time.perf_counter() - began

    def _single(self, tokenizer: Tokenizer, tokens: Ints) -> Callable[[Ints], Floats]:
        """Vectors of single tokens, as the index stores them; each is encoded once."""
        new = np.array([token for token in tokens.tolist() if token not in self.singles], np.int64)
        own = stored_filter(self.shown.store, self.shown.spec.filter)
        self.tell(f"encoding {len(new):,} single tokens")
        if len(new):
            says, encoder = spelled(tokenizer, new), self.shown.encoder
            spelt = {token: text for token, text in zip(new.tolist(), says, strict=True) if text.strip()}
            batches = encoder.batches(list(spelt.values()), tune=False)  # the number format stays that of the index
            raw = collect(check_finite(batches, list(spelt.values())), len(spelt), encoder.hidden)
            self.singles.update(dict.fromkeys(new.tolist(), np.zeros(self.shown.store.manifest.dim, np.float32)))
            self.singles.update(zip(spelt, stored_units(raw, own), strict=True))
        return lambda wanted: np.stack([self.singles[token] for token in wanted.tolist()])

    def chunks(self, index: Searcher) -> _Texts:
        """The chunks with a text, drawn by the hashes of their ids."""
        store, chunker = index.folder, chunker_of(index.encoder, index.spec.chunk)
        drawn = set(lowest(self.seed, (chunk.id for _, chunk in store.chunks()), self.limit))
        every = (one for number, one in enumerate(store.chunks()) if number in drawn)
        found = [(row, chunker.encoded_text(chunk)) for row, chunk in every if chunk.text.strip()]
        vectors = store.vectors(np.array([row for row, _ in found], np.int64))
        known = np.flatnonzero(vectors.any(axis=1))
        return _Texts([found[place][1] for place in known.tolist()], vectors[known])

    def encoded(self, path: Path, cache: str | os.PathLike[str] | None) -> _Texts:
        """The chunks of a corpus, encoded as the index does it."""
        options = options_of(self.shown) | {"filter": "none", "chunks": self.shown.spec.chunk}
        resolved = resolve_against(build_options("train questions", **options))
        texts = texts_of(path, resolved, self.limit)
        raw = vectors_of(texts, resolved, cache)
        return _Texts(texts, stored_units(raw, stored_filter(self.shown.store, self.shown.spec.filter)))


def _compare(index: Searcher, table: TokenTable, asked: Judged, margin: float) -> tuple[Comparison, float, float]:
    """How answers by the table differ from those by the model, and the milliseconds of a question by both."""
    texts = list(asked.texts.values())
    index.encode(texts[:1])  # load the model
    times = [time.perf_counter()]
    by_model = np.concatenate([index.encode([text]) for text in texts])
    times.append(time.perf_counter())
    by_table = np.concatenate([table.vectors([text]) for text in texts])
    times.append(time.perf_counter())
    unknown = ~by_table.any(axis=1)
    by_table[unknown] = by_model[unknown]  # as a search does it
    before, now = (by_query(index, asked, vectors) for vectors in (by_model, by_table))
    spent = np.diff(times) * 1_000 / len(texts)
    return Comparison.of(before, now, asked, margin), float(spent[1]), float(spent[0])
