"""The adapter for mteb, on tasks made of the sample corpus: what mteb measures is what ragidx measures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.evalsets import load_qrels, load_queries
from ragidx.pipelines.cli.demo import sample_corpus

from ....measuring import evaluated

pytestmark = pytest.mark.slow

PAIRS = [
    (4.8, "The lease was signed in May.", "In May the lease was signed."),
    (3.0, "A river flows to the sea.", "The old mill stands at the river."),
    (0.2, "Bees dance for flowers.", "The tower is painted orange."),
    (1.4, "Neptune was found with a pencil.", "Stars were seen through a telescope."),
]
KIND = {"category": "t2t", "modalities": ["text"], "eval_splits": ["test"], "eval_langs": ["eng-Latn"]}


@pytest.fixture(scope="module")
def mteb() -> Any:
    return pytest.importorskip("mteb", reason="needs the extra 'mteb'")


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample corpus, its queries and judgements as a BEIR folder; every third document has a title."""
    folder = tmp_path_factory.mktemp("beir")
    sample = sample_corpus().parent
    documents = ragidx.build(sample / "documents", folder.with_name("index")).documents()
    rows = [
        {"_id": document.id, "title": "" if number % 3 else f"Number {number}", "text": document.text}
        for number, document in enumerate(documents)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_bytes((sample / "queries.jsonl").read_bytes())
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_bytes((sample / "qrels" / "test.tsv").read_bytes())
    return folder


@pytest.fixture(scope="module")
def task(mteb: Any, beir: Path) -> Any:
    """The same as a task of mteb."""
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    described = {"name": "Sample", "type": "Retrieval", "description": "The sample corpus.", "main_score": "ndcg_at_10"}
    rows = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]

    class Sample(AbsTaskRetrieval):  # type: ignore[misc]
        metadata = TaskMetadata(**KIND, **described, dataset={"path": "local/sample", "revision": "1"})

        def load_data(self, **_: Any) -> None:
            self.dataset = {"default": {"test": {}}}
            self.dataset["default"]["test"] = {
                "corpus": Dataset.from_list([{"id": row.pop("_id"), **row} for row in map(dict, rows)]),
                "queries": Dataset.from_list([{"id": name, "text": text} for name, text in load_queries(beir).items()]),
                "relevant_docs": load_qrels(beir),
                "top_ranked": None,
            }
            self.data_loaded = True

    return Sample


def ndcg(mteb: Any, model: Any, task: Any) -> float:
    results = mteb.evaluate(model, [task()], cache=None, show_progress_bar=False)
    return float(results.task_results[0].scores["test"][0]["ndcg_at_10"])


def ours(folder: Path, **options: Any) -> float:
    (row,) = evaluated(folder, cache=None, **options).tasks[0].rows
    return row.means["ndcg@10"]


@pytest.mark.parametrize("mode", ["dense", None])
def test_an_index_has_the_ndcg_that_ragidx_measures(mode: str | None, mteb: Any, task: Any, beir: Path) -> None:
    from ragidx.frameworks.mteb import RagidxSearch

    model = RagidxSearch(beir.with_name("indexes"), search={} if mode is None else {"mode": mode})

    # mteb rounds to five digits
    assert ndcg(mteb, model, task) == pytest.approx(ours(beir, mode=mode or "hybrid"), abs=6e-6)


def test_an_encoder_has_the_ndcg_of_whole_documents(mteb: Any, task: Any, beir: Path) -> None:
    from ragidx.frameworks.mteb import RagidxEncoder

    model = RagidxEncoder("mini", filter=ragidx.FilterSpec(dim=64))

    whole = ours(beir, mode="dense", dim=64, chunks=ragidx.ChunkSpec(size=None))
    assert ndcg(mteb, model, task) == pytest.approx(whole, abs=6e-6)


