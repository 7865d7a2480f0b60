"""Trainable pooling: a small network that turns rows of hidden states into one vector a text.

rows (b, m, d) float32, mask (b, m) bool, True on rows that are read -> (b, d) float32, not normalised. Tang and Yang
2024 (Pooling and Attention), as in their published code. A file with a table of layer vectors is multi-layer:

    last layer    rows are the states of a text's tokens, m is the length of the longest
    multi-layer   row l is one state of layer l + 1, from H^1 to H^L; a learned vector per layer is added to it

Trained latents are the queries, the rows give keys and values. Where the original attends to padding, this masks it.
The weights live in a safetensors file under the original's tensor names, the number of heads in its metadata. The
caller chooses the states, and normalises the vector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from ragidx.corpora.errors import ModelError, SpecError, check_machine
from ragidx.indexer.atomic import write_file
from ragidx.indexer.specs import EncoderSpec

# What a tensor is called here and in the file. The original's `norm` belongs to the rows, its `norm_context` to the
# latents.
_FILED = {
    "latents": "latents",
    "layer_vectors": "pos_emb.weight",
    "norm_rows.weight": "cross_attend_blocks.0.norm.weight",
    "norm_rows.bias": "cross_attend_blocks.0.norm.bias",
    "norm_latents.weight": "cross_attend_blocks.0.norm_context.weight",
    "norm_latents.bias": "cross_attend_blocks.0.norm_context.bias",
    "to_queries.weight": "cross_attend_blocks.0.fn.to_q.weight",
    "to_keys_values.weight": "cross_attend_blocks.0.fn.to_kv.weight",
    "to_hidden.weight": "cross_attend_blocks.0.fn.to_out.weight",
    "norm_mixed.weight": "cross_attend_blocks.1.norm.weight",
    "norm_mixed.bias": "cross_attend_blocks.1.norm.bias",
    "widen.weight": "cross_attend_blocks.1.fn.net.0.weight",
    "widen.bias": "cross_attend_blocks.1.fn.net.0.bias",
    "narrow.weight": "cross_attend_blocks.1.fn.net.2.weight",
    "narrow.bias": "cross_attend_blocks.1.fn.net.2.bias",
}
_HEADS, _READS = "heads", "ragidx encoder"
_DECISIVE = ("method", "template", "copies", "attention", "layer")


class TrainablePooling(nn.Module):
    """Cross-attention of trained latents over rows of states, a gated feed-forward, and the mean over the latents.

    At the original's sizes and d = 4,096 these are 1.3 billion parameters, and what the heads read for one text,
    heads x latents x head_width numbers, takes 200 MB in float32: pool few texts at a time.

    Args:
        hidden: d, the width of the rows and of the vector.
        latents: r, how many latents there are.
        heads: number of heads of the attention.
        head_width: c, the width of one head.
        layers: rows of the table of layer vectors, at least as many as the model has layers; None for the last-layer
            variant.
    """

    def __init__(
        self, hidden: int, *, latents: int = 768, heads: int = 32, head_width: int = 2048, layers: int | None = None
    ) -> None:
        super().__init__()
        inner = heads * head_width
        self.heads = heads
        self.latents = nn.Parameter(torch.randn(latents, hidden))
        self.layer_vectors = None if layers is None else nn.Parameter(torch.randn(layers, hidden))
        self.norm_rows, self.norm_latents, self.norm_mixed = (nn.LayerNorm(hidden) for _ in range(3))
        self.to_queries = nn.Linear(hidden, inner, bias=False)
        self.to_keys_values = nn.Linear(hidden, 2 * inner, bias=False)
        self.to_hidden = nn.Linear(inner, hidden, bias=False)
        self.widen = nn.Linear(hidden, 8 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)

    @property
    def multi_layer(self) -> bool:
        """Whether a row is a layer of the model, rather than a token of the text."""
        return self.layer_vectors is not None

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """One vector a text: (b, m, d), (b, m) -> (b, d) float32.

        A text without a row to read gives the zero vector, as the other poolings have it.
        """
        rows = rows.to(self.latents.dtype)
        if self.layer_vectors is not None:
            rows = rows + self.layer_vectors[: rows.shape[1]]
        mixed = self._attended(self.norm_rows(rows), mask) + self.latents
        value, gate = self.widen(self.norm_mixed(mixed)).chunk(2, dim=-1)
        mixed = self.narrow(value * functional.gelu(gate)) + mixed
        pooled: Tensor = mixed.mean(dim=1) * mask.any(dim=1, keepdim=True)
        return pooled.to(torch.float32)

    def save(self, path: Path, encoder: EncoderSpec | None = None) -> None:
        """Write the weights, and the number of heads, to a safetensors file that `load_pooling` reads.

        Args:
            path: place of the file.
            encoder: encoder whose states it was trained on; None: the file does not say.

        Raises:
            RagidxError: the file cannot be written.
        """
        tensors = {_FILED[name]: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        metadata = {"format": "pt", _HEADS: str(self.heads)}
        if encoder is not None:
            fields = encoder.to_json()
            metadata[_READS] = json.dumps({name: fields.get(name) for name in _DECISIVE})
        write_file(path, save(tensors, metadata=metadata))

    def _attended(self, rows: Tensor, mask: Tensor) -> Tensor:
        """(b, r, d): what each latent reads from the rows that `mask` lets it see."""
        queries = self._by_head(self.to_queries(self.norm_latents(self.latents)).unsqueeze(0))
        keys, values = (self._by_head(part) for part in self.to_keys_values(rows).chunk(2, dim=-1))
        seen = mask | ~mask.any(dim=1, keepdim=True)  # a softmax over no row is NaN; forward clears such texts
        read = functional.scaled_dot_product_attention(
            queries.expand(len(rows), -1, -1, -1), keys, values, attn_mask=seen[:, None, None, :]
        )
        attended: Tensor = self.to_hidden(read.transpose(1, 2).flatten(2))
        return attended

    def _by_head(self, states: Tensor) -> Tensor:
        """(b, n, heads * c) -> (b, heads, n, c)."""
        return states.view(*states.shape[:-1], self.heads, -1).transpose(1, 2)


def load_pooling(path: Path, *, hidden: int, n_layers: int, encoder: EncoderSpec | None = None) -> TrainablePooling:
    """The pooling of a safetensors file, for a model of this width with so many layers, and states of this encoder.

    It is what `TrainablePooling.save` wrote, or the published weights with the number of heads. Sizes are read off its
    tensors, the variant off the table of layer vectors.

    Raises:
        ModelError: the file cannot be read or is a pickle file, a tensor is missing, unknown, misshapen or not finite,
            the number of heads is not known or does not divide the width, or the pooling is another model's.
        SpecError: it was trained on the states of another method.
    """
    tensors, metadata = _read(path)
    _check_names(tensors, path)
    _check_model(tensors, hidden, n_layers, path)
    if encoder is not None:
        _check_encoder(metadata, encoder, path)
    inner = tensors[_FILED["to_queries.weight"]].shape[0]
    n_heads = _heads(metadata, inner, path)
    table = tensors.get(_FILED["layer_vectors"])
    with torch.device("meta"):  # shapes alone: nothing is drawn at random to be thrown away
        pooling = TrainablePooling(
            hidden,
            latents=len(tensors[_FILED["latents"]]),
            heads=n_heads,
            head_width=inner // n_heads,
            layers=None if table is None else len(table),
        )
    weights = {name: tensors[_FILED[name]] for name in pooling.state_dict()}
    for name, expected in pooling.state_dict().items():
        _check_tensor(_FILED[name], weights[name], expected, path)
    pooling.load_state_dict({name: tensor.to(torch.float32) for name, tensor in weights.items()}, assign=True)
    return pooling


def is_pooling(path: Path) -> bool:
    """Whether a file has the tensors of one."""
    try:
        with safe_open(path, framework="pt") as stored:
            return set(stored.keys()) >= set(_FILED.values()) - {_FILED["layer_vectors"]}
    except (SafetensorError, OSError):
        return False


def _read(path: Path) -> tuple[dict[str, Tensor], Mapping[str, str]]:
    if path.suffix in {".pt", ".pth", ".bin", ".ckpt", ".pkl"}:
        raise ModelError(
            "the pooling's weights are in a pickle file, which can run code when it is read",
            "convert it to safetensors, once, where you trust it: "
            f'safetensors.torch.save_file(torch.load("{path.name}", weights_only=True), "{path.stem}.safetensors", '
            'metadata={"heads": "32"}), with the number of heads that it was trained with',
            where=str(path),
        )
    try:
        with safe_open(path, framework="pt") as stored:
            names = stored.keys()
            return {name: stored.get_tensor(name) for name in names}, stored.metadata() or {}
    except (SafetensorError, OSError) as fault:
        check_machine(fault, path)
        raise ModelError(
            f"the pooling's weights cannot be read: {fault}", "download or copy the file again", where=str(path)
        ) from fault


def _check_names(tensors: Mapping[str, Tensor], path: Path) -> None:
    needed = set(_FILED.values()) - {_FILED["layer_vectors"]}
    missing, unknown = sorted(needed - set(tensors)), sorted(set(tensors) - set(_FILED.values()))
    if missing or unknown:
        counted = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        fault = f"has no tensor '{missing[0]}'{counted}" if missing else f"has a tensor '{unknown[0]}' of no known use"
        raise ModelError(
            f"the file {fault}, so it is not one of a trainable pooling",
            "give the file that TrainablePooling.save wrote, or the weights published with Pooling and Attention",
            where=str(path),
        )


def _check_encoder(metadata: Mapping[str, str], encoder: EncoderSpec, path: Path) -> None:
    here = encoder.to_json()
    try:
        trained_on = dict(json.loads(metadata.get(_READS, "{}")))
    except (ValueError, TypeError) as fault:
        raise ModelError("the pooling's file is damaged", "copy it again, or train one", where=str(path)) from fault
    for name, there in trained_on.items():
        if here.get(name) != there:
            raise SpecError(
                f"the pooling was trained on other states: `{name}` is {there!r} there, {here.get(name)!r} here",
                "train one on these, with `ragidx train pooling`",
                where=str(path),
            )


def _check_model(tensors: Mapping[str, Tensor], hidden: int, n_layers: int, path: Path) -> None:
    latents, table = tensors[_FILED["latents"]], tensors.get(_FILED["layer_vectors"])
    for name in ("latents", "to_queries.weight", "layer_vectors"):
        tensor = tensors.get(_FILED[name])
        if tensor is not None and (tensor.dim() != 2 or 0 in tensor.shape):
            raise _damaged(f"'{_FILED[name]}' has the shape {tuple(tensor.shape)}, a matrix is expected", path)
    if latents.shape[1] != hidden:
        raise ModelError(
            f"the pooling was trained for a hidden width of {latents.shape[1]}, the model's is {hidden}",
            "give the pooling that was trained with this model",
            where=str(path),
        )
    if table is not None and len(table) < n_layers:
        raise ModelError(
            f"the pooling has vectors for {len(table)} layers, the model has {n_layers} layers",
            "give the pooling that was trained with this model",
            where=str(path),
        )


def _heads(metadata: Mapping[str, str], inner: int, path: Path) -> int:
    filed = metadata.get(_HEADS)
    if filed is None:
        raise ModelError(
            "the file does not say how many heads the pooling has, and the shapes do not show it",
            f'save it once with that number: safetensors.torch.save_file(load_file("{path.name}"), '
            '"NEW.safetensors", metadata={"heads": "32"}); 32 are the original\'s',
            where=str(path),
        )
    if not (filed.isascii() and filed.isdigit()):
        raise _damaged(f"the file's metadata has {filed!r} heads", path)
    heads = int(filed)
    if heads < 1 or inner % heads:
        raise ModelError(
            f"{heads} heads do not divide a width of {inner}",
            "give the number of heads that the pooling was trained with",
            where=str(path),
        )
    return heads


def _check_tensor(name: str, tensor: Tensor, expected: Tensor, path: Path) -> None:
    if tensor.shape != expected.shape:
        raise _damaged(
            f"'{name}' has the shape {tuple(tensor.shape)}, {tuple(expected.shape)} is expected from the others", path
        )
    if not tensor.is_floating_point() or not bool(tensor.to(torch.float32).isfinite().all()):
        raise _damaged(f"'{name}' holds something else than finite numbers", path)


def _damaged(message: str, path: Path) -> ModelError:
    return ModelError(message, "download or copy the file again", where=str(path))
