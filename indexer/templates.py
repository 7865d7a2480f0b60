"""Templates: a text becomes token ids and the span of them that is pooled.

A template is data (templates.toml, whose head explains the fields). The pieces are tokenised apart and joined as ids,
so that both copies of an echoed text are the same ids and the pooled span is exact by construction; a *joined* template
(PromptEOL, LLM2Vec) is formatted first and tokenised whole, as its authors do. Sources: Springer et al. 2024 (echo),
Jiang et al. 2023 (PromptEOL), BehnamGhader et al. 2024 (LLM2Vec). What is too long is cut in the text, before it is put
into the template: prompt and copies stay whole.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.tokens import TextTokenizer

DEFAULT_INSTRUCTION = "Given a question, retrieve passages that answer the question"
_SLOT = re.compile(r"\{(text|instruction|bos|eos|start)\}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """What the model reads for one text: ids, and which of them are pooled."""

    ids: list[int]
    pooled: tuple[tuple[int, int], ...]  # spans [start, end) of ids
    truncated: bool = False


@dataclass(frozen=True)
class Piece:
    """A part of a template that is tokenised on its own."""

    text: str
    pool: bool | str = False  # "eos": pooled unless pool_eos is off


@dataclass(frozen=True)
class Template:
    """How a text stands in what the model reads; see templates.toml for the fields."""

    name: str
    document: tuple[Piece, ...]
    query: tuple[Piece, ...]
    joined: bool = False
    span: str = "pieces"
    specials: str = "none"  # "model": what the tokenizer puts around every text stands around this too
    instructed: bool = False
    clean: bool = False
    plain: tuple[Piece, ...] = ()  # a query without an instruction, where it is not the query less some pieces

    def content(self) -> str:
        """The whole template as one string: equal content, equal vectors."""
        parts = [[[p.text, p.pool] for p in side] for side in (self.document, self.query, self.plain)]
        return json.dumps([parts, self.joined, self.span, self.specials, self.clean], ensure_ascii=True)


def load_template(name: str, family: str = "") -> Template:
    """A template by name, or a user's own string with `{text}` in it.

    Args:
        name: a name in templates.toml, or a string that holds `{text}`: it is cut at its placeholders, and the last
            `{text}` is pooled.
        family: the model's `model_type`, for templates that differ by family.

    Raises:
        SpecError: an unknown name, or a string without `{text}`.
    """
    known = _templates()
    if name in known:
        return _from_toml(name, known[name], family)
    if "{" in name or " " in name:
        return _from_string(name)
    raise unknown_name("template", name, known)


def render(
    template: Template,
    texts: Sequence[str],
    tokenizer: TextTokenizer,
    *,
    instruction: str | None = None,
    limit: int | None = None,
    pool_eos: bool = True,
) -> list[Rendered]:
    """What the model reads for each text.

    Args:
        template: how the text stands in it.
        texts: any strings.
        tokenizer: the model's own.
        instruction: the task sentence of queries; None renders documents. Empty: a query without one.
        limit: the most tokens of the *text*; longer ones are cut and marked. None: no limit.
        pool_eos: whether an EOS that the template pools is pooled.
    """
    if template.clean:
        texts = [clean(text) for text in texts]
    pieces = _with_instruction(template, instruction)
    if template.joined:
        return _render_joined(template, pieces[0].text, texts, tokenizer, limit)
    return _render_pieces(template, pieces, texts, tokenizer, limit, pool_eos)


def text_limit(
    template: Template, tokenizer: TextTokenizer, max_length: int | None, instruction: str | None = None
) -> int | None:
    """The most tokens of a text so that what the model reads stays within `max_length`.

    Raises:
        SpecError: the template alone fills `max_length`.
    """
    if max_length is None:
        return None
    pieces = _with_instruction(template, instruction)
    whole = "".join(piece.text for piece in pieces)
    empty = render(template, [""], tokenizer, instruction=instruction)[0]
    # Where the whole string is tokenised, its tokens can be a few more than the sum of its parts.
    reserve = len(empty.ids) + (8 if template.joined else 0)
    limit = (max_length - reserve) // max(1, whole.count("{text}"))
    if limit < 1:
        raise SpecError(
            f"the template '{template.name}' takes {reserve} of the {max_length} tokens the model reads, no text fits",
            "shorten the instruction or the template, or raise the length",
        )
    return limit


def clean(text: str) -> str:
    """The clean-up of PromptEOL's authors.

    >>> clean('He said "hello"'), clean("Who?"), clean("a dog")
    ("He said 'hello'", 'Who.', 'a dog.')
    """
    if text and text[-1] not in ".?\"'":
        text += "."
    text = text.replace('"', "'")
    return f"{text[:-1]}." if text.endswith("?") else text


@functools.cache
def _templates() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("ragidx.indexer").joinpath("templates.toml").read_text("utf-8"))


def template_names() -> list[str]:
    """The names that `load_template` knows."""
    return sorted(_templates())


def _from_toml(name: str, fields: dict[str, Any], family: str) -> Template:
    fields = {**fields, **fields.get("by_family", {}).get(family, {})}
    return Template(
        name=name,
        document=_pieces(fields["document"]),
        query=_pieces(fields["query"]),
        joined=fields.get("joined", False),
        span=fields.get("span", "pieces"),
        specials="model" if fields.get("joined") else fields.get("specials", "none"),
        instructed=fields.get("instructed", False),
        clean=fields.get("clean", False),
        plain=_pieces(fields.get("plain", [])),
    )


def _pieces(side: str | list[dict[str, Any]]) -> tuple[Piece, ...]:
    if isinstance(side, str):
        return (Piece(side),)
    return tuple(Piece(piece["piece"], piece.get("pool", False)) for piece in side)


def _from_string(template: str) -> Template:
    """A user's string, cut at its placeholders; the last `{text}` is pooled."""
    unknown = [slot for slot in re.findall(r"\{(\w*)\}", template) if not _SLOT.fullmatch(f"{{{slot}}}")]
    if unknown:
        raise SpecError(
            f"the template has an unknown placeholder '{{{unknown[0]}}}'",
            "known: {text}, {instruction}, {bos}, {eos}",
            where="--template",
        )
    if "{text}" not in template:
        raise SpecError(
            "the template has no {text}", "say where the text stands, such as 'Passage: {text}'", where="--template"
        )
    parts = [part for part in re.split(r"(\{text\})", template) if part]
    last = max(i for i, part in enumerate(parts) if part == "{text}")
    pieces = tuple(Piece(part, i == last) for i, part in enumerate(parts))
    return Template(name=template, document=pieces, query=pieces, specials="model")


