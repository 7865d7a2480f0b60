"""A model, or that of an index with its filter, as a folder that plain sentence-transformers loads to the same vectors.

    model    the weights, adapters added, attention both ways where the method has it
    text     a template around it as a chat template, a text behind a beginning that is not pooled as a prompt
    pooling  mean, or the last token
    filter   folded into a Dense layer; the map of an index that was adapted into a second one

What sentence-transformers cannot say is refused by name. Then the folder is loaded by it, and its vectors of a few
texts are compared with ours: a folder that differs is not kept.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from torch import nn

from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.indexer import atomic
from ragidx.indexer.encoders import Embedder
from ragidx.indexer.encoders.backbone import attend_both_ways, silence_transformers
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import load_embedder
from ragidx.indexer.encoders.methods import METHODS, SENTENCE_TRANSFORMERS
from ragidx.indexer.encoders.static import StaticEncoder
from ragidx.indexer.options import EncoderOptions, written_out
from ragidx.indexer.prompts.templates import Template
from ragidx.indexer.store.files import MANIFEST
from ragidx.indexer.token_table import TokenTable
from ragidx.pipelines.experiments.train.decoders.model_with_head import save_tokenizer, whole_model
from ragidx.retriever.models import ModelPlace
from ragidx.retriever.searcher import Searcher

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter
    from ragidx.indexer.specs import FilterSpec

TOLERANCE = 1e-5
"""By which a coordinate of a vector of unit length may differ."""

_CHECKED = (
    "Who signed the lease of the house by the lake?",
    "a dog",
    'She said "no". Then: nothing, naïvely 12 %.',
    "The committee met twice in the spring, and its members agreed on the budget that had been put before them. " * 6,
)
_POOLINGS = {"mean": "mean", "last": "lasttoken", "eos": "lasttoken"}
_CLEAN = """{%- set text = messages[-1]['content'] -%}
{%- if text and text[-1] not in '.?"\\'' -%}{%- set text = text + '.' -%}{%- endif -%}
{%- set text = text | replace('"', "'") -%}
{%- if text.endswith('?') -%}{%- set text = text[:-1] + '.' -%}{%- endif -%}
"""
_PLAIN = "{%- set text = messages[-1]['content'] -%}\n"
_SYSTEM = "{%- if messages[0]['role'] == 'system' -%}{{ messages[0]['content'] }}{%- endif -%}\n"
_LONG, _SPARE = 1 << 20, 32  # tokens
_TEXT = "{{ text }}"
_HINT = "build with ragidx itself, which reads all of its own models"


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: the folder that `SentenceTransformer(folder)` loads.
        model: the model that was exported.
        dim: width of its vectors.
        modules: the names of the modules of sentence-transformers, in their order.
        difference: the largest difference of a coordinate, over the texts that were compared.
        prompts: the prompts that queries and documents have there, by name.
    """

    folder: str
    model: str
    dim: int
    modules: tuple[str, ...]
    difference: float
    prompts: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return asdict(self)


@written_out
def export(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    filter: FilterSpec | str | None = None,
    **options: Unpack[EncoderOptions],
) -> Exported:
    """Write a model, or that of an index with its filter, as plain sentence-transformers load it.

    An index takes no options: it has its own.

    Args:
        model: a model, as `build` takes it, or an index.
        out: the folder that is written.
        filter: none that is fitted on a corpus, as in `load_embedder`.

    Raises:
        SpecError: something of it cannot be said there, or the folder is not free.
        RagidxError: what was written gives other vectors, or of the subclass that says what to do.
    """
    target = Path(out)
    if target.exists():
        raise SpecError("there is something in this place", "name another folder", where=str(target))
    embedder = _embedder(os.fspath(model), {**options, **({} if filter is None else {"filter": filter})})
    silence_transformers()
    target.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        modules, prompts = _modules(embedder, room / "weights")
        modules += _dense(embedder.filter)
        folder = room / "model"
        default = "document" if prompts.get("document") else None  # of `encode`, which does not say of what
        whole = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name=default, device="cpu")
        whole.save_pretrained(str(folder), create_model_card=False)
        _cure(folder, keeps_template=any(isinstance(m, Transformer) and "message" in m.modalities for m in modules))
        difference = _checked(embedder, folder)
        atomic.replace(folder, target)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    names = tuple(type(module).__name__ for module in modules)
    return Exported(str(target), embedder.encoder.spec.model, embedder.dim, names, difference, prompts)


