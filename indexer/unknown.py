"""What of a text a model does not know: the characters in its tokenizer's unknown token, and in tokens without a row.

WordPiece makes one token of a word with a character that its vocabulary lacks, and of a word of more than 100
characters, whatever they are. Of a text of which more than half is in such tokens nothing is left that could be
compared: to the model all such texts are the same. Spaces do not count. Tokenizers that fall back to bytes know every
text.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence

from tokenizers import Tokenizer

_RARE = "𓀀 𒀀"  # an Egyptian and a cuneiform sign: a tokenizer that has an unknown token gives it for one of them


class UnknownTokens:
    """The tokens of a tokenizer that mean nothing to a model; `numbers` are their ids."""

    def __init__(self, backend: Tokenizer, numbers: Collection[int]) -> None:
        self._backend, self.numbers = backend, frozenset(numbers)
        self._letters: dict[int, int] = {}  # plain letters and digits that a token spells

    @classmethod
    def of(cls, backend: Tokenizer, named: int | None = None, without_row: Collection[int] = ()) -> UnknownTokens:
        """Those of a tokenizer; none where it knows every text.

        Args:
            backend: the tokenizer.
            named: the id of the unknown token by the model's configuration.
            without_row: ids that the model has nothing for.
        """
        own = getattr(backend.model, "unk_token", None)
        ids = {named, None if own is None else backend.token_to_id(own)}
        rare = backend.encode(_RARE, add_special_tokens=False).ids
        return cls(backend, [*(number for number in rare if number in ids), *without_row])

    def occur(self, ids: Sequence[int]) -> bool:
        """Whether one of them is among some ids."""
        return not self.numbers.isdisjoint(ids)

    def covers(self, text: str, ids: Sequence[int]) -> bool:
        """Whether more than half of the characters of a text are in them; `ids` are its own, or the first ones.

        A tokenizer takes long to say where its tokens lie, and is not asked where the others spell half of the text.
        """
        if not self.occur(ids):
            return False
        known = sum(map(self._n_letters, ids))
        if 2 * known >= _n_characters(text):
            return False
        encoded = self._backend.encode(text, add_special_tokens=False)
        n_unknown = n_all = 0
        for number, (start, end) in zip(encoded.ids[: len(ids)], encoded.offsets, strict=False):
            count = _n_characters(text[start:end])
            n_all += count
            n_unknown += count * (number in self.numbers)
        return 2 * n_unknown > n_all

    def _n_letters(self, number: int) -> int:
        found = self._letters.get(number)
        if found is None:
            token = "" if number in self.numbers else self._backend.id_to_token(number) or ""
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
