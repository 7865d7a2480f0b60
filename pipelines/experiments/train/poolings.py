"""A trainable pooling over the states of a model that stays as it is, trained on pairs.

pairs -> states of each text, on disk: a row a layer or a row a token -> `TrainablePooling` under the contrastive loss,
both ways, at several widths -> one file, the `--pooler` of a build with `--pooling trainable`. With the two kinds of
attention these are the designs of Tang and Yang 2024 that have such a network, without their LoRA. Pairs that are held
out say what it is worth, beside the plain pooling of the last layer.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats, Ints, slices
from ragidx.indexer.atomic import temporary_room
from ragidx.indexer.devices import check_models
from ragidx.indexer.options import written_out
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.experiments.train.frozen import (
    AT_ONCE,
    DROPOUT,
    RATE,
    TrainingReport,
    contrast,
    target_of,
    task_of,
    told,
)
from ragidx.pipelines.experiments.train.keywords import PoolingKeywords
from ragidx.pipelines.experiments.train.pairs import TrainingPairs
from ragidx.pipelines.ingest.options import checked
from ragidx.pipelines.ingest.resolve import Resolved

if TYPE_CHECKING:
    from torch import Tensor

    from ragidx.indexer.encoders.decoder import DecoderEncoder
    from ragidx.indexer.encoders.trained_pooling import TrainablePooling

LAYERS = "layers"
MOST_BYTES = 16 << 30
"""Of the states of all pairs."""

_POOLED_AT_ONCE = 64


@written_out
def pooling(
    model: str | os.PathLike[str] = "mini-decoder",
    *,
    on_progress: OnStage | None = None,
    **options: Unpack[PoolingKeywords],
) -> TrainingReport:
    """Train a pooling over the states of a decoder, or of the model of an index.

    The cache keeps the rows of layers; rows of tokens are not kept.

    Args:
        model: a model, as `build` takes it, or an index.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: a file of pairs has faults.
        SpecError: an option is wrong, there are too few pairs, or too many for the disk.
        RagidxError: of the subclass that says what to do.
    """
    how = checked("train.pooling", PoolingKeywords, options)
    rows, seed = how["rows"], how["seed"]
    check_rows(rows, how["layer"])
    check_models("`train.pooling`")
    from ragidx.indexer.encoders.trained_pooling import is_pooling

    target = target_of(how["out"], "pooling", is_pooling)
    task = task_of("train.pooling", model, how)
    resolved = _pooled_by_training(task.resolved, rows)
    tell = Stages(on_progress)
    tell.expect(1 + sum(2 * -(-len(part) // AT_ONCE) for part in (task.held, task.rest)))
    with tempfile.TemporaryDirectory(prefix="ragidx-train-") as room:
        with RawVectors(resolved, cache_folder(how["cache"])) as vectors:
            held = _states(task.held, vectors, rows, Path(room) / "held", tell)
            _check_size(held, len(task.held), len(task.rest))
            data = _states(task.rest, vectors, rows, Path(room) / "rest", tell)
        ready = time.perf_counter()
        tell("training")
        sizes = {"latents": how["latents"], "heads": how["heads"], "head_width": how["head_width"]}
        net = _trained(data, task.rest.batches(how["epochs"], seed), rows == LAYERS, sizes, seed)
        is_last = rows == LAYERS or resolved.encoder_spec.attention == "causal"
        plain = held[0].plain(last=is_last), held[1].plain(last=is_last)
        pooled = _all(net, held[0]), _all(net, held[1])

    def write() -> Path:
        net.save(target, resolved.encoder_spec)
        return target

    sides = {"last layer": plain, "trained": pooled}
    return task.kept(sides, write, than="the last layer", force=how["force"], ready=ready)


def check_rows(rows: str, layer: int | None) -> None:
    """Whether a pooling reads rows of this layer, if one is named.

    Raises:
        SpecError: it reads all layers.
    """
    if rows == LAYERS and layer not in (None, -1):
        hint = "remove `layer`, or take `rows=tokens`"
        raise SpecError("rows of layers are of all layers", hint, where="`layer`")


class States:
    """Rows of states of texts, in a file: (m, d) float32 for each text, m its own.

    Args:
        file: the file that is written.
        hidden: the width d of a state.
    """

    def __init__(self, file: Path, hidden: int) -> None:
        self._file, self._hidden, self._ends = file, hidden, [0]

    @property
    def n_bytes(self) -> int:
        """Size of all rows, in bytes."""
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
        """Rows (b, m, d) float32 of some texts, and a mask (b, m) bool: False where there is no row."""
        import torch

        parts = [torch.from_numpy(part) for part in self._rows(numbers)]
        rows = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        lengths = torch.tensor([len(part) for part in parts])
        return rows, torch.arange(rows.shape[1]) < lengths[:, None]

    def plain(self, *, last: bool) -> Floats:
        """One vector of each text, (n, d): its last row, or the mean of its rows."""
        parts = self._rows(np.arange(len(self)))
        return np.stack([rows[-1] if last else rows.mean(axis=0) for rows in parts])

    def _rows(self, numbers: Ints) -> Iterator[Floats]:
        stored = np.memmap(self._file, np.float32, "r", shape=(self._ends[-1], self._hidden))
        for number in numbers.tolist():
            yield np.array(stored[self._ends[number] : self._ends[number + 1]])


def _pooled_by_training(resolved: Resolved, rows: str) -> Resolved:
    """The model without a pooling: what it reads is what a build with a trained one reads."""
    layer = -1 if rows == LAYERS else resolved.encoder_spec.layer  # a preset may name another
    encoder = replace(resolved.encoder_spec, pooling="trainable", pooler=None, layer=layer)
    spec, files = replace(resolved.spec, encoder=encoder), replace(resolved.files, pooler=None)
    return replace(resolved, spec=spec, files=files)


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


def _states(pairs: TrainingPairs, vectors: RawVectors, rows: str, file: Path, tell: Stages) -> list[States]:
    """The states of both sides of the pairs."""
    encoder, sides = _decoder(vectors), list[States]()
    for what, column, said in (("queries", "query", encoder.query_instruction(None)), ("passages", "positive", None)):
        sides.append(States(file.with_name(f"{file.name}-{what}"), encoder.hidden))
        for texts in told(pairs[column], f"encoding {what} by {encoder.spec.model}", tell):
            if rows == LAYERS:
                sides[-1].append(list(vectors.layers(texts, said).transpose(1, 0, 2)))
            else:
                sides[-1].append(encoder.encode_tokens(texts, said))
    return sides


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
    sides: Sequence[States], batches: Iterator[Ints], of_layers: bool, sizes: Mapping[str, int], seed: int
) -> TrainablePooling:
    import torch
    from torch.nn import functional

    from ragidx.indexer.encoders.trained_pooling import TrainablePooling

    first, _ = sides[1].padded(np.arange(min(AT_ONCE, len(sides[1]))))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = TrainablePooling(first.shape[2], layers=first.shape[1] if of_layers else None, **sizes)
        if net.layer_vectors is not None:  # a few large coordinates, the same in all texts, would hide the others
            net.layer_vectors.data = -first.mean(dim=0)
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
        for numbers in batches:
            queries, texts = (
                net(functional.dropout(rows, DROPOUT), mask) for rows, mask in (side.padded(numbers) for side in sides)
            )
            optimizer.zero_grad()
            contrast(queries, texts).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return net.eval()


def _all(net: TrainablePooling, side: States) -> Floats:
    """(n, d) of all texts."""
    import torch

    with torch.inference_mode():
        parts = [net(*side.padded(rows)).numpy() for rows in slices(np.arange(len(side)), _POOLED_AT_ONCE)]
    return np.concatenate(parts)
