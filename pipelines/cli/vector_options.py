"""Options of how vectors are made and a corpus is read, which the commands share that encode documents."""

from __future__ import annotations

from typing import Any

from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.options import EncoderOptions, RunOptions
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.cli.keywords import WHOLE, keyword_options
from ragidx.pipelines.cli.options import json_option, offline_option, together
from ragidx.pipelines.experiments.evaluate.options import Grid
from ragidx.retriever.keywords import (
    ChunkKeywords,
    CorpusKeywords,
    FilterKeywords,
    ModelKeywords,
    PlaceKeywords,
    ReadKeywords,
    UpgradeKeywords,
)
from ragidx.retriever.trial_keywords import AdaptKeywords

FILTER_OPTIONS = FilterKeywords.__annotations__.keys()
CHUNK_OPTIONS = ChunkKeywords.__annotations__.keys()
SEVERAL_DEVICES = {"device": "; builds take several: cuda:0,cuda:1"}


def with_values(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed, those of the filter and of chunks as the values that Python takes."""
    typed = with_chunks(options)
    filter_ = {name.removeprefix("filter_"): typed.pop(name) for name in FILTER_OPTIONS & typed.keys()}
    if "filter" in filter_:
        filter_["name"] = filter_.pop("filter")
    return typed | ({"filter": FilterSpec(**filter_)} if filter_ else {})


def with_chunks(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed, those of chunks as the value that Python takes."""
    typed = {name: value for name, value in options.items() if value is not None}
    chunks = {name.removeprefix("chunk_"): typed.pop(name) for name in CHUNK_OPTIONS & typed.keys()}
    if chunks.get("size") == WHOLE:
        chunks["size"] = None
    return typed | ({"chunks": ChunkSpec(**chunks)} if chunks else {})


encoding_options = keyword_options(RunOptions, notes=SEVERAL_DEVICES)
"""What computes vectors, for commands that encode documents."""

place_options = keyword_options(PlaceKeywords, but=["adapters", "pooler", "questions"])
"""Where the model of an index is now, and how it runs."""

instruction_option = keyword_options(EncoderOptions, only=["instruction"])
encoder_options = keyword_options(ModelKeywords, EncoderOptions, but=["instruction"])
"""How a text becomes a vector, but the instruction."""

rest_of_encoder_options = keyword_options(EncoderOptions, but=Grid.__annotations__)
"""Those of `encoder_options` of which an evaluation takes one value."""

filter_options = keyword_options(FilterKeywords, but=["filter_topk", "filter_power", "filter_sample"])
"""Those of filters that are fitted on no corpus."""

vector_options = keyword_options(UpgradeKeywords, but=["filter_sample"], notes=SEVERAL_DEVICES)
"""How vectors are made, and what computes them."""

cache_option = keyword_options(AdaptKeywords, only=["cache"])

measured_options = together(
    keyword_options(ChunkKeywords),
    encoding_options,
    keyword_options(CorpusKeywords),
    keyword_options(ReadKeywords, only=["records"]),
    offline_option,
    json_option,
)
"""What commands share that measure a corpus: how it is read, cut and encoded, and how the result is printed."""
