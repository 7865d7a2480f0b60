"""Shared by all rooms: tiny real models made once a run, a small corpus, and where the evaluation sets are."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ragidx.indexer.models.endpoint_client import Patience

from .embedding_server import EmbeddingServer, running

# How long an example takes is the machine's affair: it may be shared. The examples are the same in every run, so that
# a change is not blamed for what an old fault does with one of them; others are drawn by
# `pytest -m hypothesis --hypothesis-profile random`.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("shared", settings.get_profile("random"), derandomize=True)
settings.load_profile("shared")

HANG_S = 300  # of the CPU, of one test

ROOT = Path(__file__).resolve().parents[1]
SENTENCES = [
    "The river rises in the hills and flows past the old mill before it reaches the sea.",
    "Who signed the lease for the house by the lake?",
    "A library keeps vectors, and an index finds the nearest of them quickly.",
    "Ünïcödé naïve café, 東京タワー, Привет мир!",
    'He said "hello" and left_it there; 3.14159 or 1,000,000?',
]
_GROUPED = ("llama", "mistral", "mixtral", "qwen2", "phi3", "olmo2", "smollm3", "granite")
_GROUPED_WIDE = ("qwen3", "gemma", "gemma2", "gemma3", "gemma3_text")
# What a family's configuration needs beside the common fields.
_FAMILY: dict[str, dict[str, Any]] = {
    **{family: {"num_key_value_heads": 2} for family in _GROUPED},
    **{family: {"num_key_value_heads": 2, "head_dim": 8} for family in _GROUPED_WIDE},
    "stablelm": {"num_key_value_heads": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "gpt2": {"n_positions": 128},
    "gptj": {"rotary_dim": 4},
}
# The part of gemma3 that reads pictures, with as many layers as the part that reads text.
_VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: at the end no process waits for another's. Types last: `make types` fills mypy's cache."""
    items.sort(key=lambda item: (item.path.name == "test_types.py") - (item.path.name == "test_docs.py"))


def pytest_collection_finish() -> None:
    """Every module is imported now, and stays: the collector need not look at a million objects again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _hang() -> Iterator[None]:
    """Ends a test that computes for so long that it hangs, with the place; no test looks at a clock for that."""

    def end(*_: object) -> None:
        pytest.fail(f"the test has computed for {HANG_S} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


@pytest.fixture(scope="session")
def evalsets() -> Path:
    """The folder of evaluation sets (BEIR layout); the test is skipped where there is none."""
    named = os.environ.get("RAGIDX_CORPORA")
    folder = (Path(named) if named else ROOT.parent / "shared" / "corpora") / "eval"
    if not folder.is_dir():
        pytest.skip("no evaluation sets: set RAGIDX_CORPORA to the folder that holds eval/")
    return folder


@pytest.fixture
def without(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """`without("torch")`: the environment of a process that finds no such package."""

    def environment(*packages: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("site")
        (folder / "sitecustomize.py").write_text(
            "from importlib.machinery import PathFinder\n"
            "found = PathFinder.find_spec\n"
            "PathFinder.find_spec = classmethod(\n"
            f"    lambda cls, name, *rest: None if name in {packages} else found(name, *rest)\n"
            ")\n"
        )
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    return environment


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Any:
    """A byte-level BPE tokenizer of 300 tokens with BOS `<s>` put in front, EOS `</s>` and `<pad>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(SENTENCES * 20, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=128
    )


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Any) -> Callable[..., Path]:
    """`tiny_model(family, **config)`: the folder of a random two-layer model of that family, made once a run."""
    made: dict[str, Path] = {}

    def make(family: str = "llama", **options: Any) -> Path:
        key = f"{family}-{sorted(options.items())}"
        if key not in made:
            made[key] = make_model(family, options, tmp_path_factory.mktemp(family), tiny_tokenizer)
        return made[key]

    return make


def make_model(family: str, options: dict[str, Any], folder: Path, tokenizer: Any) -> Path:
    """A random model of two layers, saved with its tokenizer; the same at every call."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    base: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
        "pad_token_id": 2,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    base |= _FAMILY.get(family, {}) | options
    if family == "gemma3":  # it reads pictures too
        base = {"text_config": base, "vision_config": _VISION, "mm_tokens_per_image": 1}
    config = AutoConfig.for_model(family, **base)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_sentence_transformer(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Any) -> Path:
    """A random two-layer BERT with mean pooling and normalisation, as sentence-transformers saves it, with prompts."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    backbone = tmp_path_factory.mktemp("bert")
    config = BertConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        BertModel(config).save_pretrained(backbone)
    tiny_tokenizer.save_pretrained(backbone)
    transformer = Transformer(str(backbone), max_seq_length=48)
    model = SentenceTransformer(
        modules=[transformer, Pooling(32, "mean"), Normalize()],
        prompts={"query": "query: ", "document": "passage: "},
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("st")
    model.save(str(folder))
    return folder


@pytest.fixture
def small_corpus(tmp_path: Path) -> Path:
    """Six short documents in three formats."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "lease.txt").write_text("The lease of the house by the lake was signed by Ada Lovelace in 1840.\n")
    for name, year, subject, text in (
        ("mill", 1790, "history", "The old mill stands where the river reaches the sea."),
        ("tower", 1958, "architecture", "The tower in Tokyo is painted orange and white."),
    ):
        (folder / f"{name}.md").write_text(f"---\nyear: {year}\nsubject: {subject}\n---\n# The {name}\n\n{text}\n")
    facts = [
        ("bees", "Bees dance to tell where the flowers are.", 1946, "biology"),
        ("neptune", "Neptune was found with a pencil before a telescope.", 1846, "astronomy"),
        ("printing", "Movable metal type was cast in Korea before Gutenberg.", 1377, "history"),
    ]
    lines = [json.dumps({"id": i, "text": t, "year": y, "subject": s}) for i, t, y, s in facts]
    (folder / "facts.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """A server of embeddings on this machine; no key, and retries without much waiting."""
    for name in ("RAGIDX_API_KEY", "OPENAI_API_KEY", "RAGIDX_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    quick = Patience(connect_s=1, answer_s=5, attempts=3, wait_s=0.01, most_s=2)
    monkeypatch.setattr("ragidx.indexer.models.endpoint_client.PATIENCE", quick)
    with running() as served:
        yield served
