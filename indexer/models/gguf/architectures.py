"""Architectures of GGUF files as transformers has them: the config, the names of tensors, and how they were changed.

What llama.cpp's converter does to weights is undone: for `llama` it reorders the rows of queries and keys, from the
halves of a head that are rotated together to neighbours; for Gemma it adds 1 to the weights of norms. What is not
known here is refused by name: other numbers would come out, and no error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragidx.corpora.errors import ModelError
from ragidx.indexer.model_files import AGAIN
from ragidx.indexer.models.gguf.header import Gguf, GgufTensor

EMBEDDINGS, HEAD, ROPE_FACTORS = "token_embd.weight", "output.weight", "rope_freqs.weight"
_UNUSED = re.compile(r"(v|mm|mtp)\.")  # vision, its projector, drafts of later tokens
_MOST = 1 << 31  # for a number in the header
_SAFETENSORS = "name the folder with the model's safetensors"

# Parts of a layer: their names in transformers and their shapes.
_COMMON = {
    "attn_norm": ("input_layernorm", ("hidden",)),
    "attn_q": ("self_attn.q_proj", ("queries", "hidden")),
    "attn_k": ("self_attn.k_proj", ("keys", "hidden")),
    "attn_v": ("self_attn.v_proj", ("keys", "hidden")),
    "attn_output": ("self_attn.o_proj", ("hidden", "queries")),
    "ffn_norm": ("post_attention_layernorm", ("hidden",)),
    "ffn_gate": ("mlp.gate_proj", ("inner", "hidden")),
    "ffn_up": ("mlp.up_proj", ("inner", "hidden")),
    "ffn_down": ("mlp.down_proj", ("hidden", "inner")),
}
_HEAD_NORMS = {
    "attn_q_norm": ("self_attn.q_norm", ("head",)),
    "attn_k_norm": ("self_attn.k_norm", ("head",)),
}
_GEMMA_NORMS = {
    "post_attention_norm": ("post_attention_layernorm", ("hidden",)),
    "ffn_norm": ("pre_feedforward_layernorm", ("hidden",)),
    "post_ffw_norm": ("post_feedforward_layernorm", ("hidden",)),
}
_SCALES = ("rope.scaling.factor", "rope.scale_linear")  # the first that is there; the second is of older files
# Keys of models that compute otherwise than their architecture does here.
_OTHERWISE = (
    *("expert_count", "embedding_scale", "residual_scale", "attention.scale", "attention.clamp_kqv"),
    *("attn_logit_softcapping", "attention.temperature_scale", "attention.max_alibi_bias", "use_parallel_residual"),
)


@dataclass(frozen=True)
class Architecture:
    """How one architecture is stored."""

    family: str  # transformers' `model_type`
    causal_lm: str  # transformers' class with the head
    parts: Mapping[str, tuple[str, tuple[str, ...]]]  # of a layer
    biases: tuple[str, ...] = ()  # which of them have a bias
    optional_biases: tuple[str, ...] = ()  # which have one in some models: all of them or none
    permuted: bool = False  # whether rows of queries and keys are reordered
    raised_norms: bool = False  # whether norms are stored with 1 added


_QKV = ("attn_q", "attn_k", "attn_v")
ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _COMMON, (), (*_QKV, "attn_output"), permuted=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", _COMMON, _QKV),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _COMMON | _HEAD_NORMS),
    "gemma3": Architecture("gemma3_text", "Gemma3ForCausalLM", _COMMON | _HEAD_NORMS | _GEMMA_NORMS, raised_norms=True),
}


@dataclass(frozen=True)
class Weight:
    """A weight of the model, and how it comes out of the file."""

    tensor: GgufTensor
    name: str  # in transformers, in the model with a head
    order: NDArray[np.int64] | None = None  # which stored row each row is; None: as stored
    minus: float = 0.0  # what is subtracted from each number


def config_of(gguf: Gguf) -> dict[str, Any]:
    """The config that transformers would have for the model.

    Raises:
        ModelError: an architecture, or a setting of one, that is not known, or numbers that do not fit together.
    """
    return _Model(gguf).config


def weights_of(gguf: Gguf) -> list[Weight]:
    """Every weight of the model with its head, which a tied model has as its embeddings.

    Raises:
        ModelError: a tensor is missing, has another shape than the header says, or is not known.
    """
    return _Model(gguf).weights()


def rotated_rows(rows: int, heads: int) -> NDArray[np.int64]:
    """Which stored row each row of queries or keys is, where the converter has put rotated pairs side by side.

    >>> rotated_rows(8, 2)
    array([0, 2, 1, 3, 4, 6, 5, 7])
    """
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(rows)


class _Model:
    """The settings of one file."""

    def __init__(self, gguf: Gguf) -> None:
        self._gguf = gguf
        self._name = self._architecture_name()
        self._kind = ARCHITECTURES[self._name]
        self._check_settings()
        self.config = self._config()

    def _architecture_name(self) -> str:
        kind = self._gguf.single("general.type", "model")
        if kind != "model":
            known = {"adapter": "a LoRA adapter", "mmproj": "the part of a model that reads pictures"}
            what = known.get(kind, f"of the type {str(kind)[:40]!a}")
            raise self._fault(f"it is {what}, not a model", "name the GGUF file of a decoder")
        name = self._gguf.single("general.architecture")
        if name not in ARCHITECTURES:
            raise self._fault(
                f"the architecture {str(name)[:40]!a} cannot be read from GGUF",
                f"name the folder with the model's safetensors; from GGUF ragidx reads {', '.join(ARCHITECTURES)}",
            )
        return str(name)

    def _check_settings(self) -> None:
        for key in _OTHERWISE:
            if self._gguf.single(f"{self._name}.{key}"):
                raise self._fault(f"the setting '{self._name}.{key}' is not known", _SAFETENSORS)
        if self._gguf.single(f"{self._name}.attention.causal") is False:
            raise self._fault("its attention goes both ways", _SAFETENSORS)
        window = "attention.sliding_window"
        has_window = self._name != "gemma3" and self._gguf.single(f"{self._name}.{window}")
        if has_window and self._count(window) < self._count("context_length"):
            raise self._fault(f"its attention has a window of {self._count(window):,} tokens", _SAFETENSORS)

    def _config(self) -> dict[str, Any]:
        layers, hidden, heads = self._count("block_count"), self._count("embedding_length"), self._heads("head_count")
        keys = self._heads("head_count_kv", heads)
        head = self._count("attention.key_length", hidden // heads)
        for key, expected in (("attention.value_length", head), ("rope.dimension_count", head)):
            if self._count(key, expected) != expected:
                raise self._fault(f"'{self._name}.{key}' is not {expected}, the width of a head", _SAFETENSORS)
        numbers = {int(match[1]) for name in self._gguf.tensors if (match := re.match(r"blk\.(\d{1,6})\.", name))}
        embeddings = self._gguf.tensors.get(EMBEDDINGS)
        tokens = self._gguf.metadata.get("tokenizer.ggml.tokens")
        n_tokens = len(tokens) if isinstance(tokens, list) else 0
        shape = None if embeddings is None else embeddings.shape
        for wrong, message in (
            (heads % keys != 0 or head % 2 != 0, f"{heads} heads of width {head} do not share {keys} keys"),
            (
                len(numbers) != layers or max(numbers) != layers - 1,
                f"it says that it has {layers} layers, and has {len(numbers)}",
            ),
            (shape != (n_tokens, hidden), f"the embeddings are {shape}, where the header says {(n_tokens, hidden)}"),
        ):
            if wrong:
                raise self._fault(message, AGAIN)
        return {
            "model_type": self._kind.family,
            "architectures": [self._kind.causal_lm],
            "vocab_size": n_tokens,
            "hidden_size": hidden,
            "intermediate_size": self._count("feed_forward_length"),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": keys,
            "head_dim": head,
            "max_position_embeddings": self._count("context_length"),
            "rms_norm_eps": self._float("attention.layer_norm_rms_epsilon"),
            "tie_word_embeddings": HEAD not in self._gguf.tensors,
            "attention_bias": any(f"blk.0.{part}.bias" in self._gguf.tensors for part in self._kind.optional_biases),
            "rope_parameters": self._rope(),
        } | (self._gemma(layers, hidden, heads, head) if self._name == "gemma3" else {})

    def _gemma(self, layers: int, hidden: int, heads: int, head: int) -> dict[str, Any]:
        # Every sixth layer attends to all, the others to a window, with rotations of their own. The pattern and the
        # 27B model's scale are not in the files; llama.cpp knows them by the architecture and the number of layers.
        near = {"rope_type": "default", "rope_theta": self._float("rope.freq_base_swa", 10_000.0)}
        pattern = self._gguf.single("gemma3.attention.sliding_window_pattern", 6)
        if pattern != 6 and not (isinstance(pattern, int) and 1 <= pattern <= layers):
            raise self._fault("the setting 'gemma3.attention.sliding_window_pattern' is not known", _SAFETENSORS)
        far = [(number + 1) % pattern == 0 for number in range(layers)]
        return {
            "sliding_window": self._count("attention.sliding_window"),
            "layer_types": ["full_attention" if one else "sliding_attention" for one in far],
            "rope_parameters": {"full_attention": self._rope(), "sliding_attention": near},
            "query_pre_attn_scalar": hidden // heads if layers == 62 else head,
        }

    def _rope(self) -> dict[str, Any]:
        base = {"rope_type": "default", "rope_theta": self._float("rope.freq_base", 10_000.0)}
        kind = self._gguf.single(f"{self._name}.rope.scaling.type", "linear")  # llama.cpp's default
        if kind not in ("none", "linear"):
            raise self._fault(f"the rope scaling {str(kind)[:40]!a} is not known", _SAFETENSORS)
        key = next((key for key in _SCALES if self._gguf.single(f"{self._name}.{key}")), None)
        if kind == "none" or key is None:
            return base
        return base | {"rope_type": "linear", "factor": self._float(key)}

    def weights(self) -> list[Weight]:
        """As `weights_of`."""
        config = self.config
        sizes = {
            "hidden": config["hidden_size"],
            "inner": config["intermediate_size"],
            "head": config["head_dim"],
            "queries": config["num_attention_heads"] * config["head_dim"],
            "keys": config["num_key_value_heads"] * config["head_dim"],
        }
        norm = 1.0 if self._kind.raised_norms else 0.0
        whole = (config["vocab_size"], config["hidden_size"])
        weights = [
            self._weight(EMBEDDINGS, "model.embed_tokens.weight", whole),
            self._weight("output_norm.weight", "model.norm.weight", whole[1:], minus=norm),
        ]
        if not config["tie_word_embeddings"]:
            weights.append(self._weight(HEAD, "lm_head.weight", whole))
        biases = self._kind.biases + (self._kind.optional_biases if config["attention_bias"] else ())
        heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
        for layer in range(config["num_hidden_layers"]):
            for part, (name, dimensions) in self._kind.parts.items():
                shape = tuple(sizes[dimension] for dimension in dimensions)
                order = rotated_rows(shape[0], heads[part]) if self._kind.permuted and part in heads else None
                ends = (("weight", shape), ("bias", shape[:1])) if part in biases else (("weight", shape),)
                for end, of in ends:
                    stored, ours = f"blk.{layer}.{part}.{end}", f"model.layers.{layer}.{name}.{end}"
                    weights.append(self._weight(stored, ours, of, order, norm if len(shape) == 1 else 0.0))
        known = {weight.tensor.name for weight in weights}
        if self._name == "llama" and ROPE_FACTORS in self._gguf.tensors:
            self._weight(ROPE_FACTORS, "", (config["head_dim"] // 2,))
            known.add(ROPE_FACTORS)
        strange = next((n for n in self._gguf.tensors if n not in known and not _UNUSED.match(n)), None)
        if strange is not None:
            raise self._fault(f"the tensor {strange[:80]!a} is not known in '{self._name}'", _SAFETENSORS)
        return weights

    def _weight(
        self,
        stored: str,
        name: str,
        shape: tuple[int, ...],
        order: NDArray[np.int64] | None = None,
        minus: float = 0.0,
    ) -> Weight:
        tensor = self._gguf.tensors.get(stored)
        if tensor is None:
            raise self._fault(f"the tensor '{stored}' is missing", AGAIN)
        if tensor.shape != shape:
            raise self._fault(f"'{stored}' is {tensor.shape}, where the header says {shape}", AGAIN)
        return Weight(tensor, name, order, minus)

    def _heads(self, key: str, default: int | None = None) -> int:
        found = self._gguf.metadata.get(f"{self._name}.attention.{key}")
        if isinstance(found, np.ndarray) and len(found) and (found == found[0]).all():  # one a layer
            found = found[0].item()
        if isinstance(found, np.ndarray) and len(found) > 1:
            raise self._fault(f"'{self._name}.attention.{key}' differs between its layers", _SAFETENSORS)
        return int(self._checked(f"attention.{key}", default if found is None else found))

    def _count(self, key: str, default: int | None = None) -> int:
        return int(self._checked(key, self._gguf.single(f"{self._name}.{key}", default)))

    def _float(self, key: str, default: float | None = None) -> float:
        return float(self._checked(key, self._gguf.single(f"{self._name}.{key}", default), whole=False))

    def _checked(self, key: str, value: Any, *, whole: bool = True) -> Any:
        fits = type(value) is int or (type(value) is float and not whole)
        if not fits or not 0 < value < (_MOST if whole else float("inf")):
            shown = "missing" if value is None else str(value)[:40]
            raise self._fault(f"'{self._name}.{key}' is {shown}, not a number above 0", AGAIN)
        return value

    def _fault(self, message: str, hint: str) -> ModelError:
        return ModelError(message, hint, where=str(self._gguf.path))
