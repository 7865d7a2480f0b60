"""The backbone: token ids to hidden states, attending causally or both ways.

ids (b, t) int64, attention (b, t) int64 -> states (b, t, d) of one layer. Right padding with explicit positions, so
that a row's states do not depend on its neighbours. Layer -1 is the last one after the final norm (what `AutoModel`
returns); layer l >= 0 is the input of layer l: l = 0 the input embeddings, without the final norm unless requested.
Layers after the requested one are never run.
Bidirectional attention needs the config's flag, the modules' flags and the lifted window together to work in every
family. A two-token probe at load checks it (BehnamGhader et al. 2024, and the silent
fallbacks that their users met).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ragidx.corpora.errors import ModelError, RagidxError, SpecError, check_machine, first_line
from ragidx.indexer.encoders import precision
from ragidx.indexer.encoders.backward_attention import use_strongest, watched
from ragidx.indexer.models import lora as adapters
from ragidx.indexer.models.gguf.model import load_gguf
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.specs import EncoderSpec

Settings: TypeAlias = list[tuple[Any, str, Any]]  # of modules and configs: owner, name, value

_NO_WINDOW = 10**6
_ABSENT = object()  # the value of what an owner does not have
_PROBE_TOLERANCE = 1e-6
_PROBE_TOKENS = 8
# W_O in a decoder layer, as the families call it: self_attn.o_proj, attn.c_proj, attention.dense, ...
_ATTENTION_OUTPUT = re.compile(r"(.+\.)?\w*(attn|attention)\.(.+\.)?(o_proj|out_proj|c_proj|dense)")


# What takes the states between layers, or what attention adds to them, in this thread's forward pass; hooks belong to
# the model, which threads share.
_taking: ContextVar[Callable[[Tensor], None] | None] = ContextVar("taking", default=None)


class _Captured(Exception):  # noqa: N818 - control flow: ends the forward pass when the wanted layer is reached
    def __init__(self, states: Tensor) -> None:
        self.states = states


class Backbone:
    """A loaded decoder without its head."""

    def __init__(self, model: Any, *, layer: int = -1, attention: str = "causal", layer_norm: bool = False) -> None:
        self.model = model.eval().requires_grad_(False)
        config = model.config.get_text_config()
        self.hidden = int(config.hidden_size)
        self.n_layers = int(config.num_hidden_layers)
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self.positions_change_at = _positions_change_at(config)
        self.layer = self._checked(layer)
        if self.layer == -1:  # OPT can project its last states
            self.hidden = int(getattr(config, "word_embed_proj_dim", None) or self.hidden)
        self._takes_positions = model.config.model_type not in {"bloom", "mpt"}  # ALiBi: they come from the mask
        self._norm: Callable[[Tensor], Tensor] | None = None
        self._watched = False
        if layer_norm and self.layer == -1:
            raise SpecError(
                "the last layer's states have gone through the final norm",
                "remove `layer_norm`, or give a `layer` before the last",
                where="`layer_norm`",
            )
        self._causal = attend_both_ways(model) if attention == "bidirectional" else None
        if self.layer >= 0:
            if layer_norm:
                self._norm = _final_norm(model, self.n_layers)
            self._stop_at(self.layer)

    @property
    def n_tokens(self) -> int:
        """How many tokens have an embedding."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    def states(self, ids: Tensor, attention: Tensor | None) -> Tensor:
        """Hidden states (b, t, d); `attention` is None where no row is padded (faster, and the same)."""
        extra = {}
        if attention is not None and self._takes_positions:
            extra["position_ids"] = (attention.cumsum(-1) - 1).clamp(min=0)
        try:
            output = self.model(input_ids=ids, attention_mask=attention, use_cache=False, **extra)
        except _Captured as captured:
            return captured.states if self._norm is None else self._norm(captured.states)
        return output.last_hidden_state  # type: ignore[no-any-return]

    def states_and_attention(self, ids: Tensor, attention: Tensor | None) -> tuple[Tensor, Tensor]:
        """Hidden states (b, t, d), and the strongest attention (b, t, t) of the layers that were run.

        The model has to run with watched attention; see `load_backbone`.
        """
        return watched(lambda: self.states(ids, attention))

    def layers(self, ids: Tensor, attention: Tensor | None, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """`reduce` (b, t, d) -> (b, ...) of the states after each layer, the last after the final norm: (b, L, ...).

        Each layer is reduced as it passes: to (b, d), no two layers' states are held together.
        """
        rows: list[Tensor] = []
        token = _taking.set(lambda states: rows.append(reduce(states)))
        try:
            rows.append(reduce(self.states(ids, attention)))
        finally:
            _taking.reset(token)
        return torch.stack(rows, dim=1)

    def attended(self, ids: Tensor, attention: Tensor | None, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Sum over the layers of `reduce` (b, t, d) -> (b, d) of what attention adds to the states: (b, d).

        The model has to be one of `watch_attention`.
        """
        rows: list[Tensor] = []
        token = _taking.set(lambda added: rows.append(reduce(added)))
        try:
            self.states(ids, attention)
        finally:
            _taking.reset(token)
        return torch.stack(rows).sum(dim=0)

    @contextlib.contextmanager
    def other_direction(self) -> Iterator[None]:
        """Attend both ways inside, with the same weights; or causally, where the model attends both ways."""
        before = attend_both_ways(self.model) if self._causal is None else _put(self._causal)
        try:
            yield
        finally:
            _put(before)

    def watch_layers(self) -> None:
        """Let `layers` see what each layer reads, from now on."""
        if self._watched:
            return
        self._watched = True

        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            take = _taking.get()
            if take is not None:
                take(args[0] if args else kwargs["hidden_states"])

        for layer in list(_layers(self.model, self.n_layers))[1:]:
            layer.register_forward_pre_hook(note, with_kwargs=True)

    def _checked(self, layer: int) -> int:
        if not -self.n_layers - 1 <= layer <= self.n_layers:
            raise SpecError(
                f"the model has {self.n_layers} layers, there is no layer {layer}",
                f"give 0 (input embeddings) to {self.n_layers}, or -1 for the last",
                where="`layer`",
            )
        layer = layer if layer >= 0 else self.n_layers + 1 + layer
        return -1 if layer == self.n_layers else layer

    def _stop_at(self, layer: int) -> None:
        """End the forward pass before layer `layer`, and drop the layers after it."""
        stack = _layers(self.model, self.n_layers)

        def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            raise _Captured(args[0] if args else kwargs["hidden_states"])

        stack[layer].register_forward_pre_hook(stop, with_kwargs=True)
        del stack[layer + 1 :]
        stack[layer].requires_grad_(False)


def load_backbone(
    files: ModelFiles,
    spec: EncoderSpec,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    implementation: str = "auto",
) -> Backbone:
    """The backbone of a model, its adapters merged; `reba` and `aligned-values` watch its attention.

    Raises:
        ModelError: the architecture is unknown or needs code of its own, the weights do not fit it, an adapter does not
            fit them, its family lacks the implementation, attention does not run in the requested direction, or the
            method cannot read it.
        SpecError: no such layer, or an implementation for backward attention, which has its own.
    """
    if spec.method == "reba" and implementation != "auto":
        raise SpecError(
            "backward attention is computed by ragidx itself, with every implementation alike",
            "remove `attn`",
            where="`attn`",
        )
    silence_transformers()
    try:
        model, report = _loaded(files, dtype, implementation)
    except RagidxError:
        raise
    except SafetensorError as fault:
        raise ModelError(
            f"the weights cannot be read: {fault}", "download or copy the model again", where=str(files.folder)
        ) from fault
    except Exception as fault:  # transformers raises what its files make it
        check_machine(fault, files.folder)
        if implementation != "auto" and (isinstance(fault, ImportError) or "attn_implementation" in str(fault)):
            raise ModelError(
                f"'{files.name}' has no attention implementation '{implementation}': its family '{files.family}' lacks "
                "it, or the package it needs is not installed",
                "remove it, or use `attn=eager`",
                where="`attn`",
            ) from fault
        raise ModelError(
            f"'{files.name}' cannot be loaded: {first_line(fault)}",
            "ragidx loads what transformers' AutoModel loads, from safetensors, without code from the model's folder",
            where=str(files.folder),
        ) from fault
    _check_whole(report, files)
    for folder in files.adapters:
        adapters.merge(model, folder, folder.name)
    if spec.method == "reba":
        use_strongest(model, files.name)
    if spec.method == "aligned-values":
        watch_attention(model, files.name)
    backbone = Backbone(model.to(device), layer=spec.layer, attention=spec.attention, layer_norm=spec.layer_norm)
    if spec.method == "aligned-values":  # what is added to the states is not projected as OPT's last states are
        backbone.hidden = int(model.config.get_text_config().hidden_size)
    if backbone.layer != 0:
        check_direction(backbone, spec.attention, files.name)
    elif spec.method in ("reba", "aligned-values"):
        raise SpecError(
            "layer 0 comes before any attention, which the method reads",
            "give a layer from 1 on, or -1 for the last",
            where="`layer`",
        )
    return backbone


def _loaded(files: ModelFiles, dtype: torch.dtype, implementation: str) -> tuple[Any, Mapping[str, Any]]:
    """The model without its head, and transformers' report of what it loaded."""
    if files.gguf is not None:
        return load_gguf(files.gguf, files.config, dtype=dtype, implementation=implementation)
    from transformers import AutoModel

    model, report = AutoModel.from_pretrained(
        files.folder,
        output_loading_info=True,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
        **({} if implementation == "auto" else {"attn_implementation": implementation}),
    )
    return model, report


def _check_whole(report: Mapping[str, Any], files: ModelFiles) -> None:
    """Transformers fills weights that a checkpoint lacks with random numbers, and says so only in its log."""
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))  # unused here
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise ModelError(
            f"the weights of '{files.name}' lack '{missing[0]}'{more}",
            "download or copy the model again",
            where=str(files.folder),
        )


