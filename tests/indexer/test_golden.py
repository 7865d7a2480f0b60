"""Golden cases: the numbers of the authors' own code, method by method, discovered from the manifests.

What a case runs is decided by the fields of its manifest, never by its name. Ids first: they are built from the texts
and compared, and only where the original does something that ragidx does not (a table below names each reason) are
the given ids fed.
"""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ragidx.indexer.backbone import Backbone, load_backbone
from ragidx.indexer.batching import collate
from ragidx.indexer.encoder import _tokenizer
from ragidx.indexer.filters import EmbedFilter, kept_columns
from ragidx.indexer.models import locate
from ragidx.indexer.pooling import POOLINGS
from ragidx.indexer.specs import FilterSpec
from ragidx.indexer.templates import Piece, Rendered, Template, load_template, render
from ragidx.indexer.tokens import TextTokenizer
from ragidx.indexer.unembedding import spectrum_of

ROOT = Path(__file__).resolve().parents[2]
METHODS = {"echo", "llm2vec", "bidirectional attention", "embedfilter + echo", "embedfilter + prompteol", "prompteol"}

# Where the original means something else than ragidx, by a phrase of the manifest's quirks; the given ids and masks
# are fed then.
OTHERWISE = {
    "piece starts with BOS": "a BOS inside every piece, also in the pooled span",
    "starts with its own BOS": "a BOS inside every part, also in the pooled span",
    "max_length is applied to each piece": "the limit cuts prompts as well as texts",
    "a value that contains the marker": "a text that names a placeholder is expanded",
    "cut by WORDS": "long texts are cut by words and lose their white space",
    "truncation to max_length cuts on the right": "the span is found by count after the cut",
    "every non-padding position": "instruction and BOS are pooled",
    "an empty text has an empty span": "an empty span pools everything, padding included",
    "selects positions where input_ids == bos": "pooling of BOS comes with the other poolings",
    "appends": "pooling of an appended EOS comes with the other poolings",
    "is appended and becomes": "pooling of an appended EOS comes with the other poolings",
    "for this exact": "chat wrapping by model name comes with the adapters",
    "wrapped in im_start": "chat wrapping by model name comes with the adapters",
    "keep the first max_length//2 ids": "the middle of the finished prompt is cut",
    "with a caller's max_length": "the finished prompt is cut",
    "divided by the PADDED length": "the average over the padded length",
}


def golden_folder() -> Path | None:
    """`$RAGIDX_GOLDEN`, else ../shared/golden beside the checkout; None where neither is there."""
    named = os.environ.get("RAGIDX_GOLDEN")
    folder = Path(named) if named else ROOT.parent / "shared" / "golden"
    return folder if folder.is_dir() else None