def test_pairs_have_the_correlation_that_ragidx_measures(mteb: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    from ragidx.frameworks.mteb import RagidxEncoder

    described = {"name": "Pairs", "type": "STS", "description": "Four pairs.", "main_score": "cosine_pearson"}

    class Pairs(AbsTaskSTS):  # type: ignore[misc]
        min_score, max_score = 0, 5
        metadata = TaskMetadata(**KIND, **described, dataset={"path": "local/pairs", "revision": "1"})

        def load_data(self, **_: Any) -> None:
            rows = [{"score": score, "sentence1": one, "sentence2": other} for score, one, other in PAIRS]
            self.dataset = {"test": Dataset.from_list(rows)}
            self.data_loaded = True

    file = tmp_path / "test.tsv"
    file.write_text("".join(f"{score}\t{one}\t{other}\n" for score, one, other in PAIRS))

    results = mteb.evaluate(RagidxEncoder("mini"), [Pairs()], cache=None, show_progress_bar=False)

    theirs = results.task_results[0].scores["test"][0]
    (row,) = ragidx.evaluate(file, cache=None).tasks[0].rows
    assert theirs["cosine_pearson"] == pytest.approx(row.means["pearson"], abs=6e-6)
    assert theirs["cosine_spearman"] == pytest.approx(row.means["spearman"], abs=6e-6)


def test_queries_have_the_instruction_of_their_task_and_documents_none(
    mteb: Any, task: Any, tiny_model: Callable[..., Path]
) -> None:
    from mteb.types import PromptType

    from ragidx.frameworks.mteb import RagidxEncoder

    options = {"method": "classical", "device": "cpu", "dtype": "float32"}
    folder, texts = str(tiny_model("llama")), ["a mill", "who signed the lease?", "a river"]
    embedder = ragidx.load_embedder(folder, **options)
    encoder = RagidxEncoder(folder, instructions={"Sample": "Find it", "Other": "Sort it"}, **options)

    def vectors(side: Any) -> Any:
        return encoder.encode([{"text": texts[:2]}, {"text": texts[2:]}], task_metadata=task.metadata, prompt_type=side)

    np.testing.assert_array_equal(vectors(PromptType.document), embedder.embed_document(texts))
    for side in (PromptType.query, None):
        np.testing.assert_array_equal(vectors(side), embedder.embed_query(texts, "Find it"))
    assert not np.allclose(vectors(None), vectors(PromptType.document), atol=1e-3)


def test_of_documents_that_a_task_ranks_again_no_others_are_answers(task: Any, beir: Path) -> None:
    from ragidx.frameworks.mteb import RagidxSearch

    loaded = task()
    loaded.load_data()
    data = loaded.dataset["default"]["test"]
    model, place = RagidxSearch(beir.with_name("indexes")), {"hf_split": "test", "hf_subset": "default"}
    asked = {"task_metadata": task.metadata, **place, "encode_kwargs": {}, "num_proc": None}
    model.index(data["corpus"], **asked)
    queries = data["queries"].select(range(2))
    some = {name: data["corpus"]["id"][number : number + 7] for number, name in enumerate(queries["id"])}

    every = model.search(queries, top_k=1000, **asked)
    ranked = model.search(queries, top_k=2, top_ranked=some, **asked)

    assert ranked == {name: {document: every[name][document] for document in some[name]} for name in some}


def test_mteb_keeps_results_of_different_configurations_apart(mteb: Any, tmp_path: Path) -> None:
    from ragidx.frameworks.mteb import RagidxEncoder, RagidxSearch

    models = [
        RagidxEncoder("mini"),
        RagidxEncoder("mini", filter="none"),
        RagidxEncoder("mini", filter=ragidx.FilterSpec(dim=64)),
        RagidxEncoder("mini", instructions={"SciFact": "Find it"}),
        RagidxSearch(tmp_path),
        RagidxSearch(tmp_path, filter="none"),
        RagidxSearch(tmp_path, search={"mode": "dense"}),
    ]

    names = [model.mteb_model_meta.model_name_with_experiment for model in models]
    assert len(set(names)) == len(models)
    assert names[-1] == "ragidx/mini-index (model=mini, search_mode=dense)"
    assert not list(tmp_path.iterdir())


def test_without_mteb_the_message_names_the_extra(without: Callable[..., dict[str, str]]) -> None:
    code = "import ragidx.frameworks.mteb"
    done = subprocess.run(
        [sys.executable, "-c", code], env=without("mteb"), capture_output=True, text=True, check=False
    )

    assert done.stderr.endswith(
        "RagidxError: the mteb adapter needs mteb, which is not installed\n"
        "  hint: pip install '.[mteb]' in a checkout of ragidx\n"
    )
