"""Fixtures shared by tests of encoders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.models.locate import ModelFiles, locate

from ...tiny_weights import write_pooler
from .decoder_kit import CASES, LONG_ENOUGH, Make, load


@pytest.fixture(scope="session")
def encoder_for(tiny_model: Make, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], DecoderEncoder]:
    """`encoder_for("llama", "echo")`: one of CASES, loaded once."""
    made: dict[tuple[str, str], DecoderEncoder] = {}
    folder = tmp_path_factory.mktemp("poolers")

    def make(family: str, case: str) -> DecoderEncoder:
        if (family, case) not in made:
            options = dict(CASES[case])
            if "layers" in options:
                layers = options.pop("layers")
                options["pooler"] = str(write_pooler(folder / f"{layers}.safetensors", layers=layers))
            made[family, case] = load(tiny_model(family, **LONG_ENOUGH[family]), **options)
        return made[family, case]

    return make


@pytest.fixture(scope="session")
def llama(tiny_model: Callable[..., Path]) -> ModelFiles:
    return locate(str(tiny_model("llama")))


@pytest.fixture(scope="session")
def wrapped(tiny_sentence_transformer: Path) -> ModelFiles:
    return locate(str(tiny_sentence_transformer))
