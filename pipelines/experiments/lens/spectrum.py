"""Logit spectroscopy of a model: which directions of its spectrum write frequent, rare and random tokens.

    counted tokens -> log p (V,) -> average token (d,) -> Δ (d,) for each group of tokens

Δ_i is the part by which the summed logits of a group change when direction i is removed from the average token; the Δ
of all directions add up to -1. Directions are numbered from 0 by falling singular value, as the filter counts them.
Source: the EmbedFilter paper, section 3.2 and figure 2. Of the model the head and the tokenizer are read; its network
runs over a few beginnings of texts, for the mean cosine of their vectors before and after the filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, RagidxError, SpecError
from ragidx.corpora.records import OnSkip
from ragidx.corpora.sources import sources
from ragidx.indexer.arrays import Doubles
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.encoders.methods import filter_spec, resolve
from ragidx.indexer.filters.anisotropy import MeanCosines
from ragidx.indexer.filters.filter import Filter, make_filter
from ragidx.indexer.filters.logits import Ids, average_of_log_p, delta, log_frequencies, logits, top_tokens
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.prompts.tokenizer import load_tokenizer
from ragidx.indexer.specs import EncoderSpec, FilterSpec, filter_kind
from ragidx.pipelines.experiments.lens.vocabulary import Vocabulary, vocabulary_of
from ragidx.pipelines.ingest.workers.spread import documents
from ragidx.retriever.models import ModelPlace, stored_filter
from ragidx.retriever.searcher import Searcher

_EDGES = (1, 5, 10)  # per cent of the directions at each end
_SAMPLE = 142  # texts whose vectors are compared: 10,011 pairs
_SAMPLE_TOKENS = 64  # of each: a large model on a CPU takes minutes for them, and not hours


@dataclass(frozen=True, slots=True)
class SpectrumPart:
    """A part of the spectrum and its share of Σ|Δ|.

    Attributes:
        n_directions: number of its directions; a group that prefers no direction has a share of n_directions / d.
        share: 0 to 1.
    """

    name: str
    n_directions: int
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class TokenGroup:
    """Some tokens, and what each direction does to them.

    Attributes:
        name: frequent, rare or random.
        ids, tokens: ids and texts of the tokens.
        log_p: the mean logarithm of their frequency in the corpus, less the mean of all tokens if `centred`.
        logit: mean logit of the tokens, read from the average token; it is `log_p`, as well as the head can write it.
        delta: (d,) Δ of each direction.
        parts: the shares of the edges, the middle, and what the filter drops.
    """

    name: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    log_p: float
    logit: float
    delta: Doubles
    parts: tuple[SpectrumPart, ...]

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {
            "name": self.name,
            "tokens": [{"id": i, "token": token} for i, token in zip(self.ids, self.tokens, strict=True)],
            "log_p": self.log_p,
            "logit": self.logit,
            "parts": [{"name": p.name, "directions": p.n_directions, "share": p.share} for p in self.parts],
            "delta": self.delta.tolist(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class SpectrumReport:
    """Logit spectroscopy of one model over one corpus.

    Attributes:
        model: name of the model.
        source: the corpus or index whose tokens were counted.
        filter: filter whose kept directions are shown.
        dim: how many dimensions of a vector it keeps.
        n_texts, n_tokens, n_distinct: number of texts, tokens and different tokens that were counted.
        n_vocabulary: rows of the head.
        centred: whether the mean of log p was taken away first.
        seed: random seed of the random tokens, and of the choice among equally rare ones.
        fit: correlation of the average token's logits with log p over the vocabulary; near 0, Δ says nothing of
            frequency.
        values: (d,) singular values, falling.
        kept: the directions that the filter keeps, rising; None where it keeps none as they are.
        groups: frequent, rare, random.
        mean_cosines: how alike the vectors of a sample of the texts are, each cut after 64 tokens, before and after the
            filter; None: there are fewer than two texts, or the model does not run here.
    """

    model: str
    source: str
    filter: FilterSpec
    dim: int
    n_texts: int
    n_tokens: int
    n_distinct: int
    n_vocabulary: int
    centred: bool
    seed: int
    fit: float
    values: Doubles
    kept: tuple[int, ...] | None
    groups: tuple[TokenGroup, ...]
    mean_cosines: MeanCosines | None

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return data | {
            "filter": str(self.filter),
            "values": self.values.tolist(),
            "kept": None if self.kept is None else list(self.kept),
            "groups": [group.to_json() for group in self.groups],
            "mean_cosines": None if self.mean_cosines is None else asdict(self.mean_cosines),
        }


def spectrum(
    model: str | None = None,
    *,
    corpus: str | Path | None = None,
    index: str | Path | None = None,
    filter: FilterSpec | None = None,
    group_size: int = 100,
    centred: bool = False,
    seed: int = 0,
    revision: str | None = None,
    on_skip: OnSkip | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> SpectrumReport:
    """Δ of every direction for frequent, rare and random tokens, counted in a corpus or in the chunks of an index.

    Rare tokens are the least frequent of those that occur, drawn among equals; random ones are drawn from the whole
    vocabulary.

    Args:
        model: None: the index's own, else mini-decoder.
        corpus: a folder, a file, or `-`, as for a build.
        index: an index folder, in place of a corpus.
        filter: filter whose kept directions are reported, with other fields of the model's default; None: the
            index's.
        group_size: tokens in each group.
        centred: whether the mean of log p over the vocabulary is taken away first. All tokens share it, and a head that
            can write it with one direction hides all others behind that one.
        seed: random seed of the random tokens, of the choice among equally rare ones, and of the texts whose vectors
            are compared.
        revision: revision of a hub id.
        on_skip: called for whatever of the corpus is skipped.
        device: where those texts are encoded, as for a build.
        dtype: number format in which they are encoded, as for a build.

    Raises:
        SpecError: neither or both of corpus and index, a group of no tokens, or a filter that is fitted on a corpus and
            is not the index's own.
        CorpusError: no such corpus, nothing to count in it, or too few different tokens.
        IndexFormatError: there is no index.
        ModelError: no such model, one without an unembedding matrix, or another than the index's.
    """
    if (corpus is None) == (index is None):
        raise SpecError("tokens are counted in a corpus or in an index", "give one of `corpus` and `index`")
    if group_size < 1:
        raise SpecError(f"groups of {group_size} tokens hold none", "give 1 or more", where="`group_size`")
    if corpus is not None:
        files = locate(model or "mini-decoder", revision=revision)
        vocabulary, encoder = Vocabulary(files, load_tokenizer(files)), resolve(files)
        spec = filter_spec(files, encoder, filter)
        made_filter = make_filter(spec, vocabulary)
        skip = on_skip or (lambda _: None)
        texts = (document.text for document in documents(sources(corpus, beir=True, on_skip=skip), skip))
    else:
        searcher = Searcher.open(str(index), ModelPlace(model=model))
        vocabulary = vocabulary_of(searcher)
        assert searcher.spec.encoder is not None  # else it has no vocabulary
        encoder = searcher.spec.encoder
        spec = filter or searcher.spec.filter
        made_filter = stored_filter(searcher.store, spec) if filter is None else make_filter(spec, vocabulary)
        texts = (text for _, batch in searcher.folder.batches(["text"]) for text in batch.column(0).to_pylist())
    kept_columns = _kept_columns(spec, made_filter)
    source = str(index if corpus is None else corpus)
    sample: list[str] = []
    counts, n_texts = vocabulary.count(_sampled(texts, sample, seed))
    groups = _chosen(counts, vocabulary, group_size, seed, source)
    log_p = log_frequencies(counts, vocabulary.head.shape[0])
    if centred:
        log_p -= log_p.mean()
    average = average_of_log_p(vocabulary.head, vocabulary.spectrum, log_p)
    read = logits(vocabulary.head, [average])[0]

    def group(name: str, ids: Ids) -> TokenGroup:
        changes = delta(vocabulary.head, vocabulary.spectrum, average, ids)
        return TokenGroup(
            name=name,
            ids=tuple(ids.tolist()),
            tokens=tuple(vocabulary.shown(i) for i in ids.tolist()),
            log_p=float(log_p[ids].mean()),
            logit=float(read[ids].mean()),
            delta=changes,
            parts=parts_of(changes, kept_columns),
        )

    return SpectrumReport(
        model=vocabulary.files.name,
        source=source,
        filter=spec,
        dim=vocabulary.hidden if made_filter is None else made_filter.dim,
        n_texts=n_texts,
        n_tokens=int(counts.sum()),
        n_distinct=int(np.count_nonzero(counts)),
        n_vocabulary=vocabulary.head.shape[0],
        centred=centred,
        seed=seed,
        fit=float(np.corrcoef(read, log_p)[0, 1]),
        values=vocabulary.spectrum.values,
        kept=kept_columns,
        groups=tuple(group(name, ids) for name, ids in groups.items()),
        mean_cosines=_mean_cosines(vocabulary.files, encoder, made_filter, sample, device, dtype),
    )


def _sampled(texts: Iterable[str], sample: list[str], seed: int) -> Iterator[str]:
    """The texts as they come; at the end `sample` has some of them, each as likely as another (algorithm R)."""
    drawn = np.random.default_rng(seed)
    for number, text in enumerate(texts):
        if number < _SAMPLE:
            sample.append(text)
        elif (place := int(drawn.integers(number + 1))) < _SAMPLE:
            sample[place] = text
        yield text


def _mean_cosines(
    files: ModelFiles, spec: EncoderSpec, made: Filter | None, texts: list[str], device: str, dtype: str
) -> MeanCosines | None:
    """Of the beginnings of texts; None where the model does not run here, which nothing else of a spectrum needs."""
    n_tokens = min(_SAMPLE_TOKENS, spec.max_length or _SAMPLE_TOKENS)
    try:
        embedder = Embedder(encoder_of(files, replace(spec, max_length=n_tokens), device=device, dtype=dtype), made)
        for _ in embedder.batches(texts):
            pass
    except RagidxError:
        return None
    return embedder.anisotropy.means()


def parts_of(changes: Doubles, kept: tuple[int, ...] | None) -> tuple[SpectrumPart, ...]:
    """The shares of Σ|Δ| (d,) at both edges, in the middle half, and in what a filter drops.

    >>> [(p.name, p.n_directions, p.share) for p in parts_of(np.array([-0.5, 0.25, -0.25, 0.0]), (1, 2))][-3:]
    [('last 5 %', 1, 0.0), ('last 1 %', 1, 0.0), ('dropped by the filter', 2, 0.5)]
    """
    sizes = np.abs(changes)
    d = sizes.size
    widths = [max(1, round(d * edge / 100)) for edge in _EDGES]
    named = {f"first {edge} %": sizes[:n] for edge, n in zip(_EDGES, widths, strict=True)}
    named["middle half"] = sizes[d // 4 : d - d // 4]
    named |= {f"last {edge} %": sizes[d - n :] for edge, n in reversed(list(zip(_EDGES, widths, strict=True)))}
    if kept is not None:
        named["dropped by the filter"] = np.delete(sizes, list(kept))
    return tuple(SpectrumPart(name, part.size, float(part.sum() / sizes.sum())) for name, part in named.items())


def _kept_columns(spec: FilterSpec, made: Filter | None) -> tuple[int, ...] | None:
    """The directions of the spectrum that the filter keeps; None for one that does not choose among them."""
    if made is None or made.columns is None or not filter_kind(spec.name).head:
        return None
    return tuple(sorted(int(column) for column in made.columns))


def _chosen(counts: Ids, vocabulary: Vocabulary, size: int, seed: int, source: str) -> dict[str, Ids]:
    seen = np.flatnonzero(counts)
    if not seen.size:
        raise CorpusError("there is no text in it to count tokens of", "name a corpus with documents", where=source)
    if seen.size < 2 * size:
        raise CorpusError(
            f"{seen.size:,} different tokens were counted; {size:,} frequent and {size:,} rare ones need {2 * size:,}",
            f"count a larger corpus, or ask for at most {seen.size // 2:,} with `group_size`",
            where=source,
        )
    drawn = np.random.default_rng(seed)
    among_equals = drawn.permutation(seen)
    rare = among_equals[np.argsort(counts[among_equals], kind="stable")[:size]]
    return {
        "frequent": top_tokens(counts, size),
        "rare": rare,
        "random": drawn.choice(vocabulary.n_named, size, replace=False),
    }
