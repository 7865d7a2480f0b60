"""Heads: what a map learns, what it is worth, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats, Ints, slices
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.filters.heads import load_head
from ragidx.pipelines.experiments.train import heads
from ragidx.pipelines.experiments.train.frozen import scores
from ragidx.pipelines.experiments.train.heads import Sides, linear, whitening
from ragidx.pipelines.experiments.train.pairs import Pair, TrainingPairs

from ....raising import message_of

WORDS = ["river", "mill", "lease", "tower", "bees", "planet", "printing", "bread", "music", "bridge", "medicine"]


def _sides(n: int = 400, seed: int = 0) -> Sides:
    """Pairs that share 4 of 16 coordinates; the others are loud and mean nothing, and no mean is 0."""
    drawn = np.random.default_rng(seed)
    shared = drawn.standard_normal((n, 4))
    sides = []
    for _ in range(2):
        noise = 8 * drawn.standard_normal((n, 12))
        rows = np.concatenate([shared + 0.1 * drawn.standard_normal((n, 4)), noise], axis=1)
        sides.append((rows + np.linspace(-20, 20, 16)).astype(np.float32))
    return Sides(*sides)


def _batches(epochs: int, n_sets: int = 1, seed: int = 0) -> Iterator[Ints]:
    """Of 400 pairs without an equal text."""
    pairs = [Pair(f"{number:03}", f"{number:03}") for number in range(400)]
    return TrainingPairs.of("abc"[:n_sets], list(slices(pairs, 400 // n_sets))).batches(epochs, seed)


def _found(sides: Sides, one: Filter | None) -> float:
    """Mean reciprocal rank."""
    return scores({"one": heads._mapped(sides, one)})[-1].mean


def _pairs_file(folder: Path, n: int = 200) -> Path:
    lines = [
        {"query": f"{WORDS[place % 11]} number {place}", "positive": f"The {WORDS[place % 11]} has the number {place}."}
        for place in range(n)
    ]
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.slow
def test_a_map_learns_what_pairs_share_and_finds_it_in_others() -> None:
    trained_on, others = _sides(), _sides(seed=1)

    made = linear(trained_on, _batches(200), 16)

    assert _found(others, None) < 0.1
    assert _found(others, made) > 0.6
    assert _found(others, made) > _found(others, whitening(trained_on, 16)) + 0.2


@pytest.mark.slow
def test_the_first_half_of_a_map_is_trained_too() -> None:
    made = linear(_sides(), _batches(200), 16)

    assert made.shift is not None
    assert _found(_sides(seed=1), Filter(made.matrix[:, :8], shift=made.shift[:8])) > 0.5


@pytest.mark.slow
def test_a_map_follows_from_pairs_and_seed() -> None:
    sides = _sides()

    first, again, other = (linear(sides, _batches(1, 2, seed), 8, seed=seed) for seed in (0, 0, 1))

    assert np.array_equal(first.matrix, again.matrix)
    assert not np.array_equal(first.matrix, other.matrix)


@pytest.mark.slow
def test_a_teacher_says_how_near_texts_are_that_are_no_pair() -> None:
    sides = _sides()
    rows = sides.queries[:, :2] - sides.queries[:, :2].mean(axis=0)  # the teacher sees two of the shared coordinates
    teacher = Sides(rows, rows)

    def apart(one: Filter) -> float:
        return float(np.mean((_cosines(one(sides.queries), one(sides.positives)) - _cosines(rows, rows)) ** 2))

    alone, taught = (linear(sides, _batches(200), 16, teacher=given) for given in (None, teacher))

    assert apart(taught) < 0.9 * apart(alone)


def _cosines(one: Floats, other: Floats) -> Floats:
    return (one / np.linalg.norm(one, axis=1, keepdims=True)) @ (other / np.linalg.norm(other, axis=1, keepdims=True)).T


def test_whitened_vectors_are_uncorrelated_with_variance_1_and_mean_0() -> None:
    sides = _sides()

    rows = whitening(sides, 8)(np.concatenate([sides.queries, sides.positives]))

    assert np.allclose(rows.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(np.cov(rows, rowvar=False, bias=True), np.eye(8), atol=1e-3)


def test_equal_texts_are_equally_good_answers() -> None:
    rows = np.eye(3, dtype=np.float32)[[0, 1, 1]]

    assert _found(Sides(rows, rows), None) == 1


@pytest.mark.slow
def test_a_trained_head_makes_an_index_and_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = ragidx.train.head("mini", pairs=_pairs_file(tmp_path), epochs=1, cache=None, out="mini.head", force=True)
    (tmp_path / "docs").mkdir()
    for word in WORDS:
        (tmp_path / "docs" / f"{word}.md").write_text(f"# The {word}\n\nAll about the {word} of the village.\n")

    assert report.file == "mini.head"
    assert [score.name for score in report.scores] == ["none", "whitening", "linear"]
    assert report.n_pairs + report.n_held_out == 200
    index = ragidx.build("docs", "index", filter="head:mini.head")
    assert index.searcher.store.manifest.requires == ("trained head",)
    head = load_head(tmp_path / "mini.head")
    raw = ragidx.load_encoder("mini").encode_query(["who keeps bees?"])
    expected = raw @ head.matrix - head.shift
    assert np.allclose(index.searcher.encode(["who keeps bees?"]), expected / np.linalg.norm(expected), atol=1e-5)
    assert index.search("who keeps bees?", k=1)[0].doc_id == "bees.md"
    (tmp_path / "mini.head").rename(tmp_path / "moved.head")
    (tmp_path / "docs" / "owl.md").write_text("# The owl\n\nAll about the owl.\n")
    updated = ragidx.build("docs", "index")  # its numbers are in the index
    assert updated.search("where is the owl?", k=1)[0].doc_id == "owl.md"
    assert ragidx.build("docs", "index", filter="head:moved.head").search("the owl", k=1)[0].doc_id == "owl.md"
    assert message_of(SpecError, lambda: ragidx.tune("index", cache=None)) == (
        "index: the index has a trained head, which fits no other layer, method or filter\n"
        "  hint: tune the corpus, with its model"
    )
    assert message_of(SpecError, lambda: ragidx.Index("index").upgrade(filter=ragidx.FilterSpec(dim=32))) == (
        "index: the filter of the index is a trained head, and the new index needs its file\n"
        "  hint: name it, or another filter: `filter=head:FILE`"
    )
    assert ragidx.Index("index").upgrade(filter=ragidx.FilterSpec("head:moved.head", dim=32), force=True).committed


@pytest.mark.slow
def test_a_head_of_another_method_or_other_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = _pairs_file(tmp_path)
    for name, seed in (("one.head", 0), ("other.head", 1)):
        ragidx.train.head("mini-decoder", pairs=pairs, epochs=1, seed=seed, cache=None, out=name, force=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The mill stands by the river.\n")
    ragidx.build("docs", "index", model="mini-decoder", filter="head:one.head")

    assert message_of(
        SpecError, lambda: ragidx.build("docs", "last", model="mini-decoder", filter="head:one.head", pooling="last")
    ) == (
        "one.head: the head was trained on other vectors: `pooling` is 'mean' there, 'last' here\n"
        "  hint: train one on these, with `ragidx train head`"
    )  # fmt: skip
    assert "the head of the index's filter is another" in message_of(
        SpecError, lambda: ragidx.build("docs", "index", filter="head:other.head")
    )
    with pytest.raises(SpecError, match="dim=300 is wider than the model, which has 256"):
        ragidx.build("docs", "wide", model="mini-decoder", filter=ragidx.FilterSpec("head:one.head", dim=300))


@pytest.mark.slow
def test_whitening_takes_a_quarter_and_an_index_its_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The mill stands by the river.\n")
    ragidx.build("docs", "index", model="mini-decoder", pooling="last", layer=1)

    report = ragidx.train.head("index", pairs=_pairs_file(tmp_path), kind="whitening", dim=8, cache=None, force=True)

    made = load_head(tmp_path / "head.safetensors").made
    assert report.model == "mini-decoder"
    assert [score.dim for score in report.scores] == [256, 8]
    assert isinstance(made["encoder"], dict)
    assert (made["encoder"]["pooling"], made["encoder"]["layer"], made["kind"]) == ("last", 1, "whitening")


@pytest.mark.slow
def test_a_head_that_is_worse_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    poor = Filter(np.eye(384, 2, dtype=np.float32)[::-1], shift=np.zeros(2, np.float32))
    monkeypatch.setattr(heads, "linear", lambda *_, **__: poor)

    report = ragidx.train.head("mini", pairs=_pairs_file(tmp_path, 600), cache=None)

    assert report.file is None
    assert not (tmp_path / "head.safetensors").exists()
    assert report.notes == (
        "With fewer than 2,000 pairs whitening may be as good: `kind=whitening`.",
        "On the pairs that were held out it is worse than no map, so it is not written: `force=True`.",
    )


def test_whitening_of_few_pairs_is_as_wide_as_they_are_many(tmp_path: Path) -> None:
    report = ragidx.train.head(
        "mini", pairs=_pairs_file(tmp_path), limit=60, kind="whitening", out=tmp_path / "a.head", force=True, cache=None
    )

    assert report.n_pairs < 384 // 4
    assert report.scores[-1].dim == report.n_pairs


def test_what_cannot_be_trained_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    pairs = _pairs_file(tmp_path)
    (tmp_path / "thesis.pdf").write_text("mine")

    for options, message in (
        ({"kind": "deep"}, "unknown kind 'deep'"),
        ({"dim": 400}, "`dim`: dim=400 is not from 1 to 384\n  hint: give the width of the map"),
        ({"limit": -5}, "`limit`: limit=-5 is out of range\n  hint: give 1 or more"),
        ({"epochs": 0}, "`epochs`: epochs=0 is out of range\n  hint: give 1 or more"),
        ({"limit": 10}, "`pairs`: 10 pairs teach nothing\n  hint: give 40 or more"),
        ({"out": tmp_path}, f"{tmp_path}: it is a folder\n  hint: name a file"),
        (
            {"out": tmp_path / "new" / "a.head"},
            f"{tmp_path / 'new' / 'a.head'}: its folder is missing\n  hint: make it, or name another file with `out`",
        ),
        (
            {"kind": "whitening", "teacher": "mini"},
            "`teacher`: whitening learns nothing of a teacher\n  hint: remove `teacher`",
        ),
        (
            {"out": tmp_path / "thesis.pdf"},
            f"{tmp_path / 'thesis.pdf'}: the file is no head\n  hint: name a file that `ragidx train head` wrote",
        ),
        ({"epoch": 3}, "train.head takes no such option: 'epoch'"),
    ):
        assert message_of(
            SpecError,
            lambda options=options: ragidx.train.head("mini", pairs=pairs, cache=None, **options),  # type: ignore[misc]
        ).startswith(message)
