"""The cache of raw vectors: a text is encoded once, by whichever run and process came first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.pipelines.experiments.evaluate.sources import raw_vectors

from ....measuring import evaluated
from .conftest import WORDS, text_of, write_beir

pytestmark = pytest.mark.slow

OPTIONS: dict[str, Any] = {"filter": "truncation", "mode": "dense", "chunks": ragidx.ChunkSpec(size=None)}


def evaluate(source: Path, cache: Path | None, **options: Any) -> list[dict[str, float]]:
    """The means of all rows."""
    return [dict(row.means) for row in evaluated(source, cache=cache, **OPTIONS | options).tasks[0].rows]


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_a_second_run_encodes_nothing_whatever_its_filters_and_widths(
    beir: Path, tmp_path: Path, encoded: list[str]
) -> None:
    first = evaluate(beir, tmp_path / "cache")
    assert len(encoded) == 2 * len(WORDS)
    encoded.clear()

    evaluate(beir, tmp_path / "cache", filter=["truncation", "none", "pca"], dim=[20, 16], mode=["dense", "hybrid"])
    second = evaluate(beir, tmp_path / "cache")

    assert encoded == []
    assert first == second
    assert len(folders(tmp_path / "cache")) == 1


def test_new_texts_alone_are_encoded(beir: Path, tmp_path: Path, encoded: list[str]) -> None:
    evaluate(beir, tmp_path / "cache")
    encoded.clear()
    corpus = beir / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace(text_of("bees"), "A text about bees."))

    evaluate(beir, tmp_path / "cache")

    assert encoded == ["A text about bees."]


def test_pairs_and_corpora_share_what_is_equal(beir: Path, tmp_path: Path, encoded: list[str]) -> None:
    (tmp_path / "sts.tsv").write_text("".join(f"{n % 5}\tone {word}\tanother {word}\n" for n, word in enumerate(WORDS)))
    evaluate(tmp_path / "sts.tsv", tmp_path / "cache")
    assert len(encoded) == 2 * len(WORDS)
    encoded.clear()

    evaluate(tmp_path / "sts.tsv", tmp_path / "cache", filter="none")
    evaluate(beir, tmp_path / "cache")

    assert len(encoded) == 2 * len(WORDS)  # those of the corpus
    assert len(folders(tmp_path / "cache")) == 1


def test_without_a_cache_nothing_is_kept(
    beir: Path, tmp_path: Path, encoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))

    evaluate(beir, None)
    evaluate(beir, None)

    assert len(encoded) == 4 * len(WORDS)
    assert not (tmp_path / "users" / "ragidx" / "vectors").exists()


def test_the_users_cache_is_the_default(beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))

    evaluated(beir, **OPTIONS)

    assert len(folders(tmp_path / "users" / "ragidx" / "vectors")) == 1


@pytest.mark.slow
def test_what_changes_vectors_has_another_key(beir: Path, tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    model = {"model": str(tiny_model("llama")), "method": "classical"}
    other = {"model": str(tiny_model("llama", intermediate_size=40)), "method": "classical"}
    renamed = tmp_path / "renamed"
    renamed.symlink_to(tiny_model("llama"))
    cache = tmp_path / "cache"

    counts = []
    for options in (
        model,
        model | {"model": str(renamed)},  # the same weights
        model | {"tau": 2, "index_type": "sq8", "mode": "hybrid"},
        other,
        model | {"dtype": "bfloat16"},
        model | {"layer": 1},
        model | {"method": "echo"},
        model | {"max_length": 8},
    ):
        evaluate(beir, cache, **options)
        counts.append(len(folders(cache)))

    assert counts == [1, 1, 1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_another_instruction_encodes_the_queries_alone(
    beir: Path, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    cache, model = tmp_path / "cache", {"model": str(tiny_model("llama")), "method": "classical"}
    evaluate(beir, cache, instruction="first", **model)
    before = {path: path.stat().st_size for path in cache.rglob("*.bin")}

    evaluate(beir, cache, instruction="second", **model)

    after = {path: path.stat().st_size for path in cache.rglob("*.bin")}
    assert (len(before), len(after)) == (2, 3)  # documents, and queries of each instruction
    assert before.items() <= after.items()


def test_what_was_used_least_recently_goes(
    beir: Path, tmp_path: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    evaluate(beir, cache)
    (mini,) = folders(cache)
    others = [cache / (32 * digit) for digit in "012"]
    mine = cache / "photographs"  # a folder of the user's, where the cache is
    for folder, age in zip([*others, mine], (300, 100, 200, 400), strict=True):
        folder.mkdir()
        (folder / "journal.bin").write_bytes(bytes(30_000))
        os.utime(folder, (time.time() - age, time.time() - age))
    os.utime(mini, (0, 0))
    size = sum(file.stat().st_size for file in mini.iterdir())
    monkeypatch.setattr(raw_vectors, "CACHE_BYTES", size + 65_000)

    evaluate(beir, cache)  # which makes it the one that was used last

    assert set(folders(cache)) == {mini, mine, *others[1:]}


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(
    tmp_path: Path, tiny_model: Callable[..., Path], encoded_by: Any, run: Any
) -> None:
    beir = write_beir(tmp_path / "beir", [f"{word}{n}" for word in WORDS for n in range(40)])
    for name, count in (("queries.jsonl", 24), ("qrels/test.tsv", 49)):
        (beir / name).write_text("".join((beir / name).read_text().splitlines(keepends=True)[:count]))
    cache, model = tmp_path / "cache", str(tiny_model("llama"))
    options = [
        "--model",
        model,
        "--method",
        "classical",
        "--filter",
        "truncation",
        "--mode",
        "dense",
        "--chunk-size",
        "none",
    ]
    command = ["evaluate", str(beir), *options, "--json", "--dtype", "float32"]
    want = run(*command, "--cache", "none")

    process = subprocess.Popen(
        [sys.executable, "-m", "ragidx", *command, "--cache", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + 60
    while sum(file.stat().st_size for file in cache.rglob("*.bin")) < 5_000 and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    kept = encoded_by(cache)
    assert 0 < kept < len(WORDS) * 40
    again = run(*command, "--cache", str(cache))
    assert (again.status, again.out) == (want.status, want.out) == (0, want.out)
    assert encoded_by(cache) >= len(WORDS) * 40


@pytest.fixture
def encoded_by() -> Callable[[Path], int]:
    """How many vectors a cache holds of a model of 32 dimensions."""

    def count(cache: Path) -> int:
        return sum((file.stat().st_size - 64) // (16 + 4 * 32 + 4) for file in cache.rglob("*.bin"))

    return count


@pytest.mark.slow
def test_two_processes_at_once_give_the_same_table(beir: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ragidx",
        "evaluate",
        str(beir),
        "--filter",
        "none",
        "--json",
        "--cache",
        str(tmp_path / "cache"),
    ]

    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]

    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "of another version"])
def test_what_is_damaged_is_encoded_again(beir: Path, tmp_path: Path, encoded: list[str], damage: str) -> None:
    cache = tmp_path / "cache"
    want = evaluate(beir, cache)
    encoded.clear()
    for file in cache.rglob("*.bin"):
        data = bytearray(file.read_bytes())
        if damage == "changed":
            data[5_000] ^= 1
        elif damage == "of another version":
            data[8] = 9
        file.write_bytes(data[:-10] if damage == "cut" else b"" if damage == "emptied" else data)

    assert evaluate(beir, cache) == want
    assert 0 < len(encoded) <= 2 * len(WORDS)
    encoded.clear()
    evaluate(beir, cache)
    assert encoded == []


def test_a_cache_that_cannot_be_written_is_named(beir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ragidx.RagidxError, match=str(tmp_path / "file")) as raised:
        evaluate(beir, tmp_path / "file" / "cache")
    assert raised.value.message == "the cache of vectors: cannot write: Not a directory"
    assert raised.value.hint == "free some space, or name another folder with `cache`"


def test_a_damaged_number_format_is_found_again(beir: Path, tmp_path: Path) -> None:
    want = evaluate(beir, tmp_path / "cache")
    (folder,) = folders(tmp_path / "cache")
    (folder / "format").write_bytes(b"\xff\xfe")

    assert evaluate(beir, tmp_path / "cache") == want
