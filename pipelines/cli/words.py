"""Specs in words, for tables that people read."""

from __future__ import annotations

from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.methods import SENTENCE_TRANSFORMERS
from ragidx.indexer.specs import FILTERS, EncoderSpec, FilterSpec


def encoder(spec: EncoderSpec) -> str:
    """Method, and what of it was chosen."""
    if spec.method == SENTENCE_TRANSFORMERS:
        return "sentence-transformers: the model's own modules and prompts"
    layer = {-1: "last layer", 0: "input embeddings (layer 0)"}.get(spec.layer, f"layer {spec.layer}")
    template = "" if spec.template == spec.method else f", template {spec.template}"
    return f"{spec.method}{template}, {spec.pooling} pooling, {spec.attention} attention, {layer}"


def filter_(spec: FilterSpec, dim: int) -> str:
    """Name and what it keeps."""
    if spec.name == "none":
        return f"none: {dim} raw coordinates"
    name = "EmbedFilter" if spec.name == "embedfilter" else spec.name
    tau = f", tau {spec.tau:g}" if spec.tau is not None else ""
    kept = FILTERS[spec.name].keeps if spec.offset is None else f"from direction {spec.offset} on"
    seed = f" (seed {spec.seed})" if "seed" in FILTERS[spec.name].fields else ""
    return f"{name}, {dim} dimensions{tau}, {kept}{seed}"


def chunks(spec: ChunkSpec) -> str:
    """How documents are cut."""
    if spec.size is None:
        return "whole documents"
    overlap = f", overlap {spec.overlap}" if spec.overlap else ""
    return f"at most {spec.size} tokens{overlap}" + (", headings in front" if spec.headings else "")
