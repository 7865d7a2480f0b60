"""`layer=auto`: the layer at which ten words find their rest, resolved to a number before anything is stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.specs import EncoderSpec
from ragidx.indexer.store.generations import committed
from ragidx.pipelines.ingest import choose_layer as module
from ragidx.pipelines.ingest.choose_layer import choose_layer
from ragidx.pipelines.ingest.report import Progress
from ragidx.pipelines.plan.plan import plan

from ..conftest import Done


class Layered:
    """Layers of known quality: vectors are rows of an identity, and layer `l` mixes up the texts `wrong[l]`."""

    def __init__(self, *wrong: slice) -> None:
        self._wrong = wrong

    def query_instruction(self, asked: str | None) -> str:
        return ""

    def encode_layers(self, texts: list[str], instruction: str | None = None) -> Floats:
        n = len(texts)
        found = np.stack([np.eye(n, dtype=np.float32)] * len(self._wrong))
        for layer, wrong in enumerate(self._wrong if instruction is not None else ()):
            found[layer, wrong] = np.roll(found[layer, wrong], 1, axis=0)
        return found


def texts(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(list("abcdefgh"), 45)) + f" {number}" for number in range(n)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts(20))))
    return path


def test_the_best_layer_is_taken_and_the_last_where_the_difference_may_be_chance() -> None:
    every, none = slice(0, 20), slice(0)
    kinds = [(every, none, every), (slice(0, 2), every, slice(2, 5)), (none, every, none)]

    found = [choose_layer(Layered(*wrong), None, texts(20)) for wrong in kinds]  # type: ignore[arg-type]

    assert [layer for layer, _ in found] == [2, -1, -1]
    assert found[0][1] == pytest.approx([1 / 20, 1, 1 / 20])
    assert found[1][1][0] > found[1][1][2]


def test_the_ten_words_are_those_in_the_middle() -> None:
    words = [str(number) for number in range(30)]

    asked, rest = module._parted(words, " ")

    assert asked.split() == words[10:20]
    assert rest.split() == words[:10] + words[20:]


def test_where_no_spaces_divide_words_pairs_of_characters_are_words() -> None:
    text = "".join(chr(0x4E00 + number) for number in range(100))

    asked, rest = module._parted(*module._words(text))

    assert (len(asked), len(rest)) == (20, 80)
    assert rest[:40] + asked + rest[40:] == text
    assert module._words("words as they are") == (["words", "as", "they", "are"], " ")


def test_every_layer_has_the_vectors_of_an_encoder_of_that_layer(tiny: dict[str, Any]) -> None:
    found = load_encoder(**tiny).encode_layers(texts(3))

    for layer, vectors in enumerate(found[:-1], start=1):
        np.testing.assert_allclose(vectors, load_encoder(**tiny, layer=layer).encode_document(texts(3)), atol=1e-5)
    np.testing.assert_allclose(found[-1], load_encoder(**tiny).encode_document(texts(3)), atol=1e-5)


@pytest.mark.slow
def test_prompts_for_one_text_are_averaged_at_every_layer(tiny: dict[str, Any]) -> None:
    encoder = load_encoder(**tiny | {"method": "metaeol"})

    np.testing.assert_allclose(encoder.encode_layers(texts(3))[-1], encoder.encode_document(texts(3)), atol=1e-5)


@pytest.mark.slow
def test_a_build_stores_the_number_and_later_builds_keep_it(corpus: Path, tmp_path: Path, tiny: dict[str, Any]) -> None:
    index = tmp_path / "index"
    report = ragidx.build(corpus, index, layer="auto", **tiny).report
    again = ragidx.build(corpus, index, layer="auto", **tiny).report

    stored = EncoderSpec.from_json(dict(committed(index).spec["encoder"]))
    assert isinstance(stored.layer, int)
    assert report.layer_scores == report.to_json()["layer_scores"]
    assert len(report.layer_scores) > 1
    assert not again.committed
    assert again.layer_scores == []
    assert "layer_scores" not in again.to_json()


@pytest.mark.slow
def test_the_choice_is_part_of_the_time_and_of_the_progress(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    times, told = list[float](), list[tuple[str, int]]()

    def chosen(*_: object) -> tuple[int, list[float]]:
        times.append(time.perf_counter())
        return 1, [0.75, 0.5]

    def on_progress(progress: Progress) -> None:
        times.append(time.perf_counter())
        told.append((progress.stage, progress.n_sample))

    monkeypatch.setattr(module, "choose_layer", chosen)
    report = ragidx.build(corpus, tmp_path / "index", layer="auto", on_progress=on_progress, **tiny).report

    assert report.seconds > times[-1] - times[0]  # from the loading of the model for the choice to the last report
    assert ("choosing a layer", 20) in told


@pytest.mark.slow
def test_a_plan_takes_the_last_layer_or_that_of_the_index(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    before = plan(corpus, index, layer="auto", **tiny)
    monkeypatch.setattr(module, "choose_layer", lambda *_: (1, [0.75, 0.5]))
    ragidx.build(corpus, index, layer="auto", **tiny)

    after = plan(corpus, index, layer="auto", **tiny)

    assert (before.encoder.layer, before.n_to_encode) == (-1, 20)
    assert (after.encoder.layer, after.n_to_encode) == (1, 0)


@pytest.mark.slow
def test_the_command_line_says_which_layer_and_why(
    corpus: Path, tiny: dict[str, Any], run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "choose_layer", lambda *_: (1, [0.75, 0.5]))

    options = ["--model", tiny["model"], "--method", "classical", "--layer", "auto", "--dtype", "float32"]
    done = run("build", str(corpus), "--index", "index", *options)

    assert done.status == 0, done.err
    assert (
        "Layer 1 of 2 was chosen: ten words of a text and the rest of it find each other with a mean reciprocal rank "
        "of 0.75; 0.50 with the last." in " ".join(done.err.split())
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "reba"}, "reba with mean pooling has no vector for each layer"),
        ({"method": "aligned-values"}, "aligned-values with last pooling has no vector for each layer"),
        (
            {"chunks": ragidx.ChunkSpec(size=20)},
            "the corpus has 0 texts of 40 words or more, too few to choose a layer on",
        ),
    ],
)
def test_what_has_no_layers_or_too_few_texts_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, tiny: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        ragidx.build(corpus, tmp_path / "index", **tiny | {"layer": "auto"} | options)

    assert not (tmp_path / "index").exists()


def test_standard_input_cannot_be_read_twice(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a layer is chosen on the corpus first, and standard input cannot be read"):
        ragidx.build("-", tmp_path / "index", layer="auto", **tiny)


def test_only_a_build_knows_auto(tiny: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a layer is chosen on a corpus, when its index is made"):
        load_encoder(**tiny, layer="auto")
