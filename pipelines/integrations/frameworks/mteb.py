"""mteb: a model and its filter as an encoder, and a whole index as a search model. Extra `mteb`.

Only translates, for mteb 2: `mteb.evaluate(RagidxEncoder("mini"), tasks)`. Documents go the way of documents; queries,
and the texts of tasks that know no sides, such as pairs of sentences, the way of queries, with their instruction.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ragidx

try:
    from mteb.models.model_meta import ModelMeta, ScoringFunction
    from mteb.similarity_functions import dot_score, pairwise_dot_score
    from mteb.types import PromptType
except ImportError as fault:
    raise ragidx.RagidxError(
        "the mteb adapter needs mteb, which is not installed",
        "pip install '.[mteb]' in a checkout of ragidx",
    ) from fault

_KINDS = {"dense": "dense", "lexical": "sparse"}  # what mteb calls the modes of a search; others are hybrid


class RagidxEncoder:
    """A model and its filter as an mteb encoder: vectors of unit length, as an index would hold them.

    Args:
        model: the model, as `ragidx.load_embedder` takes it.
        instructions: the instructions of queries, by the name of the task: a sentence, or `task:NAME`. A task that is
            not named has the encoder's own.
        options: options of `ragidx.load_embedder`: filter, method, device and so on; mteb keeps its results by them and
            by the model's name.
    """

    def __init__(self, model: str = "mini", *, instructions: Mapping[str, str] | None = None, **options: Any) -> None:
        self._embedder = ragidx.load_embedder(model, **options)
        self._instructions = dict(instructions or {})
        self.mteb_model_meta = _meta(model, options, self._instructions, "dense", embed_dim=self._embedder.dim)

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, task_metadata: Any, prompt_type: Any = None, **_: Any
    ) -> Any:
        """The vectors (n, dim) float32 of the texts of all batches."""
        texts = list(itertools.chain.from_iterable(batch["text"] for batch in inputs))
        if prompt_type == PromptType.document:
            return self._embedder.embed_document(texts)
        return self._embedder.embed_query(texts, self._instructions.get(task_metadata.name))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of all with all, (n, m)."""
        return dot_score(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Cosines of pairs, (n,)."""
        return pairwise_dot_score(embeddings1, embeddings2)


class RagidxSearch:
    """An index for each corpus, as an mteb search model: cutting, words and fusion are measured with the model.

    Args:
        folder: where the corpora and their indexes are kept, one folder for each; a later run finds them built.
        model: the model, as `ragidx.build` takes it.
        instructions: the instructions of queries, as `RagidxEncoder` takes them.
        search: options of `Index.rank_documents`, such as `{"mode": "dense"}`.
        options: options of `ragidx.build`: filter, chunks, method and so on.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: str = "mini",
        *,
        instructions: Mapping[str, str] | None = None,
        search: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._folder, self._options = Path(folder), {"model": model, **options}
        self._instructions, self._search = dict(instructions or {}), dict(search or {})
        kind = _KINDS.get(self._search.get("mode", ""), "hybrid")
        self.mteb_model_meta = _meta(model, options, self._instructions, kind, search=self._search)

    def index(
        self, corpus: Iterable[Mapping[str, Any]], *, task_metadata: Any, hf_split: str, hf_subset: str, **_: Any
    ) -> None:
        """Build the index of a corpus, read as that of a BEIR folder: a document's text begins with its title."""
        folder = self._folder / "-".join((task_metadata.name, hf_subset, hf_split))
        (folder / "corpus" / "qrels").mkdir(parents=True, exist_ok=True)  # beside them a corpus is read as BEIR's
        with (folder / "corpus" / "corpus.jsonl").open("w", encoding="utf-8") as file:
            for row in corpus:
                fields = {"_id": row["id"], "title": row.get("title") or "", "text": row["text"]}
                file.write(json.dumps(fields) + "\n")
        self._index = ragidx.build(folder / "corpus", folder / "index", **self._options)

    def search(
        self, queries: Iterable[Mapping[str, Any]], *, task_metadata: Any, top_k: int, top_ranked: Any = None, **_: Any
    ) -> dict[str, dict[str, float]]:
        """Scores by query id and document id; of `top_ranked` documents alone where a task names them."""
        texts = {row["id"]: " ".join(filter(None, (row["text"], row.get("instruction")))) for row in queries}
        k = top_k if top_ranked is None else self._index.count()
        instruction = self._instructions.get(task_metadata.name)
        ranked = self._index.rank_documents(list(texts.values()), k=k, instruction=instruction, **self._search)
        answers = {name: dict(documents) for name, documents in zip(texts, ranked, strict=True)}
        if top_ranked is None:
            return answers
        return {name: {d: answers[name][d] for d in top_ranked[name] if d in answers[name]} for name in texts}


def _meta(
    model: str,
    options: Mapping[str, Any],
    instructions: Mapping[str, str],
    kind: str,
    *,
    embed_dim: int | None = None,
    search: Mapping[str, Any] | None = None,
) -> ModelMeta:
    """What mteb calls a configuration; from its cache it takes the results of the one with the same name."""
    chosen = {"model": model, **options, **{f"search_{name}": value for name, value in (search or {}).items()}}
    if instructions:
        chosen["instructions"] = instructions
    return ModelMeta.create_empty(
        {
            "name": f"ragidx/{Path(model).name}{'' if search is None else '-index'}",
            "revision": ragidx.__version__,
            "experiment_kwargs": {name: str(value) for name, value in chosen.items()},
            "embed_dim": embed_dim,
            "similarity_fn_name": ScoringFunction.COSINE,
            "model_type": [kind],
        }
    )
