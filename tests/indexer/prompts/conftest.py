"""Fixtures shared by tests of prompts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ragidx.indexer.prompts.tokenizer import TextTokenizer

from .rendering_kit import CHAT


@pytest.fixture(scope="session")
def tokenizer(tiny_tokenizer: Any) -> TextTokenizer:
    """The tiny tokenizer with the special tokens of the chat forms, which no text may spell."""
    chatty = copy.deepcopy(tiny_tokenizer)
    chatty.add_special_tokens({"additional_special_tokens": CHAT})
    return TextTokenizer.of(chatty, model="tiny")
