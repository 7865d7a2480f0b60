"""`ragidx build` as a user runs it: what it prints on standard output and standard error, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ragidx.indexer.lexical.analyzer import VERSION
from ragidx.indexer.lexical.stemming import stemmer_version

from ..conftest import Done
from .conftest import ANSWER, TINY, hits_of

Run = Callable[..., Done]


@pytest.mark.wheel
@pytest.mark.usefixtures("small_corpus", "model")
def test_a_build_tells_what_it_made_and_how(run: Run) -> None:
    done = run("build", "corpus", *TINY)

    *lines, size, seconds = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert lines == [
        "index      ragidx-index (generation 1)",
        "model      tiny: classical, mean pooling, causal attention, last layer",
        "filter     EmbedFilter, 16 dimensions, tau 2, the middle of the spectrum",
        "cosines    0.457 before the filter, 0.490 after: the mean of all pairs of 6 chunks",
        "documents  6: 6 new, 0 changed, 0 unchanged",
        "chunks     6: 6 encoded, 0 reused",
        "words      BM25, stemmed (english)",
    ]
    assert re.fullmatch(r"size       \d+\.\d KiB", size)
    assert re.fullmatch(r"time       \d+\.\d s, \d\.\d\d s of it encoding \([\d,]+ chunks/s; cpu, float32\)", seconds)


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_build_for_machines_has_one_json_object_on_stdout_and_its_progress_on_stderr(run: Run) -> None:
    done = run("build", "corpus", *TINY, "--json")

    report = json.loads(done.out)
    assert done.status == 0
    assert done.out.isascii()
    measured = {name: report.pop(name) for name in ("seconds", "encode_seconds", "index_bytes", "n_tokens")}
    assert all(value > 0 for value in measured.values())
    assert report.pop("mean_cosines")["n_vectors"] == 6
    assert report == {
        "index": "ragidx-index",
        "model": "tiny",
        "method": "classical",
        "encoder": 'EncoderSpec(model="tiny")',
        "filter": "FilterSpec(tau=2)",
        "dim": 16,
        "generation": 1,
        "committed": True,
        "n_documents": 6,
        "n_chunks": 6,
        "n_dead": 0,
        "n_added": 6,
        "n_changed": 0,
        "n_unchanged": 0,
        "n_files_unopened": 0,
        "n_removed": 0,
        "n_unreadable": 0,
        "n_deleted_before": 0,
        "removed": [],
        "unreadable": [],
        "n_encoded": 6,
        "n_chunks_reused": 0,
        "n_chunks_unchanged": 0,
        "n_truncated": 0,
        "n_empty": 0,
        "n_fitted": 0,
        "index_type": "auto",
        "segment_types": ["flat"],
        "recall": None,
        "code_bytes": None,
        "lexical": {"stemmer": "english", "stemmer_version": stemmer_version(), "analyzer": VERSION},
        "lexical_setting": "auto",
        "skipped": {},
        "skipped_places": {},
        "left": {},
        "device": "cpu",
        "dtype": "float32",
    }
    steps = [json.loads(line)["progress"] for line in done.err.splitlines()]
    names = "stage doing n_bytes total_bytes n_pages n_documents has_new n_cut n_chunks n_sample n_encoded n_tokens"
    names += " seconds n_rows n_derived last"
    assert all(list(step) == names.split() for step in steps)
    assert [step["last"] for step in steps] == [False] * (len(steps) - 1) + [True]
    assert (steps[-1]["n_documents"], steps[-1]["n_encoded"]) == (6, 6)
    assert steps[-1]["n_bytes"] == steps[-1]["total_bytes"] == sum(p.stat().st_size for p in Path("corpus").iterdir())


@pytest.mark.usefixtures("index")
def test_the_same_build_again_says_that_nothing_changed(run: Run) -> None:
    done = run("build", "corpus")

    lines = done.out.splitlines()
    assert (done.status, done.err) == (0, "")
    assert lines[0] == "index      ragidx-index (generation 1, unchanged)"
    assert lines[3:6] == [
        "documents  6: 0 new, 0 changed, 6 unchanged",
        "chunks     6: 6 unchanged",
        "words      BM25, stemmed (english)",
    ]
    assert re.fullmatch(r"time       \d+\.\d s", lines[7])


@pytest.mark.usefixtures("index")
def test_a_changed_corpus_is_told_by_what_came_changed_and_went(run: Run) -> None:
    Path("corpus/lease.txt").write_text("The lease was torn up.\n")
    Path("corpus/mill.md").rename("corpus/windmill.md")

    done = run("build", "corpus")

    assert (done.status, done.err) == (
        0,
        "Removed: 1 (mill.md); `ragidx rollback 1` brings it back while generation 1 is kept.\n",
    )
    assert done.out.splitlines()[0] == "index      ragidx-index (generation 2)"
    assert done.out.splitlines()[3:5] == [
        "documents  6: 1 new, 1 changed, 4 unchanged, 1 removed",
        "chunks     6: 1 encoded, 1 reused, 4 unchanged",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "documents"),
    [
        (ANSWER.encode(), ["-"]),
        (b'{"id": "a", "text": "One."}\n{"id": "b", "text": "Two."}\n', ["-#a", "-#b"]),
    ],
)
def test_standard_input_is_a_text_or_json_lines(run: Run, data: bytes, documents: list[str]) -> None:
    built = run("build", "-", stdin=data)

    assert (built.status, built.err) == (0, "")
    hits = hits_of(run("query", "one", "-k", str(len(documents)), "--json"))
    assert sorted(hit["doc_id"] for hit in hits) == documents


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    "command",
    [
        ("build", "corpus"),
        ("build", "--vectors", "v.npy", "--index", "other"),
        ("add-source", "more"),
        ("remove-source", "more"),
        ("delete", "--id", "lease.txt"),
        ("compact", "--all"),
        ("shrink", "--dim", "8"),
        ("reindex", "other"),
        ("rollback", "1"),
        ("verify",),
    ],
)
def test_quiet_prints_errors_alone(command: tuple[str, ...], run: Run, folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "blob.bin").write_bytes(bytes(100))
    (folder / "more" / "note.txt").write_text("A note.")
    np.save(folder / "v.npy", np.eye(2))
    if command[0] == "remove-source":
        run("add-source", "more", "--quiet")

    assert run(*command, "--quiet") == (0, "", "")


@pytest.mark.usefixtures("index")
def test_quiet_keeps_errors_and_refuses_a_plan(run: Run) -> None:
    assert run("verify", "--quiet", "--index", "none") == run("verify", "--index", "none")
    assert run("verify", "--quiet", "--index", "none").err.startswith("Error: none: ")
    assert run("build", "corpus", "--plan", "--quiet").err.endswith("Error: --plan and --quiet exclude each other\n")


def test_a_plan_cannot_be_watched(run: Run) -> None:
    done = run("build", "corpus", "--plan", "--watch")
    assert (done.status, done.err.endswith("Error: --plan and --watch exclude each other\n")) == (2, True)
