"""Specs as text, for tables that people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import AUTO, FLAT, MIN_ROWS
from ragidx.indexer.encoders.methods import ENDPOINT, SENTENCE_TRANSFORMERS
from ragidx.indexer.specs import EncoderSpec, FilterSpec, IndexSpec, filter_kind
from ragidx.pipelines.cli import console

if TYPE_CHECKING:
    from ragidx.indexer.filters.anisotropy import MeanCosines
    from ragidx.indexer.lexical.spec import LexicalSpec
    from ragidx.indexer.store import Store
    from ragidx.pipelines.experiments.trials.trial import Comparison


_EACH_FROM = 1000  # rows
DEAD_SHARE = 0.1  # from which `compact` rewrites a segment; `rewrite.DEAD_SHARE`, whose module no help needs
_MANY_CHUNKS = 1000  # of an index whose largest file is named


def model(spec: IndexSpec) -> str:
    """The model's name, and the hash of its weights."""
    named = "none"
    if spec.encoder is not None:
        is_served = spec.encoder.method == ENDPOINT
        named = spec.encoder.model + (", at an endpoint" if is_served else f"  (weights {spec.weights[:12]})")
    if spec.precomputed is None:
        return named
    by = f", made by {spec.precomputed.made_by}" if spec.precomputed.made_by else ""
    return f"{named}{':' if spec.encoder is None else ';'} precomputed vectors{by}"


def encoder(spec: EncoderSpec | None) -> str:
    """Method, and its chosen parts; None: no model encodes queries."""
    if spec is None:
        return "none: no question is compared with the vectors but one that is a vector (--vector)"
    if spec.method == SENTENCE_TRANSFORMERS:
        return "sentence-transformers: the model's own modules and prompts"
    if spec.method == ENDPOINT:
        parts = [
            "the server's own method",
            f"template '{spec.template}'" if spec.template else "",
            "" if spec.max_length is None else f"at most {spec.max_length} tokens of a text",
            f"queries with '{spec.instruction}'" if spec.instruction else "",
            "tokens counted by " + ("characters" if spec.tokenizer is None else Path(spec.tokenizer).name),
        ]
        return ", ".join(part for part in parts if part)
    layer = {-1: "last layer", 0: "token embeddings (layer 0)"}.get(spec.layer, f"layer {spec.layer}")
    parts = [
        spec.method,
        "" if spec.template == spec.method else f"template {spec.template}",
        "" if spec.template_query is None else f"template {spec.template_query} for queries",
        "" if spec.copies is None else f"{spec.copies} copies",
        f"{spec.pooling} pooling" + ("" if spec.pooler is None else f" by {Path(spec.pooler).name}"),
        "" if spec.pool_eos else "closing tokens not pooled",
        "" if spec.layer == 0 else f"{spec.attention} attention",  # the input embeddings attend to nothing
        layer + (" through the final norm" if spec.layer_norm else ""),
        "" if spec.max_length is None else f"at most {spec.max_length} tokens of a text",
        "for all copies together" if spec.compute_matched else "",
        "" if spec.truncate == "end" else f"cut in the {spec.truncate}",
        "" if not spec.adapters else f"adapters {' + '.join(Path(name).name for name in spec.adapters)}",
        "" if not spec.instruction else f"queries with '{spec.instruction}'",
    ]
    return ", ".join(part for part in parts if part)


def mean_cosines(found: MeanCosines | None, of: str) -> list[tuple[str, str]]:
    """The row on how alike vectors are on average, where it is known."""
    if found is None:
        return []
    after = "" if found.before == found.after else f" before the filter, {found.after:.3f} after"
    return [("cosines", f"{found.before:.3f}{after}: the mean of all pairs of {console.plural(found.n_vectors, of)}")]


def filter_(spec: FilterSpec, dim: int) -> str:
    """Name and what it keeps."""
    more = ", the means taken off" * spec.center + ", adapted to the corpus" * bool(spec.adapted)
    if spec.name == "none":
        return f"none: {'all raw coordinates' if spec.adapted else console.plural(dim, 'raw coordinate')}{more}"
    name = "EmbedFilter" if spec.name == "embedfilter" else spec.name
    tau = f", tau {spec.tau:g}" if spec.tau is not None else ""
    kept = filter_kind(spec.name).keeps if spec.offset is None else f"from direction {spec.offset} on"
    seed = f" (seed {spec.seed})" if "seed" in filter_kind(spec.name).fields else ""
    power = f", each divided by its deviation to the power {spec.power:g}" if spec.power else ""
    return f"{name}, {console.plural(dim, 'dimension')}{tau}, {kept}{power}{seed}{more}"


