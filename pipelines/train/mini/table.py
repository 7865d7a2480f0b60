"""Make the table of mini and the folder that the layers start from: static vectors, trained bag, unit rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ragidx.pipelines.train.mini.bag import BagSpec, train_bag, weighted_start
from ragidx.pipelines.train.mini.export import PRESET, export
from ragidx.pipelines.train.mini.shape import unit_table
from ragidx.pipelines.train.mini.stack import StackSpec, decoder_config, identity_decoder
from ragidx.pipelines.train.mini.static import static_vectors
from ragidx.pipelines.train.mini.texts import teacher_texts, teacher_vectors, training_documents
from ragidx.pipelines.train.mini.tokens import (
    BOS,
    EOS,
    PAD,
    bare_tokenizer,
    decoder_tokenizer,
    ragged,
    special_id,
    teacher_folder,
    token_ids,
)

TEACHER_TOKENS = 254


def token_counts(tokenizer: Tokenizer, documents: Iterable[str]) -> NDArray[np.int64]:
    """(V,) how often each token occurs in the documents."""
    counts = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64)
    for row in token_ids(tokenizer, documents):
        counts += np.bincount(row, minlength=len(counts))
    return counts


@click.command()
@click.option(
    "--corpora",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Folder with text/, pairs/ and teacher/.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Model folder to write, layers untrained.")
@click.option("--epochs", type=int, default=5, show_default=True)
@click.option("--threads", type=int, default=2, show_default=True, help="CPU threads.")
@click.option("--seed", type=int, default=0, show_default=True)
def main(corpora: Path, out: Path, epochs: int, threads: int, seed: int) -> None:
    """Train the token table against the teacher vectors and write it under layers that are still the identity."""
    torch.set_num_threads(threads)
    begun, tokenizer = time.monotonic(), bare_tokenizer()

    def tell(line: str) -> None:
        click.echo(f"{time.monotonic() - begun:5.0f} s  {line}", err=True)

    flat, offsets = ragged(list(token_ids(tokenizer, teacher_texts(corpora), TEACHER_TOKENS)))
    tell(f"{len(offsets) - 1:,} teacher texts, {len(flat):,} tokens")
    counts = token_counts(tokenizer, training_documents(corpora))
    tell(f"{counts.sum():,} tokens counted")
    static = static_vectors(teacher_folder(), special_id(tokenizer, BOS), special_id(tokenizer, EOS))
    tell("static vectors done")
    spec = BagSpec(epochs=epochs, seed=seed)
    start = weighted_start(static, counts, spec)
    table = unit_table(train_bag(start, flat, offsets, teacher_vectors(corpora), spec, tell))
    stack = StackSpec(seed=seed)
    named = decoder_tokenizer(stack.max_length)
    bos, eos, pad = (special_id(tokenizer, token) for token in (BOS, EOS, PAD))
    config = decoder_config(len(table), table.shape[1], stack, bos, eos, pad)
    export(identity_decoder(table, config, seed), named, out, PRESET)
    tell(f"written to {out}")


if __name__ == "__main__":
    main()
