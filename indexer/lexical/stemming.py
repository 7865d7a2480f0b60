"""Stemmers: Snowball's, by language, and the choice of one for a corpus.

Languages are recognised by their function words: in running text they are a quarter to a half of all words of their
language, and rarely words of another. No model and no network is used.
"""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable

import Stemmer

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.lexical.analyzer import tokens

AUTO, NONE = "auto", "none"

_LEAST = 0.12  # share of function words in running text; lists, tables and code have less
_DIFFERENT = 3  # function words: the variables of a program are not Spanish
_AHEAD = 1.25  # the first language against the second; a word that n languages have counts 1 / n for each

Stem = Callable[[str], str]


def languages() -> list[str]:
    """The languages that have a stemmer, by Snowball's names."""
    return sorted({*Stemmer.algorithms()} - {"porter", "dutch_porter"})


def check_stemmer(name: str) -> None:
    """Check the name of a stemmer.

    Raises:
        SpecError: it is none of auto, none and the languages.
    """
    if name not in (AUTO, NONE) and name not in languages():
        fault = unknown_name("stemmer", name, [AUTO, NONE, *languages()])
        raise SpecError(fault.message, fault.hint, where="`stemmer`")


def stemmer_version() -> str:
    """The version of the stemmers: other versions may stem other words."""
    return str(Stemmer.version())


def stemmer(language: str) -> Stem | None:
    """A word to its stem; None for `none`."""
    return None if language == NONE else Stemmer.Stemmer(language).stemWord


def guess_language(texts: Iterable[str]) -> str:
    """The language of some texts by the shares of function words; `none` if no language is clearly first.

    >>> guess_language(["The name of the ship is not known, and it was lost in the ice."])
    'english'
    >>> guess_language(["7f 3a 9c", "x = y"])
    'none'
    """
    seen = Counter(token.casefold() for text in texts for token in tokens(text))
    shares, different, ranks = Counter[str](), Counter[str](), dict.fromkeys(languages(), 0.0)
    for word in seen.keys() & _function_words().keys():
        for language in (known := _function_words()[word]):
            shares[language] += seen[word]
            ranks[language] += seen[word] / len(known)
            different[language] += 1
    best, second = sorted(ranks, key=lambda language: -ranks[language])[:2]
    is_text = shares[best] > _LEAST * seen.total() and different[best] >= _DIFFERENT
    return best if is_text and ranks[best] > _AHEAD * ranks[second] else NONE


@functools.cache
def _function_words() -> dict[str, list[str]]:
    """Word -> the languages that have it, of those that the installed stemmers know."""
    data = importlib.resources.files(__package__ or "").joinpath("function_words.toml").read_text("utf-8")
    found: dict[str, list[str]] = {}
    for language, words in tomllib.loads(data).items():
        if language not in languages():
            continue
        for word in dict.fromkeys(words.split()):
            found.setdefault(word, []).append(language)
    return found
