"""The shipped folder: config.json, model.safetensors in float16, tokenizer.json, tokenizer_config.json, preset.json.

Each file is written under a temporary name and renamed, so that a reader finds the old one or the new one. Run as a
command it joins a model folder with the checkpoint of its layers.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import click
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from ragidx.corpora.errors import ModelError
from ragidx.pipelines.train.mini import checkpoint as checkpoints
from ragidx.pipelines.train.mini.tokens import decoder_tokenizer

PRESET: dict[str, object] = {
    "method": "classical",
    "pooling": "mean",
    "attention": "causal",
    "layer": 0,
    "filter": {"name": "embedfilter", "offset": 1, "tau": None, "dim": 255},
}


def export(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path, preset: dict[str, object]) -> None:
    """Write a decoder and its tokenizer to `out`, weights in float16, tied ones once."""
    out.mkdir(parents=True, exist_ok=True)
    temporary = out / f".export-{os.getpid()}"
    half = LlamaForCausalLM(copy.deepcopy(model.config))
    half.load_state_dict(model.state_dict())
    half.half().save_pretrained(temporary)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    (temporary / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save_pretrained(temporary)
    tokenizer.backend_tokenizer.save(str(temporary / "tokenizer.json"), pretty=False)
    (temporary / "preset.json").write_text(json.dumps(preset, indent=2) + "\n", encoding="utf-8")
    config = json.loads((temporary / "tokenizer_config.json").read_text("utf-8"))
    config |= {"tokenizer_class": "PreTrainedTokenizerFast"}  # the name that older transformers know as well
    config.pop("backend", None)
    (temporary / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for path in sorted(temporary.iterdir()):
        path.chmod(0o644)
        path.replace(out / path.name)
    temporary.rmdir()


@click.command()
@click.option(
    "--model",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="Model folder of the layers' start.",
)
@click.option(
    "--checkpoint", type=click.Path(path_type=Path, exists=True), help="checkpoint.safetensors of the layers."
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
def main(model: Path, checkpoint: Path | None, out: Path) -> None:
    """Write the model of --model with the layers of --checkpoint to --out, in float16."""
    decoder = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32)
    if checkpoint is not None:
        missing = decoder.load_state_dict(checkpoints.weights(checkpoint), strict=False).missing_keys
        lacking = sorted(set(missing) - {"model.embed_tokens.weight", "lm_head.weight"})
        if lacking:
            raise ModelError(f"no weights for {lacking}", "give the checkpoint of this model", where=str(checkpoint))
    export(decoder, decoder_tokenizer(decoder.config.max_position_embeddings), out, PRESET)


if __name__ == "__main__":
    main()
