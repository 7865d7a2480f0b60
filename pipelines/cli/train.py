"""`ragidx train`."""

from __future__ import annotations

import click

from ragidx.pipelines.cli import train_decoders, train_frozen


@click.group("train")
def command() -> None:
    """Train what makes a model's vectors better.

    \b
        ragidx train head smollm2 --pairs pairs.jsonl        a map over its vectors, in seconds
        ragidx train pooling smollm2 --pairs pairs.jsonl     an attention over its layers or tokens, in minutes
        ragidx train questions ragidx-index                  a table that encodes an index's questions at once
        ragidx train mini --text docs/ --teacher MODEL       a model without layers, as mini is
        ragidx train contrastive smollm2 --pairs pairs/ ...  the decoder itself, by LoRA; also simcse and mntp
        ragidx train export smollm2 DIR                      a folder that sentence-transformers load
    """


for one in (
    train_frozen.head_command,
    train_frozen.pooling_command,
    train_frozen.questions_command,
    train_frozen.mini_command,
    train_decoders.contrastive_command,
    train_decoders.simcse_command,
    train_decoders.mntp_command,
    train_decoders.export_command,
):
    command.add_command(one)
