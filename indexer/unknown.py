"""What of a text a tokenizer does not know: the characters in its unknown token.

WordPiece makes one of a word with a character that its vocabulary lacks, and of a word of more than 100 characters,
whatever they are. Of a text of which more than half is in them nothing is left that could be compared: for a model all
such texts are the same. Spaces do not count. Tokenizers that fall back to bytes know every text.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

from tokenizers import Tokenizer

_RARE = "𓀀 𒀀"  # an Egyptian and a cuneiform sign: a tokenizer that has an unknown token gives it for one of them


class UnknownToken:
    """The unknown token of a tokenizer; `number` is its id."""

    def __init__(self, backend: Tokenizer, number: int) -> None:
        self._backend, self.number = backend, number
        self._letters: dict[int, int] = {}  # plain letters and digits that a token spells

    @classmethod
    def of(cls, backend: Tokenizer, named: int | None = None) -> UnknownToken | None:
        """That of a tokenizer; None: it knows every text. `named`: the id that the model's configuration names."""
        own = getattr(backend.model, "unk_token", None)
        ids = {named, None if own is None else backend.token_to_id(own)}
        rare = backend.encode(_RARE, add_special_tokens=False).ids
        return next((cls(backend, number) for number in rare if number in ids), None)

    def covers(self, text: str, ids: Sequence[int]) -> bool:
        """Whether more than half of the characters of a text are in it; `ids` are those of the text, or its first ones.

        A tokenizer takes long to say where its tokens lie, and is not asked where the others spell half of the text.
        """
        if self.number not in ids:
            return False
        if len(ids) == 1:
            return True
        known = sum(map(self._n_letters, ids))
        if 2 * known >= _n_characters(text):
            return False
        encoded = self._backend.encode(text, add_special_tokens=False)
        n_unknown = n_all = 0
        for number, (start, end) in zip(encoded.ids[: len(ids)], encoded.offsets, strict=False):
            count = _n_characters(text[start:end])
            n_all += count
            n_unknown += count * (number == self.number)
        return 2 * n_unknown > n_all

    def _n_letters(self, number: int) -> int:
        found = self._letters.get(number)
        if found is None:
            token = "" if number == self.number else self._backend.id_to_token(number) or ""
            found = self._letters[number] = sum(one.isascii() and one.isalnum() for one in token)
        return found


def script_of(text: str) -> str:
    """The script that most letters of a text have, as their Unicode names begin; `symbols` where it has none.

    >>> script_of("ประภาคาร 24"), script_of("The mill, мельница"), script_of("漢字かな"), script_of("🎉 12")
    ('Thai', 'Cyrillic', 'CJK', 'symbols')
    """
    scripts = Counter[str]()
    for one, count in Counter(text).items():
        if unicodedata.category(one)[0] in "LM":
            scripts[unicodedata.name(one, "").partition(" ")[0]] += count
    name = max(scripts, key=scripts.__getitem__, default="")
    return name if name == "CJK" else name.capitalize() or "symbols"


def _n_characters(text: str) -> int:
    """Characters of a text that are no white space."""
    return len("".join(text.split()))
