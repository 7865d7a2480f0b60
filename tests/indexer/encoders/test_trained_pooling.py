"""Trainable pooling: a reference by hand, and files that hold something else."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from ragidx.corpora.errors import ModelError, RagidxError
from ragidx.indexer.encoders.trained_pooling import TrainablePooling, load_pooling

HIDDEN, LAYERS = 6, 3
AGAIN = "hint: download or copy the file again"
OTHER = "hint: give the pooling that was trained with this model"


@functools.cache
def pooling(layers: int | None = None, hidden: int = HIDDEN) -> TrainablePooling:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        net = TrainablePooling(hidden, latents=5, heads=2, head_width=4, layers=layers)
        for parameter in net.parameters():
            if parameter.dim() == 1:  # norms and biases: fresh ones are 1 and 0, which hides where they belong
                torch.nn.init.normal_(parameter, mean=0.5)
        return net


def drawn(n_texts: int, n_rows: int, seed: int = 0) -> Tensor:
    return torch.randn(n_texts, n_rows, HIDDEN, generator=torch.Generator().manual_seed(seed))


def every(rows: Tensor) -> Tensor:
    return torch.ones(rows.shape[:2], dtype=torch.bool)


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
    with pytest.raises(ModelError) as caught:
        load_pooling(path, **({"hidden": HIDDEN, "n_layers": LAYERS} | asked))
    return str(caught.value).replace(str(path.parent), "HERE")


# --- what it computes


def by_hand(net: TrainablePooling, rows: np.ndarray) -> np.ndarray:
    """One text, in float64, latent by latent and head by head, as methods.md writes it down."""
    at = {name: value.detach().double().numpy() for name, value in net.named_parameters()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean()
        return centred / np.sqrt((centred**2).mean() + 1e-5) * at[f"{name}.weight"] + at[f"{name}.bias"]

    if net.multi_layer:
        rows = rows + at["layer_vectors"][: len(rows)]
    width = len(at["to_queries.weight"]) // net.heads
    both = [at["to_keys_values.weight"] @ norm(row, "norm_rows") for row in rows]
    total = np.zeros(rows.shape[1])
    for latent in at["latents"]:
        query = at["to_queries.weight"] @ norm(latent, "norm_latents")
        heads = []
        for head in range(net.heads):
            part = slice(head * width, (head + 1) * width)
            weights = np.exp([query[part] @ kv[: len(query)][part] / math.sqrt(width) for kv in both])
            heads.append(weights / weights.sum() @ np.array([kv[len(query) :][part] for kv in both]))
        mixed = at["to_hidden.weight"] @ np.concatenate(heads) + latent
        wide = at["widen.weight"] @ norm(mixed, "norm_mixed") + at["widen.bias"]
        value, gate = np.split(wide, 2)
        gated = value * gate * 0.5 * np.array([1 + math.erf(g / math.sqrt(2)) for g in gate])
        total += at["narrow.weight"] @ gated + at["narrow.bias"] + mixed
    return total / len(at["latents"])


@pytest.mark.parametrize("layers", [None, 4])
def test_the_network_is_the_papers(layers: int | None) -> None:
    rows = drawn(2, 3)

    vectors = pooling(layers)(rows, every(rows))

    expected = np.stack([by_hand(pooling(layers), text.double().numpy()) for text in rows])
    np.testing.assert_allclose(vectors.detach().numpy(), expected, atol=1e-5)


@given(length=st.integers(1, 6), padding=st.integers(0, 5), left=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_padding_changes_nothing(length: int, padding: int, left: bool, seed: int) -> None:
    rows = drawn(1, length + padding, seed)
    mask = torch.ones(1, length + padding, dtype=torch.bool)
    mask[:, slice(0, padding) if left else slice(length, None)] = False

    vectors = pooling()(rows, mask)

    alone = rows[mask].unsqueeze(0)
    torch.testing.assert_close(vectors, pooling()(alone, every(alone)), rtol=0, atol=1e-5)


@given(n_texts=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
def test_a_text_alone_is_the_text_in_a_batch(n_texts: int, seed: int) -> None:
    rows = drawn(n_texts, 4, seed)
    mask = torch.rand(n_texts, 4, generator=torch.Generator().manual_seed(seed)) < 0.5

    together = pooling()(rows, mask)

    alone = torch.cat([pooling()(rows[i : i + 1], mask[i : i + 1]) for i in range(n_texts)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("layers", "matters"), [(None, False), (4, True)])
def test_the_order_of_rows_matters_where_rows_are_layers(layers: int | None, matters: bool) -> None:
    rows = drawn(1, 4)

    there, back = (pooling(layers)(r, every(r)) for r in (rows, rows.flip(1)))

    assert bool(torch.allclose(there, back, atol=1e-5)) != matters


def test_a_text_without_a_row_gives_the_zero_vector_and_sound_gradients() -> None:
    rows = drawn(2, 3).requires_grad_()
    mask = torch.tensor([[True, True, True], [False, False, False]])

    vectors = pooling()(rows, mask)
    (gradient,) = torch.autograd.grad(vectors.sum(), rows)

    assert torch.equal(vectors[1], torch.zeros(HIDDEN))
    assert vectors[0].abs().min() > 0
    assert gradient.isfinite().all()


def test_rows_in_half_precision_are_pooled_in_float32() -> None:
    rows = drawn(1, 3).to(torch.bfloat16)

    vectors = pooling()(rows, every(rows))

    assert vectors.dtype == torch.float32
    assert torch.equal(vectors, pooling()(rows.float(), every(rows)))


SHAPES = {
    "another width": (
        (2, 3, 5),
        (2, 3),
        torch.bool,
        "rows (2, 3, 5) and a mask (2, 3) of torch.bool; (b, m, 6) and (b, m) of torch.bool are expected",
    ),
    "another length": (
        (2, 3, 6),
        (2, 4),
        torch.bool,
        "rows (2, 3, 6) and a mask (2, 4) of torch.bool; (b, m, 6) and (b, m) of torch.bool are expected",
    ),
    "numbers for a mask": (
        (2, 3, 6),
        (2, 3),
        torch.int64,
        "rows (2, 3, 6) and a mask (2, 3) of torch.int64; (b, m, 6) and (b, m) of torch.bool are expected",
    ),
    "too many layers": ((1, 4, 6), (1, 4), torch.bool, "4 rows, one a layer, and vectors for 3 layers"),
}


@pytest.mark.parametrize(("rows", "mask", "dtype", "fault"), SHAPES.values(), ids=SHAPES)
def test_shapes_that_do_not_belong_together_are_refused(
    rows: tuple[int, ...], mask: tuple[int, ...], dtype: torch.dtype, fault: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        pooling(LAYERS)(torch.zeros(rows), torch.ones(mask, dtype=dtype))

    assert str(caught.value) == fault


# --- training


def contrast(net: TrainablePooling, queries: Tensor, answers: Tensor) -> Tensor:
    left, right = (functional.normalize(net(rows, every(rows))) for rows in (queries, answers))
    return functional.cross_entropy(20 * left @ right.T, torch.arange(len(left)))


def fresh(layers: int | None) -> TrainablePooling:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return TrainablePooling(HIDDEN, latents=4, heads=2, head_width=4, layers=layers)


@pytest.mark.parametrize("layers", [None, 3])
def test_every_parameter_is_trained(layers: int | None) -> None:
    net = fresh(layers)

    contrast(net, drawn(8, 3, 0), drawn(8, 3, 1)).backward()

    still = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert still == []


def pairs(draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """16 queries and answers of three rows: the first is shared and known by its first coordinate, two are noise."""
    shared = torch.randn(16, 1, HIDDEN, generator=draw)
    sides = [torch.cat([shared, 2 * torch.randn(16, 2, HIDDEN, generator=draw)], dim=1) for _ in range(2)]
    for rows in sides:
        rows[:, :, 0] = torch.tensor([4.0, -4.0, -4.0])
    return sides[0], sides[1]


def test_a_few_steps_teach_which_row_to_read() -> None:
    draw, net = torch.Generator().manual_seed(0), fresh(None)
    held_out = pairs(draw)
    with torch.no_grad():
        before = float(contrast(net, *held_out))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    for _ in range(80):
        optimizer.zero_grad()
        contrast(net, *pairs(draw)).backward()
        optimizer.step()

    with torch.no_grad():
        after = float(contrast(net, *held_out))
    assert before > 2.0
    assert after < 0.5


# --- files


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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert told(tmp_path / "pooling.safetensors") == (
        "HERE/pooling.safetensors: there is no such file\n  hint: name the safetensors file of a trainable pooling"
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


HEADS: dict[str, tuple[dict[str, str], int | None, str]] = {
    "not said": (
        {},
        None,
        "the file does not say how many heads the pooling has, and shapes do not tell\n"
        "  hint: save it once with that number: "
        "load_pooling(path, hidden=..., n_layers=..., heads=32).save(new_path); 32 are the original's",
    ),
    "said twice": (
        {"heads": "2"},
        4,
        "the file says that the pooling has 2 heads, 4 were asked for\n  hint: leave the number of heads out",
    ),
    "too many": (
        {},
        3,
        "3 heads do not divide a width of 8\n  hint: give the number of heads that the pooling was trained with",
    ),
    "none": (
        {"heads": "0"},
        None,
        "0 heads do not divide a width of 8\n  hint: give the number of heads that the pooling was trained with",
    ),
    "a word": ({"heads": "two"}, None, f"the file's metadata has 'two' heads\n  {AGAIN}"),
}


@pytest.mark.parametrize(("metadata", "heads", "fault"), HEADS.values(), ids=HEADS)
def test_the_number_of_heads_is_known_or_refused(
    saved: Callable[..., Path], metadata: dict[str, str], heads: int | None, fault: str
) -> None:
    assert told(saved(metadata=metadata), heads=heads) == f"HERE/pooling.safetensors: {fault}"
