"""Stemmers: Snowball's, by language, those of some scripts, and the choice of a language for a corpus.

Languages are recognised by their function words: in running text they are a quarter to a half of all words of their
language, and rarely words of another. No model and no network is used.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable

import Stemmer

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.indexer.lexical.analyzer import tokens
from ragidx.indexer.lexical.scripts import arabic, hebrew, korean, tibetan

AUTO, NONE = "auto", "none"

_LEAST = 0.12  # share of function words in running text; lists, tables and code have less
_DIFFERENT = 3  # function words: the variables of a program are not Spanish
_AHEAD = 1.25  # the first language against the second; a word that n languages have counts 1 / n for each

_TURKISH = re.compile("[ğı]")  # it has few function words, but letters that no other of the languages has

Stem = Callable[[str], str]

# First and last letter of a script, its stems, and the languages in it that have their own.
_SCRIPTS: list[tuple[str, str, Stem, tuple[str, ...]]] = [
    ("\u0590", "\u05ff", hebrew, ("yiddish",)),
    ("\u0600", "\u06ff", arabic, ("persian",)),
    ("\u0900", "\u097f", Stemmer.Stemmer("hindi", 0).stemWord, ("nepali",)),
    ("\u0f40", "\u0fbc", tibetan, ()),
    ("\uac00", "\ud7a3", korean, ()),
]


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


def stemmer(language: str) -> Stem:
    """A word to its stem: by the rules of its script, where it has its own, else by those of a language, if any.

    >>> stem = stemmer("english")
    >>> stem("leases"), stem("המפתחות"), stem("서울은")
    ('leas', 'המפתח', '서울')
    """
    # no cache: a word comes once
    own: Stem = str if language == NONE else Stemmer.Stemmer(language, 0).stemWord
    if language == "turkish":
        own = _twice(own)
    rules = [(first, last, rule) for first, last, rule, at_home in _SCRIPTS if language not in at_home]

    def stem(word: str) -> str:
        if not word.isascii():
            for first, last, rule in rules:
                if first <= word[0] <= last:
                    return rule(word) or word
        return own(word) or word  # Snowball's Greek leaves no letter of some words

    return stem


def _twice(stem: Stem) -> Stem:
    """Once, Snowball's Turkish leaves `müze` of `müzeye`, but `müz` of `müze`."""
    return lambda word: stem(stem(word))


def guess_language(texts: Iterable[str]) -> str:
    """The language of some texts by the shares of function words; `none` if no language is clearly first.

    >>> guess_language(["The name of the ship is not known, and it was lost in the ice."])
    'english'
    >>> guess_language(["7f 3a 9c", "x = y"])
    'none'
    """
    seen = Counter(word for text in texts for token in tokens(text) for word in token.casefold().split("-") if word)
    shares, different, ranks = Counter[str](), Counter[str](), dict.fromkeys(languages(), 0.0)
    for word in seen.keys() & _function_words().keys():
        for language in (known := _function_words()[word]):
            shares[language] += seen[word]
            ranks[language] += seen[word] / len(known)
            different[language] += 1
    turkish = [seen[word] for word in seen if _TURKISH.search(word)]
    shares["turkish"] += sum(turkish)
    ranks["turkish"] += sum(turkish)
    different["turkish"] += len(turkish)
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
