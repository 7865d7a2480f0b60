"""A decoder of which a part learns: LoRA matrices or all weights, a trainable pooling, the vector of its end token.

What learns is a dict of tensors by name, which is what a checkpoint holds. The result is a folder of a whole model: the
adapter is added to the weights, so nothing that reads a model need know of it.

    config.json, model.safetensors, tokenizer.json ...   the model
    preset.json                                          how a build reads it: method, template, pooling, attention
    training/                                            the adapter and the pooling, and how they were made
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders import batching
from ragidx.indexer.encoders.backbone import attend_both_ways, check_direction
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.methods import default_filter
from ragidx.indexer.encoders.trained_pooling import TrainablePooling
from ragidx.indexer.models import lora
from ragidx.indexer.models.locate import TRAINED_POOLING, ModelFiles
from ragidx.indexer.models.lora_config import CONFIG, WEIGHTS, AdapterConfig, read_config
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.experiments.train.decoders.model_with_head import check_whole, save_tokenizer, whole_model
from ragidx.pipelines.experiments.train.keywords import StepKeywords
from ragidx.pipelines.experiments.train.poolings import LAYERS

if TYPE_CHECKING:
    from ragidx.pipelines.ingest.resolve import Resolved

TRAINING = Path(TRAINED_POOLING).parent.name
"""The folder, in that of a trained model, of what it was made from."""
MADE = "training.json"
"""In it: from what, and how."""

DIVERGED = "give a lower `rate`, or `dtype=float32`, in another folder"

_ADAPTER = "trained"
_RANK, _ALPHA = 16, 32  # LLM2Vec's
_FEW = 64  # texts
_LORA = (".lora_A.", ".lora_B.")
_NOT_TEXT = ("router", "vision", "visual", "multi_modal", "audio")
_DROPOUTS = ("attention_dropout", "dropout")  # what attention calls its own, in their order
_DROPOUT_MODULES = ("attn_dropout", "attention_dropout")
_UNREADABLE = ("reba", "aligned-values", "metaeol")


class Network(nn.Module):
    """A decoder, and the part of it that learns.

    Args:
        resolved: the model, and how it makes vectors.
        how: the options of the training, which say what learns. LoRA matrices are in the number format of the other
            weights; where that is bfloat16, the optimizer has copies in float32.
        texts: one or more, by whose states the layer vectors of a new pooling begin.

    Raises:
        SpecError: the method's vectors cannot be trained.
        ModelError: the model does not attend as the method needs while it trains.
    """

    def __init__(self, resolved: Resolved, how: StepKeywords, texts: Sequence[str] = ("a",)) -> None:
        super().__init__()
        self.files, self.spec = resolved.files, resolved.encoder_spec
        self.how, self.rank, self.alpha = how, how["rank"] or _RANK, how["alpha"] or _ALPHA
        self.encoder = _decoder(resolved)
        self.model: Any = self.encoder.backbone.model
        self.pad, self.n_tokens = self.encoder.tokenizer.pad, 0  # read with gradients so far
        self.continued = _adapter_of(self.files, how)
        check_whole(self.files, self.model)
        if self.continued is not None:  # the weights without it; it is trained further
            if self.spec.layer != self.files.preset().get("layer", -1):
                message = f"the adapter of '{self.files.name}' is trained further, and it is of another layer"
                raise SpecError(message, "remove `layer`", where="`layer`")
            lora.merge(self.model, self.continued, self.files.name, times=-1)
            self.rank, self.alpha = _continuing(how, read_config(self.continued), self.files.name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(how["seed"])
            if how["full"]:
                self.model.requires_grad_(True)
            else:
                self._add_lora()
            self.pooling = self._new_pooling(texts) if self.spec.pooling == "trainable" else None
        self.end = self._new_end() if how["end_token"] else None
        self.model.train()
        with torch.no_grad(), _without_dropout(self.model):
            check_direction(self.encoder.backbone, self.spec.attention, self.files.name)
        if self.continued is not None:
            self._take_adapter(self.continued)
        self._drop_attention()

    @property
    def hidden(self) -> int:
        """Width of the vectors."""
        return self.encoder.hidden

    @property
    def n_learning(self) -> int:
        """How many parameters learn."""
        return sum(weight.numel() for _, weight in self._learning())

    def forward(self, ids: Tensor, attention: Tensor, pooled: Tensor) -> Tensor:
        """Vectors (b, hidden) float32 with gradients, of ids, attention and pooled span, (b, t) each."""
        if torch.is_grad_enabled():
            self.n_tokens += int(attention.sum())
        ids, attention, pooled = (part.to(self.encoder.device) for part in (ids, attention, pooled))
        width = int(attention.sum(dim=1).max())  # a part of a batch is padded for the whole
        ids, attention, pooled = ids[:, :width], attention[:, :width], pooled[:, :width].to(torch.bool)
        return self.encoder.vectors(ids, None if bool(attention.all()) else attention, pooled)

    def states(self, ids: Tensor) -> Tensor:
        """States (b, t, hidden) of ids (b, t) without padding."""
        if torch.is_grad_enabled():
            self.n_tokens += ids.numel()
        return self.encoder.backbone.states(ids, None)

    def recompute(self) -> bool:
        """Keep the states between layers alone, and make those inside again for the gradients (gradient checkpointing).

        False: the family cannot.
        """
        if not self.model.supports_gradient_checkpointing:
            return False
        enable = getattr(self.model, "activation_checkpointing_enable", None)  # its name from some version on
        (enable or self.model.gradient_checkpointing_enable)({"use_reentrant": False})
        return True

    def vectors(self, texts: Sequence[str], instruction: str | None, limit: int) -> Floats:
        """Vectors (n, hidden) of texts as the network is now, without dropout.

        Args:
            texts: the texts, of each of which at most `limit` tokens are read.
            instruction: the instruction of queries, which may be empty; None: the texts are documents.
            limit: the most tokens of a text that are read.

        Raises:
            ModelError: the vectors are no numbers.
        """
        rows = self.encoder.rendered(texts, instruction, limit)
        vectors = np.zeros((len(rows), self.hidden), np.float32)
        with self.resting() as encoder, torch.inference_mode():
            place = torch.device(encoder.device)
            for batch in batching.run(rows, encoder.vectors, budget=encoder.budget, pad=self.pad, device=place):
                vectors[batch.rows] = batch.vectors
        if not np.isfinite(vectors).all():
            raise ModelError("its vectors are no numbers", DIVERGED, where=self.spec.model)
        return vectors

    def weights(self) -> dict[str, Tensor]:
        """What learns, by name, on the CPU."""
        return {name: weight.detach().to("cpu", copy=True).contiguous() for name, weight in self._learning()}

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights of the same network.

        Raises:
            ModelError: the weights are of another network.
        """
        here = dict(self._learning())
        shapes = {name: tuple(weight.shape) for name, weight in here.items()}
        if {name: tuple(weight.shape) for name, weight in weights.items()} != shapes:
            raise ModelError("the weights are of another network", "begin again, in another folder")
        with torch.no_grad():
            for name, weight in here.items():
                weight.copy_(weights[name])

    @contextmanager
    def resting(self) -> Iterator[DecoderEncoder]:
        """The encoder as it would be used now: without dropout, and nothing learns."""
        self.eval()
        try:
            yield self.encoder
        finally:
            self.train()

    def save(self, folder: Path, *, masked: bool = False) -> None:
        """Write the whole model, and the parts that learnt, to a folder.

        `masked`: it was trained on masked tokens, each of which is predicted one place before.

        Raises:
            RagidxError: the disk is full, or not to be written.
        """
        parts = folder / TRAINING
        atomic.make_folder(parts)
        learnt = self.weights()
        if not self.how["full"]:
            self._save_adapter(parts, learnt)
        whole = whole_model(self.files, torch.float32 if self.encoder.dtype == "float32" else "auto")
        if self.continued is not None:
            lora.merge(whole, self.continued, self.files.name, times=-1)
        if self.how["full"]:
            weights = {name[len("model.") :]: weight for name, weight in learnt.items() if name.startswith("model.")}
            left = getattr(whole, whole.base_model_prefix, whole).load_state_dict(weights, False)
            if left.unexpected_keys:
                raise ModelError("its weights have other names with a head", "report it", where=self.files.name)
        else:
            lora.merge(whole, parts, self.files.name)
        if self.end is not None:
            with torch.no_grad():
                whole.get_input_embeddings().weight[self.encoder.tokenizer.eos] += self.end.detach().cpu()
        if self.pooling is not None:
            self.pooling.save(folder / TRAINED_POOLING, self.spec)
        if self.spec.attention == "bidirectional":
            attend_both_ways(whole)
        whole.save_pretrained(folder)
        save_tokenizer(self.files, folder)
        atomic.write_file(folder / "preset.json", json.dumps(self._preset(masked), indent=2).encode())

    def _preset(self, masked: bool) -> dict[str, Any]:
        read = {name: getattr(self.spec, name) for name in ("method", "template", "pooling", "attention", "layer")}
        if self.spec.instruction is not None:
            read["instruction"] = self.spec.instruction
        masked |= bool(self.files.preset().get("masked"))
        unfiltered = FilterSpec(name="none")  # what a pooling makes has not the spectrum of the model's head
        return {
            **read,
            "filter": (unfiltered if self.pooling else default_filter(self.files, self.spec)).to_json(),
            **({"masked": True} if masked else {}),
        }

    def _learning(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, weight) for name, weight in self.named_parameters() if weight.requires_grad)

    def _add_lora(self) -> None:
        from peft import LoraConfig, inject_adapter_in_model

        how = self.how
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=how["dropout"],
            target_modules=self._linear(),
            fan_in_fan_out=any(isinstance(module, Conv1D) for module in self.model.modules()),
        )
        inject_adapter_in_model(config, self.model, _ADAPTER)
        frozen = self.model.get_input_embeddings().weight.dtype
        for name, weight in self.model.named_parameters():
            if any(part in name for part in _LORA):  # in one format: to cast what they read costs 40 %
                weight.data = weight.data.to(frozen)

    def _linear(self) -> list[str]:
        """Names of the linear layers that read text. Experts that are stacked in one weight are none, so they stay;
        nor are routers, which choose, and a tower that sees pictures.
        """
        return [
            name
            for name, module in self.model.named_modules()
            if isinstance(module, nn.Linear | Conv1D) and not any(part in name for part in _NOT_TEXT)
        ]

    def _take_adapter(self, folder: Path) -> None:
        stored = lora.matrices(folder, self.files.name)
        for name, weight in self.model.named_parameters():
            if weight.requires_grad:
                weight.data.copy_(stored[_layer_of(name)]["lora_B." in name])

    def _save_adapter(self, folder: Path, learnt: Mapping[str, Tensor]) -> None:
        """In PEFT's names, for the weights that the model had before."""
        how = self.how
        tensors = {
            f"base_model.model.{name.removeprefix('model.').replace(f'.{_ADAPTER}.', '.')}": weight.float()
            for name, weight in learnt.items()
            if any(part in name for part in _LORA)
        }
        targets = sorted({_layer_of(name).rsplit(".", 1)[-1] for name in tensors})
        config = {
            "peft_type": "LORA",
            "base_model_name_or_path": self.files.name if self.continued is None else read_config(self.continued).base,
            **{"r": self.rank, "lora_alpha": self.alpha, "lora_dropout": how["dropout"]},
            **{"target_modules": targets, "bias": "none", "task_type": "FEATURE_EXTRACTION"},
        }
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        atomic.write_file(folder / CONFIG, json.dumps(config, indent=2).encode())

    def _new_pooling(self, texts: Sequence[str]) -> TrainablePooling:
        """The pooling that the encoder has, or one that starts at random.

        Layer vectors begin at minus the mean of their layer: a few large coordinates, the same in all texts, would hide
        the others.
        """
        pooling, backbone, how = self.encoder.pooler, self.encoder.backbone, self.how
        if pooling is None:
            sizes = {"latents": how["latents"], "heads": how["heads"], "head_width": how["head_width"]}
            layers = backbone.n_layers if how["rows"] == LAYERS else None
            pooling = TrainablePooling(self.hidden, **sizes, layers=layers)
            if pooling.layer_vectors is not None:
                means = self.encoder.encode_layers(texts[:_FEW]).mean(axis=1)
                pooling.layer_vectors.data = -torch.from_numpy(means)
            self.encoder.pooler = pooling.to(self.encoder.device)
        return pooling.requires_grad_(True)

    def _new_end(self) -> nn.Parameter:
        eos = self.encoder.tokenizer.eos
        if eos is None or not any(piece.text == "{eos}" for piece in self.encoder.template.document):
            raise SpecError(
                f"the template '{self.encoder.template.name}' has no end token",
                "remove `end_token`, or take `method=echo`",
                where="`end_token`",
            )
        embeddings = self.model.get_input_embeddings()
        end = nn.Parameter(torch.zeros(embeddings.weight.shape[1], device=self.encoder.device))
        times = float(getattr(embeddings, "embed_scale", 1.0))  # Gemma 3 multiplies its rows

        def add(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            return output + (args[0] == eos).unsqueeze(-1) * (times * end).to(output.dtype)

        embeddings.register_forward_hook(add)
        return end

    def _drop_attention(self) -> None:
        share = self.how["attention_dropout"]
        for name, module in self.model.named_modules():
            field = next((field for field in _DROPOUTS if _is_number(getattr(module, field, None))), None)
            if field == "attention_dropout" or (field and type(module).__name__.endswith("Attention")):
                setattr(module, field, share)  # OPT says `dropout`
            elif share and isinstance(module, nn.Dropout) and name.rpartition(".")[2] in _DROPOUT_MODULES:
                module.p = share


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    shares = [
        (module, name, getattr(module, name))
        for module in model.modules()
        for name in ("p", "dropout", "attention_dropout")
        if isinstance(getattr(module, name, None), float)
    ]
    for module, name, _ in shares:
        setattr(module, name, 0.0)
    yield
    for module, name, share in shares:
        setattr(module, name, share)


def _decoder(resolved: Resolved) -> DecoderEncoder:
    encoder, spec = resolved.encoder, resolved.encoder_spec
    if not isinstance(encoder, DecoderEncoder) or spec.method in _UNREADABLE:
        raise SpecError(
            f"{spec.method} of '{spec.model}' cannot be trained",
            "take a decoder, with `method=prompteol`, echo, llm2vec or classical",
            where="`method`",
        )
    return encoder


def _adapter_of(files: ModelFiles, how: StepKeywords) -> Path | None:
    """The adapter inside a trained model's weights, where it is trained further; None: a new one begins.

    After masked prediction a new one begins, as in LLM2Vec; that of SimCSE and contrastive training is trained further.
    """
    parts = files.folder / TRAINING
    about_file = parts / MADE
    if files.gguf is not None or how["full"] or not about_file.is_file() or not (parts / WEIGHTS).is_file():
        return None
    made = json.loads(about_file.read_text("utf-8"))
    return parts if made.get("stage") in ("simcse", "contrastive") else None


def _continuing(how: StepKeywords, stored: AdapterConfig, model: str) -> tuple[int, int]:
    """Rank and alpha of the adapter that is trained further.

    Raises:
        SpecError: others are asked for.
    """
    for name, asked, is_so in (("rank", how["rank"], stored.rank), ("alpha", how["alpha"], stored.alpha)):
        if asked not in (None, is_so):
            message = f"the adapter of '{model}' is trained further, with {name}={is_so:g}"
            raise SpecError(message, f"remove `{name}`", where=f"`{name}`")
    return stored.rank, int(stored.alpha)


def _layer_of(name: str) -> str:
    """The layer of a LoRA weight, as an adapter's file calls it."""
    for part in _LORA:
        name = name.partition(part)[0]
    return name.removeprefix("base_model.model.")