def _embedder(model: str, options: dict[str, Any]) -> Embedder:
    if not (Path(model) / MANIFEST).exists():
        return load_embedder(model, **{"device": "cpu", "dtype": "float32", **options})
    if options:
        raise SpecError("an index has its own method and filter", f"remove `{next(iter(options))}`", where=model)
    searcher = Searcher.open(Path(model))
    if searcher.spec.encoder is not None and searcher.spec.encoder.method in METHODS:  # of a decoder
        searcher = Searcher.open(Path(model), ModelPlace(device="cpu", dtype="float32"))
    return searcher.embedder


def _modules(embedder: Embedder, room: Path) -> tuple[list[nn.Module], dict[str, str]]:
    """Up to the pooling, and the prompts."""
    encoder, spec = embedder.encoder, embedder.encoder.spec
    if spec.method == SENTENCE_TRANSFORMERS:
        as_it_is = SentenceTransformer(str(encoder.files.folder), device="cpu", local_files_only=True)
        return list(as_it_is), {name: said for name, said in as_it_is.prompts.items() if said}
    if isinstance(encoder, StaticEncoder) and encoder.table is not None:
        return [_static(encoder.table)], {}
    if isinstance(encoder, StaticEncoder):
        raise _unsaid("layer 0, the input embeddings", "`layer`", "take a method of the last layer: `method=prompteol`")
    if not isinstance(encoder, DecoderEncoder):
        raise _unsaid("a model that a server has", "`model`")
    for wrong, what, where in (
        (spec.method == "echo" and spec.pooling != "last", "the second copy of a text, which echo pools", "method"),
        (spec.method in ("echo", "reba"), "copies of a text that are tokenised apart", "method"),
        (spec.method in ("metaeol", "aligned-values"), f"the method {spec.method}", "method"),
        (spec.pooling not in _POOLINGS, f"{spec.pooling} pooling", "pooling"),
        (spec.layer != -1, f"layer {spec.layer}", "layer"),
        (not spec.pool_eos, "closing tokens that are not pooled", "pool_eos"),
        ("vision_config" in encoder.files.config, "a model that sees pictures, too", "model"),
    ):
        if wrong:
            raise _unsaid(what, f"`{where}`")
    model = whole_model(encoder.files, torch.float32)
    if spec.attention == "bidirectional":
        attend_both_ways(model)
    model.save_pretrained(room)
    save_tokenizer(encoder.files, room)
    tokens = [str(encoder.tokenizer.pieces.id_to_token(number)) for number in encoder.tokenizer.prefix]
    template, prompts = _template_and_prompts(encoder.template, encoder.query_instruction(None) or "", "".join(tokens))
    if not template and tokens and not prompts.get("document"):
        raise _unsaid(f"'{tokens[0]}', which the tokenizer puts before a text, is not pooled", "`model`")
    if template:
        atomic.write_file(room / "chat_template.jinja", template.encode())
    transformer = Transformer(str(room), max_seq_length=encoder.max_length)
    if not template:
        transformer.modality_config.pop("message", None)
    pooling = Pooling(
        encoder.hidden, _POOLINGS[spec.pooling], include_prompt=bool(template) or not any(prompts.values())
    )
    return [transformer, pooling], prompts


