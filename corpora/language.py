"""The language of a text, by py3langid (extra `language`).

text -> "en", "nb", ... (ISO 639), or None where no language is likely: code, numbers, a word or two
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from ragidx.corpora.errors import missing_extra

LANGUAGE = "language"
"""The field of a document's metadata; one that it has itself stays."""

_CHARS = 1000
_LIKELY = 0.5  # of the probabilities of all languages


def check_language() -> None:
    """Whether languages can be named here.

    Raises:
        RagidxError: py3langid is not installed.
    """
    if importlib.util.find_spec("py3langid") is None:
        raise missing_extra("`language` needs", ["py3langid"], "language")


def language_finder() -> Callable[[str], str | None]:
    """What names the language of a text by its first 1,000 characters, in some 0.1 ms; loading takes 0.6 s."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=_LIKELY)

    def find(text: str) -> str | None:
        code = str(identifier.classify(text[:_CHARS])[0])
        return None if code in ("und", "zxx") else code

    return find
