"""Trainable pooling: files that are saved and read, and files that hold something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer.encoders.trained_pooling import load_pooling

from ...raising import message_of
from .pooling_kit import HIDDEN, LAYERS, drawn, every, pooling

AGAIN = "hint: download or copy the file again"
OTHER = "hint: give the pooling that was trained with this model"


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """`saved(layers=.., changes={..}, metadata={..})`: a file with some tensors changed, or left out where None."""

    def write(
        layers: int | None = None,
        changes: dict[str, Tensor | None] | None = None,
        metadata: dict[str, str] | None = None,
    ) -> Path:
        path = tmp_path / "pooling.safetensors"
        pooling(layers).save(path)
        tensors = load_file(path) | (changes or {})
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(kept, path, {"heads": "2"} if metadata is None else metadata)
        return path

    return write


def told(path: Path, **asked: Any) -> str:
    """The whole text of the error that loading ends in, less the name of the folder."""
    said = message_of(ModelError, lambda: load_pooling(path, **({"hidden": HIDDEN, "n_layers": LAYERS} | asked)))
    return said.replace(str(path.parent), "HERE")


@pytest.mark.parametrize("layers", [None, 5])
def test_what_is_saved_comes_back(tmp_path: Path, layers: int | None) -> None:
    path, rows = tmp_path / "pooling.safetensors", drawn(2, 3)

    pooling(layers).save(path)
    loaded = load_pooling(path, hidden=HIDDEN, n_layers=LAYERS)

    assert loaded.heads == 2
    assert loaded.multi_layer == (layers is not None)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded(rows, every(rows)), pooling(layers)(rows, every(rows)))
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_file_has_the_originals_names_and_says_how_many_heads(tmp_path: Path) -> None:
    path = tmp_path / "pooling.safetensors"

    pooling(4).save(path)

    with safe_open(path, "pt") as stored:
        assert stored.metadata() == {"format": "pt", "heads": "2"}
        shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    block = "cross_attend_blocks"
    assert shapes == {
        "latents": (5, 6),
        "pos_emb.weight": (4, 6),
        f"{block}.0.norm.weight": (6,),
        f"{block}.0.norm.bias": (6,),
        f"{block}.0.norm_context.weight": (6,),
        f"{block}.0.norm_context.bias": (6,),
        f"{block}.0.fn.to_q.weight": (8, 6),
        f"{block}.0.fn.to_kv.weight": (16, 6),
        f"{block}.0.fn.to_out.weight": (6, 8),
        f"{block}.1.norm.weight": (6,),
        f"{block}.1.norm.bias": (6,),
        f"{block}.1.fn.net.0.weight": (48, 6),
        f"{block}.1.fn.net.0.bias": (48,),
        f"{block}.1.fn.net.2.weight": (6, 24),
        f"{block}.1.fn.net.2.bias": (6,),
    }


def test_a_file_in_half_precision_is_read_as_float32(saved: Callable[..., Path]) -> None:
    path = saved()
    save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path, {"heads": "2"})

    loaded = load_pooling(path, hidden=HIDDEN, n_layers=LAYERS)

    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RagidxError, match="cannot write: No such file or directory"):
        pooling().save(tmp_path / "nowhere" / "pooling.safetensors")


def test_pickle_files_are_never_read(tmp_path: Path) -> None:
    assert told(tmp_path / "attn_pool.pt") == (
        "HERE/attn_pool.pt: the pooling's weights are in a pickle file, which can run code when it is read\n"
        "  hint: convert it to safetensors, once, where you trust it: "
        'safetensors.torch.save_file(torch.load("attn_pool.pt", weights_only=True), "attn_pool.safetensors", '
        'metadata={"heads": "32"}), with the number of heads that it was trained with'
    )


def test_a_cut_file_is_refused(saved: Callable[..., Path]) -> None:
    path = saved()
    path.write_bytes(path.read_bytes()[:-3])

    text = told(path)

    assert text.startswith("HERE/pooling.safetensors: the pooling's weights cannot be read: ")
    assert text.endswith(f"\n  {AGAIN}")


WEIGHTS = "hint: give the file that TrainablePooling.save wrote, or the weights published with Pooling and Attention"
TO_Q, TO_KV = "cross_attend_blocks.0.fn.to_q.weight", "cross_attend_blocks.0.fn.to_kv.weight"
CHANGED: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "a tensor less": (
        {"latents": None},
        f"the file has no tensor 'latents', so it is not one of a trainable pooling\n  {WEIGHTS}",
    ),
    "two tensors less": (
        {TO_Q: None, TO_KV: None},
        f"the file has no tensor '{TO_KV}' (and 1 more), so it is not one of a trainable pooling\n  {WEIGHTS}",
    ),
    "a tensor more": (
        {"lm_head.weight": torch.ones(2, 2)},
        f"the file has a tensor 'lm_head.weight' of no known use, so it is not one of a trainable pooling\n  {WEIGHTS}",
    ),
    "no latent": ({"latents": torch.ones(0, 6)}, f"'latents' has the shape (0, 6), a matrix is expected\n  {AGAIN}"),
    "a flat table": (
        {"pos_emb.weight": torch.ones(6)},
        f"'pos_emb.weight' has the shape (6,), a matrix is expected\n  {AGAIN}",
    ),
    "keys too short": (
        {TO_KV: torch.ones(14, 6)},
        f"'{TO_KV}' has the shape (14, 6), (16, 6) is expected from the others\n  {AGAIN}",
    ),
    "not finite": (
        {"latents": torch.full((5, 6), torch.inf)},
        f"'latents' holds something else than finite numbers\n  {AGAIN}",
    ),
    "integers": (
        {"latents": torch.ones(5, 6, dtype=torch.int8)},
        f"'latents' holds something else than finite numbers\n  {AGAIN}",
    ),
    "few layers": (
        {"pos_emb.weight": torch.ones(2, 6)},
        f"the pooling has vectors for 2 layers, the model has 3 layers\n  {OTHER}",
    ),
}


@pytest.mark.parametrize(("changes", "fault"), CHANGED.values(), ids=CHANGED)
def test_other_tensors_are_refused(saved: Callable[..., Path], changes: dict[str, Tensor | None], fault: str) -> None:
    assert told(saved(changes=changes)) == f"HERE/pooling.safetensors: {fault}"


def test_the_pooling_of_another_model_is_refused(saved: Callable[..., Path]) -> None:
    assert told(saved(), hidden=8) == (
        f"HERE/pooling.safetensors: the pooling was trained for a hidden width of 6, the model's is 8\n  {OTHER}"
    )


UNDIVIDED = "heads do not divide a width of 8\n  hint: give the number of heads that the pooling was trained with"


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        (
            {},
            "the file does not say how many heads the pooling has, and the shapes do not show it\n"
            "  hint: save it once with that number: "
            'safetensors.torch.save_file(load_file("pooling.safetensors"), "NEW.safetensors", '
            'metadata={"heads": "32"}); 32 are the original\'s',
        ),
        ({"heads": "3"}, f"3 {UNDIVIDED}"),
        ({"heads": "0"}, f"0 {UNDIVIDED}"),
        ({"heads": "two"}, f"the file's metadata has 'two' heads\n  {AGAIN}"),
    ],
)
def test_the_number_of_heads_is_known_or_refused(
    saved: Callable[..., Path], metadata: dict[str, str], fault: str
) -> None:
    assert told(saved(metadata=metadata)) == f"HERE/pooling.safetensors: {fault}"
