"""How a decoder is trained, as one value: what of it learns, from how much, for how long."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ragidx.corpora.errors import SpecError
from ragidx.pipelines.experiments.train.frozen import check_numbers


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a decoder is trained.

    Attributes:
        limit: the most texts, or pairs, that are taken, of pairs as many of each file; None: all.
        epochs: how often each is seen.
        minutes: how long these epochs may take, as far as a step that is measured tells; None: as long as they take.
        batch: how many texts, or pairs, a step has.
        rate: the learning rate at its height; it rises over a tenth of the steps, and falls.
        scale: what cosines are multiplied with: 50 in published supervised training, 20 in SimCSE.
        read_tokens: how many tokens of a text are read.
        matryoshka: whether halves, quarters and eighths of the vectors learn, too.
        every: steps between two scores; 0: a tenth of the steps, more where a score takes long.
        patience: scores in a row without a better one after which the run ends; 0: never.
        full: all weights learn, rather than LoRA matrices.
        rank: r of LoRA; None: 16, or that of an adapter that goes on learning.
        alpha: the product of LoRA's matrices counts alpha / r times; None: 32, or the adapter's.
        dropout: the share that is left out of what LoRA reads.
        attention_dropout: the share that is left out of the attention; decoders leave out nothing otherwise.
        end_token: whether the vector of the end token learns, as that of echo's authors does.
        latents: how many trained queries a trainable pooling has that begins here.
        heads: how many heads its attention has.
        head_width: width of a head.
        seed: decides what is drawn.
        force: write the model even if it is no better.
    """

    limit: int | None = 10_000
    epochs: int = 1
    minutes: float | None = None
    batch: int = 48
    rate: float = 5e-4
    scale: float = 20.0
    read_tokens: int = 128
    matryoshka: bool = False
    every: int = 0
    patience: int = 0
    full: bool = False
    rank: int | None = None
    alpha: int | None = None
    dropout: float = 0.05
    attention_dropout: float = 0.0
    end_token: bool = False
    latents: int = 8
    heads: int = 8
    head_width: int = 64
    seed: int = 0
    force: bool = False

    def __post_init__(self) -> None:
        """Refuse what trains nothing."""
        counts = ("limit", "epochs", "batch", "read_tokens", "rank", "alpha", "latents", "heads", "head_width")
        check_numbers(seed=self.seed, **{name: getattr(self, name) for name in counts})
        for name, is_wrong in (
            ("minutes", self.minutes is not None and not 0 < self.minutes < math.inf),
            ("rate", not 0 < self.rate < math.inf),
            ("scale", not 0 < self.scale < math.inf),
            ("batch", self.batch < 2),
            ("dropout", not 0 <= self.dropout < 1),
            ("attention_dropout", not 0 <= self.attention_dropout < 1),
            ("every", self.every < 0),
            ("patience", self.patience < 0),
        ):
            if is_wrong:
                value = getattr(self, name)
                hint = {"batch": "give 2 or more", "dropout": "give 0 to less than 1"}.get(name.split("_")[-1])
                raise SpecError(f"{name}={value} trains nothing", hint or "give more than 0", where=f"`{name}`")

    @classmethod
    def taken(cls, options: Mapping[str, Any], **defaults: Any) -> tuple[TrainingOptions, dict[str, Any]]:
        """The value made of those of a call's options that are its own, and the others."""
        names = {field.name for field in dataclasses.fields(cls)}
        named = {name: value for name, value in options.items() if name in names}
        return cls(**{**defaults, **named}), {name: value for name, value in options.items() if name not in names}

    def key(self) -> dict[str, Any]:
        """What decides the weights, as JSON types."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "force"}
