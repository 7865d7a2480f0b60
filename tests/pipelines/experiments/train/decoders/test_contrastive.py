"""Training on pairs and on texts: the loss, batches, what queries carry, wrong answers, runs from start to end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

import ragidx
from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.indexer.encoders.load import load_encoder
from ragidx.indexer.models import lora
from ragidx.pipelines.experiments.train.decoders.contrastive import Loss, MethodModule
from ragidx.pipelines.experiments.train.decoders.data_sets import _packed, data_sets, longest_of, sampled
from ragidx.pipelines.experiments.train.decoders.negatives import filled, mined
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.frozen import Sides
from ragidx.pipelines.experiments.train.objectives import contrastive_loss
from ragidx.pipelines.experiments.train.pairs import Pair, TrainingPairs, read_pairs

from .....raising import message_of
from .conftest import SMALL, WORDS

pytestmark = pytest.mark.slow

QUERIES = [f"where is the {word}" for word in WORDS]
TEXTS = [f"The {word} lies in the valley." for word in WORDS]


def _loss(network: Network, mini_batch: int, **options: Any) -> Loss:
    loss = Loss(SentenceTransformer(modules=[MethodModule(network, 64)], device="cpu"), mini_batch_size=mini_batch)
    for name, value in options.items():
        setattr(loss, name, value)
    return loss


def _sides(network: Network) -> list[dict[str, torch.Tensor]]:
    encoding = MethodModule(network, 64)
    return [encoding.preprocess(QUERIES, ""), encoding.preprocess(TEXTS)]


def _gradients(network: Network) -> dict[str, torch.Tensor]:
    found = {name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None}
    network.zero_grad()
    return found


def test_a_batch_in_parts_has_the_loss_and_gradients_of_the_whole(network: Callable[..., Network]) -> None:
    trained = network({"dropout": 0.1})
    values, gradients = [], []
    for mini_batch in (2, 16):
        with torch.random.fork_rng():
            trained.encoder.backbone.model.eval()  # the parts draw their own dropout
            loss = _loss(trained, mini_batch)(_sides(trained), None)
            loss.backward()
        values.append(float(loss.detach()))
        gradients.append(_gradients(trained))

    queries, texts = (trained(*side.values()) for side in _sides(trained))
    assert values[0] == pytest.approx(values[1], abs=1e-5)
    assert values[0] == pytest.approx(float(contrastive_loss(queries, texts).detach()), abs=1e-4)
    for name, one in gradients[0].items():
        assert torch.allclose(one, gradients[1][name], atol=1e-5), name


def test_a_text_that_the_teacher_finds_nearer_is_no_wrong_answer() -> None:
    loss = Loss.__new__(Loss)
    torch.nn.Module.__init__(loss)
    loss.loss = torch.nn.Module()
    loss.loss.scale = 1.0
    queries, texts = torch.eye(2, requires_grad=True), torch.tensor([[1.0, 0], [1, 1]], requires_grad=True)
    even = torch.tensor([[[1.0, 0], [1, 0]], [[0, 1], [0, 1]]])  # each query and its own text, as the teacher has them
    nearer = torch.tensor([[[1.0, 0], [0, 1]], [[0, 1], [1, 0]]])  # the other text is nearer

    plain = loss.calculate_loss([[queries], [texts]], even)
    masked = loss.calculate_loss([[queries], [texts]], nearer)

    assert float(plain.detach()) == pytest.approx(float(contrastive_loss(queries, texts, scale=1.0).detach()))
    assert float(masked.detach()) == pytest.approx(0)  # nothing else is left to choose from


def test_the_cosines_of_the_teacher_are_learnt(network: Callable[..., Network]) -> None:
    trained = network({"dropout": 0.0})
    vectors = [torch.nn.functional.normalize(trained(*side.values()).detach(), dim=1) for side in _sides(trained)]
    labels = torch.stack(vectors, dim=1)
    plain, same = (_loss(trained, 8, like_teacher=weight)(_sides(trained), labels) for weight in (0.0, 9.0))

    other = _loss(trained, 8, like_teacher=9.0)(_sides(trained), labels.flip(0))

    assert float(same.detach()) == pytest.approx(float(plain.detach()), abs=1e-4)  # its own cosines cost nothing
    assert float(other.detach()) > float(_loss(trained, 8)(_sides(trained), labels.flip(0)).detach())


def test_wrong_answers_are_the_nearest_below_a_share_of_the_own_text() -> None:
    pairs = TrainingPairs.of(["set"], [[*map(Pair, "abc", "ABC")]])
    texts = np.array([[1, 0], [0.99, 0.14], [0, 1]], np.float32)

    found = mined(pairs, Sides(np.array([[1, 0], [1, 0], [0, 1]], np.float32), texts), 2)

    assert found == [["C"], ["C"], ["B", "A"]]  # A and B are as near to a and b as their own


def test_wrong_answers_are_of_the_same_data_set_and_no_text_of_the_same_owner() -> None:
    pairs = TrainingPairs.of("xy", [[Pair("a", "A", owner="o"), Pair("b", "B", owner="o")], [Pair("c", "C")]])

    assert mined(pairs, Sides(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)), 2) == [[], [], []]


def test_another_answer_to_the_same_query_is_no_wrong_one() -> None:
    pairs = TrainingPairs.of(["set"], [[*map(Pair, "aab", "AZB")]])
    sides = Sides(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32))

    assert mined(pairs, sides, 2) == [["B"], ["B"], ["A", "Z"]]


def test_wrong_answers_that_are_missing_are_drawn_from_the_data_set() -> None:
    pairs = TrainingPairs.of("xy", [[*map(Pair, "aab", "AZB")], [Pair("c", "C")]])

    found = filled(pairs, [["n"], [], ["m", "o", "p"], []], [2, 2, 2, 2])

    assert found == [["n", "n"], ["B", "B"], ["m", "o"], []]  # C's data set has no other text


def _batches(trainer: Any) -> Iterator[dict[str, Any]]:
    yield from trainer.get_train_dataloader()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Trainers that were about to train; they do not."""
    found: list[Any] = []

    class Seen(Exception):
        pass

    def stop(self: Any, *args: object, **kwargs: object) -> None:
        found.append(self)
        raise Seen

    monkeypatch.setattr(SentenceTransformerTrainer, "train", stop)
    found.append(Seen)
    return found


