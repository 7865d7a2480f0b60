"""`layer=auto`: which hidden layer of a model suits a corpus, chosen before an index is made.

documents -> a sample of chunks -> of each, ten words from its middle and the rest of it -> both encoded at every layer,
in one pass -> the mean reciprocal rank (MRR) at which each finds the other among all -> a layer's number

Ten words stand for a question: a layer may tell texts of one length apart and fail between lengths, as many middle
layers do. The method is the inverse cloze task (Lee, Chang and Toutanova 2019), without training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders.methods import AUTO_LAYER
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.filters.fitting import DocumentSample, lowest
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.generations import committed_or_none
from ragidx.pipelines.ingest.corpus import Reading, chunker_of
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.ingest.report import OnProgress, Progress, Skips
from ragidx.pipelines.ingest.resolve import Resolved, resolve
from ragidx.pipelines.ingest.selection import Corpus, reading_of
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft

if TYPE_CHECKING:
    from ragidx.indexer.encoders.protocol import Encoder

_SAMPLE = 64
_LEAST = 16
_WORDS = 10
_REST = 3 * _WORDS  # words of the rest, at least
_CHARS_A_DOCUMENT = 1 << 14
_CHARS_A_WORD = 20  # more on average: words are not divided by spaces


def with_layer(
    corpus: Corpus, index: Path, options: BuildOptions, on_progress: OnProgress | None
) -> tuple[BuildOptions, list[float]]:
    """The options of a build with a number in place of `layer=auto`, and the scores of layers where one is chosen.

    An index that is updated keeps its layer.

    Raises:
        SpecError: the corpus has too few texts or cannot be read twice, or the model has no layers to choose from.
    """
    last = with_last_layer(index, options)
    if options.encoder.get("layer") != AUTO_LAYER or last.encoder.get("layer") is None:
        return last, []
    resolved = resolve(index, last)
    reading = reading_of(corpus, index, resolved.options, None)
    if str(reading.corpus) == "-":
        raise SpecError(
            "a layer is chosen on the corpus first, and standard input cannot be read twice",
            "write it to a file and build that, or give the number of a layer",
            where="`layer`",
        )
    progress = Progress(stage="choosing a layer", on_progress=on_progress)
    with progress.while_doing("loading the model"):
        resolved.encoder.encode_layers([])  # refuses what has none, before the corpus is read
    texts = _texts(resolved, reading, progress)
    progress.n_sample = len(texts)
    progress.tell(at_once=True)  # encoding them takes most of the time
    layer, scores = choose_layer(resolved.encoder, None if resolved.wants_a_sample else resolved.filter, texts)
    return dataclasses.replace(options, encoder={**options.encoder, "layer": layer}), scores


def with_last_layer(index: Path, options: BuildOptions) -> BuildOptions:
    """The options with the last layer in place of `layer=auto`, or with that of an index that is updated."""
    if options.encoder.get("layer") != AUTO_LAYER:
        return options
    keeps = not options.rebuild and committed_or_none(index) is not None
    return dataclasses.replace(options, encoder={**options.encoder, "layer": None if keeps else -1})


def choose_layer(encoder: Encoder, filter_: Filter | None, texts: Sequence[str]) -> tuple[int, list[float]]:
    """The layer at which ten words of a text and the rest of it find each other best.

    It is the last layer unless another is better by more than the standard error of the difference. The encoder is that
    of the last layer; the texts are at least 16, of 40 words or more.

    Returns:
        Its number, -1 for the last, and the score of each layer from 1 on.

    Raises:
        SpecError: the model, method or pooling has no vector for each layer.
    """
    halves = [_parted(*_words(text)) for text in texts]
    asked = encoder.encode_layers([words for words, _ in halves], encoder.query_instruction(None))
    rest = encoder.encode_layers([others for _, others in halves])
    ranks = np.stack([_reciprocal_ranks(*pair, filter_) for pair in zip(asked, rest, strict=True)])
    scores = ranks.mean(axis=1)
    best = int(scores.argmax())
    gain = ranks[best] - ranks[-1]
    if gain.mean() <= gain.std(ddof=1) / np.sqrt(len(texts)):
        best = len(scores) - 1
    return -1 if best == len(scores) - 1 else best + 1, scores.round(4).tolist()


def _texts(resolved: Resolved, reading: Reading, progress: Progress) -> list[str]:
    drawn = DocumentSample[Draft](0, n=4 * _SAMPLE, n_chars=4 * _SAMPLE * _CHARS_A_DOCUMENT)
    cutter = Cutter(lambda: chunker_of(resolved.encoder, resolved.spec.chunk))
    every = [item.row for item in reading.sample(drawn, cutter, Skips(), progress)]
    long = [row for row in every if len(_words(row.text)[0]) >= _WORDS + _REST]
    taken = {long[place].text: None for place in lowest(0, (row.chunk_id for row in long), _SAMPLE)}
    if len(taken) < _LEAST:
        raise SpecError(
            f"the corpus has {len(taken)} texts of {_WORDS + _REST} words or more, too few to choose a layer on",
            "give the number of a layer",
            where="`layer`",
        )
    return list(taken)


def _words(text: str) -> tuple[list[str], str]:
    """Words and what is put between them; pairs of characters, as in Chinese, where spaces do not divide words."""
    words = text.split()
    if sum(map(len, words)) <= _CHARS_A_WORD * len(words):
        return words, " "
    return [text[start : start + 2] for start in range(0, len(text), 2)], ""


def _parted(words: Sequence[str], between: str) -> tuple[str, str]:
    """Ten words from the middle, and the rest."""
    start = (len(words) - _WORDS) // 2
    rest = [*words[:start], *words[start + _WORDS :]]
    return between.join(words[start : start + _WORDS]), between.join(rest)


def _reciprocal_ranks(asked: Floats, rest: Floats, filter_: Filter | None) -> Floats:
    """(n,) of texts, the mean of both directions; of equal scores the worst rank counts."""
    left, right = (l2_normalize(one if filter_ is None else filter_(one)).vectors for one in (asked, rest))
    scores = left @ right.T
    found: Floats = sum(1 / (one >= np.diag(one)[:, None]).sum(axis=1) for one in (scores, scores.T)) / 2
    return found
