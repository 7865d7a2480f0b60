"""The table of mini: token vectors whose mean over a text agrees with the teacher's vector of it.

The start is the teacher's static vectors (Model2Vec's recipe: the mean state of `[CLS] token [SEP]`), centred, in their
first WIDTH principal directions, each times a / (a + p) with p the token's share of the text (Arora et al. 2017):
frequent tokens start short. A bag of tokens (V, WIDTH) and a linear map (WIDTH, 384) are trained under the cosine loss;
the map is folded into the table, which then gets its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, PreTrainedTokenizerFast

from ragidx.benchmarks.recipes.mini_decoder.network import decoder_config, export, identity_decoder
from ragidx.benchmarks.recipes.mini_decoder.shape import unit_table
from ragidx.benchmarks.recipes.mini_decoder.texts import training_documents
from ragidx.benchmarks.recipes.mini_decoder.tokens import mini_tokenizer, teacher_folder, token_ids
from ragidx.pipelines.experiments.train.teacher import read_teacher

WIDTH = 256
TEACHER_TOKENS = 254  # of a text, that the teacher read
_TOKEN_WEIGHT = 1e-3  # a
_AT_ONCE = 1024  # tokens a batch of the teacher


def static_vectors(folder: Path, tokenizer: PreTrainedTokenizerFast) -> NDArray[np.float32]:
    """(V, 384) mean state of each vocabulary entry, run alone between BOS and EOS; not normalised."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    rows: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        for some in torch.split(torch.arange(model.config.vocab_size), _AT_ONCE):
            before, after = torch.full_like(some, tokenizer.bos_token_id), torch.full_like(some, tokenizer.eos_token_id)
            ids = torch.stack([before, some, after], dim=1)
            rows.append(model(input_ids=ids).last_hidden_state.mean(dim=1).numpy())
    return np.concatenate(rows)


def weighted_start(static: NDArray[np.float32], counts: NDArray[np.int64], width: int = WIDTH) -> NDArray[np.float32]:
    """(V, width) first principal directions of the static vectors, each row times a / (a + p)."""
    centred = static - static.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    share = (counts + 1) / counts.sum()
    weight = _TOKEN_WEIGHT / (_TOKEN_WEIGHT + share)
    start: NDArray[np.float32] = (centred @ directions[:, ::-1][:, :width] * weight[:, None]).astype(np.float32)
    return start


def train_bag(
    start: NDArray[np.float32],
    rows: Sequence[NDArray[np.uint16]],
    targets: NDArray[np.float32],
    tell: Callable[[str], None],
    *,
    epochs: int = 5,
    batch: int = 1024,
    rate: float = 1e-2,
) -> NDArray[np.float32]:
    """Train the bag, then fold its map into the table: (V, w) token vectors in the teacher's space, of rank `width`.

    `start` is (V, width), `rows` the tokens of each text, `targets` (n, w) teacher vectors of any length; `rate` is
    Adam's, and falls linearly to 0.
    """
    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    table = torch.nn.Parameter(torch.from_numpy(start.copy()))
    to_teacher = torch.nn.Linear(start.shape[1], targets.shape[1], bias=False)
    optimizer = torch.optim.Adam([table, *to_teacher.parameters()], lr=rate)
    per_epoch = len(targets) // batch
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * per_epoch)
    wanted = functional.normalize(torch.from_numpy(targets), dim=1)
    for epoch in range(epochs):
        losses = []
        order = torch.randperm(len(targets), generator=draw)[: per_epoch * batch]
        for some in torch.split(order, batch):
            bags = _bags(table, [rows[number] for number in some.tolist()])
            loss = 1 - functional.cosine_similarity(to_teacher(bags), wanted[some]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        tell(f"epoch {epoch + 1} of {epochs}: cosine loss {np.mean(losses):.4f}")
    return (table @ to_teacher.weight.T).detach().numpy()


def _bags(table: Tensor, rows: Sequence[NDArray[np.uint16]]) -> Tensor:
    """The sum of each text's token vectors."""
    ends = np.cumsum([len(row) for row in rows])
    starts = torch.from_numpy(np.concatenate([[0], ends[:-1]]))
    return functional.embedding_bag(torch.from_numpy(np.concatenate(rows).astype(np.int64)), table, starts, mode="sum")


@click.command()
@click.option(
    "--corpora",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Folder with text/, pairs/ and teacher/.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Model folder to write, layers untrained.")
def main(corpora: Path, out: Path) -> None:
    """Train the token table against the teacher vectors and write it under layers that are still the identity."""
    tokenizer = mini_tokenizer(teacher_folder())
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for row in token_ids(tokenizer, training_documents(corpora)):
        counts += np.bincount(row, minlength=len(counts))
    start = weighted_start(static_vectors(teacher_folder(), tokenizer), counts)
    texts, vectors = read_teacher(corpora / "teacher", corpora)
    rows = [row[:TEACHER_TOKENS] for row in token_ids(tokenizer, texts)]
    table = unit_table(train_bag(start, rows, vectors - vectors.mean(axis=0), click.echo), WIDTH)
    export(identity_decoder(table, decoder_config(tokenizer, WIDTH)), tokenizer, out)


if __name__ == "__main__":
    main()