def silence_transformers() -> None:
    """Without the library's load report and progress bar: this package reports what a user must know."""
    from transformers.utils import logging as theirs

    theirs.set_verbosity_error()  # type: ignore[no-untyped-call]  # the library's own function has no types
    theirs.disable_progress_bar()  # type: ignore[no-untyped-call]  # as above


def attend_both_ways(model: Any) -> Settings:
    """Replace the causal mask by one over all non-padding tokens, in every layer, sliding windows lifted.

    Returns:
        What was set before.
    """
    configs = list({id(c): c for c in (model.config, model.config.get_text_config())}.values())
    owners = [*configs, *model.modules()]
    causal = [one for number, one in enumerate(owners) if number < len(configs) or hasattr(one, "is_causal")]
    windows = [one for one in owners if getattr(one, "sliding_window", None)]
    flags: Settings = [(one, "is_causal", False) for one in causal]
    return _put([*flags, *((one, "sliding_window", _NO_WINDOW) for one in windows)])


def _put(settings: Settings) -> Settings:
    """Set them, and return what was set before."""
    before = [(owner, name, getattr(owner, name, _ABSENT)) for owner, name, _ in settings]
    for owner, name, value in settings:
        if value is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    return before


def watch_attention(model: Any, name: str) -> None:
    """Let `Backbone.attended` see the attention's output of each layer: after W_O, before it is normed or added.

    Raises:
        ModelError: a layer has no W_O that is known, or several.
    """

    def note(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        take = _taking.get()
        if take is not None:
            take(output)

    config = model.config.get_text_config()
    for number, layer in enumerate(_layers(model, int(config.num_hidden_layers))):
        outputs = [module for path, module in layer.named_modules() if _ATTENTION_OUTPUT.fullmatch(path)]
        if len(outputs) != 1:
            raise ModelError(
                f"'{name}' cannot be used with aligned values: layer {number + 1} of its family '{config.model_type}' "
                f"has {len(outputs)} output projections of attention that are known, where one is needed",
                "choose another `method`, such as `method=prompteol`",
            )
        outputs[0].register_forward_hook(note)


def check_direction(backbone: Backbone, attention: str, name: str) -> None:
    """Change the last token and look at the first one's state: does it see the future, and should it?

    Raises:
        ModelError: the model does not run, or its attention runs in the other direction; tried with and without
            padding.
    """
    for padded in (False, True):
        try:
            with precision.threads(precision.threads_for(_PROBE_TOKENS, precision.n_weights(backbone.model))):
                seen = _sees_the_future(backbone, padded)
        except (AttributeError, TypeError, ValueError, NotImplementedError, RuntimeError) as fault:
            if isinstance(fault, torch.OutOfMemoryError):
                raise
            raise ModelError(
                f"'{name}' cannot run with this attention: {type(fault).__name__}: {fault}",
                "its family does not support it in this version of transformers; choose another `method`",
            ) from fault
        if seen != (attention == "bidirectional"):
            does = "attends both ways" if seen else "stays causal"
            hint = (
                "it is not a decoder: use it as a sentence-transformers model, or ask for `attention=bidirectional`"
                if seen
                else "choose a causal method for it, such as `method=echo`"
            )
            where = "a padded batch" if padded else "a batch without padding"
            raise ModelError(f"'{name}' was asked for {attention} attention and {does} in {where}", hint)


def _sees_the_future(backbone: Backbone, padded: bool) -> bool:
    first, second = backbone.n_tokens // 3, backbone.n_tokens // 2
    device = backbone.model.device
    ids = torch.tensor([[first, second, first], [first, second, second]], device=device)
    mask = None
    if padded:
        ids = torch.cat([ids, ids[:, :1]], dim=1)
        mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0]], device=device)
    states = backbone.states(ids, mask)[:, 0].to(torch.float32)
    scale = float(states.abs().max().clamp(min=1e-12))
    return float((states[0] - states[1]).abs().max()) > _PROBE_TOLERANCE * scale


def _positions_change_at(config: Any) -> int | None:
    """The length beyond which a model encodes all positions of a batch differently (LongRoPE); None without one."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]  # one a kind of layer, in some families
    lengths = [kind.get("original_max_position_embeddings") for kind in kinds if kind.get("rope_type") == "longrope"]
    return min((int(length) for length in lengths if length), default=None)


def _final_norm(model: nn.Module, count: int) -> nn.Module:
    """The final norm, which is beside the stack of layers."""
    stack = _layers(model, count)
    owner = next(module for module in model.modules() if any(child is stack for child in module.children()))
    for name in ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f"):
        norm = getattr(owner, name, None)
        if isinstance(norm, nn.Module):
            return norm
    raise ModelError(f"no final norm was found in {type(model).__name__}", "remove `layer_norm` with this model")


def _layers(model: nn.Module, count: int) -> nn.ModuleList:
    """The stack of decoder layers: the outermost ModuleList of that length."""
    text = getattr(model, "get_decoder", lambda: model)()  # a vision tower can be as deep
    for module in text.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return module
    raise ModelError(
        f"no stack of {count} layers was found in {type(model).__name__}", "use `layer=-1` with this model"
    )
