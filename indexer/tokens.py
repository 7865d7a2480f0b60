"""Token ids of template pieces and of texts, from the model's own tokenizer.

Two readings of one tokenizer: a *text* can never become a special token, however it is spelt; a *piece* of a template
(trusted, it comes with the package or from the user) may name one. Truncation and padding are always off here:
who puts a text into a template decides what is cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models import ModelFiles

_CHARS_A_TOKEN = 16
_SLACK = 64


@dataclass(frozen=True)
class Tokens:
    """The ids of one text and the characters [start, end) that each token spells."""

    ids: list[int]
    spans: list[tuple[int, int]]


class TextTokenizer:
    """A fast tokenizer as this package uses it.

    Attributes:
        texts: the backend for texts: special tokens in them are ordinary characters. Chunking counts with it.
        bos, eos: ids of the special tokens, None where the model has none.
        prefix, suffix: what the model's tokenizer puts around every text by itself.
        max_length: the longest input its configuration names, None where it names none.
    """

    def __init__(self, tokenizer: Any, *, model: str) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"the tokenizer of '{model}' has no fast version",
                "save it as tokenizer.json (the `tokenizers` format) beside the weights",
            )
        self.pieces = _plain(backend)
        self.texts = _plain(backend)
        self.texts.encode_special_tokens = True
        added = self.pieces.get_added_tokens_decoder().items()
        special = {number: token.content for number, token in added if token.special}
        self._named = re.compile("|".join(map(re.escape, special.values())) or r"(?!)")
        self._special = set(special) - {tokenizer.unk_token_id}  # any text may hold an unknown character
        self.bos: int | None = tokenizer.bos_token_id
        self.eos: int | None = tokenizer.eos_token_id
        self.pad: int = next((i for i in (tokenizer.pad_token_id, self.eos, 0) if i is not None), 0)
        self.prefix, self.suffix = _surroundings(self.pieces)
        self.max_length: int | None = tokenizer.model_max_length if tokenizer.model_max_length < 10**9 else None

    def piece(self, text: str) -> list[int]:
        """The ids of a literal of a template, where a special token's name stands for itself."""
        return list(self.pieces.encode(text, add_special_tokens=False).ids)

    def batch(self, texts: Sequence[str]) -> list[Tokens]:
        """The ids of texts, without the model's special tokens around them."""
        encoded = self.texts.encode_batch(list(texts), add_special_tokens=False)
        return [Tokens(list(one.ids), list(one.offsets)) for one in encoded]

    def spells_special(self, text: str) -> bool:
        """Whether a special token's spelling occurs in it."""
        return self._named.search(text) is not None

    def filled(self, form: str, texts: Sequence[str]) -> list[list[int]]:
        """The ids of a template's string with each text at its `{text}`, tokenised whole.

        Special tokens that the form names stand for themselves; those that a text spells, alone or together with what
        the form has beside it, never do: such a text, where the form names some too, is tokenised apart from the form.
        """
        if not self.spells_special(form):
            return self.ids([form.replace("{text}", text) for text in texts])
        clean = [not self.spells_special(text) for text in texts]
        whole = [form.replace("{text}", text) for text, good in zip(texts, clean, strict=True) if good]
        found = (list(one.ids) for one in self.pieces.encode_batch_fast(whole, add_special_tokens=False))
        parts = [self.piece(part) for part in form.split("{text}")]
        n_special = sum(map(self._n_special, parts))
        rows = []
        for text, good in zip(texts, clean, strict=True):
            ids = next(found) if good else []
            if not good or self._n_special(ids) != n_special:
                own = self.ids([text])[0]
                ids = parts[0] + [number for part in parts[1:] for number in (*own, *part)]
            rows.append(ids)
        return rows

    def placed(self, form: str, text: str) -> Tokens:
        """As `filled` for one text at one `{text}`; spans are characters of the text, empty for tokens of the form."""
        ids = self.filled(form, [text])[0]
        before, _, behind = form.partition("{text}")
        backend = self.pieces if self._named.search(form) else self.texts
        whole = backend.encode(form.replace("{text}", text), add_special_tokens=False)
        if whole.ids == ids:
            inside = ((max(0, start - len(before)), min(len(text), end - len(before))) for start, end in whole.offsets)
            return Tokens(ids, [(start, end) if start < end else (0, 0) for start, end in inside])
        around = ([(0, 0)] * len(self.piece(part)) for part in (before, behind))
        return Tokens(ids, [*next(around), *self.batch([text])[0].spans, *next(around)])

    def _n_special(self, ids: Sequence[int]) -> int:
        return sum(number in self._special for number in ids)

    def head(self, text: str, limit: int | None) -> str:
        """The text, or as much of its start as surely holds more than `limit` tokens.

        Tokenising takes some hundred bytes a token, so a long text of which the model reads the start is not tokenised
        whole. `_SLACK` tokens more are kept, since the last ones of a text that is cut may be others.
        """
        width = len(text) if limit is None else _CHARS_A_TOKEN * (limit + _SLACK)
        while len(text) > width:
            if len(self.texts.encode(text[:width], add_special_tokens=False)) > (limit or 0) + _SLACK:
                return text[:width]
            width *= 2
        return text

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """As `batch`, the ids alone: no offsets are worked out."""
        return [list(one.ids) for one in self.texts.encode_batch_fast(list(texts), add_special_tokens=False)]


def load_tokenizer(files: ModelFiles) -> TextTokenizer:
    """The tokenizer of a model, or the one that its last adapter brings.

    Raises:
        ModelError: there is none, or none that is fast.
    """
    from transformers import AutoTokenizer

    folder = files.tokenizer_folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (ValueError, OSError, KeyError, ImportError, TypeError) as fault:
        first = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        raise ModelError(
            f"the tokenizer of '{files.name}' cannot be loaded: {first}",
            "copy its tokenizer.json and tokenizer_config.json into the model's folder",
            where=str(folder),
        ) from fault
    return TextTokenizer(tokenizer, model=files.name)


def _plain(backend: Tokenizer) -> Tokenizer:
    """A copy without truncation and padding, which a tokenizer.json may switch on."""
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _surroundings(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special ids that the tokenizer puts before and after a text by itself."""
    inner = list(tokenizer.encode("a", add_special_tokens=False).ids)
    outer = list(tokenizer.encode("a", add_special_tokens=True).ids)
    for start in range(len(outer) - len(inner) + 1):
        if outer[start : start + len(inner)] == inner:
            return outer[:start], outer[start + len(inner) :]
    return [], []
