"""A decoder trained on pairs, by the contrastive loss with cached gradients; and on texts alone, as SimCSE.

pairs -> those that are held out, and data sets of the others -> batches of one data set, none with a text twice -> the
loss over the whole batch, the passes back in parts (GradCache) -> LoRA matrices, or all weights. sentence-transformers'
trainer makes the steps; what a text becomes is the method's own, with its template, attention and pooling.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import datasets
import numpy as np
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import InputModule
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MatryoshkaLoss
from torch import Tensor
from torch.nn import functional

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Doubles
from ragidx.indexer.encoders import batching
from ragidx.indexer.model_files import read_object
from ragidx.indexer.options import written_out
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.train.decoders import processes
from ragidx.pipelines.experiments.train.decoders.cost import plan
from ragidx.pipelines.experiments.train.decoders.data_sets import (
    POSITIVE,
    QUERY,
    Batches,
    batches_of,
    data_sets,
    labels_of,
    longest_of,
    sampled,
    with_wrong_answers,
)
from ragidx.pipelines.experiments.train.decoders.folder import Run
from ragidx.pipelines.experiments.train.decoders.inputs import (
    MOST_HELD_OUT,
    about_model,
    about_steps,
    digest_of,
    held_texts,
    resolved_of,
    steps_of,
)
from ragidx.pipelines.experiments.train.decoders.network import Network
from ragidx.pipelines.experiments.train.decoders.runs import DecoderReport, Training, of_network
from ragidx.pipelines.experiments.train.frozen import listed, reciprocal_ranks
from ragidx.pipelines.experiments.train.keywords import ContrastiveKeywords, SimcseKeywords
from ragidx.pipelines.experiments.train.pairs import TrainingPairs, read_pairs
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import resolve_against

_WIDTHS = (1, 2, 4, 8)  # of the vectors, by how much narrower
_FEWEST_WORDS = 3
_PASSES = 1.4  # a pass without gradients and one with them, of the latter
_INSTRUCTED = 'a JSON object says it: {"FILE": "the instruction of its queries"}'


class MethodModule(InputModule):
    """A method's vectors, as sentence-transformers' trainer asks for them.

    Args:
        network: the decoder that learns.
        limit: the most tokens of a text that are read.
    """

    def __init__(self, network: Network, limit: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library leaves it untyped
        self.network, self.limit = network, limit

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """(b, t) ids, attention and pooled span of texts; `prompt`: the instruction of queries, which may be empty."""
        rows = self.network.encoder.rendered(inputs, prompt, self.limit)
        ids, attention, pooled = batching.collate(rows, self.network.pad, torch.device("cpu"))
        whole = torch.ones_like(ids) if attention is None else attention
        return {"input_ids": ids, "attention_mask": whole, "pooled": pooled}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The features with the vectors of their texts, (b, hidden), as `sentence_embedding`."""
        vectors = self.network(features["input_ids"], features["attention_mask"], features["pooled"])
        return features | {"sentence_embedding": vectors}

    def get_embedding_dimension(self) -> int:
        """Width of the vectors."""
        return self.network.hidden

    def save(self, output_path: str, *args: object, **kwargs: object) -> None:
        """Write nothing: a run keeps what learns."""


class Loss(CachedMultipleNegativesRankingLoss):
    """The contrastive loss with cached gradients; a teacher's vectors, where there are any, are its labels.

    A text that the teacher finds nearer to a query than the query's own is no wrong answer to it (GISTEmbed). The
    teacher's cosines are learnt, too, by their squared difference.
    """

    like_teacher = 0.0

    def embed_minibatch_iter(
        self,
        sentence_feature: dict[str, Tensor],
        with_grad: bool,
        copy_random_state: bool,
        random_states: list[Any] | None = None,
        ranges: list[tuple[int, int]] | None = None,
    ) -> Iterator[tuple[Tensor, Any]]:
        """Vectors of each mini-batch; of several processes each makes its own part of them.

        Without gradients it has those of the others from them; with gradients these are left out.
        """
        if processes.count() == 1:
            yield from super().embed_minibatch_iter(
                sentence_feature, with_grad, copy_random_state, random_states, ranges
            )
            return
        assert ranges is not None  # as the library calls it
        own = set(processes.own(range(len(ranges))))
        states = random_states or [None] * len(ranges)
        made = (
            self.embed_minibatch(sentence_feature, *ends, with_grad, copy_random_state, states[place])
            if place in own
            else (torch.zeros(()), None)
            for place, ends in enumerate(ranges)
        )
        if with_grad:
            yield from made
            return
        parts = list(made)
        width = self.model.get_embedding_dimension()
        vectors = torch.zeros(ranges[-1][1], width, device=sentence_feature["input_ids"].device)
        for place in own:
            vectors[slice(*ranges[place])] = parts[place][0]
        processes.summed(vectors)
        for ends, (_, state) in zip(ranges, parts, strict=True):
            yield vectors[slice(*ends)].clone(), state

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """The loss of a batch, from the vectors of its parts; labels (b, columns, d) of unit length."""
        if labels is None or labels.dim() < 3:
            return super().calculate_loss(reps, labels, with_backward=with_backward)
        queries, texts = torch.cat(reps[0]), torch.cat([torch.cat(part) for part in reps[1:]])
        cosines = functional.normalize(queries, dim=1) @ functional.normalize(texts, dim=1).T
        taught = labels.to(cosines)
        wanted = taught[:, 0] @ taught[:, 1:].transpose(0, 1).flatten(0, 1).T
        answers = torch.arange(len(queries), device=queries.device)
        nearer = wanted > wanted[answers, answers][:, None]
        loss = functional.cross_entropy((self.scale * cosines).masked_fill(nearer, -torch.inf), answers)
        loss = loss + self.like_teacher * functional.mse_loss(cosines, wanted)
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        return loss


