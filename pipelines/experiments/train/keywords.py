"""The options of training: each is one line here, from which every place where it can be given is made.

As in `ragidx.retriever.keywords`. Those of what is tried on an index are in `ragidx.retriever.trial_keywords`.
"""  # annotations are objects here, not text: they are read

from collections.abc import Mapping
from functools import partial
from os import PathLike
from typing import Annotated, Literal, Required, TypedDict

from ragidx.indexer.options import EncoderOptions, Option, RunOptions, StateOptions
from ragidx.retriever.trial_keywords import Cache, ChunkEpochs, ChunkLimit, Epochs, Paths, Seed

_training, _run = (partial(Option, group=group) for group in ("Training", "Run"))

Vectors = Annotated[
    str | PathLike[str] | None,
    _training(
        "DIR",
        "Vectors that the model has made of these texts, rows.parquet and vectors.i8.npy; the paths of its rows begin "
        "in the folder of the texts [default: the texts are encoded].",
    ),
]
TokenPairs = Annotated[int, _training("N", "Pairs of tokens that have a row, at most.", default=30_000, least=0)]
Rows = Annotated[
    Literal["layers", "tokens"],
    _training(
        "R",
        "What a trainable pooling reads: layers, a row for each layer, of the last token or with bidirectional "
        "attention the mean; tokens, a row for each token of the last layer.",
        default="layers",
    ),
]
Latents = Annotated[int, _training("N", "Trained queries of a trainable pooling.", default=8, least=1)]
Heads = Annotated[int, _training("N", "Heads of the attention of a trainable pooling.", default=8, least=1)]
HeadWidth = Annotated[int, _training("N", "Width of a head of a trainable pooling.", default=64, least=1)]


class PairsKeywords(TypedDict, total=False):
    """What is trained on pairs beside a model that stays as it is."""

    pairs: Annotated[
        Required[Paths],
        _training(
            "FILE|DIR[=W]",
            'JSON Lines with "query" and "positive", each file a data set; with =2 behind it twice as often.',
        ),
    ]
    limit: Annotated[int | None, _training("N", "Take N pairs at most, as many of each file.", default=10_000, least=1)]
    epochs: Epochs
    seed: Seed
    force: Annotated[bool, _training(None, "Write the file even if it is worse than what needs no training.")]
    cache: Cache


class HeadKeywords(PairsKeywords, EncoderOptions, RunOptions, total=False):
    """The options of a map over the vectors of a model, and how this encodes."""

    kind: Annotated[
        Literal["linear", "whitening"],
        _training("K", "linear, or whitening, which does not ask which texts belong together.", default="linear"),
    ]
    dim: Annotated[
        int | None,
        _training("N", "Width of the map [default: the model's; of whitening a quarter, or as many as pairs]."),
    ]
    teacher: Annotated[str | None, _training("ID|PATH", "A model whose cosines a linear map learns, too.")]
    out: Annotated[str | PathLike[str], _run("FILE", "The file that is written.", default="head.safetensors")]


class PoolingKeywords(PairsKeywords, StateOptions, RunOptions, total=False):
    """The options of a trainable pooling, and how the model makes the states that it reads."""

    rows: Rows
    latents: Latents
    heads: Heads
    head_width: HeadWidth
    out: Annotated[str | PathLike[str], _run("FILE", "The file that is written.", default="pooling.safetensors")]


class TextKeywords(TypedDict, total=False):
    """What is trained on texts alone."""

    text: Annotated[
        Required[str | PathLike[str]],
        _run("FILE|DIR", "Texts to learn from: a corpus, of any files that a build reads."),
    ]


class TableKeywords(TextKeywords, EncoderOptions, RunOptions, total=False):
    """The options of a table that encodes the questions of a model, and how this encodes."""

    vectors: Vectors
    pairs: TokenPairs
    limit: ChunkLimit
    epochs: ChunkEpochs
    seed: Seed
    out: Annotated[
        str | PathLike[str],
        _run("FILE", "Of a model: the file that is written.", default="questions.safetensors"),
    ]
    cache: Cache


class MiniKeywords(TypedDict, total=False):
    """The options of a static model."""

    teacher: Annotated[Required[str], _training("ID|PATH", "The model whose vectors and tokenizer are learnt.")]
    vectors: Vectors
    pairs: TokenPairs
    dim: Annotated[int | None, _training("N", "Width of a row [default: the teacher's].", least=1)]
    stored: Annotated[
        int | None, _training("N", "Dimensions of a vector that a build stores by default [default: all].", least=1)
    ]
    power: Annotated[
        float,
        _training(
            "P",
            "Each direction is divided by its deviation to this power, from 0 to 1, which whitens.",
            default=0.5,
            least=0,
            most=1,
        ),
    ]
    limit: Annotated[int, _training("N", "Take N texts at most.", default=150_000, least=1)]
    epochs: Annotated[int, _training("N", "How often each text is seen.", default=5, least=1)]
    seed: Seed
    out: Annotated[str | PathLike[str], _run("DIR", "The folder that is written.", default="mini")]
    cache: Cache


