"""A trainable pooling over the states of a model that stays as it is, trained on pairs.

pairs -> states of each text, on disk: a row a layer or a row a token -> `TrainablePooling` under the contrastive loss,
both ways, at several widths -> one file, the `--pooler` of a build with `--pooling trainable`. With the two kinds of
attention these are the designs of Tang and Yang 2024 that have such a network, without their LoRA. Pairs that are held
out say what it is worth, beside the plain pooling of the last layer.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.arrays import Floats, Ints, slices
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.devices import check_models
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.train.frozen import (
    AT_ONCE,
    DROPOUT,
    EPOCHS,
    MOST_PAIRS,
    RATE,
    TrainingReport,
    check_target,
    contrast,
    scores,
    task_of,
)
from ragidx.pipelines.experiments.train.pairs import TrainingPairs
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, check_names
from ragidx.pipelines.ingest.resolve import Resolved

if TYPE_CHECKING:
    from torch import Tensor

    from ragidx.indexer.encoders.decoder import DecoderEncoder
    from ragidx.indexer.encoders.trained_pooling import TrainablePooling

LAYERS, TOKENS = ROWS = ("layers", "tokens")
MOST_BYTES = 16 << 30
"""Of the states of all pairs."""

_POOLED_AT_ONCE = 64
_OWN = ("filter", "pooling", "pooler")  # options that are not the user's here


def pooling(
    model: str | os.PathLike[str] = "mini-decoder",
    *,
    pairs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = "pooling.safetensors",
    rows: str = LAYERS,
    latents: int = 8,
    heads: int = 8,
    head_width: int = 64,
    limit: int | None = MOST_PAIRS,
    epochs: int = EPOCHS,
    seed: int = 0,
    force: bool = False,
    cache: str | os.PathLike[str] | None = "",
    on_progress: OnStage | None = None,
    **options: Any,
) -> TrainingReport:
    """Train a pooling over the states of a decoder, or of the model of an index.

    Args:
        model: as of `build`, or an index.
        pairs: files of JSON Lines with `query` and `positive`, or folders of them; each file is a data set.
        out: the file that is written.
        rows: what the pooling reads: `layers`, a row for each layer, of the last token or with bidirectional attention
            the mean of the text; `tokens`, a row for each token, of the last layer.
        latents: trained queries of its attention.
        heads: of its attention.
        head_width: width of a head.
        limit: pairs that are taken, as many of each file; None: all.
        epochs: how often each is seen.
        seed: of what is drawn, and of the weights at the start.
        force: write it even if it is worse than the plain pooling.
        cache: folder of raw vectors, which keeps the rows of layers; "": the user's; None: nothing is kept. Rows of
            tokens are not kept.
        on_progress: called when a stage begins.
        options: of the encoder, as of `build`, without its pooling.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: an option is wrong, there are too few pairs, or too many for the disk.
        RagidxError: of the subclass that says what to do.
    """
    check_names("train.pooling", options, tuple(name for name in QUERY_OPTIONS if name not in _OWN))
    if rows not in ROWS:
        raise unknown_name("rows", rows, ROWS)
    if rows == LAYERS and options.get("layer") not in (None, -1):
        hint = "remove `layer`, or take `rows=tokens`"
        raise SpecError("rows of layers are of all layers", hint, where="`layer`")
    for name, number in (("latents", latents), ("heads", heads), ("head_width", head_width)):
        if number < 1:
            raise SpecError(f"{name}={number:,} reads nothing", "give 1 or more", where=f"`{name}`")
    check_models("`train.pooling`")
    target = _target(Path(out))
    task = task_of("train.pooling", model, pairs, options, limit=limit, epochs=epochs, seed=seed)
    resolved = _pooled_by_training(task.resolved, rows)
    tell, began = Stages(on_progress), time.perf_counter()
    tell.expect(1 + sum(2 * -(-len(part) // AT_ONCE) for part in (task.held, task.rest)))
    with (
        RawVectors(resolved, cache_folder(cache)) as vectors,
        tempfile.TemporaryDirectory(prefix="ragidx-train-") as to,
    ):
        encoder = _decoder(vectors)
        held = [States(Path(to) / f"held-{name}", encoder.hidden) for name in ("queries", "positives")]
        data = [States(Path(to) / name, encoder.hidden) for name in ("queries", "positives")]
        _encode(task.held, vectors, rows, held, tell)
        _check_size(held, len(task.held), len(task.rest))
        _encode(task.rest, vectors, rows, data, tell)
        encoded = time.perf_counter()
        tell("training")
        net = _trained(data, task.rest.batches(epochs, seed), rows == LAYERS, (latents, heads, head_width), seed)
        is_causal = resolved.encoder_spec.attention == "causal"
        plain = [side.plain(last=rows == LAYERS or is_causal) for side in held]
        found = scores({"last layer": (plain[0], plain[1]), "trained": (_all(net, held[0]), _all(net, held[1]))})
    notes, gain = list[str](), found[-1].against
    is_kept = force or gain is None or gain.verdict != "worse"
    if is_kept:
        net.save(target, resolved.encoder_spec)
    else:
        notes.append(
            "On the pairs that were held out it is worse than the last layer, so it is not written: `force=True`."
        )
    return TrainingReport(
        file=str(target) if is_kept else None,
        model=resolved.encoder_spec.model,
        n_pairs=len(task.rest),
        of_pairs=task.of_pairs,
        n_held_out=len(task.held),
        scores=found,
        encoding_seconds=encoded - began,
        training_seconds=time.perf_counter() - encoded,
        notes=tuple(notes),
    )


class States:
    """Rows of states of texts, in a file: (m, d) float32 for each text, m its own.

    Args:
        file: that is written.
        hidden: d.
    """

    def __init__(self, file: Path, hidden: int) -> None:
        self._file, self._hidden, self._ends = file, hidden, [0]

    @property
    def n_bytes(self) -> int:
        """Of all rows."""
        return 4 * self._hidden * self._ends[-1]

    def append(self, texts: Sequence[Floats]) -> None:
        """Write the rows of further texts.

        Raises:
            RagidxError: the disk is full.
        """
        with temporary_room(self._file), self._file.open("ab") as stream:
            for rows in texts:
                stream.write(np.ascontiguousarray(rows, np.float32).tobytes())
                self._ends.append(self._ends[-1] + len(rows))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def padded(self, numbers: Ints) -> tuple[Tensor, Tensor]:
        """(b, m, d) float32 and (b, m) bool of some texts; False where there is no row."""
        import torch

        parts = [torch.from_numpy(part) for part in self._rows(numbers)]
        rows = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        lengths = torch.tensor([len(part) for part in parts])
        return rows, torch.arange(rows.shape[1]) < lengths[:, None]

    def plain(self, *, last: bool) -> Floats:
        """(n, d): the last row of each text, or the mean of its rows."""
        parts = self._rows(np.arange(len(self)))
        return np.stack([rows[-1] if last else rows.mean(axis=0) for rows in parts])

    def _rows(self, numbers: Ints) -> Iterator[Floats]:
        stored = np.memmap(self._file, np.float32, "r", shape=(self._ends[-1], self._hidden))
        for number in numbers.tolist():
            yield np.array(stored[self._ends[number] : self._ends[number + 1]])


def _pooled_by_training(resolved: Resolved, rows: str) -> Resolved:
    """The model without a pooling: what it reads is what a build with a trained one reads."""
    layer = -1 if rows == LAYERS else resolved.encoder_spec.layer  # a preset may name another
    encoder = dataclasses.replace(resolved.encoder_spec, pooling="trainable", pooler=None, layer=layer)
    spec, files = dataclasses.replace(resolved.spec, encoder=encoder), dataclasses.replace(resolved.files, pooler=None)
    return dataclasses.replace(resolved, spec=spec, files=files)


def _decoder(vectors: RawVectors) -> DecoderEncoder:
    from ragidx.indexer.encoders.decoder import DecoderEncoder

    encoder, spec = vectors.encoder, vectors.resolved.encoder_spec
    if not isinstance(encoder, DecoderEncoder) or spec.method in ("reba", "aligned-values", "metaeol"):
        raise SpecError(
            f"{spec.method} has no states that a trainable pooling reads",
            "use `method=classical`, echo, prompteol or llm2vec of a decoder",
            where="`method`",
        )
    return encoder


def _encode(pairs: TrainingPairs, vectors: RawVectors, rows: str, sides: Sequence[States], tell: Stages) -> None:
    """Write the states of both sides of the pairs."""
    encoder = _decoder(vectors)
    for what, texts, said, states in (
        ("queries", pairs.queries, encoder.query_instruction(None), sides[0]),
        ("passages", pairs.positives, None, sides[1]),
    ):
        for start in range(0, len(texts), AT_ONCE):
            tell(f"encoding {what} by {encoder.spec.model}, {start:,} of {len(texts):,}")
            part = texts[start : start + AT_ONCE]
            if rows == LAYERS:
                states.append(list(vectors.layers(part, said).transpose(1, 0, 2)))
            else:
                states.append(encoder.encode_tokens(part, said))


def _check_size(held: Sequence[States], n_held: int, n_pairs: int) -> None:
    """Whether the states of all pairs will be small enough, by those that were held out."""
    of_pair = sum(side.n_bytes for side in held) / n_held
    if of_pair * n_pairs > MOST_BYTES:
        raise SpecError(
            f"the states of {n_pairs:,} pairs take {of_pair * n_pairs / 1e9:,.0f} GB of disk",
            f"take fewer: `limit={int(0.9 * MOST_BYTES / of_pair):,}`".replace(",", ""),
            where="`limit`",
        )


def _trained(
    sides: Sequence[States], batches: Iterator[Ints], of_layers: bool, sizes: tuple[int, int, int], seed: int
) -> TrainablePooling:
    import torch
    from torch.nn import functional

    from ragidx.indexer.encoders.trained_pooling import TrainablePooling

    latents, heads, head_width = sizes
    first, _ = sides[1].padded(np.arange(min(AT_ONCE, len(sides[1]))))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = TrainablePooling(
            first.shape[2],
            latents=latents,
            heads=heads,
            head_width=head_width,
            layers=first.shape[1] if of_layers else None,
        )
        if net.layer_vectors is not None:  # a few large coordinates, the same in all texts, would hide the others
            net.layer_vectors.data = -first.mean(dim=0)
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
        for numbers in batches:
            one, other = (
                net(functional.dropout(rows, DROPOUT), mask) for rows, mask in (side.padded(numbers) for side in sides)
            )
            optimizer.zero_grad()
            contrast(one, other).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return net.eval()


def _all(net: TrainablePooling, side: States) -> Floats:
    """(n, d) of all texts."""
    import torch

    with torch.inference_mode():
        parts = [net(*side.padded(rows)).numpy() for rows in slices(np.arange(len(side)), _POOLED_AT_ONCE)]
    return np.concatenate(parts)


def _target(out: Path) -> Path:
    """The file to write, unless it is something else than a pooling."""
    from ragidx.indexer.encoders.trained_pooling import is_pooling

    check_target(out)
    if out.exists() and not is_pooling(out):
        raise SpecError("the file is no pooling", "name another", where=str(out))
    return out
