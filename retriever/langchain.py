"""The first address of `ragidx.retriever.frameworks.langchain`, kept because programs import it."""

from ragidx.retriever.frameworks.langchain import RagidxEmbeddings, RagidxRetriever

__all__ = ["RagidxEmbeddings", "RagidxRetriever"]
