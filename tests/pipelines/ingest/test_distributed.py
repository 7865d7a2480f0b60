"""Builds on several devices. Two processes on the CPU stand for two GPUs: the same code runs on them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.devices import check_device, check_devices
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.encoders.methods import located, resolve
from ragidx.indexer.encoders.protocol import EncodedRows
from ragidx.indexer.store import Store
from ragidx.pipelines.ingest.distributed import LEAST_TEXTS, _Device, _files, _parts, job_of

from ...raising import message_of

N = 4 * LEAST_TEXTS
# A batch of other texts moves a float32 by 1e-6; a vector is stored in float16, where that can be its next number.
ONE_STEP = {"rtol": 2**-10, "atol": 1e-5}
OPTIONS: dict[str, Any] = {
    "method": "prompteol",
    "dtype": "float32",
    "chunks": ragidx.ChunkSpec(size=None),
    "strict": True,
}


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    words = "bees make honey while rivers carry slow boats past the old stone mill".split()  # noqa: SIM905  # prose
    rng = np.random.default_rng(0)
    lines = [json.dumps({"id": f"d{n}", "text": f"{n} " + " ".join(rng.choice(words, 1 + n % 4))}) for n in range(N)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "notes.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def model(tiny_model: Callable[..., Path]) -> str:
    return str(tiny_model("llama"))


def vectors(index: str) -> np.ndarray:
    store = Store.open(index)
    return store.vectors(range(store.n_rows))


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those of the processes that builds start."""
    started: list[int] = []
    popen = subprocess.Popen

    def kept(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = popen(*args, **options)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", kept)
    return started


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # nobody has waited for it yet
    except psutil.NoSuchProcess:
        return True


def soon(happens: Callable[[], object], within_s: float = 60.0) -> bool:
    """Whether something happens in time."""
    end = time.monotonic() + within_s
    while not happens() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(happens())


# -- parts ----------------------------------------------------------------------------------------------------


@given(st.lists(st.text("ab", max_size=9), max_size=40), st.integers(1, 5))
def test_parts_have_every_text_once_and_the_longest_first(texts: list[str], n_devices: int) -> None:
    texts = texts * 20
    parts = _parts(texts, n_devices)

    rows = [row for part in parts for row in part]
    assert sorted(rows) == list(range(len(texts)))
    assert [len(texts[row]) for row in rows] == sorted(map(len, texts), reverse=True)
    assert all(len(part) >= LEAST_TEXTS for part in list(parts)[:-1])
    assert len(parts) <= 4 * n_devices


# -- names of devices -----------------------------------------------------------------------------------------


def test_devices_of_a_build_stand_between_commas() -> None:
    assert check_devices("cuda:0, cuda:1") == ["cuda:0", "cuda:1"]
    assert check_devices("auto") == ["auto"]


@pytest.mark.parametrize(
    ("check", "device", "message"),
    [
        (
            check_device,
            "cuda:0,cuda:1",
            "`device`: one device is taken here, not several: 'cuda:0,cuda:1'\n"
            "  hint: give one, such as `device=cuda:0`; builds take several",
        ),
        (
            check_devices,
            "cuda:0,auto",
            "`device`: `auto` is one device: 'cuda:0,auto'\n  hint: name all of them, such as `device=cuda:0,cuda:1`",
        ),
        (check_devices, "cuda:0,", "unknown device ''\n  hint: known: auto, cpu, cuda, mps"),
    ],
)
def test_devices_that_cannot_be_are_refused(check: Callable[[str], object], device: str, message: str) -> None:
    assert message_of(SpecError, lambda: check(device)) == message


def test_a_device_that_is_not_there_is_refused_before_anything_is_encoded(many: Path, model: str) -> None:
    with pytest.raises(SpecError, match="there is no mps device on this machine"):
        ragidx.build("corpus", "index", model=model, device="cpu,mps", **OPTIONS)

    assert not (many / "index").exists()


# -- builds ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "filter_options",
    [{"filter": "none"}, {"filter": ragidx.FilterSpec("pca", dim=8)}],  # tau: with a GGUF file, below
)
def test_two_processes_give_the_vectors_of_one(
    many: Path, model: str, pids: list[int], filter_options: dict[str, Any]
) -> None:
    options = OPTIONS | filter_options
    one = ragidx.build("corpus", "one", model=model, device="cpu", **options).report
    assert not pids
    two = ragidx.build("corpus", "two", model=model, device="cpu,cpu", **options).report

    np.testing.assert_allclose(vectors("one"), vectors("two"), **ONE_STEP)
    assert (two.device, two.n_tokens) == ("cpu,cpu", one.n_tokens)
    assert two.n_encoded == one.n_encoded == N
    assert Store.open("two").manifest.notes["device"] == "cpu,cpu"
    assert len(pids) == (
        options["filter"] != ragidx.FilterSpec("pca", dim=8)
    )  # the sample it is fitted on is the whole corpus
    assert all(is_gone(pid) for pid in pids)
    assert ragidx.build("corpus", "two", model=model).report.n_encoded == 0


@pytest.mark.slow
def test_a_gguf_file_and_a_filter_reach_the_process(many: Path, model: str, pids: list[int]) -> None:
    pytest.importorskip("gguf", reason="the package gguf (extra `models`) is not installed")
    from ...gguf_kit import twin

    path = str(twin(Path(model), many / "tiny.gguf"))
    ragidx.build("corpus", "one", model=path, device="cpu", filter=ragidx.FilterSpec(tau=2.0), **OPTIONS)
    ragidx.build("corpus", "two", model=path, device="cpu,cpu", filter=ragidx.FilterSpec(tau=2.0), **OPTIONS)

    assert len(pids) == 1
    np.testing.assert_allclose(vectors("one"), vectors("two"), **ONE_STEP)


