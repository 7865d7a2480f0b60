"""Nodes of LlamaIndex as rows of an index of precomputed vectors: written, read back, and searched.

node -> fields of a row, checked            row, hit -> node            condition, query -> hits
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import BaseNode, Node, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

import ragidx
from ragidx.pipelines.integrations.frameworks.conditions import told, vectors_of, with_vector
from ragidx.pipelines.integrations.frameworks.llamaindex_filters import (
    CONTENT,
    NODE_ID,
    REF_DOC_ID,
    SAME_AS_REF_DOC_ID,
    TYPE,
    content_of,
)

_HYBRID = VectorStoreQueryMode.HYBRID
_BY_WORDS = (VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.SPARSE)
_MODES = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR, _HYBRID, *_BY_WORDS)
_USED_BY: Mapping[str, Sequence[VectorStoreQueryMode]] = {
    "alpha": (_HYBRID,),
    "hybrid_top_k": (_HYBRID,),
    "sparse_top_k": (_HYBRID, *_BY_WORDS),
    "output_fields": (),
    "embedding_field": (),
}
"""The modes that have a use for an option of a query."""
_COLUMNS = ("chunk_id", "text", CONTENT, TYPE, REF_DOC_ID)
BARE = "_bare"  # the embedding is zeros


def fields_of(node: BaseNode, *, is_bare: bool) -> dict[str, Any]:
    """The fields of a node's row: its metadata, and the node without its text as JSON.

    Raises:
        CorpusError: JSON cannot hold the metadata.
    """
    # of a `Node`, LlamaIndex would take out where its text is from, too
    fields: dict[str, Any] = node_to_metadata_dict(node, remove_text=isinstance(node, TextNode))
    fields = {name: value for name, value in fields.items() if name not in SAME_AS_REF_DOC_ID}
    where = f"node {node.node_id!r}"
    for name, value in node.metadata.items():
        try:  # LlamaIndex makes null of NaN and infinity
            json.dumps(value, allow_nan=False, default=str)
        except ValueError as fault:
            message = f"the field {name!r} is not a finite number"
            raise ragidx.CorpusError(message, "remove it", where=where) from fault
    for own in {NODE_ID, BARE} & fields.keys():
        raise ragidx.CorpusError(f"the field {own!r} is the store's own", "give it another name", where=where)
    return fields | {NODE_ID: node.node_id} | ({BARE: True} if is_bare else {})


def node_of(text: str, stored: Mapping[str, Any]) -> BaseNode:
    """The node of a row.

    Raises:
        IndexFormatError: no store wrote the row.
    """
    content_of(stored)
    has_text = stored[TYPE] == Node.class_name()
    return metadata_dict_to_node(dict(stored), text=None if has_text or not text else text)


def hit_node(hit: ragidx.Hit) -> TextNode:
    """The node of a hit of any index."""
    ours, own = told(hit)
    metadata = ours | own
    of_file = [name for name in metadata if name.startswith("file.")]  # a model that answers needs none of them
    return TextNode(
        id_=hit.chunk_id,
        text=hit.text,
        metadata=metadata,
        start_char_idx=hit.start,
        end_char_idx=hit.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.doc_id)},
        excluded_llm_metadata_keys=of_file,
        excluded_embed_metadata_keys=of_file,
    )


def checked(index: ragidx.Index) -> ragidx.Index:
    """The index, if a store can hold nodes in it.

    Raises:
        SpecError: it was built of texts, or holds rows of others.
    """
    hint = "take another folder for the store; RagidxRetriever asks any index"
    if index.spec.precomputed is None:
        raise ragidx.SpecError("the index encodes texts, and a vector store has vectors", hint, where=str(index.path))
    if index.info().n_chunks and CONTENT not in index.schema:
        raise ragidx.SpecError("the index has rows that no RagidxVectorStore wrote", hint, where=str(index.path))
    return index


def rows(index: ragidx.Index, where: ragidx.Condition | None) -> Iterator[dict[str, Any]]:
    """The rows that fulfil a condition, by the names of columns."""
    for batch in index.to_batches(_COLUMNS, where=where):
        yield from batch.to_pylist()


def best(index: ragidx.Index, query: VectorStoreQuery, k: int, where: ragidx.Condition | None) -> list[ragidx.Hit]:
    """The k best rows that fulfil a condition."""
    if query.mode in _BY_WORDS:
        return index.search(query.query_str, k, mode="lexical", where=where, fold=False)
    asked: Any = {"vector": query.query_embedding, "where": with_vector(where, BARE, index), "fold": False}
    if query.mode == _HYBRID:
        asked |= {"query": query.query_str, "mode": "hybrid", "weight": query.alpha}
    return index.search(k=k, **asked)


def wanted(query: VectorStoreQuery) -> int:
    """How many nodes come back: all rows are fused, so no mode has a number of candidates."""
    named = query.hybrid_top_k if query.mode == _HYBRID else query.sparse_top_k
    return query.similarity_top_k if named is None else named


def diverse(
    index: ragidx.Index, query: VectorStoreQuery, candidates: Sequence[ragidx.Hit], threshold: float | None
) -> tuple[list[ragidx.Hit], list[float]]:
    """Of the candidates those that LlamaIndex's maximal marginal relevance takes, and its scores of them."""
    by_id = {hit.chunk_id: hit for hit in candidates}
    vectors = vectors_of(index, ragidx.field(NODE_ID).is_in(by_id))
    held = [name for name in by_id if name in vectors]
    scores, names = get_top_k_mmr_embeddings(
        query.query_embedding or [],
        [vectors[name].tolist() for name in held],
        similarity_top_k=query.similarity_top_k,
        embedding_ids=held,
        mmr_threshold=threshold,
    )
    return [by_id[name] for name in names], [float(score) for score in scores]


def check_query(query: VectorStoreQuery, options: Mapping[str, Any]) -> None:
    """Refuse what a query asks for and the store does not do.

    Raises:
        ValueError: the mode is another one, or what it needs is missing, or the query has an option of other modes.
        TypeError: `query` has no such option.
    """
    mode = query.mode
    if mode not in _MODES:
        known = ", ".join(one.name for one in _MODES)
        raise ValueError(f"RagidxVectorStore has no query mode {mode.name}: it has {known}")
    for name, modes in _USED_BY.items():
        if getattr(query, name) is not None and mode not in modes:
            raise ValueError(f"RagidxVectorStore has no use for {name}, which is of other query modes or stores")
    for name in options:
        if name not in ("mmr_threshold", "mmr_prefetch_k") or mode != VectorStoreQueryMode.MMR:
            raise TypeError(f"RagidxVectorStore.query() in the mode {mode.name} has no option {name!r}")
    needed = [] if mode in _BY_WORDS else ["query_embedding"]
    needed += ["query_str"] if mode in (_HYBRID, *_BY_WORDS) else []
    for name in needed:
        if getattr(query, name) is None:
            raise ValueError(f"a query in the mode {mode.name} needs {name}")
    if query.alpha is not None and not 0 <= query.alpha <= 1:
        raise ValueError(f"alpha is {query.alpha}, and goes from 0, words alone, to 1, vectors alone")
