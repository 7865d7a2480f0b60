"""Files read by real workers: the same drafts and reports as in this process, also when workers die."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from worker_corpora import children, chunker, large, lines, linux, read

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.corpora.left_out import Left
from ragidx.corpora.limits import MIB, Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import sources
from ragidx.indexer.digests import digest
from ragidx.pipelines.base import resources
from ragidx.pipelines.ingest.options import check_workers
from ragidx.pipelines.ingest.workers import capacity, known, spread
from ragidx.pipelines.ingest.workers.chunks import Cutter
from ragidx.pipelines.ingest.workers.spread import Spread

sys.path.append(str(Path(__file__).parents[3] / "corpora" / "fuzz"))
from seeds import seeds


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    for number, (ending, data) in enumerate(seeds()):
        (folder / f"{number:03d}{ending}").write_bytes(data)
    for seed in range(3, 6):  # that damage no length so that a worker alone runs out of memory
        chance = random.Random(seed)
        for number, (ending, data) in enumerate(seeds()):
            damaged = bytearray(data)
            damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            (folder / f"damaged-{seed}-{number:03d}{ending}").write_bytes(damaged)
    lines(folder / "lines.jsonl", 300)
    return folder


def _said(found: Skip | Left) -> tuple[str, str, int]:
    if isinstance(found, Left):
        return found.where, found.kind, found.count
    return found.where, found.reason.split(":")[0], 0


@pytest.mark.slow
def test_any_number_of_workers_gives_what_one_process_gives(mixed: Path) -> None:
    found_here, skips_here, *more_here = read(mixed)

    for workers in (1, 3):
        found, skips, *more = read(mixed, workers)

        assert (found, more) == (found_here, more_here)
        # A damaged length asks for 512 GiB, which a worker is not given at once.
        assert list(map(_said, skips)) == list(map(_said, skips_here))


@pytest.mark.slow
@linux
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "mbox", "zip"])
def test_a_large_file_is_read_by_one_worker_and_cut_by_all(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path, ending)
    monkeypatch.setattr(spread, "WHOLE_BYTES", 1000)
    counts = list[int]()

    found = read(tmp_path, 2, watch=lambda: counts.append(len(children())))

    assert found == read(tmp_path)
    assert max(counts) == 2


def test_a_document_that_is_known_comes_without_its_text(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    lines(corpus / "a.jsonl", 50)
    whole, *_ = read(corpus)
    record = np.array([(digest(doc_id), doc_hash, 0) for _, doc_id, doc_hash, *_ in whole[:20]], known.RECORD)
    skips = list[Skip]()

    cutter = Cutter(chunker)
    files = Spread(ReadOptions(), Layouts(), skips.append, cutter=cutter, workers=2, known=record)

    drafts = [d for _, found in files.drafts(sources(corpus, on_skip=skips.append)) for d in found]

    assert [(d.id, d.hash) for d in drafts] == [(doc_id, doc_hash) for _, doc_id, doc_hash, *_ in whole]
    assert [cutter.cut(d) for d in drafts[20:]] == [items for *_, items in whole[20:]]
    with pytest.raises(RagidxError, match="wanted as a new one"):
        cutter.cut(drafts[0])


def test_the_ids_of_chunks_come_with_them_where_the_encoder_takes_them(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", 50)
    cutter = Cutter(lambda: chunker(takes_ids=True))
    files = Spread(ReadOptions(), Layouts(), lambda skip: None, cutter=cutter, workers=2)

    by_file = files.drafts(sources(tmp_path, on_skip=pytest.fail))
    items = [item for _, drafts in by_file for draft in drafts for item in cutter.cut(draft)]

    assert [item.ids for item in items] == chunker().ids([item.text for item in items])


@pytest.mark.slow
@linux
def test_two_large_files_have_a_worker_each_and_one_does_not_die_with_the_other(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        lines(tmp_path / name, 2500)
    files = Spread(ReadOptions(), Layouts(), list[Skip]().append, cutter=Cutter(chunker), workers=2)
    pids, left, n_drafts = list[int](), list[int](), 0

    for _, drafts in files.drafts(sources(tmp_path, on_skip=pytest.fail)):
        for number, _ in enumerate(drafts):
            n_drafts += 1
            if number == 10 and not pids:
                pids = sorted(children())
                os.kill(pids[0], signal.SIGKILL)
                time.sleep(0.5)
                left = children()

    assert len(pids) == 2
    assert pids[1] in left
    assert n_drafts == len(read(tmp_path)[0])


@pytest.mark.slow
@linux
@pytest.mark.parametrize("workers", [1, 2])
def test_memory_and_time_that_a_file_may_not_have_are_one_line_each(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.html").write_text("<p>before")
    (tmp_path / "b.ipynb").write_text('{"cells": [' + "[]," * 8_000_000 + "[]]}")
    (tmp_path / "c.html").write_text("<p>after")

    limits = Limits(worker_memory_bytes=500 * MIB, json_bytes=1 << 30)
    found, skips, *_ = read(tmp_path, workers, limits)

    assert [name for name, *_ in found] == ["a.html", "c.html"]
    assert skips == [Skip("b.ipynb", "the reader needs more than 500 MiB of memory")]


@linux
@pytest.mark.slow  # ten times the time that a document may take has to pass, and a new worker must start within it
def test_a_worker_that_says_nothing_is_ended(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>before")
    os.mkfifo(tmp_path / "fifo")  # skipped by the walk
    lines(tmp_path / "b.jsonl", 8_000)
    said, names = list[Skip](), set[str]()
    options = ReadOptions(limits=Limits(worker_cpu_s=1.5))
    files = Spread(options, Layouts(), said.append, cutter=Cutter(chunker), workers=2)

    def stop() -> None:
        time.sleep(0.2)
        os.kill(max(children()), signal.SIGSTOP)  # the one that began last; the other reads the file once more

    thread = threading.Thread(target=stop)
    for source, drafts in files.drafts(sources(tmp_path, on_skip=said.append)):
        names.update(draft.id.partition("#")[0] for draft in drafts)
        if source.name == "a.html":
            thread.start()
    thread.join()

    assert names == {"a.html", "b.jsonl"}
    assert children() == []


@pytest.mark.parametrize("asked", [0, -1, "many", "9" * 20, True])
def test_less_than_one_worker_is_an_error(asked: object) -> None:
    with pytest.raises(SpecError, match=f"`workers`: '{asked}' is no number of workers"):
        check_workers(asked)


@linux
def test_a_memory_limit_that_is_too_small_for_a_worker_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from ragidx.pipelines.ingest.workers.capacity import n_workers\n"
        "from ragidx.corpora.errors import MachineError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20))\n"
        "try:\n    n_workers(None)\nexcept MachineError as fault:\n    print(fault)\n"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.startswith("`workers`: the memory limit leaves 100 MiB, and a worker needs 128")


@pytest.mark.parametrize(("cores", "free", "count"), [(0.5, None, 1), (None, 700 * MIB, 1), (1.5, 1 << 40, 2)])
def test_auto_counts_cores_and_memory_that_the_limits_leave(
    cores: float | None, free: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "usable_cores", lambda: 8)
    monkeypatch.setattr(resources, "allowed_cores", lambda: cores)
    monkeypatch.setattr(resources, "free_bytes", lambda: free)

    assert capacity.n_workers(None) == count


@linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["large files", "many files"])
def test_auto_starts_workers_where_much_comes_late(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "usable_cores", lambda: 2)
    monkeypatch.setattr(spread, "PAYS_FILES", 200)
    monkeypatch.setattr(spread, "_AHEAD_FILES", 200)
    for number in range(spread.PAYS_FILES + 100):
        (tmp_path / f"known-{number}.txt").write_text("a mill")
    if kind == "large files":
        for number in range(3):
            (tmp_path / f"new-{number}.txt").write_text("a river\n" * (spread.PAYS_BYTES // 16))
    else:
        for number in range(spread.PAYS_FILES + 100):
            (tmp_path / f"new-{number}.txt").write_text("a river")
    counts = list[int]()

    said = list[Skip]()
    files = Spread(ReadOptions(), Layouts(), said.append)
    for source, drafts in files.drafts(
        sources(tmp_path, on_skip=said.append), lambda source: source.name.startswith("known")
    ):
        assert source.name.startswith("known") or list(drafts)
        counts.append(len(children()))

    assert counts[0] == 0
    assert max(counts) == 2


def test_a_worker_may_not_open_a_connection_or_start_a_process() -> None:
    code = (
        "import socket, subprocess, sys\n"
        "from ragidx.pipelines.ingest.workers.worker import _refuse\n"
        "sys.addaudithook(_refuse)\n"
        "for call in (lambda: socket.create_connection(('localhost', 9)), lambda: subprocess.run(['true'])):\n"
        "    try:\n        call()\n"
        "    except PermissionError as fault:\n        print(fault)\n"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.splitlines() == [
        f"{what} is not allowed in a worker" for what in ("socket.getaddrinfo", "subprocess.Popen")
    ]


def test_a_worker_imports_no_model_library_and_no_pandas() -> None:
    code = (
        "import sys\nfrom ragidx.pipelines.ingest.workers import worker, words\nimport pyarrow\n"
        "from ragidx.indexer import arrays\narrays.arrow_without_pandas()\npyarrow.array(['a'])\n"
        "print(sorted({'torch', 'transformers', 'faiss', 'pandas'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