class StepKeywords(TypedDict, total=False):
    """What of a decoder learns, from how much, for how long: what decides the weights."""

    limit: Annotated[
        int | None,
        _training("N", "Take N texts or pairs at most, of pairs as many of each file.", default=10_000, least=1),
    ]
    epochs: Annotated[int, _training("N", "How often each text or pair is seen [default: 1].", least=1)]
    steps: Annotated[
        int | None, _training("N", "Make N steps, in place of `epochs`; what is seen again is in a new order.", least=1)
    ]
    minutes: Annotated[
        float | None,
        _training("N", "Take no more steps than fit into N minutes, as one that is measured has it."),
    ]
    batch: Annotated[int, _training("N", "Texts or pairs of a step [default: 48; of mntp 32].", least=2)]
    rate: Annotated[
        float,
        _training("N", "Learning rate at its height; over `warmup` it rises, and then it falls.", default=5e-4),
    ]
    warmup: Annotated[
        float, _training("N", "Steps in which the rate rises, or below 1 their share of all.", default=0.1, least=0)
    ]
    scale: Annotated[
        float, _training("N", "What cosines are multiplied with, 1 / temperature; echo takes 50.", default=20)
    ]
    read_tokens: Annotated[int, _training("N", "Tokens of a text that are read.", default=128, least=1)]
    matryoshka: Annotated[bool, _training(None, "Train halves, quarters and eighths of the vectors, too.")]
    every: Annotated[
        int | None,
        _training("N", "Steps between two scores [default: a tenth of them, more where a score takes long].", least=0),
    ]
    patience: Annotated[
        int | None, _training("N", "Stop after N scores without a better one [default: never].", least=0)
    ]
    full: Annotated[bool, _training(None, "Train all weights, rather than LoRA matrices.")]
    rank: Annotated[
        int | None, _training("N", "r of LoRA [default: 16, or that of an adapter that is trained further].", least=1)
    ]
    alpha: Annotated[
        int | None,
        _training("N", "alpha of LoRA, whose product counts alpha / r times [default: 32, or the adapter's].", least=1),
    ]
    dropout: Annotated[float, _training("N", "Share of what LoRA reads that is left out.", default=0.05)]
    attention_dropout: Annotated[
        float, _training("N", "Share of the attention that is left out [default: 0; of simcse 0.3].")
    ]
    end_token: Annotated[bool, _training(None, "Train the vector of the end token, too.")]
    rows: Rows
    latents: Latents
    heads: Heads
    head_width: HeadWidth
    seed: Seed


class DecoderKeywords(StepKeywords, EncoderOptions, RunOptions, total=False):
    """The options of every stage of a decoder's training, and how it encodes."""

    out: Annotated[Required[str | PathLike[str]], _run("DIR", "The folder that is written: a whole model.")]
    force: Annotated[bool, _training(None, "Write the model even if it is no better.")]


class ContrastKeywords(TypedDict, total=False):
    """What a decoder learns from."""

    pairs: Annotated[
        Required[Paths],
        _training(
            "FILE|DIR[=W]",
            'JSON Lines or parquet with "query", "positive", perhaps "negative"; each file is a data set, with =2 '
            "behind it twice as often.",
        ),
    ]
    instructions: Annotated[
        str | PathLike[str] | Mapping[str, str] | None,
        _training("FILE", "What queries of each file of pairs carry: a JSON object by the file's name."),
    ]
    negatives: Annotated[
        int | None,
        _training(
            "N",
            "Wrong answers of each query: those of its own line, then the nearest of its data set with less than 95 % "
            "of the cosine of its own text [default: 1 of its own, where there are any].",
        ),
    ]
    teacher: Annotated[
        str | None, _training("ID|PATH", "A model; what it finds nearer than a query's own text is not wrong.")
    ]
    like_teacher: Annotated[
        float, _training("W", "Weight of the squared difference from the teacher's cosines.", default=0)
    ]
    cache: Cache


class ContrastiveKeywords(ContrastKeywords, DecoderKeywords, total=False):
    """The options of training on pairs."""


class SimcseKeywords(TextKeywords, DecoderKeywords, total=False):
    """The options of training on texts alone, each twice."""


class MntpKeywords(SimcseKeywords, total=False):
    """The options of masked next-token prediction."""

    hidden_as: Annotated[
        Literal["mask", "bert"] | None,
        _training(
            "W",
            "What hidden tokens become: mask, all of them the mask, or bert, 80 % the mask, 10 % another token and "
            "10 % themselves [default: mask of Mistral, else bert].",
        ),
    ]
    hidden_share: Annotated[
        float | None,
        _training("N", "Share of tokens that are hidden [default: 0.2 as bert, 0.8 as mask]."),
    ]
