"""What adapter_config.json says: which model a LoRA adapter was trained on, and how its matrices are scaled.

PEFT's format. scale is alpha / r, or alpha / sqrt(r) where the config says rank-stabilised (Hu et al. 2021;
Kalajdzievski 2023); patterns give single layers an r and an alpha of their own. An adapter that changes a model in any
other way than `W + scale * B A` (DoRA, biases, saved modules, ...) is refused, never read in part. The weights are
read in `ragidx.indexer.models.lora`; nothing here loads torch.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ragidx.corpora.errors import ModelError, first_line
from ragidx.indexer.model_files import read_object

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MERGE_WITH_PEFT = (
    "merge it once with peft, PeftModel.from_pretrained(base, folder).merge_and_unload().save_pretrained(...), "
    "and give the folder that this writes as the model"
)
_NAME = re.compile(r"[\w.]*")
_AGAIN = "download or copy the adapter again"

# Fields under which the weights hold more, or something else, than A and B of linear layers.
_BEYOND_LORA = (
    *("modules_to_save", "layer_replication", "target_parameters", "trainable_token_indices", "lora_bias"),
    *("alora_invocation_tokens", "arrow_config"),
)
# Starts that leave the base weights as they are; the others (pissa, olora, corda, loftq, ...) take something out of
# them, and only the base so changed belongs to the adapter.
_HARMLESS_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")

_Value = TypeVar("_Value", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """What adapter_config.json says of a plain LoRA adapter."""

    base: str  # the model it was trained on, a folder or a hub id; empty where the config names none
    rank: int  # r, the rows of A and columns of B
    alpha: float  # the factor of the product, before division by r or its root
    rank_stabilised: bool  # whether the root of r divides
    # Regular expressions (RE2) over the ends of layer names, and what holds for layers they match; the first counts.
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]

    def rank_of(self, layer: str) -> int:
        """The rank r of a layer, by the name that it had in training."""
        return _matched(self.ranks, layer, self.rank)

    def scale_of(self, layer: str) -> float:
        """What B A of a layer is multiplied with."""
        rank, alpha = self.rank_of(layer), _matched(self.alphas, layer, self.alpha)
        return alpha / (math.sqrt(rank) if self.rank_stabilised else rank)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter: alone, or beside the config and tokenizer of its base."""
    return (folder / CONFIG).is_file()


def read_config(folder: Path) -> AdapterConfig:
    """The config of an adapter's folder. `fan_in_fan_out` is not kept: the kind of the layer decides.

    Raises:
        ModelError: it cannot be read, or the adapter is not plain LoRA.
    """
    path = folder / CONFIG
    config = read_object(path, _AGAIN)
    if config.get("peft_type") != "LORA":
        raise ModelError(
            f"the adapter is of the kind {config.get('peft_type')!r}, and only 'LORA' is read",
            MERGE_WITH_PEFT,
            where=str(path),
        )
    if beyond := list(_beyond_lora(config)):
        raise ModelError(f"the adapter is more than plain LoRA: {', '.join(beyond)}", MERGE_WITH_PEFT, where=str(path))
    return AdapterConfig(
        base=str(config.get("base_model_name_or_path") or ""),
        rank=_rank(config.get("r"), "r", path),
        alpha=_alpha(config.get("lora_alpha"), "lora_alpha", path),
        rank_stabilised=bool(config.get("use_rslora")),
        ranks=_pattern(config, "rank", _rank, path),
        alphas=_pattern(config, "alpha", _alpha, path),
    )


def damaged(message: str, path: Path) -> ModelError:
    """The error for a damaged adapter file."""
    return ModelError(message, _AGAIN, where=str(path))


def _beyond_lora(config: Mapping[str, object]) -> Iterator[str]:
    """`field=value` of everything that makes an adapter more than `W + scale * B A`."""
    if config.get("bias") not in (None, "none"):
        yield f"bias={config['bias']!r}"
    if config.get("init_lora_weights") not in _HARMLESS_STARTS:
        yield f"init_lora_weights={config['init_lora_weights']!r}"
    for field, value in config.items():
        if value and (field in _BEYOND_LORA or (field.startswith("use_") and field != "use_rslora")):
            text = repr(value)
            yield f"{field}={text if len(text) <= 60 else text[:57] + '...'}"


def _pattern(
    config: Mapping[str, object], kind: str, value_of: Callable[[object, str, Path], _Value], path: Path
) -> dict[str, _Value]:
    pattern = config.get(f"{kind}_pattern") or {}
    if not isinstance(pattern, dict):
        raise damaged(f"{kind}_pattern is not an object: {pattern!r}", path)
    for key in pattern:
        try:
            _is_match(key, "")
        except ValueError as fault:  # Arrow's
            reason = first_line(fault).removeprefix("Invalid regular expression: ")
            raise damaged(f"{kind}_pattern has '{key}', which is not a pattern of RE2: {reason}", path) from fault
    return {key: value_of(value, f"{kind}_pattern of '{key}'", path) for key, value in pattern.items()}


def _matched(patterns: Mapping[str, _Value], layer: str, default: _Value) -> _Value:
    """As PEFT matches: the pattern, from the start of the name or after a dot, to its end."""
    return next((value for key, value in patterns.items() if _is_match(key, layer)), default)


def _is_match(key: str, layer: str) -> bool:
    """By RE2, which does not backtrack, as patterns come from files; a plain name by `re`, which is much faster."""
    pattern = rf"^(?:.*\.)?(?:{key})$"
    if _NAME.fullmatch(key):
        return re.match(pattern, layer) is not None
    import pyarrow as pa  # not by `--help`, which imports this module
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.scalar(layer), pattern).as_py())


def _rank(value: object, field: str, path: Path) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise damaged(f"{field} is {value!r}, where a whole number above 0 is expected", path)


def _alpha(value: object, field: str, path: Path) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    raise damaged(f"{field} is {value!r}, where a number is expected", path)
