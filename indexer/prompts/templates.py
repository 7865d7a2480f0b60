"""Templates: the strings around a text that the model reads. Data, not code: templates.toml explains the fields.

This module finds and checks a template; `ragidx.indexer.prompts.rendering` fills it. Sources: Springer et al.
2024 (echo), Jiang et al. 2023 (PromptEOL), BehnamGhader et al. 2024 (LLM2Vec), docs/exactness.md for the rest.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.prompts.instructions import check_text
from ragidx.indexer.specs import EncoderSpec

DEFAULT_INSTRUCTION = "Given a question, retrieve passages that answer the question"
SLOT = re.compile(r"\{(text|instruction|bos|eos|start)\}")
_COPIES = 2
_READ_AS = {"aligned-values": "prompteol"}  # the method whose template another one has
_INSTRUCTED = "Instruct: {instruction}\n"


@dataclass(frozen=True)
class TemplatePiece:
    """A part of a template that is tokenised on its own."""

    text: str
    pool: bool | str = False  # "eos": pooled unless pool_eos is off


@dataclass(frozen=True)
class Template:
    """The strings around a text; see templates.toml for the fields."""

    name: str
    document: tuple[TemplatePiece, ...]
    query: tuple[TemplatePiece, ...]
    joined: bool = False
    span: str = "pieces"
    specials: str = "none"
    instructed: bool = False
    clean: bool = False
    plain: tuple[TemplatePiece, ...] = ()  # a query without an instruction, where it is not the query less some pieces
    strip: bool | str = False  # white space at the text's end; "eos": where an EOS token behind it is pooled
    also: tuple[Template, ...] = ()  # further prompts for the same text; the vectors are averaged
    asks: Template | None = None  # what queries are read with, where that is a template of its own

    def of(self, instruction: str | None) -> Template:
        """The template of documents (`instruction` None) or of queries."""
        return self if instruction is None or self.asks is None else self.asks

    def content(self) -> str:
        """The whole template as one string: equal content, equal vectors."""
        parts = [[[p.text, p.pool] for p in side] for side in (self.document, self.query, self.plain)]
        also = [other.content() for other in self.also]
        asks = [] if self.asks is None else [self.asks.content()]
        return json.dumps([parts, self.joined, self.span, self.specials, self.clean, self.strip, also, *asks])

    def side(self, instruction: str | None) -> tuple[TemplatePiece, ...]:
        """The pieces of documents (`instruction` None) or queries, the instruction filled in; without one, the
        pieces that would hold it are omitted.

        Raises:
            SpecError: the instruction itself holds a placeholder, or the template has no place for one.
        """
        if self.of(instruction) is not self:
            return self.of(instruction).side(instruction)
        if instruction is None:
            return tuple(piece for piece in self.document if "{instruction}" not in piece.text)
        instruction = instruction.strip()
        check_instruction(instruction, self.name, [piece.text for piece in self.query])
        if instruction:
            return tuple(
                TemplatePiece(piece.text.replace("{instruction}", instruction), piece.pool) for piece in self.query
            )
        if self.joined:
            return self.document
        return self.plain or tuple(piece for piece in self.query if "{instruction}" not in piece.text)


def check_instruction(instruction: str, template: str, forms: Iterable[str]) -> None:
    """Check the instruction of queries, against the template whose query has these forms.

    Raises:
        SpecError: the instruction itself holds a placeholder, or no form has a place for one.
    """
    slot = SLOT.search(instruction)
    if slot:
        raise SpecError(f"the instruction holds the placeholder '{slot[0]}'", "remove it", where="`instruction`")
    if instruction and not any("{instruction}" in form for form in forms):
        raise SpecError(
            f"the template '{template}' has no {{instruction}}, so the instruction would not be read",
            "say where it goes, such as '{instruction} {text}', or remove the instruction",
            where="`instruction`",
        )


def template_of(spec: EncoderSpec, family: str) -> Template:
    """The template of an encoder, that of its queries included; errors as of `load_template`."""
    template = load_template(spec.template, family, method=spec.method, copies=spec.copies)
    if spec.template_query is None:
        return template
    asks = _from_string(spec.template_query, _like(spec.method), "`template_query`")
    return dataclasses.replace(template, asks=asks)


def load_template(name: str, family: str = "", *, method: str = "", copies: int | None = None) -> Template:
    """A template by name, or a user's own string with `{text}` in it.

    Args:
        name: a name in templates.toml, or a string that holds `{text}`. The string is read as the method's own template
            is: whole for PromptEOL and aligned values (the last token is pooled), MetaEOL (one prompt a line) and
            LLM2Vec, else cut at its placeholders, and the last `{text}` is pooled.
        family: the model's `model_type`, for templates that differ by family.
        method: the method it is for.
        copies: how often the text is repeated, in a template that repeats it; None: twice.

    Raises:
        SpecError: an unknown name, a string without `{text}`, or copies for a template that does not repeat the text.
    """
    known = _templates()
    if name in known:
        template = _from_toml(name, known[name], family, _COPIES if copies is None else copies)
    elif "{" in name or " " in name:
        template = _from_string(name, _like(method), "`template`")
    else:
        raise unknown_name("template", name, known)
    if copies is not None and default_copies(name) is None:
        raise SpecError(
            f"the template '{name}' does not repeat the text",
            "remove `copies`, or use `method=reba` or `method=echo` without a template",
            where="`copies`",
        )
    return template


def default_copies(name: str) -> int | None:
    """The default of `copies` for a template; None if it does not repeat the text."""
    fields = _templates().get(name, {"document": ""})
    return _COPIES if any("copies" in piece for piece in fields["document"] if isinstance(piece, dict)) else None


def template_of_model(method: str, names: Iterable[str]) -> str | None:
    """The template that a method's authors use for a model of one of these names; None where they name none."""
    wanted = set(names)
    for name, fields in _templates().items():
        if name.startswith(f"{method}-") and wanted & set(fields.get("models", ())):
            return name
    return None


