"""The lens: which tokens a text's vector writes, before and after the filter, and which the removed part wrote.

    lens_text("a text", load_encoder("mini-decoder"))  one text
    lens_hit("a query", Searcher.open("index/"))      a query, its hit, and the tokens of their score
    spectrum("mini-decoder", corpus="docs/")           which directions write frequent, rare and random tokens

A vector e (d,) is pooled and neither filtered nor normalised; its logits are e W_U^T. The filter keeps P e, in the
vector's own coordinates, and removes e - P e, so that the logits before are those after plus those removed. Source: the
EmbedFilter paper, section 2.3.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.errors import ModelError, QueryError, SpecError, lone_surrogate
from ragidx.indexer.encoders.methods import filter_spec
from ragidx.indexer.filters.filter import Filter, make_filter
from ragidx.indexer.filters.logits import head_rows, token_coordinates
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.pipelines.experiments.lens.vocabulary import TokenLogit, Vocabulary, vocabulary_of
from ragidx.retriever.contents import rows
from ragidx.retriever.hit import Hit

if TYPE_CHECKING:
    from ragidx.indexer.encoders import Encoder
    from ragidx.retriever.searcher import Searcher
    from ragidx.retriever.where.conditions import Condition

_UNLIMITED = 1 << 30
_TOLERANCE = 1e-3  # of the inner products of a filter's columns, which are float32


@dataclass(frozen=True, slots=True)
class Lens:
    """What one vector writes: its tokens with the largest logits.

    Attributes:
        text: the text as it was read, without template and instruction.
        before: tokens of the vector as it was pooled.
        after: tokens of what the filter keeps; empty without a filter.
        removed: tokens of what the filter removes; empty without a filter.
        removed_share: share of the vector's squared length that the filter removes, 0 to 1.
    """

    text: str
    before: tuple[TokenLogit, ...]
    after: tuple[TokenLogit, ...]
    removed: tuple[TokenLogit, ...]
    removed_share: float


@dataclass(frozen=True, slots=True)
class TextLens:
    """A text through the lens: how its vector was made, and what it writes.

    Attributes:
        encoder, filter: how the vector was made.
        hidden, dim: width of the vector, and how much of it the filter keeps.
    """

    model: str
    encoder: EncoderSpec
    filter: FilterSpec
    hidden: int
    dim: int
    lens: Lens

    def to_json(self) -> dict[str, Any]:
        """All fields; specs as text."""
        return dataclasses.asdict(self) | {"encoder": str(self.encoder), "filter": str(self.filter)}


@dataclass(frozen=True, slots=True)
class SharedToken:
    """A token that query and hit both write, after the filter.

    Attributes:
        share: part of the score that the token makes; those of the whole vocabulary add up to the score.
        query, hit: logits of the token in the two vectors.
    """

    id: int
    token: str
    share: float
    query: float
    hit: float


@dataclass(frozen=True, slots=True)
class HitLens:
    """A query and one of its hits through the lens.

    Attributes:
        score: the cosine of the two vectors before they are stored: that of the hit, but for the rounding of float16.
        shared: the tokens that stand for the largest parts of it, among those that both write.
    """

    index: str
    model: str
    encoder: EncoderSpec
    filter: FilterSpec
    hidden: int
    dim: int
    query: Lens
    hit: Hit
    written: Lens
    score: float
    shared: tuple[SharedToken, ...]

    def to_json(self) -> dict[str, Any]:
        """All fields; the hit as `ragidx query` has it."""
        specs = {"encoder": str(self.encoder), "filter": str(self.filter)}
        return dataclasses.asdict(self) | specs | {"hit": self.hit.to_json()}


def lens_text(
    text: str, encoder: Encoder, filter: FilterSpec | None = None, *, instruction: str | None = None, k: int = 10
) -> TextLens:
    """What a text's vector writes.

    Args:
        text: a document; with an instruction a query.
        encoder: encoder of a model with an unembedding matrix.
        filter: a field that is not named is that of the model's default.
        instruction: the task sentence with which the text is read as a query; empty: as a query without one.
        k: tokens to name.

    Raises:
        QueryError: the text is empty or no Unicode text, or the model gives no vector for it.
        ModelError: the model has no unembedding matrix, or its vectors are of another width.
        SpecError: the filter is not a projection, or k is below 1.
    """
    _check(text, k)
    spec = filter_spec(encoder.files, encoder.spec, filter)
    made = make_filter(spec, encoder)
    vector = encoder.encode_document([text])[0] if instruction is None else encoder.encode_query([text], instruction)[0]
    lens, _ = _lens(text, vector, made, Vocabulary(encoder.files, encoder.tokenizer), k)
    dim = encoder.hidden if made is None else made.dim
    return TextLens(encoder.files.name, encoder.spec, spec, encoder.hidden, dim, lens)


def lens_hit(
    query: str,
    searcher: Searcher,
    hit: int = 1,
    *,
    instruction: str | None = None,
    where: str | Condition | None = None,
    k: int = 10,
) -> HitLens:
    """What a query and one of its hits write, and which tokens their score comes from.

    The hit's text is encoded again, for the vector before the filter, which no index keeps.

    Args:
        query: text of the query.
        searcher: an open index.
        hit: the rank of the hit.
        instruction: task sentence of the query; None: the index's own; empty: none.
        where: a condition on metadata, as in a search.
        k: tokens to name.

    Raises:
        QueryError: the query is empty, or has no hit of that rank.
        ModelError: the index's model is not here, or has no unembedding matrix.
        SpecError: the index's filter is not a projection, or `hit` or k is below 1.
    """
    _check(query, k)
    if hit < 1:
        raise SpecError(f"hit {hit} is none: the best hit is number 1", "give 1 or more", where="`hit`")
    if searcher.spec.encoder is None:
        _ = searcher.encoder  # says what an index of precomputed vectors lacks
    vocabulary, encoder = vocabulary_of(searcher), searcher.encoder
    hits = searcher.search([query], k=hit, instruction=instruction, where=where, mode="dense", fold=False)[0]
    if len(hits) < hit:
        found = f"the query has {len(hits)} hit{'' if len(hits) == 1 else 's'}"
        hint = f"give 1 to {len(hits)}" if len(hits) > 1 else "give 1" if hits else "widen the condition"
        raise QueryError(f"{found}, there is no hit {hit}", hint, where="`hit`")
    text = _encoded_text(hits[-1], searcher)
    made = searcher.embedder.filter
    asked, query_vector = _lens(query, encoder.encode_query([query], instruction)[0], made, vocabulary, k)
    written, hit_vector = _lens(text, encoder.encode_document([text])[0], made, vocabulary, k)
    score, shared = _shared(query_vector, hit_vector, vocabulary, k)
    return HitLens(
        index=str(searcher.store.path),
        model=searcher.model_files.name,
        encoder=searcher.spec.encoder or encoder.spec,
        filter=searcher.spec.filter,
        hidden=encoder.hidden,
        dim=searcher.store.manifest.dim,
        query=asked,
        hit=hits[-1],
        written=written,
        score=score,
        shared=shared,
    )


def _lens(
    text: str, vector: NDArray[np.float32], made: Filter | None, vocabulary: Vocabulary, k: int
) -> tuple[Lens, NDArray[np.float64]]:
    """What a vector (d,) writes, and what the filter keeps of it, (d,) float64 in the vector's own coordinates."""
    if vector.shape != (vocabulary.hidden,):
        raise ModelError(
            f"its vectors are {vector.size} wide and its unembedding matrix {vocabulary.hidden}: the lens cannot read "
            "them",
            "remove the modules after the language model, with `method=classical`",
        )
    before = vector.astype(np.float64)
    if not before.any():
        raise QueryError(f"the model gives no vector for the text {text[:60]!r}", "use words that it knows")
    if made is None:
        return Lens(text, vocabulary.top([before], k)[0], (), (), 0.0), before
    after = _lifted(before, made)
    removed = before - after
    read = vocabulary.top([before, after, removed], k)
    return Lens(text, read[0], read[1], read[2], float(removed @ removed / (before @ before))), after