def chunks(spec: ChunkSpec) -> str:
    """How documents are cut."""
    if spec.size is None:
        return "whole documents"
    overlap = f", overlap {spec.overlap}" if spec.overlap else ""
    return f"at most {spec.size} tokens{overlap}" + (", titles in front" if spec.titles else "")


def words(lexical: LexicalSpec | None, asked: str) -> str:
    """How words are searched; `asked` is the option of the index."""
    if lexical is None:
        return "none (--lexical adds them)" if asked == "off" else "none: there is no text"
    if lexical.stemmer == "none":
        why = ": no language is clear; --stemmer names one" if asked == "auto" else ""
        return f"BM25, not stemmed{why}"
    return f"BM25, stemmed ({lexical.stemmer})"


def size(n_bytes: int, rows: int, noun: str) -> str:
    """Bytes of an index, and of each row where there are enough that fixed parts do not count."""
    each = f", {n_bytes / rows:,.0f} bytes a {noun}" if rows >= _EACH_FROM else ""
    return console.n_bytes(n_bytes) + each


def dead_rows(n_dead: int, n_live: int, least: int = 1) -> list[tuple[str, str]]:
    """The row on rows of deleted chunks that are stored, where there are so many at least."""
    if n_dead < least:
        return []
    share = n_dead / (n_dead + n_live)
    hint = ": `ragidx compact` drops them" if share > DEAD_SHARE else ""
    return [("dead", f"{console.plural(n_dead, 'row')} of deleted chunks, {share:.1%} of all{hint}")]


def searched(index_type: str, made: list[str], recall: float | None, code_bytes: float | None = None) -> str:
    """`auto: HNSW16 2x, flat, ann_recall@10 0.951 measured`, from the segments of an index.

    `code_bytes` are those of a row where codes alone are kept.
    """
    counts = Counter(made)
    if counts.keys() <= {index_type}:
        found = index_type
    elif counts.keys() == {FLAT} and index_type == AUTO:
        found = "flat (exact search)"
    elif counts.keys() == {FLAT}:
        found = f"flat ({index_type} from {MIN_ROWS:,} rows in a segment on)"
    else:
        recipes = [recipe + (f" {count}x" if count > 1 else "") for recipe, count in counts.items()]
        found = f"{index_type}: {', '.join(recipes)}"
    found += "" if code_bytes is None else f", codes alone of {code_bytes:.0f} bytes"
    return found + ("" if recall is None else f", ann_recall@10 {recall:.3f} measured")


def searched_field(
    index_type: str, made: list[str], recall: float | None, code_bytes: float | None = None
) -> list[tuple[str, str]]:
    """The report's line on how an index is searched; none for exact search."""
    return [("searched", searched(index_type, made, recall, code_bytes))] if {*made} - {FLAT} else []


def unknown(scripts: Mapping[str, int], *, has_words: bool) -> str:
    """How many chunks have no vector, since the model does not know their words, by script."""
    each = ", ".join(f"{name} {count:,}" for name, count in scripts.items())
    found = "found by words alone" if has_words else "found by no search: the index has no words (--lexical)"
    return f"{console.plural(sum(scripts.values()), 'chunk')} ({each}), {found}"


def comparison(c: Comparison) -> list[tuple[str, str]]:
    """How two indexes answer the same queries."""
    from ragidx.pipelines.experiments.trials.trial import GIVEN

    made = "" if c.queries == GIVEN else "synthetic "
    queries = console.plural(c.n_queries, f"{made}query", f"{made}queries")
    p = f"p {c.p:.4f}" if c.p >= 0.0001 else "p < 0.0001"
    p += f", {c.detectable:.3f} detectable"
    sure = f"above {c.lower_bound:+.3f} with 95 % confidence"
    return [
        ("nDCG@10", f"{c.old:.3f} before, {c.new:.3f} now, of {queries}"),
        ("difference", f"{c.difference:+.3f} [{c.low:+.3f}, {c.high:+.3f}], {p}; {sure}"),
    ]


def largest(store: Store) -> list[tuple[str, str]]:
    """The file that most chunks are of, where it is more than a tenth of an index of many, and not all of it."""
    from ragidx.retriever.contents import largest_file

    n_chunks = store.manifest.n_chunks
    if n_chunks < _MANY_CHUNKS:
        return []
    name, count = largest_file(store)
    return [("largest", f"{name}, {count:,} chunks")] if n_chunks / 10 < count < n_chunks else []