@written_out
def contrastive(
    model: str | os.PathLike[str], *, on_progress: OnStage | None = None, **options: Unpack[ContrastiveKeywords]
) -> DecoderReport:
    """Train a decoder on pairs of texts that belong together.

    A model that SimCSE or contrastive training made trains its LoRA matrices further; any other begins new ones.

    Args:
        model: a decoder, as `build` takes it.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: an option is wrong, or there are too few pairs.
        RagidxError: of the subclass that says what to do.
    """
    how = steps_of("train.contrastive", ContrastiveKeywords, options)
    teacher, cache, read_tokens = how["teacher"], how["cache"], how["read_tokens"]
    began, tell = time.perf_counter(), Stages(on_progress)
    if how["like_teacher"] and teacher is None:
        raise SpecError("there is no teacher", "name one with `teacher`", where="`like_teacher`")
    held, rest = read_pairs(listed(how["pairs"])).held_and_rest(how["limit"], how["seed"], MOST_HELD_OUT)
    resolved = resolved_of("train.contrastive", model, how)
    taught = None if teacher is None else resolve_against(build_options("train", model=teacher, filter="none"))
    said = _instructions(how["instructions"], rest.names)
    weights = dict(zip(rest.names, rest.weights, strict=True))
    about = {
        **about_model(resolved),
        "data": _digest(rest, held),
        "file_weights": [[name, weight] for name, weight in weights.items() if weight != 1],
        "how": about_steps(how),
        "instructions": said,
        "negatives": how["negatives"],
        "teacher": None if taught is None else [taught.spec.encoder_fingerprint(), taught.encoder_spec.model],
        "like_teacher": how["like_teacher"],
    }
    run = Run(Path(how["out"]), "contrastive", about)
    rest, note = with_wrong_answers(rest, how["negatives"], taught or resolved, cache, tell)
    data = data_sets(rest, None if taught is None else labels_of(rest, taught, cache, tell))
    del rest  # the data sets hold their own copy
    network = Network(resolved, how, held["positive"])
    default = network.encoder.query_instruction(None) or ""

    def score() -> Doubles:
        queries = np.zeros((len(held), network.hidden), np.float32)
        for group, name in enumerate(held.names):
            places = np.flatnonzero(held.groups == group)
            if len(places):
                queries[places] = network.vectors(held.some(places)["query"], said.get(name, default), read_tokens)
        return reciprocal_ranks(queries, network.vectors(held["positive"], None, read_tokens), held["positive"])

    prompts = {name: {QUERY: said.get(name, default)} for name in data}
    training = Training(run, network, how, score, "mean reciprocal rank", "pairs", tell, began, note)
    return _trained(training, data, prompts, how["like_teacher"], weights)


