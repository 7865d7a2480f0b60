"""Rendering: a template and a text become token ids and the span of them that is pooled.

The pieces of a template are tokenised apart and joined as ids, so that all copies of a text are the same ids and the
pooled span is exact by construction; a *joined* template (PromptEOL, LLM2Vec) is formatted first and tokenised whole,
as its authors do. A text that is too long is cut before it is put into the template: prompt and copies stay
whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ragidx.corpora.errors import SpecError
from ragidx.indexer.prompts.templates import Template, TemplatePiece
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

_DEFAULT = EncoderSpec()
_MERGES = 8  # tokens that a whole string may have more than its parts, for each text in it


@dataclass(frozen=True, slots=True)
class Rendered:
    """What the model reads for one text: ids, and which of them are pooled."""

    ids: list[int]
    pooled: tuple[tuple[int, int], ...]  # spans [start, end) of ids
    truncated: bool = False
    also: tuple[Rendered, ...] = ()  # further prompts for the same text

    @property
    def n_tokens(self) -> int:
        """How many tokens the model reads for the text, all prompts together."""
        return len(self.ids) + sum(len(other.ids) for other in self.also)

    @property
    def longest(self) -> int:
        """Tokens of its longest prompt."""
        return max(len(self.ids), *(len(other.ids) for other in self.also), 0)

    @property
    def width(self) -> int:
        """How many padded tokens it takes in a batch."""
        return self.longest * (1 + len(self.also))

    def positions(self) -> list[int]:
        """The pooled positions in order."""
        return [i for start, end in self.pooled for i in range(start, end)]


def render(
    template: Template,
    texts: Sequence[str],
    tokenizer: TextTokenizer,
    *,
    instruction: str | None = None,
    limit: int | None = None,
    spec: EncoderSpec = _DEFAULT,
) -> list[Rendered]:
    """What the model reads for each text.

    Args:
        template: the text around `{text}`.
        texts: any strings, also empty ones.
        tokenizer: the model's own.
        instruction: the task sentence of queries; None renders documents. Empty: a query without one.
        limit: the most tokens of the *text*; longer ones are cut and marked. None: no limit.
        spec: `pool_eos`, `truncate` and `pooling` count here. The poolings `eos`, `bos` and `trainable` (every token)
            do not pool the template's span, and put an EOS or a BOS at the end or the start where none is.

    Raises:
        SpecError: the pooling needs a special token that the model does not have.
    """
    template = template.of(instruction)
    rows, *others = (
        _render_one(prompt, texts, tokenizer, instruction, limit, spec) for prompt in (template, *template.also)
    )
    if not others:
        return rows
    return [dataclasses.replace(first, also=tuple(also)) for first, *also in zip(rows, *others, strict=True)]


def render_words(
    template: Template, texts: Sequence[str], tokenizer: TextTokenizer
) -> list[tuple[Rendered, list[tuple[int, int]]]]:
    """What the model reads for each document, its pooled positions those of the text's own tokens in the last of the
    copies that are pooled, and the characters [start, end) of the text that each of these spells. Nothing is cut.
    """
    if not template.joined:
        rows = render(template, texts, tokenizer, spec=EncoderSpec(pool_eos=False))
        rows = [dataclasses.replace(row, pooled=row.pooled[-1:]) for row in rows]
        return list(zip(rows, tokenizer.spans(texts), strict=True))
    form = _spelt(template.side(None)[0].text, tokenizer)
    rows_of_words = []
    for text in texts:
        # The count from the right, which pooling follows its authors in, can be off where text and form merge.
        bare, spans = tokenizer.placed(form, text.rstrip() if template.strip is True else text)
        ids = _begun(bare, tokenizer)
        shift = len(ids) - len(bare)
        inside = [i for i, (start, end) in enumerate(spans) if end > start]
        row = Rendered(_ended(ids, tokenizer), tuple((i + shift, i + shift + 1) for i in inside))
        rows_of_words.append((row, [spans[i] for i in inside]))
    return rows_of_words


def text_limit(
    template: Template,
    tokenizer: TextTokenizer,
    max_length: int | None,
    instruction: str | None = None,
    spec: EncoderSpec = _DEFAULT,
) -> int | None:
    """The most tokens of a text so that what the model reads stays within `max_length`.

    Raises:
        SpecError: the template alone fills `max_length`.
    """
    if max_length is None:
        return None
    template = template.of(instruction)
    limits = []
    for prompt in (template, *template.also):
        empty = _render_one(prompt, [""], tokenizer, instruction, None, spec)[0]
        copies = n_copies(prompt, instruction)
        reserve = len(empty.ids) + (_MERGES * copies if prompt.joined else 0)
        limits.append((max_length - reserve) // copies)
        if limits[-1] < 1:
            raise SpecError(
                f"the template '{template.name}' takes {reserve} of the {max_length} tokens the model reads, no text "
                "fits",
                "shorten the instruction or the template, or raise the length",
            )
    return min(limits)


def n_copies(template: Template, instruction: str | None = None) -> int:
    """How often a prompt has the text."""
    return max(1, sum(piece.text.count("{text}") for piece in template.side(instruction)))


def clean(text: str) -> str:
    """The clean-up of PromptEOL's authors.

    >>> clean('He said "hello"'), clean("Who?"), clean("a dog")
    ("He said 'hello'", 'Who.', 'a dog.')
    """
    if text and text[-1] not in ".?\"'":
        text += "."
    text = text.replace('"', "'")
    return f"{text[:-1]}." if text.endswith("?") else text


def _render_one(
    template: Template,
    texts: Sequence[str],
    tokenizer: TextTokenizer,
    instruction: str | None,
    limit: int | None,
    spec: EncoderSpec,
) -> list[Rendered]:
    if template.clean:
        texts = [clean(text) for text in texts]
    if template.strip is True or (template.strip == "eos" and spec.pooling == "eos"):
        texts = [text.rstrip() for text in texts]
    if spec.truncate == "end":  # text after the limit need not be tokenised
        texts = [tokenizer.head(text, limit) for text in texts]
    pieces = template.side(instruction)
    if template.joined:
        rows = _render_joined(template, pieces[0].text, texts, tokenizer, limit, spec)
    else:
        rows = _render_pieces(template, pieces, texts, tokenizer, limit, spec)
    if spec.pooling not in ("eos", "bos", "trainable"):
        return rows
    return [_respan(row, tokenizer, spec.pooling) for row in rows]


def _respan(row: Rendered, tokenizer: TextTokenizer, pooling: str) -> Rendered:
    """The row with the pooled span of another pooling, and the special token that it needs."""
    if pooling == "bos":
        if tokenizer.bos is None or row.ids[:1] != [tokenizer.bos]:
            raise SpecError(
                "what the model reads does not begin with a BOS token, so there is none to pool",
                "choose another pooling, such as `pooling=mean`",
                where="`pooling`",
            )
        return dataclasses.replace(row, pooled=((0, 1),))
    if tokenizer.eos is None:
        raise SpecError(
            "the model's tokenizer has no EOS token to pool",
            "choose another pooling, such as `pooling=last`",
            where="`pooling`",
        )
    ids = row.ids if row.ids[-1:] == [tokenizer.eos] else [*row.ids, tokenizer.eos]
    start = len(ids) - 1 if pooling == "eos" else 0
    return dataclasses.replace(row, ids=ids, pooled=((start, len(ids)),))


def _render_pieces(
    template: Template,
    pieces: Sequence[TemplatePiece],
    texts: Sequence[str],
    tokenizer: TextTokenizer,
    limit: int | None,
    spec: EncoderSpec,
) -> list[Rendered]:
    literals = [None if piece.text == "{text}" else _literal(piece.text, tokenizer) for piece in pieces]
    text_ids = tokenizer.ids(texts)
    before = tokenizer.prefix if template.specials in ("model", "start") else []
    after = tokenizer.suffix if template.specials == "model" else []
    if _starts(literals[0] or [], before):  # the template names them itself
        before = []
    if _ends(literals[-1] or [], after):
        after = []
    rows: list[Rendered] = []
    for whole in text_ids:
        first, rest = _kept_tokens(len(whole), limit, spec.truncate)
        shortened = whole if first == rest else whole[:first] + whole[rest:]
        ids, spans = list(before), []
        for piece, literal in zip(pieces, literals, strict=True):
            start = len(ids)
            ids += shortened if literal is None else literal
            if piece.pool is True or (piece.pool == "eos" and spec.pool_eos):
                spans.append((start, len(ids)))
        ids += after
        rows.append(Rendered(ids, tuple(spans), len(shortened) < len(whole)))
    return rows


def _kept_tokens(length: int, limit: int | None, truncate: str) -> tuple[int, int]:
    """Of `length` tokens, [0, first) and [rest, length) are kept."""
    if limit is None or length <= limit:
        return length, length
    first = limit if truncate == "end" else limit // 2
    return first, length - (limit - first)


def _literal(piece: str, tokenizer: TextTokenizer) -> list[int]:
    """Ids of a piece without a text. `{bos}X` is tokenised as one string with the special token's own spelling in it,
    because text after a special token may be tokenised differently than at the start (SentencePiece's word-start mark).
    """
    return tokenizer.piece(_spelt(piece, tokenizer)) if piece else []


def _spelt(piece: str, tokenizer: TextTokenizer) -> str:
    """The piece with its special tokens spelt out."""
    start = tokenizer.bos if tokenizer.bos is not None else tokenizer.eos
    for slot, number in (("{bos}", tokenizer.bos), ("{eos}", tokenizer.eos), ("{start}", start)):
        if slot in piece:
            piece = piece.replace(slot, "" if number is None else str(tokenizer.pieces.id_to_token(number)))
    return piece


def _render_joined(
    template: Template, form: str, texts: Sequence[str], tokenizer: TextTokenizer, limit: int | None, spec: EncoderSpec
) -> list[Rendered]:
    form = _spelt(form, tokenizer)
    shortened = texts if limit is None else _cut(texts, tokenizer, limit, spec.truncate)
    whole = tokenizer.filled(form, shortened)
    if template.span == "last":
        return [
            _row(_begun(inner, tokenizer), 1, 0, short != text)
            for text, short, inner in zip(texts, shortened, whole, strict=True)
        ]
    # The span is as long as the text and what follows it are when they are tokenised alone: the authors' way.
    tail = form.rpartition("{text}")[2]
    closed = tokenizer.filled(f"{{text}}{tail}", shortened)
    bare = tokenizer.ids(shortened) if tail and not spec.pool_eos else closed
    rows = []
    for text, short, inner, closed_ids, bare_ids in zip(texts, shortened, whole, closed, bare, strict=True):
        n_behind = max(0, len(closed_ids) - len(bare_ids))
        row = _row(_begun(inner, tokenizer), min(len(closed_ids), len(inner)), n_behind, short != text)
        rows.append(dataclasses.replace(row, ids=_ended(row.ids, tokenizer)))
    return rows


def _begun(ids: list[int], tokenizer: TextTokenizer) -> list[int]:
    """With what the tokenizer puts before every text, unless the template names it itself."""
    return ids if _starts(ids, tokenizer.prefix) else tokenizer.prefix + ids


def _ended(ids: list[int], tokenizer: TextTokenizer) -> list[int]:
    """Likewise, after every text."""
    return ids if _ends(ids, tokenizer.suffix) else ids + tokenizer.suffix


def _starts(ids: list[int], start: list[int]) -> bool:
    return ids[: len(start)] == start


def _ends(ids: list[int], end: list[int]) -> bool:
    return ids[len(ids) - len(end) :] == end


def _row(ids: list[int], n_pooled: int, n_left_out: int, truncated: bool) -> Rendered:
    """The last `n_pooled` ids are pooled, less `n_left_out` at the very end."""
    start, end = len(ids) - n_pooled, len(ids) - n_left_out
    return Rendered(ids, ((start, end),) if end > start else (), truncated)


def _cut(texts: Sequence[str], tokenizer: TextTokenizer, limit: int, truncate: str) -> list[str]:
    """Each text itself if it has at most `limit` tokens, else as much of it as those tokens spell."""
    kept: list[str] = []
    for text, spans in zip(texts, tokenizer.spans(texts), strict=True):
        if len(spans) <= limit:
            kept.append(text)
            continue
        first, rest = _kept_tokens(len(spans), limit, truncate)
        end = spans[first - 1][1] if first else 0
        # Both halves may hold tokens of one character: it goes into the first.
        kept.append(text[:end] + (text[max(end, spans[rest][0]) :] if rest < len(spans) else ""))
    return kept