def _template_and_prompts(template: Template, instruction: str, start: str) -> tuple[str, dict[str, str]]:
    """The chat template, where the text stands inside of others; and what stands before it, where nothing is behind.

    `start`: the tokens that the tokenizer puts before every text, which it does not do for a chat template.
    """
    document, query = (
        "".join(piece.text for piece in side) for side in (template.document, template.side(instruction))
    )
    before, _, behind = document.partition("{text}")
    if "{" in before + behind:
        raise _unsaid(f"the template '{template.name}'", "`template`")
    if template.span == "last":
        if not query.endswith(document):
            raise _unsaid(f"the template '{template.name}', whose queries are more than documents", "`template`")
        parts = (
            _CLEAN if template.clean else _PLAIN,
            _literal(start),
            _SYSTEM,
            _literal(before),
            _TEXT,
            _literal(behind),
        )
        return "".join(parts), {"query": query.removesuffix(document)} if query != document else {}
    if behind or query.partition("{text}")[2]:
        raise _unsaid(f"the template '{template.name}', which pools what is behind a text", "`template`")
    prompts = {"document": before, "query": query.partition("{text}")[0]}
    if any(said.endswith(" ") for said in prompts.values()):  # in a text it would be part of the first word
        raise _unsaid("a beginning that ends in a space; end template or instruction in a line feed", "`template`")
    return "", prompts if any(prompts.values()) else {}


def _literal(text: str) -> str:
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}" if text else ""


def _static(table: TokenTable) -> nn.Module:
    if len(table.pairs):
        raise _unsaid("pairs of tokens, for which this table has rows", "`model`")
    rows = np.zeros((table.tokenizer.get_vocab_size(), table.dim), np.float32)
    rows[table.tokens] = table.rows.astype(np.float32) * table.scales[:, None]
    return StaticEmbedding(table.tokenizer, embedding_weights=rows)


def _dense(filter: Filter | None) -> list[nn.Module]:
    """Each map as a layer, with the length 1 behind it."""
    if filter is None:
        return [Normalize()]
    if filter.query_shift is not None:
        raise _unsaid("a filter that takes one mean off documents and another off questions", "`center`")
    layer = Dense(
        filter.hidden, filter.matrix.shape[1], bias=filter.shift is not None, activation_function=nn.Identity()
    )
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(filter.matrix.T.copy()))
        if filter.shift is not None:
            layer.linear.bias.copy_(torch.from_numpy(-filter.shift))
    behind = [] if filter.then is None else _dense(filter.then)
    return [layer, Normalize(), *behind]


def _cure(folder: Path, *, keeps_template: bool) -> None:
    """Without a chat template, which sentence-transformers would put round every text."""
    if keeps_template:
        return
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = folder / "sentence_bert_config.json"
    if settings.is_file():
        found = json.loads(settings.read_text("utf-8"))
        found.get("modality_config", {}).pop("message", None)
        atomic.write_file(settings, json.dumps(found, indent=2).encode())


def _checked(embedder: Embedder, folder: Path) -> float:
    """The largest difference of a coordinate, of documents and of queries.

    Raises:
        RagidxError: it is above `TOLERANCE`.
    """
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    largest, encoder = 0.0, embedder.encoder
    fits = (encoder.text_limit() or _LONG) - _SPARE  # of a longer text the two cut off different tokens
    known = [text for text in _CHECKED if not encoder.tokenizer.is_unknown(text)]  # ours of others are zero
    texts = [text for text in known if len(encoder.tokenizer.piece(text)) <= fits]
    for what, ours, other in (
        ("documents", embedder.embed_document(texts), theirs.encode_document(texts)),
        ("texts of `encode`", embedder.embed_document(texts), theirs.encode(texts)),
        ("documents alone", embedder.embed_document(texts), np.stack([theirs.encode_document(text) for text in texts])),
        ("queries", embedder.embed_query(texts), theirs.encode_query(texts)),
    ):
        apart = float(np.abs(ours - other).max())
        if not apart <= TOLERANCE:
            raise RagidxError(
                f"sentence-transformers would give other vectors of {what}: a coordinate differs by {apart:.1g}",
                "a prompt or template ends in a space, or is tokenised otherwise together with the text: end it with a "
                "line feed, or export without it",
                where=str(embedder.encoder.spec.model),
            )
        largest = max(largest, apart)
    return largest


def _unsaid(what: str, where: str, hint: str = _HINT) -> SpecError:
    return SpecError(f"sentence-transformers cannot say this: {what}", hint, where=where)
