"""The lexical spec: how an index turns text into terms. It is outside of the fingerprint, for no vector depends on it.

An index has one. It is written with its postings, and read with them: terms of another analyser or of another version
of the stemmers would be other terms. What was asked for (`auto`, `none`, a language, `off`) is an option of the index;
`decided` turns it into a spec once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragidx.corpora.errors import SpecError

if TYPE_CHECKING:
    from ragidx.indexer.lexical.analyzer import Analyzer

OFF = "off"


@dataclass(frozen=True, slots=True)
class LexicalSpec:
    """How texts become terms.

    Attributes:
        stemmer: a language, or `none`.
        stemmer_version: version of the stemmers that made the postings; empty without one.
        analyzer: number of the rules for words.
    """

    stemmer: str
    stemmer_version: str
    analyzer: int

    @classmethod
    def of(cls, language: str) -> LexicalSpec:
        """The spec that this installation makes for a language, or `none`."""
        from ragidx.indexer.lexical.analyzer import VERSION
        from ragidx.indexer.lexical.stemming import NONE, stemmer_version

        return cls(language, "" if language == NONE else stemmer_version(), VERSION)

    def make_analyzer(self) -> Analyzer:
        """The analyser of this spec.

        Raises:
            SpecError: its language, its version of the rules or of the stemmers is not installed.
        """
        from ragidx.indexer.lexical.analyzer import Analyzer
        from ragidx.indexer.lexical.stemming import NONE, languages, stemmer

        if self.stemmer not in (NONE, *languages()):
            raise SpecError(
                f"the lexical part of the index was made with the stemmer '{self.stemmer}', which is not installed",
                "install the newest PyStemmer, or build again with another `stemmer`; or search with `mode=dense`",
            )
        own_spec = LexicalSpec.of(self.stemmer)
        for name, made, installed in (
            ("stemmers of version", self.stemmer_version, own_spec.stemmer_version),
            ("word rules of version", self.analyzer, own_spec.analyzer),
        ):
            if made != installed:
                raise SpecError(
                    f"the lexical part of the index was made with {name} {made}; here is {installed}",
                    "build again, which makes it anew and encodes nothing; or search with `mode=dense`",
                )
        return Analyzer(stemmer(self.stemmer))


def decided(setting: str, current: LexicalSpec | None, sample: Callable[[], Iterable[str]]) -> LexicalSpec | None:
    """The spec of an index from now on; None: no lexical part.

    Args:
        setting: `auto`, `none`, a language or `off`.
        current: what the index has.
        sample: function that gives some of the index's texts; called only to guess their language.

    Raises:
        SpecError: there is no such stemmer.
    """
    from ragidx.indexer.lexical.stemming import AUTO, check_stemmer, guess_language

    if setting == OFF:
        return None
    if setting == AUTO and current is None:
        texts = [text for text in sample() if text.strip()]
        return LexicalSpec.of(guess_language(texts)) if texts else None  # vectors without texts have nothing to search
    language = setting if current is None or setting != AUTO else current.stemmer
    check_stemmer(language)
    return LexicalSpec.of(language)
