"""Calibration in a build: a filter is fitted on a sample of the corpus, before anything of the corpus is stored.

Documents -> those with the lowest random keys -> their chunks, cut as the build cuts them -> those with the lowest
random keys -> embeddings or token ids -> the build's filter. The sample depends on the seed, the corpus and the cutting
alone, not on the order of files. What is held is the text of the sample and its embeddings (sample x hidden width x 4
bytes). Their vectors are returned, so that no chunk goes through the model twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.digests import digest
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.encoders.protocol import collect
from ragidx.indexer.filters.anisotropy import unit_sum
from ragidx.indexer.filters.fitting import DocumentSample, FilterSample, as_questions, lowest
from ragidx.indexer.filters.unembedding import find_unembedding
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import IndexSpec, filter_kind
from ragidx.indexer.writing.journal import Journal
from ragidx.indexer.writing.vacuum import check_folder
from ragidx.pipelines.ingest.corpus import Reading
from ragidx.pipelines.ingest.encode import encode, windows
from ragidx.pipelines.ingest.endpoint import sample_journal
from ragidx.pipelines.ingest.ledger import Ledger
from ragidx.pipelines.ingest.report import INDEXING, Progress, Skips
from ragidx.pipelines.ingest.resolve import Resolved
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft, Item

_CHARS_A_TOKEN = 8  # more than a token of any language has on average: enough documents are drawn to fill the sample
_WHOLE_TOKENS = 2048  # of a document that is not cut, when it is guessed how much text a sample takes


def check_fit(resolved: Resolved, corpus: str | Path, index: Path) -> None:
    """What can be checked before the corpus is read.

    Raises:
        IndexFormatError: the folder of the index is something else.
        SpecError: the corpus cannot be read twice, or the filter's width is out of range.
        ModelError: the filter needs an unembedding matrix, and the model has none.
    """
    check_folder(index)
    spec = resolved.spec.filter
    if str(corpus) == "-":
        raise SpecError(
            f"{spec.fitted} is fitted on the corpus first, and standard input cannot be read twice",
            "write it to a file and build that, or take another filter",
            where="`filter`",
        )
    spec.width(find_unembedding(resolved.files).shape[1] if filter_kind(spec.name).head else resolved.hidden)


def document_sample(spec: IndexSpec) -> DocumentSample[Draft]:
    """The documents that the sample is taken from, of those that are added to it."""
    size = spec.chunk.size or _WHOLE_TOKENS
    return DocumentSample(spec.filter.seed, n=spec.filter.sample, n_chars=_CHARS_A_TOKEN * spec.filter.sample * size)


def fit_on_corpus(
    resolved: Resolved, reading: Reading, cutter: Cutter, ledger: Ledger, index: Path
) -> tuple[int, dict[bytes, Floats]]:
    """Fit the filter of a build of `index`; the corpus streams through once. What is skipped is reported when it is
    indexed.

    Returns:
        How many chunks it was fitted on, equal texts included, and their vectors, (k,) of length 1, by text hash:
            without those that are zero, and none where the filter needs no embeddings.

    Raises:
        RagidxError: as `check_fit`; the sample is too small for the filter, or there is no document.
    """
    check_fit(resolved, reading.corpus, index)
    progress, skips = ledger.progress, Skips(reading.options.strict, reading.options.accept)
    progress.total_bytes = reading.total_bytes()
    progress.stage = "fitting " + resolved.spec.filter.fitted.replace("'", "")
    progress.tell(at_once=True)
    every = reading.sample(document_sample(resolved.spec), cutter, skips, progress)
    fitted = fit_filter(resolved, every, index, progress)
    progress.stage = INDEXING
    progress.tell(at_once=True)
    return fitted


def fit_filter(
    resolved: Resolved, every: Sequence[Item], index: Path, progress: Progress
) -> tuple[int, dict[bytes, Floats]]:
    """Fit the build's filter on chunks of the documents that were drawn.

    The encoder is not tuned for it: a build that was killed has to find the same numbers again, and with them its
    vectors in the journal. Vectors of a server are kept at once.
    """
    spec = resolved.spec.filter
    sample = [every[place] for place in lowest(spec.seed, (item.row.chunk_id for item in every), spec.sample)]
    ids = resolved.encoder.tokenizer.ids([item.text for item in sample]) if spec.counts_tokens else None
    if not spec.wants_embeddings:
        resolved.fit(FilterSample(ids=ids))
        return len(sample), {}
    different = {item.row.text_hash: item for item in sample}
    progress.n_sample = len(different)
    progress.tell(at_once=True)
    places = {key: place for place, key in enumerate(different)}
    embeddings = np.zeros((len(different), resolved.encoder.hidden), np.float32)
    with sample_journal(resolved, index) as journal:
        known = journal.get(list(different)) if journal else {}
        for window in windows(item for key, item in different.items() if key not in known):
            for keys, vectors in encode(window, Embedder(resolved.encoder), progress, raw=True, tune=False):
                embeddings[[places[key] for key in keys]] = vectors
                if journal:
                    journal.append(keys, vectors)
                    known |= journal.get(keys)
        for key, vector in known.items():  # as they are kept: the next run fits on the same numbers
            embeddings[places[key]] = vector
        texts = as_questions([item.row.chunk.text for item in sample], spec.seed) if spec.center else []
        questions = _encoded(resolved, texts, journal)
    resolved.fit(FilterSample(embeddings[[places[item.row.text_hash] for item in sample]], ids, questions))
    assert resolved.filter is not None
    unit = l2_normalize(resolved.filter(embeddings)).vectors
    resolved.anisotropy.add(unit, unit_sum(embeddings))
    return len(sample), {key: vector for key, vector in zip(different, unit, strict=True) if vector.any()}


def _encoded(resolved: Resolved, questions: Sequence[str], journal: Journal | None) -> Floats:
    """(m, d) raw vectors of questions, with the encoder's instruction; those of a server are kept."""
    encoder = resolved.encoder
    said = encoder.query_instruction(None)
    keys = [digest(f"\0question\0{said}\0{text}") for text in questions]
    known = journal.get(keys) if journal else {}
    missing = {key: text for key, text in zip(keys, questions, strict=True) if key not in known}
    batches = Embedder(encoder).batches(list(missing.values()), instruction=said, raw=True, tune=False)
    made = collect(batches, len(missing), encoder.hidden)
    if journal:
        journal.append(list(missing), made)
    known |= journal.get(keys) if journal else dict(zip(missing, made, strict=True))
    return np.array([known[key] for key in keys], np.float32).reshape(len(keys), encoder.hidden)