@written_out
def simcse(
    model: str | os.PathLike[str], *, on_progress: OnStage | None = None, **options: Unpack[SimcseKeywords]
) -> DecoderReport:
    """Train a decoder on texts alone, each twice under dropout, as LLM2Vec's second stage (Gao et al. 2021).

    Args:
        model: a decoder, as `build` takes it, such as one that `mntp` made.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: there is no text.
        SpecError: an option is wrong, or the model draws no dropout, so that both views of a text would be the same.
        RagidxError: of the subclass that says what to do.
    """
    how = steps_of("train.simcse", SimcseKeywords, options, attention_dropout=0.3)
    began, tell, read_tokens = time.perf_counter(), Stages(on_progress), how["read_tokens"]
    resolved = resolved_of("train.simcse", model, how)
    rest, held = held_texts(Path(how["text"]), resolved, how)
    about = {**about_model(resolved), "data": digest_of([*rest, *held]), "how": about_steps(how)}
    run = Run(Path(how["out"]), "simcse", about)
    network = Network(resolved, how, held)
    encoding = MethodModule(network, read_tokens)
    features = list(encoding.preprocess(rest[:2]).values())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        if torch.equal(network(*features), network(*features)):
            raise SpecError(
                "the model draws no dropout: both views of a text are the same, and nothing is learnt",
                "give `attention_dropout` above 0, or `dropout` with LoRA matrices that are trained already",
                where="`attention_dropout`",
            )
    first, second = zip(*map(_halves, held), strict=True)

    def score() -> Doubles:
        queries, texts = (network.vectors(part, None, read_tokens) for part in (first, second))
        return reciprocal_ranks(queries, texts, second)

    data = datasets.DatasetDict({"text": datasets.Dataset.from_dict({QUERY: rest, POSITIVE: rest})})
    return _trained(Training(run, network, how, score, "mean reciprocal rank", "texts", tell, began), data)


def _trained(
    training: Training,
    data: datasets.DatasetDict,
    prompts: Mapping[str, Mapping[str, str]] | None = None,
    like_teacher: float = 0.0,
    weights: Mapping[str, float] | None = None,
) -> DecoderReport:
    """The run from its beginning or its last checkpoint to its end.

    Args:
        training: what learns, and how.
        data: data sets by name, a column for each side.
        prompts: the instruction of queries, by data set and column; other columns are documents.
        like_teacher: the weight of the loss by the teacher's cosines.
        weights: how often the batches of each data set come in a pass, by name; None: once.
    """
    network, how = training.network, training.how
    encoding, batches = MethodModule(network, how["read_tokens"]), batches_of(data, how, weights)

    def planned() -> dict[str, Any]:
        rows = (encoding.preprocess(row)["attention_mask"].sum() for row in sampled(data, how["seed"]))
        # Each text is read twice: once for the loss, and once more, as measured, for the gradients.
        n_tokens = float(_PASSES * np.mean([int(n) for n in rows]) * how["batch"])
        features = [*encoding.preprocess(longest_of(data)).values()]
        longest = features[0].shape[1]
        return plan(network, how, features, steps=len(batches), n_tokens=n_tokens, longest=longest)

    training.run.planned(planned)
    model = SentenceTransformer(modules=[encoding], device=network.encoder.device)
    loss: Any = Loss(model, scale=how["scale"], mini_batch_size=training.run.plan["mini_batch"])
    loss.like_teacher = like_teacher
    if how["matryoshka"]:
        widths = [network.hidden // share for share in _WIDTHS]
        loss = MatryoshkaLoss(model, loss, widths, [1 / len(widths)] * len(widths))
    args = training.arguments(
        SentenceTransformerTrainingArguments,
        prompts=prompts or {},
        batch_sampler="no_duplicates",
        dataloader_drop_last=processes.count() > 1,  # the library's warning asks for it; our batches stay as they are
        multi_dataset_batch_sampler=functools.partial(Batches, made=batches),
    )
    trainer = of_network(SentenceTransformerTrainer, network)(model=model, args=args, train_dataset=data, loss=loss)
    return training.carried_out(trainer, n_texts=len({place for batch in batches for place in batch}))


def _instructions(named: str | os.PathLike[str] | Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    if named is None:
        return {}
    instructions = dict(named) if isinstance(named, Mapping) else read_object(Path(named), _INSTRUCTED)
    wrong = next((name for name, said in instructions.items() if name not in names or not isinstance(said, str)), None)
    if wrong is not None:
        message = f"no data set is called '{wrong}', or what it says is no text"
        raise SpecError(message, f"{_INSTRUCTED}; they are {', '.join(names)}", where="`instructions`")
    return instructions


def _halves(text: str) -> tuple[str, str]:
    """Every other word, and the words between; of a text of a word or two, or of a script without spaces, characters.

    >>> _halves("the lease was signed"), _halves("signed")
    (('the was', 'lease signed'), ('sge', 'ind'))
    """
    words = text.split()
    parts, between = (words, " ") if len(words) > _FEWEST_WORDS else (list(text), "")
    return between.join(parts[::2]), between.join(parts[1::2])


def _digest(*parts: TrainingPairs) -> str:
    """The digest of all texts, and of which data set each is."""
    columns = [column for part in parts for column in (part["query"], part["positive"], *part["negatives"])]
    groups = (str(part.groups.tolist()) for part in parts)
    return digest_of([*itertools.chain(*columns), *parts[0].names, *groups])