def _with_instruction(template: Template, instruction: str | None) -> tuple[Piece, ...]:
    """The pieces of the side that is rendered, with the instruction filled in; without one, its pieces are left out."""
    if instruction is None:
        return tuple(piece for piece in template.document if "{instruction}" not in piece.text)
    instruction = instruction.strip()
    slot = _SLOT.search(instruction)
    if slot:
        raise SpecError(
            f"the instruction holds the placeholder '{slot[0]}'", "write it otherwise", where="--instruction"
        )
    if instruction:
        return tuple(Piece(piece.text.replace("{instruction}", instruction), piece.pool) for piece in template.query)
    if template.joined:
        return template.document
    return template.plain or tuple(piece for piece in template.query if "{instruction}" not in piece.text)


def _render_pieces(
    template: Template,
    pieces: Sequence[Piece],
    texts: Sequence[str],
    tokenizer: TextTokenizer,
    limit: int | None,
    pool_eos: bool,
) -> list[Rendered]:
    literals = [None if "{text}" in piece.text else _literal(piece.text, tokenizer) for piece in pieces]
    alone = any(piece.text == "{text}" for piece in pieces)
    text_ids = tokenizer.ids(texts) if alone else [[] for _ in texts]
    before, after = (tokenizer.prefix, tokenizer.suffix) if template.specials == "model" else ([], [])
    rows: list[Rendered] = []
    for text, own in zip(texts, text_ids, strict=True):
        truncated = limit is not None and len(own) > limit
        kept = own[:limit] if limit is not None else own
        ids, spans = list(before), []
        for piece, literal in zip(pieces, literals, strict=True):
            start = len(ids)
            if literal is not None:
                ids += literal
            elif piece.text == "{text}":
                ids += kept
            else:
                ids += _mixed(piece.text, text, tokenizer)
            if piece.pool is True or (piece.pool == "eos" and pool_eos):
                spans.append((start, len(ids)))
        rows.append(Rendered(ids + after, tuple(spans), truncated))
    return rows


def _literal(piece: str, tokenizer: TextTokenizer) -> list[int]:
    """Ids of a piece without a text. `{bos}X` is tokenised as one string with the special token's own spelling in it,
    because what follows a special token may be tokenised otherwise than at the start (SentencePiece's word-start mark).
    """
    specials = {
        "bos": tokenizer.bos,
        "eos": tokenizer.eos,
        "start": tokenizer.bos if tokenizer.bos is not None else tokenizer.eos,
    }

    def spelling(match: re.Match[str]) -> str:
        number = specials.get(match[1])
        return "" if number is None else str(tokenizer.pieces.id_to_token(number))

    return tokenizer.piece(_SLOT.sub(spelling, piece)) if piece else []


def _mixed(piece: str, text: str, tokenizer: TextTokenizer) -> list[int]:
    """Ids of a piece in which the text stands between words: one string, cut only at special tokens."""
    ids: list[int] = []
    for part in re.split(r"(\{(?:bos|eos|start)\})", piece):
        if "{text}" in part:
            ids += tokenizer.ids([part.replace("{text}", text)])[0]
        elif part:
            ids += _literal(part, tokenizer)
    return ids


def _render_joined(
    template: Template, form: str, texts: Sequence[str], tokenizer: TextTokenizer, limit: int | None
) -> list[Rendered]:
    alone = tokenizer.batch(texts)
    kept = [
        text[: tokens.ends[limit - 1]] if limit is not None and len(tokens.ids) > limit else text
        for text, tokens in zip(texts, alone, strict=True)
    ]
    whole = tokenizer.ids([form.replace("{text}", text) for text in kept])
    rows: list[Rendered] = []
    for text, short, tokens, inner in zip(texts, kept, alone, whole, strict=True):
        end = len(tokenizer.prefix) + len(inner)
        count = len(tokens.ids) if short is text else min(len(tokens.ids), limit or 0)
        start = end - 1 if template.span == "last" else max(end - count, len(tokenizer.prefix))
        ids = tokenizer.prefix + inner + (tokenizer.suffix if template.span != "last" else [])
        rows.append(Rendered(ids, ((start, end),) if end > start else (), short is not text))
    return rows
