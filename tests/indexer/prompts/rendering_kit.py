"""Shared by tests of rendering: hostile texts, and what a row reads and pools."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from hypothesis import strategies as st

from ragidx.indexer.prompts.rendering import Rendered, clean
from ragidx.indexer.prompts.templates import Template
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

TEMPLATES = sorted(tomllib.loads((resources.files("ragidx.indexer.prompts") / "templates.toml").read_text("utf-8")))
CHAT = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<start_of_turn>"]
CHAT += ["<end_of_turn>"]
PIECES = [*("</s>", "<s>", "<pad>", "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|", "|>", "[INST]", "[/INST]")]
PIECES += [*("{text}", "{instruction}", "{eos}", " ", "\n", '"', "mill", " the river", "東京", "é", "ing", "'", "?")]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=8).map("".join)
BARE = EncoderSpec(pool_eos=False)


def bare(tiny_tokenizer: Any, *, bos: bool = False, eos: bool = False) -> TextTokenizer:
    """A tokenizer that puts nothing around a text, with or without the two tokens."""
    other = copy.deepcopy(tiny_tokenizer)
    other.backend_tokenizer.post_processor = None
    tokenizer = TextTokenizer.of(other, model="tiny")
    tokenizer.prefix, tokenizer.bos, tokenizer.eos = [], 0 if bos else None, 1 if eos else None
    return tokenizer


def read(tokenizer: TextTokenizer, ids: Sequence[int]) -> str:
    return tokenizer.pieces.decode(list(ids), skip_special_tokens=False)


def pooled(tokenizer: TextTokenizer, row: Rendered) -> str:
    return read(tokenizer, [row.ids[i] for i in row.positions()])


def prompts(template: Template) -> list[Template]:
    return [template, *template.also]


def rows_of(row: Rendered) -> list[Rendered]:
    return [row, *row.also]


def as_read(template: Template, text: str) -> str:
    """The text as a template puts it in."""
    return clean(text) if template.clean else text.rstrip() if template.strip is True else text