@pytest.mark.slow
def test_few_texts_start_no_process(many: Path, model: str, pids: list[int]) -> None:
    (many / "corpus" / "notes.jsonl").write_text('{"id": "a", "text": "bees make honey"}')

    assert ragidx.build("corpus", "index", model=model, device="cpu,cpu", **OPTIONS).report.n_encoded == 1
    assert pids == []


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_build_and_the_next_one_goes_on(
    many: Path, model: str, pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = _Device.ask

    def killed(device: _Device, rows: list[int], *texts: Any) -> None:
        ask(device, rows, *texts)
        os.kill(pids[0], signal.SIGKILL)

    monkeypatch.setattr(_Device, "ask", killed)
    said = message_of(ModelError, lambda: ragidx.build("corpus", "index", model=model, device="cpu,cpu", **OPTIONS))

    assert said == (
        "`device`: the process of cpu ended by SIGKILL\n"
        "  hint: run the build again, it continues where it was; if the process ends again, name fewer devices"
    )
    again = ragidx.build("corpus", "index", model=model, device="cpu", **OPTIONS).report
    assert 0 < again.n_encoded < N
    assert again.n_encoded + again.n_chunks_reused == N
    ragidx.build("corpus", "one", model=model, device="cpu", **OPTIONS)
    np.testing.assert_allclose(vectors("index"), vectors("one"), **ONE_STEP)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["bees make honey", "bees " * 1_000_000])  # the second fills the pipe
def test_what_the_process_refuses_is_the_error_of_the_build(tmp_path: Path, text: str) -> None:
    files = located(str(shutil.copytree(located("mini", {}).folder, tmp_path / "model")), {})
    spec = resolve(files)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")

    answers: queue.SimpleQueue[tuple[_Device, Any]] = queue.SimpleQueue()
    with contextlib.closing(_Device(job_of(files, spec, None, "cpu"), answers)) as device:
        device.ask([0], [text], None)
        with pytest.raises(ModelError) as caught:
            list(device.batches(answers.get(timeout=60)[1]))

    assert str(caught.value) == message_of(ModelError, lambda: encoder_of(files, spec, device="cpu"))


def test_a_process_gets_the_files_as_the_build_found_them(model: str, tmp_path: Path) -> None:
    # Found again by their paths, an adapter of the hub's model would be refused: its name is not in the path.
    files = dataclasses.replace(
        located(model, {}), names=("org/finetune", model), adapters=(tmp_path / "a", tmp_path / "b"), pooler=tmp_path
    )
    header, _ = job_of(files, resolve(files, method="prompteol"), None, "cpu")

    assert _files(**json.loads(header["files"])) == files


@pytest.mark.slow
def test_a_process_waits_for_no_one_to_read_its_vectors() -> None:
    files = located("mini", {})  # whose process starts at once: without PyTorch
    job = job_of(files, resolve(files), None, "cpu", "float32", threads=1)
    texts = ["bees make honey"] * 5000  # 5000 x 384 dimensions of 4 bytes fill the pipe
    answers: queue.SimpleQueue[tuple[_Device, Any]] = queue.SimpleQueue()
    rows = list[int]()

    with contextlib.closing(_Device(job, answers)) as device:
        device.ask(list(range(5000)), texts, None)
        first = answers.get(timeout=60)[1]
        assert soon(lambda: answers.qsize() * len(first[0]["rows"]) >= 5000)
        os.kill(device.pid, signal.SIGKILL)
        answer = first
        while answer[0]["kind"] == "batch":
            rows += [row for batch in device.batches(answer) for row in batch.rows]
            answer = answers.get(timeout=60)[1]

    assert answer[0] == {"kind": "end"}
    assert sorted(rows) == list(range(5000))


@pytest.mark.slow
def test_a_device_that_is_done_gets_more_while_another_has_a_part(
    many: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, n_own = Embedder.batches, []

    def slow(embedder: Any, texts: list[str], **options: Any) -> Iterator[EncodedRows]:
        n_own.append(len(texts))
        for batch in batches(embedder, texts, **options):
            for row in range(len(batch.rows)):
                assert soon(lambda: embedder.answers.qsize() or not any(one.rows for one in embedder.devices))
                yield dataclasses.replace(batch, rows=batch.rows[row : row + 1], vectors=batch.vectors[row : row + 1])

    monkeypatch.setattr(Embedder, "batches", slow)
    ragidx.build("corpus", "index", model=model, device="cpu,cpu", **OPTIONS)

    assert n_own == [LEAST_TEXTS]
    assert Store.open("index").manifest.n_chunks == N


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status", "wait_s"),
    [(signal.SIGKILL, -signal.SIGKILL, 0.1), (signal.SIGINT, 130, 0), (signal.SIGINT, 130, 0.3)],
)
def test_no_process_is_left_when_the_build_is_ended(
    many: Path, model: str, sent: signal.Signals, status: int, wait_s: float
) -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from ragidx.pipelines.cli.main import main; main()"
    )
    options = ["--model", model, "--method", "prompteol", "--dtype", "float32", "--device", "cpu,cpu"]
    build = subprocess.Popen(
        [sys.executable, "-c", code, "build", "corpus", *options], stderr=subprocess.PIPE, process_group=0
    )
    started = psutil.Process(build.pid)
    try:
        assert soon(started.children)
        child = started.children()[0].pid
        time.sleep(wait_s)
        if sent == signal.SIGINT:
            os.killpg(build.pid, sent)  # as a terminal does
        else:
            build.send_signal(sent)

        _, told = build.communicate(timeout=60)
        assert build.returncode == status
        assert b"Traceback" not in told
        assert soon(lambda: is_gone(child))
    finally:
        build.kill()
        build.communicate()
