"""ragidx: a folder of documents becomes a vector index, encoded by the decoder language model you already have.

    index = ragidx.build("corpus/", "index/")
    for hit in index.search("who signed the lease?", k=5, where="year >= 1990"):
        print(hit.rank, hit.doc_id, hit.text)

Names are loaded when they are first used: `import ragidx` imports none of torch, transformers and faiss.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ragidx.corpora.faces import face

if TYPE_CHECKING:
    from ragidx.corpora.errors import (
        BusyError,
        CorpusError,
        DefectError,
        EngineError,
        IndexFormatError,
        MachineError,
        ModelError,
        QueryError,
        RagidxError,
        SpecError,
    )
    from ragidx.corpora.records import Chunk, Document, Skip
    from ragidx.corpora.spec import ChunkSpec
    from ragidx.indexer.encoders.load import load_embedder, load_encoder
    from ragidx.indexer.filters.filter import EmbedFilter
    from ragidx.indexer.specs import FilterSpec
    from ragidx.pipelines import distribute
    from ragidx.pipelines.experiments import train
    from ragidx.pipelines.experiments.evaluate.evaluate import evaluate
    from ragidx.pipelines.experiments.evaluate.options import Grid, Judge, Questions
    from ragidx.pipelines.experiments.trials.adapt import AdaptReport
    from ragidx.pipelines.experiments.trials.questions import QuestionsReport
    from ragidx.pipelines.experiments.trials.upgrade import UpgradeReport
    from ragidx.pipelines.experiments.tune.tune import tune
    from ragidx.pipelines.index import Index, build, search
    from ragidx.pipelines.ingest.report import BuildReport
    from ragidx.pipelines.integrations.export import ExportReport
    from ragidx.pipelines.maintain.delete import DeleteReport
    from ragidx.pipelines.maintain.rewrite import ReshapeReport
    from ragidx.pipelines.serve.client import Client
    from ragidx.retriever.hit import Hit
    from ragidx.retriever.keywords import Rerank
    from ragidx.retriever.where.conditions import Condition, field
    from ragidx.retriever.where.parser import condition

__version__ = "0.1.0"

__all__ = [
    "AdaptReport",
    "BuildReport",
    "BusyError",
    "Chunk",
    "ChunkSpec",
    "Client",
    "Condition",
    "CorpusError",
    "DefectError",
    "DeleteReport",
    "Document",
    "EmbedFilter",
    "EngineError",
    "ExportReport",
    "FilterSpec",
    "Grid",
    "Hit",
    "Index",
    "IndexFormatError",
    "Judge",
    "MachineError",
    "ModelError",
    "QueryError",
    "Questions",
    "QuestionsReport",
    "RagidxError",
    "RemoteIndex",
    "Rerank",
    "ReshapeReport",
    "Skip",
    "SpecError",
    "UpgradeReport",
    "build",
    "condition",
    "connect",
    "distribute",
    "evaluate",
    "field",
    "load_embedder",
    "load_encoder",
    "search",
    "train",
    "tune",
]

_HOMES = {
    "AdaptReport": "pipelines.experiments.trials.adapt",
    "QuestionsReport": "pipelines.experiments.trials.questions",
    "BuildReport": "pipelines.ingest.report",
    "BusyError": "corpora.errors",
    "Chunk": "corpora.records",
    "ChunkSpec": "corpora.spec",
    "Client": "pipelines.serve.client",
    "Condition": "retriever.where.conditions",
    "CorpusError": "corpora.errors",
    "DefectError": "corpora.errors",
    "EngineError": "corpora.errors",
    "DeleteReport": "pipelines.maintain.delete",
    "Document": "corpora.records",
    "EmbedFilter": "indexer.filters.filter",
    "ExportReport": "pipelines.integrations.export",
    "FilterSpec": "indexer.specs",
    "Grid": "pipelines.experiments.evaluate.options",
    "Hit": "retriever.hit",
    "Index": "pipelines.index",
    "IndexFormatError": "corpora.errors",
    "Judge": "pipelines.experiments.evaluate.options",
    "MachineError": "corpora.errors",
    "ModelError": "corpora.errors",
    "QueryError": "corpora.errors",
    "Questions": "pipelines.experiments.evaluate.options",
    "RagidxError": "corpora.errors",
    "RemoteIndex": "pipelines.index",
    "Rerank": "retriever.keywords",
    "ReshapeReport": "pipelines.maintain.rewrite",
    "Skip": "corpora.records",
    "SpecError": "corpora.errors",
    "UpgradeReport": "pipelines.experiments.trials.upgrade",
    "build": "pipelines.index",
    "condition": "retriever.where.parser",
    "connect": "pipelines.index",
    "evaluate": "pipelines.experiments.evaluate.evaluate",
    "field": "retriever.where.conditions",
    "load_embedder": "indexer.encoders.load",
    "load_encoder": "indexer.encoders.load",
    "search": "pipelines.index",
    "tune": "pipelines.experiments.tune.tune",
}
_MODULES = {"distribute": "pipelines.distribute", "train": "pipelines.experiments.train"}
# Adapters are imported as ragidx.frameworks.langchain, .llamaindex, .haystack, .mteb and .ray.
sys.modules[f"{__name__}.frameworks"] = importlib.import_module("ragidx.pipelines.integrations.frameworks")


_named = face(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"ragidx.{_MODULES[name]}") if name in _MODULES else _named(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