def _about_to_train(seen: list[Any], *args: Any, **kwargs: Any) -> Any:
    with pytest.raises(seen[0]):
        ragidx.train.contrastive(*args, **kwargs)
    return seen[-1]


def test_a_batch_is_of_one_data_set_has_no_text_twice_and_queries_begin_with_their_instruction(
    pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path, seen: list[Any]
) -> None:
    said = {"one.jsonl": "Find the place.", "two.jsonl": "Find it!"}
    trainer = _about_to_train(
        seen, tiny_model(), pairs=pairs, out=tmp_path / "out", method="llm2vec", instructions=said, **SMALL
    )
    tokenizer = load_encoder(str(tiny_model()), method="llm2vec").tokenizer
    numbers = {json.loads(line)["query"]: name for name in ("one", "two") for line in _lines(pairs / f"{name}.jsonl")}

    batches = list(_batches(trainer))

    assert len(batches) == sum(-(-size // 8) for size in map(len, trainer.train_dataset.values()))
    for batch in batches:
        texts = [tokenizer.pieces.decode(row.tolist()) for row in batch["query_input_ids"]]
        name = str(batch["dataset_name"]).removesuffix(".jsonl")
        assert all(text.startswith(f"{said[f'{name}.jsonl']} where is") for text in texts)
        queries = [text.removeprefix(said[f"{name}.jsonl"]).strip() for text in texts]
        assert {numbers[query] for query in queries} == {name}
        assert len(set(queries)) == len(queries)
        positives = [tokenizer.pieces.decode(row.tolist()) for row in batch["positive_input_ids"]]
        assert all(text.startswith("The ") for text in positives)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_negatives_of_a_file_and_of_a_teacher_are_columns(
    tiny_model: Callable[..., Path], tmp_path: Path, seen: list[Any], pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragidx.pipelines.experiments.train.decoders.inputs._is_fast", lambda device: True)
    (pairs / "one.jsonl").write_text(
        "".join(
            json.dumps({**json.loads(line), "negative": ["no", "not"]}) + "\n" for line in _lines(pairs / "one.jsonl")
        )
    )
    trainer = _about_to_train(
        seen, tiny_model(), pairs=pairs, out=tmp_path / "out", method="prompteol", teacher="mini", negatives=3,
        cache=None, **SMALL,
    )  # fmt: skip

    one, two = (trainer.train_dataset[name] for name in ("one.jsonl", "two.jsonl"))
    assert (one[0]["negative_1"], one[0]["negative_2"]) == ("no", "not")
    assert one[0]["negative_3"].startswith("The ")
    assert {"negative_1", "negative_2", "negative_3", "label"} <= set(two.column_names)
    label = np.array(one[0]["label"])
    assert label.shape == (5, 384)
    assert np.allclose(np.linalg.norm(label, axis=1), 1, atol=1e-5)


def test_a_row_without_wrong_answers_takes_none_from_the_others(
    tiny_model: Callable[..., Path], tmp_path: Path, seen: list[Any], pairs: Path
) -> None:
    rows = [json.loads(line) for line in _lines(pairs / "one.jsonl")]
    given = [{**row, "negative": ["no", "not"]} if number % 2 else row for number, row in enumerate(rows)]
    (pairs / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))

    trainer = _about_to_train(seen, tiny_model(), pairs=pairs, out=tmp_path / "out", method="prompteol", **SMALL)

    one, two = (trainer.train_dataset[name] for name in ("one.jsonl", "two.jsonl"))
    has = {row["query"] for row in given if "negative" in row}
    assert all((row["negative_1"] == "no") == (row["query"] in has) for row in one)
    assert all(row["negative_1"] in {"no", *(other["positive"] for other in rows)} for row in one)
    assert not any(row["negative_1"] == row["positive"] for row in one)
    assert set(two.column_names) == {"query", "positive"}


def test_every_pair_is_seen_once_an_epoch_though_texts_come_twice(
    tiny_model: Callable[..., Path], tmp_path: Path, seen: list[Any]
) -> None:
    file = tmp_path / "pairs.jsonl"
    rows = [{"query": f"where is {number}", "positive": WORDS[number % 3]} for number in range(60)]
    rows += [{"query": f"how is {number}", "positive": f"As {number}."} for number in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    trainer = _about_to_train(
        seen, tiny_model(), pairs=file, out=tmp_path / "out", method="prompteol", epochs=2, **SMALL
    )

    batches = list(trainer.get_train_dataloader().batch_sampler)
    data = trainer.train_dataset["pairs.jsonl"]
    assert trainer.args.max_steps == len(batches) > 2 * -(-len(data) // 8)
    times = np.bincount([place for batch in batches for place in batch], minlength=len(data))
    assert set(times.tolist()) <= {1, 2}
    assert np.mean(times == 2) > 0.8  # one that is left over alone has no wrong answer in its batch
    for batch in batches:
        assert len({data[place]["positive"] for place in batch}) == len(batch)


@pytest.mark.parametrize("kinds", [1000, 40, 3])
def test_batches_are_full_where_no_number_comes_twice_and_never_have_one_twice(kinds: int) -> None:
    drawn = np.random.default_rng(kinds)
    rows = np.stack([np.arange(200) + 1000, drawn.permutation(1000)[:200] % kinds], axis=1)

    batches = _packed(rows, drawn.permutation(200), 8)

    assert sorted(place for batch in batches for place in batch) == list(range(200))
    assert max(map(len, batches)) <= 8
    for batch in batches:
        numbers = rows[batch].ravel().tolist()
        assert len(set(numbers)) == len(numbers)
    if kinds == 1000:
        assert len(batches) == 25
    assert len(batches) <= 25 + np.bincount(rows[:, 1]).max()


def test_memory_is_measured_by_the_longest_texts_of_all(pairs: Path) -> None:
    (pairs / "two.jsonl").write_text(
        json.dumps({"query": "a", "positive": "long " * 50}) + "\n" + _lines(pairs / "two.jsonl")[0]
    )
    every = read_pairs([pairs])
    data = data_sets(every, None)

    assert longest_of(data)[-1] == "long " * 50
    rows = sampled(data, 0)
    assert sorted(rows) == sorted(map(list, zip(every["query"], every["positive"], strict=True)))


def test_what_a_query_carries_is_kept_and_held_out_queries_carry_that_of_their_file(
    pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = set()
    vectors = Network.vectors

    def noted(self: Network, texts: list[str], instruction: str | None, limit: int) -> Any:
        carried.add(instruction)
        return vectors(self, texts, instruction, limit)

    monkeypatch.setattr(Network, "vectors", noted)
    ragidx.train.contrastive(
        tiny_model(), pairs=pairs, out=tmp_path / "out", method="llm2vec", instruction="Find.",
        instructions={"one.jsonl": "Find the place."}, force=True, minutes=1e-6, **SMALL,
    )  # fmt: skip

    assert carried == {"Find the place.", "Find.", None}
    assert load_encoder(str(tmp_path / "out")).spec.instruction == "Find."


def test_texts_without_spaces_have_halves(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for number in range(60):
        (tmp_path / "text" / f"{number}.txt").write_text("".join(chr(0x4E00 + number * 20 + one) for one in range(40)))

    report = ragidx.train.simcse(
        tiny_model(),
        text=tmp_path / "text",
        out=tmp_path / "out",
        method="prompteol",
        force=True,
        minutes=1e-6,
        **SMALL,
    )

    assert report.before < 1


def test_files_of_one_pair_each_have_no_wrong_answers(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    for number in range(50):
        row = {"query": f"where is {number}", "positive": f"There, at {number}."}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n")

    def train() -> None:
        ragidx.train.contrastive(tiny_model(), pairs=tmp_path, out=tmp_path / "out", method="prompteol", **SMALL)

    assert message_of(SpecError, train) == (
        "`pairs`: no file has two pairs of different texts: the other pairs of its file are a query's wrong answers\n"
        "  hint: put pairs of a kind into one file"
    )


@pytest.mark.parametrize("options", [{"method": "prompteol"}, {"method": "llm2vec", "matryoshka": True}])
def test_pairs_that_are_learnt_find_their_own_texts(
    options: dict[str, Any], pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    report = ragidx.train.contrastive(
        tiny_model(), pairs=pairs, out=tmp_path / "out", epochs=8, **{**SMALL, "rate": 1e-2}, **options
    )

    assert report.last_loss < 0.5 * report.first_loss
    assert report.after > report.before
    (tmp_path / "docs").mkdir()
    for text in TEXTS:
        (tmp_path / "docs" / f"{text.split()[1]}.txt").write_text(text)
    index = ragidx.build(tmp_path / "docs", tmp_path / "index", model=str(tmp_path / "out"))
    assert {hit.text for hit in index.search(TEXTS[0], k=len(TEXTS), mode="dense")} == {*TEXTS}


def test_simcse_begins_anew_after_masked_prediction_and_contrastive_trains_its_matrices_further(
    text: Path, pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    names = ("mntp", "simcse", "contrastive")
    few = {**SMALL, "limit": 60, "force": True}
    ragidx.train.mntp(tiny_model(), text=text, out=tmp_path / "mntp", **few)
    ragidx.train.simcse(tmp_path / "mntp", text=text, out=tmp_path / "simcse", **few)
    ragidx.train.contrastive(tmp_path / "simcse", pairs=pairs, out=tmp_path / "contrastive", **few)

    stages = [json.loads((tmp_path / name / "training" / "training.json").read_text()) for name in names]
    assert [stage["stage"] for stage in stages] == list(names)
    assert len({stage["weights"] for stage in stages}) == 3
    bases = []
    for name in names:  # each model without the matrices that were trained last
        model = load_encoder(str(tmp_path / name)).backbone.model
        lora.merge(model, tmp_path / name / "training", name, times=-1)
        bases.append(torch.cat([weight.flatten() for weight in model.parameters()]))
    merged = torch.cat([w.flatten() for w in load_encoder(str(tmp_path / "mntp")).backbone.model.parameters()])
    assert torch.allclose(bases[1], merged, atol=1e-6)  # SimCSE stands on the merged first stage
    assert torch.allclose(bases[2], bases[1], atol=1e-6)  # the pairs train its matrices further
    assert not torch.allclose(bases[1], bases[0], atol=1e-6)


def test_an_adapter_that_is_trained_further_keeps_its_rank(
    pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    few = {**SMALL, "limit": 60, "force": True, "minutes": 1e-6}
    ragidx.train.contrastive(tiny_model(), pairs=pairs, out=tmp_path / "one", method="prompteol", **few)

    def train() -> None:
        ragidx.train.contrastive(tmp_path / "one", pairs=pairs, out=tmp_path / "two", **{**few, "rank": 8})

    said = f"`rank`: the adapter of '{tmp_path / 'one'}' is trained further, with rank=4\n  hint: remove `rank`"
    assert message_of(SpecError, train) == said


def test_simcse_without_dropout_is_refused(text: Path, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    said = message_of(
        SpecError,
        lambda: ragidx.train.simcse(
            tiny_model(), text=text, out=tmp_path / "out", method="prompteol", attention_dropout=0.0, **SMALL
        ),
    )

    assert said.startswith("`attention_dropout`: the model draws no dropout: both views of a text are the same")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 1}, "`batch`: batch=1 is out of range\n  hint: give 2 or more"),
        ({"rate": 0.0}, "`rate`: rate=0.0 trains nothing\n  hint: give more than 0"),
        *(
            ({name: number}, f"`{name}`: {name}={number} trains nothing\n  hint: give more than 0")
            for name in ("minutes", "rate", "scale")
            for number in (math.inf, math.nan)
        ),
        ({"dropout": 1.0}, "`dropout`: dropout=1.0 trains nothing\n  hint: give 0 to less than 1"),
        ({"rank": 0}, "`rank`: rank=0 is out of range\n  hint: give 1 or more"),
        ({"like_teacher": 1.0}, "`like_teacher`: there is no teacher\n  hint: name one with `teacher`"),
        (
            {"instructions": {"three.jsonl": "Find."}},
            "`instructions`: no data set is called 'three.jsonl', or what it says is no text\n"
            '  hint: a JSON object says it: {"FILE": "the instruction of its queries"}; they are one.jsonl, two.jsonl',
        ),
    ],
)
def test_an_option_that_teaches_nothing_is_named(
    options: dict[str, Any], said: str, pairs: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    def train() -> None:
        ragidx.train.contrastive(tiny_model(), pairs=pairs, out=tmp_path / "out", method="prompteol", **options)

    assert message_of(SpecError, train) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"query": "a", "positive": "b", "negative": ""}', "the pair has no text in `negative`"),
        ('{"query": "a", "positive": "b", "negative": [1]}', "the pair has no text in `negative`"),
        ('{"query": "a"}', "the pair has no text in `positive`"),
    ],
)
def test_a_line_that_teaches_nothing_is_named_by_file_and_line(line: str, said: str, pairs: Path) -> None:
    file = pairs / "one.jsonl"
    file.write_text(file.read_text() + line + "\n")

    assert message_of(CorpusError, lambda: read_pairs([pairs])).startswith(f"{file}:41: {said}")