@functools.cache
def _templates() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("ragidx.indexer.prompts").joinpath("templates.toml").read_text("utf-8"))


def _from_toml(name: str, fields: dict[str, Any], family: str, copies: int) -> Template:
    fields = {**fields, **fields.get("by_family", {}).get(family, {})}
    names = ("joined", "span", "specials", "instructed", "clean", "strip")
    settings = {name: fields[name] for name in names if name in fields}
    if not fields.get("joined"):
        sides: dict[str, Any] = {side: _pieces(fields.get(side, []), copies) for side in ("document", "query", "plain")}
        return Template(name=name, **sides, **settings)
    forms = fields["document"] if isinstance(fields["document"], list) else [fields["document"]]
    queries = [fields["query"]] if "query" in fields else None
    return _joined(name, forms, queries, settings | {"specials": "model"})


def _pieces(side: list[dict[str, Any]], copies: int) -> tuple[TemplatePiece, ...]:
    pieces: list[TemplatePiece] = []
    for piece in side:
        kind = piece.get("copies")
        if kind is None:
            pieces.append(TemplatePiece(piece["piece"], piece.get("pool", False)))
        else:
            # A single copy has none before it, so it is pooled itself.
            pooled = {0} if kind == "first" or copies == 1 else set(range(1, copies))
            pieces += [TemplatePiece(piece["piece"], number in pooled) for number in range(copies)]
    return tuple(pieces)


def _joined(name: str, documents: list[str], queries: list[str] | None, settings: dict[str, Any]) -> Template:
    """A template of whole strings; more than one are prompts for the same text."""
    queries = queries or [_INSTRUCTED + form for form in documents]
    prompts = [
        Template(name=name, document=(TemplatePiece(document),), query=(TemplatePiece(query),), **settings)
        for document, query in zip(documents, queries, strict=True)
    ]
    return dataclasses.replace(prompts[0], also=tuple(prompts[1:]))


def _like(method: str) -> dict[str, Any]:
    """The method's own template, in whose way a user's string is read."""
    return _templates().get(_READ_AS.get(method, method), {})


def _from_string(template: str, like: dict[str, Any], where: str) -> Template:
    """A user's string, read as the method's own template is."""
    check_text(template, where)
    unknown = [slot for slot in re.findall(r"\{(\w*)\}", template) if not SLOT.fullmatch(f"{{{slot}}}")]
    if unknown:
        raise SpecError(
            f"the template has an unknown placeholder '{{{unknown[0]}}}'",
            "known: {text}, {instruction}, {bos}, {eos}",
            where=where,
        )
    forms = [template]
    if like.get("joined") and isinstance(like["document"], list):
        forms = [line for line in template.splitlines() if line.strip()] or forms
    if any("{text}" not in form for form in forms):
        raise SpecError("the template has no {text}", "say where the text goes, such as 'Passage: {text}'", where=where)
    if not like.get("joined"):
        parts = [part for part in re.split(r"(\{text\})", template) if part]
        last = max(i for i, part in enumerate(parts) if part == "{text}")
        pieces = tuple(TemplatePiece(part, i == last) for i, part in enumerate(parts))
        return Template(name=template, document=pieces, query=pieces, specials="model")
    if like["span"] == "text" and template.count("{text}") > 1:
        raise SpecError("the template holds {text} more than once, and this method pools one", "keep one", where=where)
    settings = {"joined": True, "span": like["span"], "specials": "model", "instructed": like.get("instructed", False)}
    # The text before the instruction keeps its space to the text after it.
    documents = [re.sub(r"\s*\{instruction\}\s*$|\{instruction\}\s*", "", form) for form in forms]
    queries = forms if any("{instruction}" in form for form in forms) else None
    return _joined(template, documents, queries, settings)