@dataclass
class Case:
    """A manifest and its arrays."""

    manifest: dict[str, Any]
    folder: Path

    def __getattr__(self, name: str) -> Any:
        return self.manifest.get(name)

    @functools.cached_property
    def expected(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "expected.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    @property
    def model_path(self) -> Path:
        return (self.folder / self.manifest["model"]).resolve()


def _cases() -> list[Any]:
    folder = golden_folder()
    manifests = sorted(folder.glob("*/*/manifest.json")) if folder else []
    every = [Case(json.loads(path.read_text("utf-8")), path.parent) for path in manifests]
    found = [case for case in every if case.method in METHODS]
    return [pytest.param(case, id=case.id) for case in found] or [
        pytest.param(None, marks=pytest.mark.skip(reason="no golden cases: set RAGIDX_GOLDEN to their folder"))
    ]


@pytest.mark.parametrize("case", _cases())
def test_golden(case: Case) -> None:
    if case.adapter or case.adapter_merged or not (case.model_path / "model.safetensors").is_file():
        pytest.skip("LoRA adapters are not read by this version")
    rows, otherwise = _rows(case)
    kept = _comparable(case, rows)
    assert otherwise is None or any(phrase in quirk for phrase in OTHERWISE for quirk in case.quirks), otherwise

    embeddings = _pooled(case, rows)

    _compare(case, embeddings, kept)


def _comparable(case: Case, rows: list[Rendered]) -> np.ndarray:
    """Which rows of a case do not depend on the rest of its batch: a flaw of the original that ragidx does not have."""
    kept = np.ones(len(rows), bool)
    if not case.batch_dependent:
        return kept
    if case.model_family == "gpt2":  # absolute positions start at the padding: the rows without any are comparable
        kept &= case.expected["attention_mask"].all(axis=1)
    if _pooling(case) == "mean" and case.skip_instruction:  # an empty span averages the whole padded row
        kept &= np.array([bool(_positions(row)) for row in rows])
    assert kept.any()
    return kept


def _rows(case: Case) -> tuple[list[Rendered], str | None]:
    """What the model reads: our own rendering where it gives the authors' ids, else theirs, with what differed."""
    given = _given(case)
    ours = _ours(case)
    if ours is None:
        return given, "not expressible"
    for number, (mine, theirs) in enumerate(zip(ours, given, strict=True)):
        if mine.ids != theirs.ids:
            return given, f"text {number}: ids {mine.ids[:12]}... against {theirs.ids[:12]}..."
        if _positions(mine) != _positions(theirs) and theirs.pooled != ():
            return given, f"text {number}: pooled {_positions(mine)} against {_positions(theirs)}"
    return ours, None


def _positions(row: Rendered) -> list[int]:
    return [i for start, end in row.pooled for i in range(start, end)]


def _given(case: Case) -> list[Rendered]:
    """The authors' ids without padding, and their pooled span."""
    ids, rows = case.expected["input_ids"], []
    attention = case.expected.get("attention_mask", (ids >= 0).astype(int))
    pooled = case.expected.get("embed_mask")
    for number in range(len(ids)):
        kept = attention[number].astype(bool)
        own = ids[number][kept].tolist()
        if pooled is None:
            spans = ((len(own) - 1, len(own)),) if _pooling(case) == "last" else ((0, len(own)),)
        else:
            marked = np.flatnonzero(pooled[number][kept]).tolist()
            if case.skip_instruction is False:
                marked = list(range(len(own)))
            elif case.pooling in ("eos_token", "last_token"):
                marked = [len(own) - 1]
            elif case.pooling == "bos_token":
                marked = [own.index(_tokenizer_of(case.model_path).bos)]
            spans = tuple((i, i + 1) for i in marked)
        rows.append(Rendered(own, spans))
    return rows


def _pooling(case: Case) -> str:
    words = str(case.pooling)
    if words.startswith("weighted"):
        return "weighted_mean"
    return "mean" if words.startswith(("mean", "sum")) else "last"


def _ours(case: Case) -> list[Rendered] | None:
    """Our rendering of the case's texts, None where the manifest asks for what this version does not have."""
    tokenizer = _tokenizer_of(case.model_path)
    if case.method == "echo":
        rows = []
        for values, tag in zip(case.variables, case.template_tag, strict=True):
            template = _authors_template(case.template[tag], values, tokenizer)
            rows += render(template, [values["text"]], tokenizer, limit=case.max_length)
        return rows
    if case.method == "embedfilter + echo":
        return render(load_template("echo"), case.texts, tokenizer, limit=case.max_length)
    if case.method in ("embedfilter + prompteol", "prompteol"):
        form = case.template.replace("_", " ").replace("*sent 0*", "{text}")
        template = Template(
            "",
            (Piece(form),),
            (Piece(form),),
            joined=True,
            span="last",
            specials="model",
            clean=case.method == "prompteol",
        )
        return render(template, case.texts, tokenizer)
    if case.method == "bidirectional attention":
        rows = render(load_template("llm2vec"), case.texts, tokenizer)
        return [Rendered(row.ids, ((0, len(row.ids)),)) for row in rows]
    template = load_template("llm2vec")
    rows = render(template, case.texts, tokenizer, instruction=case.instruction or "")
    return [Rendered(r.ids, ((len(r.ids) - 1, len(r.ids)),)) for r in rows] if case.pooling == "last_token" else rows


def _authors_template(form: str, values: dict[str, str], tokenizer: TextTokenizer) -> Template:
    """The authors' notation as our pieces: `{...}` pooled, `{!...}` read only, `%%name%%` a variable."""
    specials = {
        tokenizer.pieces.id_to_token(i): slot
        for i, slot in ((tokenizer.eos, "{eos}"), (tokenizer.bos, "{bos}"))
        if i is not None
    }
    pieces = []
    for part in re.split(r"(\{[^{}]*\})", form):
        pooled = part.startswith("{") and not part.startswith("{!")
        text = part.strip("{}").removeprefix("!") if part.startswith("{") else part
        for name, value in values.items():
            text = text.replace(f"%%{name}%%", "{text}" if name == "text" else value)
        for spelling, slot in specials.items():
            text = text.replace(spelling, slot)
        if text:
            pieces.append(Piece(text, pooled))
    return Template("", tuple(pieces), tuple(pieces))


def _pooled(case: Case, rows: list[Rendered]) -> np.ndarray:
    attention = case.attention or "causal"
    if case.model_family == "qwen2" and case.source["kind"] == "authors' code":
        attention = "causal"  # the authors' bidirectional Qwen2 class is causal outside flash attention
    if any("falls back to position 0" in quirk for quirk in case.quirks):  # ragidx gives the zero vector
        rows = [row if _positions(row) else Rendered(row.ids, ((0, 1),)) for row in rows]
    backbone = _backbone_of(case.model_path, attention)
    ids, mask, pooled = collate(rows, pad=0, device=torch.device("cpu"))
    return POOLINGS[_pooling(case)](backbone.states(ids, mask), pooled).numpy()


def _compare(case: Case, embeddings: np.ndarray, kept: np.ndarray) -> None:
    tolerance, expected = case.tolerance, case.expected
    if case.method.startswith("embedfilter"):
        _compare_filtered(case, embeddings)
    elif case.method == "prompteol" and case.pooling.startswith("sum"):
        np.testing.assert_allclose(_unit(embeddings), expected["embeddings_l2"], atol=tolerance["l2"])
    else:
        np.testing.assert_allclose(embeddings[kept], expected["embeddings"][kept], atol=tolerance["raw"])
        np.testing.assert_allclose(_unit(embeddings)[kept], expected["embeddings_l2"][kept], atol=tolerance["l2"])


def _compare_filtered(case: Case, embeddings: np.ndarray) -> None:
    tolerance, expected = case.tolerance, case.expected
    spectrum = spectrum_of(locate(str(case.model_path)))
    hidden = len(spectrum.directions)
    np.testing.assert_allclose(spectrum.values, expected["singular_values"], rtol=1e-4)
    columns = expected["kept_columns"]
    if case.filter_type == "edge":
        centred = case.offset == (hidden - case.dim) // 2
        ours = EmbedFilter.from_spectrum(spectrum, FilterSpec(dim=case.dim, offset=None if centred else case.offset))
        assert sorted(ours.columns) == sorted(columns)
    else:
        ours = EmbedFilter(spectrum.directions[:, columns].astype("f4"), columns)
    filtered = embeddings if case.filter_type == "identity" else ours(embeddings)
    if case.normalize:
        filtered = _unit(filtered)
    np.testing.assert_allclose(filtered @ filtered.T, expected["gram"], atol=tolerance["gram"])
    np.testing.assert_allclose(_unit(filtered) @ _unit(filtered).T, expected["gram_l2"], atol=tolerance["gram_l2"])


def _unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


@functools.cache
def _tokenizer_of(path: Path) -> TextTokenizer:
    return TextTokenizer(_tokenizer(locate(str(path))), model=path.name)


@functools.cache
def _backbone_of(path: Path, attention: str) -> Backbone:
    return load_backbone(locate(str(path)), layer=-1, attention=attention, device="cpu", dtype=torch.float32)


def test_centre_out_columns_are_the_authors_slice() -> None:
    assert kept_columns(48, 24).tolist()[:2] == [23, 24]
    assert sorted(kept_columns(48, 24)) == list(range(12, 36))
