"""Chunks of an index that its model does not know, by script, and the models on this machine that know them.

rows -> texts -> the tokenizer of the index's model -> shares of unknown texts by script -> the tokenizers of others

No weights are loaded. An index that was built before such chunks lost their vectors is examined alike. Of a large index
so many rows are read, evenly spaced. A tokenizer that knows a script says nothing of how well its model does.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import RagidxError
from ragidx.indexer.arrays import slices
from ragidx.indexer.encoders.methods import resolve
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.prompts.tokenizer import TextTokenizer, load_tokenizer
from ragidx.indexer.specs import TOKEN_TABLE
from ragidx.indexer.unknown import script_of
from ragidx.pipelines.doctor.local_models import found_models
from ragidx.pipelines.doctor.report import UnknownChunks, UnknownScript
from ragidx.retriever.searcher import Searcher

SAMPLE = 10_000
"""Chunks that are examined."""

_BLOCK = 256  # rows that are read at once
_TRIED = 30  # chunks of a script that are tried with another model
_KNOWN = 0.9  # of them, that a model knows


def unknown_chunks(index: Path) -> UnknownChunks:
    """What the model of an index does not know of it.

    Raises:
        IndexFormatError: there is no index, or it is damaged.
        ModelError: its model is not here.
    """
    searcher = Searcher.open(index)
    store, spec = searcher.folder, searcher.spec
    found = UnknownChunks(str(index), "" if spec.encoder is None else spec.encoder.model, n_zeros=store.n_zeros)
    if spec.encoder is None or spec.precomputed is not None or searcher.model_files.served or not store.n_rows:
        return found
    tokenizer = _tokenizer_of(searcher.model_files)
    chunker = Chunker(spec.chunk, tokenizer.counter, limit=sys.maxsize)
    rows = np.unique(np.linspace(0, store.n_rows - 1, min(SAMPLE, store.n_rows)).astype(np.int64))
    n_all, n_unknown, tried = Counter[str](), Counter[str](), defaultdict[str, list[str]](list)
    for block in slices(rows, _BLOCK):
        for row in store.rows(block):
            script = script_of(row.text)
            n_all[script] += 1
            if tokenizer.is_unknown(chunker.encoded_text(row.chunk)):
                n_unknown[script] += 1
                tried[script] += [row.text] if len(tried[script]) < _TRIED else []
    known_by = _known_by(tried)
    scripts = tuple(
        UnknownScript(script, count, n_unknown[script], tuple(known_by[script]))
        for script, count in n_all.most_common()
    )
    return UnknownChunks(found.index, found.model, len(rows), store.n_rows, store.n_zeros, scripts)


def _known_by(texts: dict[str, list[str]]) -> defaultdict[str, list[str]]:
    """The models on this machine that know the texts of each script."""
    found = defaultdict[str, list[str]](list)
    for name, tokenizer in _tokenizers() if texts else ():
        for script, some in texts.items():
            if sum(not tokenizer.is_unknown(text) for text in some) >= _KNOWN * len(some):
                found[script].append(name)
    return found


def _tokenizers() -> Iterator[tuple[str, TextTokenizer]]:
    for model in found_models():
        if not model.problem:
            try:
                yield model.name, _tokenizer_of(locate(model.name))
            except RagidxError:
                continue  # it needs a package, or is damaged: `ragidx models` and a check of it say so


def _tokenizer_of(files: ModelFiles) -> TextTokenizer:
    """The tokenizer of a model; of a token table with what the table knows."""
    return StaticEncoder(files, resolve(files)).tokenizer if files.family == TOKEN_TABLE else load_tokenizer(files)