def _lifted(vector: NDArray[np.float64], made: Filter) -> NDArray[np.float64]:
    """The kept numbers as a vector of the model's own width.

    In float64: what the filter removes can be one direction, of which rounding would decide the tokens.
    """
    columns = made.matrix.astype(np.float64)
    if np.abs(columns.T @ columns - np.eye(columns.shape[1])).max() > _TOLERANCE:
        raise SpecError(
            "the filter stretches what it keeps, so a vector is not what it keeps plus what it removes",
            "take a filter that keeps lengths, such as embedfilter, truncation or pca",
            where="`filter`",
        )
    kept = vector @ columns - (0.0 if made.shift is None else made.shift)
    return np.asarray(kept @ columns.T, dtype=np.float64)


def _shared(
    query: NDArray[np.float64], hit: NDArray[np.float64], vocabulary: Vocabulary, k: int
) -> tuple[float, tuple[SharedToken, ...]]:
    """The cosine of two vectors (d,), and the tokens that both write with the largest parts of it."""
    lengths = float(np.linalg.norm(query) * np.linalg.norm(hit))
    one, other = token_coordinates(vocabulary.head, vocabulary.spectrum, [query, hit])
    shares = one * other / lengths
    # Two vectors agree in the tokens that neither writes as well; those have no place in a list of what they share.
    wanted = np.where((one > 0) & (other > 0), shares, -np.inf)
    best = [int(i) for i in np.argsort(-wanted, kind="stable")[:k] if np.isfinite(wanted[i])]
    read = head_rows(vocabulary.head, best) @ np.stack([query, hit], axis=1) if best else np.zeros((0, 2))
    return float(query @ hit) / lengths, tuple(
        SharedToken(i, vocabulary.shown(i), float(shares[i]), float(a), float(b))
        for i, (a, b) in zip(best, read, strict=True)
    )


def _encoded_text(hit: Hit, searcher: Searcher) -> str:
    """What the encoder read of a hit: its text, with the title in front where the index has it so."""
    limit = searcher.encoder.text_limit()
    chunker = Chunker(
        searcher.spec.chunk, searcher.encoder.tokenizer.counter, limit=_UNLIMITED if limit is None else limit
    )
    (row,) = rows(searcher.store, [hit.chunk_id])
    return chunker.encoded_text(row.chunk)


def _check(text: str, k: int) -> None:
    if not text.strip():
        raise QueryError("the text is empty", "write a text")
    if (at := lone_surrogate(text)) is not None:
        raise QueryError(f"no Unicode text at character {at}", "write it in UTF-8")
    if k < 1:
        raise SpecError(f"k={k} names no token", "give 1 or more", where="`k`")
