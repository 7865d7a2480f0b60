"""Poolings: what they learn from states, that a build makes the vectors that were trained, and what is refused."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders.trained_pooling import load_pooling
from ragidx.pipelines.experiments.train import poolings
from ragidx.pipelines.experiments.train.frozen import scores
from ragidx.pipelines.experiments.train.pairs import Pair, TrainingPairs, read_pairs
from ragidx.pipelines.experiments.train.poolings import States

from ....raising import message_of

WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "bread"]
N = 60


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    lines = [{"query": f"{WORDS[n % 7]} {n}", "positive": f"The {WORDS[n % 7]} has number {n}."} for n in range(N)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def _sides(folder: Path, seed: int, n: int = 240) -> list[States]:
    """Rows of 3 layers that share 4 of 12 coordinates in the first layer alone; the mean is far from 0."""
    drawn = np.random.default_rng(seed)
    shared, sides = drawn.standard_normal((n, 4)), []
    for number in range(2):
        rows = drawn.standard_normal((n, 3, 12)) + np.linspace(-9, 9, 12)
        rows[:, 0, :4] += 4 * shared
        sides.append(States(folder / f"{seed}-{number}", 12))
        sides[-1].append(list(rows.astype(np.float32)))
    return sides


def test_states_come_back_as_they_were_written_and_padded(tmp_path: Path) -> None:
    states, drawn = States(tmp_path / "rows", 3), np.random.default_rng(0)
    texts = [drawn.standard_normal((length, 3)).astype(np.float32) for length in (2, 4, 1)]
    states.append(texts[:2])
    states.append(texts[2:])

    rows, mask = states.padded(np.array([2, 1]))

    assert (len(states), states.n_bytes, tuple(rows.shape)) == (3, 7 * 3 * 4, (2, 4, 3))
    assert mask.tolist() == [[True, False, False, False], [True] * 4]
    assert np.array_equal(rows[0, 0], texts[2][0])
    assert np.array_equal(rows[1], texts[1])
    assert np.array_equal(states.plain(last=True), np.stack([text[-1] for text in texts]))
    assert np.allclose(states.plain(last=False), np.stack([text.mean(axis=0) for text in texts]))


@pytest.mark.slow
def test_a_pooling_finds_the_layer_that_pairs_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poolings, "RATE", 1e-2)  # so small a network needs larger steps
    pairs = TrainingPairs.of("a", [[Pair(f"{number:03}", f"{number:03}") for number in range(240)]])
    batches = pairs.batches(epochs=150, seed=0)
    others = _sides(tmp_path, seed=1)

    net = poolings._trained(_sides(tmp_path, seed=0), batches, True, {"latents": 4, "heads": 2, "head_width": 8}, 0)

    first, second = (poolings._all(net, side) for side in others)
    plain = tuple(side.plain(last=True) for side in others)
    of_plain, of_net = scores({"plain": (plain[0], plain[1]), "net": (first, second)})
    assert of_plain.mean < 0.1
    assert of_net.mean > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["layers", "tokens"])
@pytest.mark.parametrize("method", ["classical", "llm2vec"])
def test_a_build_makes_the_vectors_that_were_trained(
    tiny_model: Callable[..., Path], tmp_path: Path, pairs: Path, rows: str, method: str
) -> None:
    out, folder = tmp_path / "own.pooling", tiny_model()
    options = {"method": method, "dtype": "float32", "max_length": 40}

    report = ragidx.train.pooling(
        folder, pairs=pairs, rows=rows, latents=3, heads=2, head_width=4, epochs=1, out=out, cache=None, force=True,
        **options,
    )  # fmt: skip

    assert (report.file, report.n_pairs, report.n_held_out) == (str(out), N - 20, 20)
    assert [score.name for score in report.scores] == ["last layer", "trained"]
    encoder = ragidx.load_encoder(str(folder), pooling="trainable", pooler=str(out), **options)
    held, _ = read_pairs([pairs]).split(20, 0)
    made = encoder.encode_query(held["query"]), encoder.encode_document(held["positive"])
    assert scores({"built": made})[0].mean == report.scores[1].mean
    again = tmp_path / "again.pooling"
    ragidx.train.pooling(
        folder, pairs=pairs, rows=rows, latents=3, heads=2, head_width=4, epochs=1, out=again, cache=None, force=True,
        **options,
    )  # fmt: skip
    first, second = (load_pooling(file, hidden=32, n_layers=2).state_dict() for file in (out, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_a_pooling_of_other_states_is_refused(tiny_model: Callable[..., Path], tmp_path: Path, pairs: Path) -> None:
    out, folder = tmp_path / "own.pooling", tiny_model()
    ragidx.train.pooling(folder, pairs=pairs, method="classical", epochs=1, out=out, cache=None, force=True)

    assert message_of(
        SpecError,
        lambda: ragidx.load_encoder(str(folder), method="llm2vec", pooling="trainable", pooler=str(out)).encode_query(
            ["a"]
        ),
    ) == (
        f"{out}: the pooling was trained on other states: `method` is 'classical' there, 'llm2vec' here\n"
        "  hint: train one on these, with `ragidx train pooling`"
    )
    with pytest.raises(ModelError, match="hidden width of 32, the model's is 9"):
        load_pooling(out, hidden=9, n_layers=2)
    data = out.read_bytes()
    at = data.index(b'ragidx encoder":"{') + len(b'ragidx encoder":"')
    out.write_bytes(data[:at] + b"[" + data[at + 1 :])
    with pytest.raises(ModelError, match="the pooling's file is damaged"):
        ragidx.load_encoder(str(folder), method="classical", pooling="trainable", pooler=str(out))


@pytest.mark.slow
def test_a_pooling_that_is_worse_is_not_written(
    tiny_model: Callable[..., Path], tmp_path: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.eye(20, 32, dtype=np.float32)
    sides = iter([rows, -rows])  # each query is farthest from its own text
    monkeypatch.setattr(poolings, "_all", lambda net, side: next(sides))

    report = ragidx.train.pooling(
        tiny_model(), pairs=pairs, method="classical", epochs=1, out=tmp_path / "p", cache=None
    )

    assert (report.file, (tmp_path / "p").exists()) == (None, False)
    assert report.notes == (
        "On the pairs that were held out it is worse than the last layer, so it is not written: `force=True`.",
    )


def test_what_cannot_be_trained_is_refused_before_anything_is_encoded(
    tiny_model: Callable[..., Path], tmp_path: Path, pairs: Path
) -> None:
    (tmp_path / "thesis.pdf").write_text("mine")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"rows": "words"}, "unknown rows 'words'"),
        ({"latents": 0}, "`latents`: latents=0 is out of range\n  hint: give 1 or more"),
        (
            {"layer": 1},
            "`layer`: rows of layers are of all layers\n  hint: remove `layer`, or take `rows=tokens`",
        ),
        ({"pooling": "mean"}, "train.pooling takes no such option: 'pooling'"),
        ({"out": tmp_path / "thesis.pdf"}, f"{tmp_path / 'thesis.pdf'}: the file is no pooling\n  hint: name another"),
        (
            {"method": "reba"},
            "`method`: reba has no states that a trainable pooling reads\n"
            "  hint: use `method=classical`, echo, prompteol or llm2vec of a decoder",
        ),
    )
    for options, message in cases:
        train = functools.partial(ragidx.train.pooling, tiny_model(), pairs=pairs, cache=None, **options)
        assert message_of(SpecError, train).startswith(message)


def test_states_that_are_too_large_for_the_disk_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = _sides(tmp_path, seed=0, n=20)
    monkeypatch.setattr(poolings, "MOST_BYTES", 288 * 100)  # of 100 pairs

    poolings._check_size(sides, 20, 100)
    assert message_of(SpecError, lambda: poolings._check_size(sides, 20, 200)) == (
        "`limit`: the states of 200 pairs take 0 GB of disk\n  hint: take fewer: `limit=90`"
    )
