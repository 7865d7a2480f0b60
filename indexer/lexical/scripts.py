"""Words by their script, whatever the language of an index: what is dropped, other spellings, and stems.

cleaned(text)      without characters that nobody sees: soft hyphens, zero-width spaces and joiners, marks of direction
spellings(word)    as it is written, and as it is typed without accents; in Hebrew also without a prefix
hebrew(word), ...  stems in scripts of which Snowball has no language, or finds less: a list of what is written to nouns

The lists were chosen by the first half of benchmarks/words/sentences.tsv.
"""

from __future__ import annotations

import re
import unicodedata

HANGUL = "\uac00-\ud7a3\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\ud7b0-\ud7fb"
"""Inside the brackets of a pattern: syllables and letters of Korean."""

# Category Cf, and what Unicode says to ignore besides: joiners, variation selectors, fillers.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

# After canonical decomposition. A breve makes another Cyrillic letter; vowel signs of other scripts are no accents.
_ACCENTS = re.compile(
    "(?<![\u0400-\u052f])[\u0300-\u036f]|(?<=\u0435)\u0308|(?<=[аеиоуыэюя])[\u0300\u0301]"
    "|[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]"  # Hebrew points
    "|[\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]"  # Arabic vowels, hamza, tatweel
    "|\u093c"  # nukta
)
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "\u0901": "\u0902"}
    | {"\u0649": "\u064a", "\u06cc": "\u064a", "\u06a9": "\u0643"}  # yeh and kaf as other keyboards have them
)
# There they are tones: without them it is another word.
_VIETNAMESE = re.compile("\u0309|\u031b|[aeiouy]\u0323|[aeo][\u0302\u0306][\u0300\u0301\u0303]")


def cleaned(text: str) -> str:
    """A text in Unicode's form NFKC without the characters that nobody sees; every hyphen is that of ASCII.

    >>> cleaned("Unter\\u00adnehmen")
    'Unternehmen'
    """
    seen = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    return unicodedata.normalize("NFKC", seen).replace("\u2010", "-")


def folded(word: str) -> str:
    """A case-folded word without accents; a Vietnamese one as it is.

    >>> folded("résumé"), folded("łódź"), folded("việt"), folded("йод")
    ('resume', 'lodz', 'việt', 'йод')
    """
    apart = unicodedata.normalize("NFD", word)
    if _VIETNAMESE.search(apart):
        return word
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart).translate(_LETTERS))


_HEBREW_PREFIX = re.compile("[והבכלמש][א-ת]{2}")
_HEBREW_ENDING = re.compile("(?<=[א-ת]{2})(?:תיהם|תיהן|יהם|יהן|תנו|תי|תו|תם|תן|תך|ים|ות|יו|יה|נו|יך|ה|ת|י|ו|ך)$")
_HEBREW_FINALS = str.maketrans("ךםןףץ", "כמנפצ")

_ARABIC_PREFIX = re.compile("^(?:[وف](?=.{4}))?(?:[بك]?ال(?=..)|لل(?=..))?")
_ARABIC_ENDINGS = (
    re.compile("(?<=..)(?:هما|كما|هم|هن|ها|كم|كن|نا|ه|ك|ي)$"),  # possessives
    re.compile("(?<=..)(?:ات|ون|ين|ان|ة|ت)$"),
)

_TIBETAN_PARTICLE = re.compile("(?<=.)འ(?:[ིོུ]|[ངམ])$|(?<=[^གངདནབམའརལས])[སར]$")

_OPEN = "".join(map(chr, range(0xAC00, 0xD7A4, 28)))  # syllables that end with a vowel
_KOREAN_PARTICLE = re.compile(
    "(?<=[가-힣])(?:들)?(?:"
    f"(?<=[{_OPEN}])(?:는|가|를|와|랑|라는|라고)|(?<![{_OPEN}])(?:은|이|을|과|이랑|이나|이라는|이라고)"
    "|(?:에게서|에서|에게|께서|한테|까지|부터|으로|로|에)(?:는|도|의|만)?"
    "|의|도|만|만큼|처럼|보다|하고|마다|조차|마저|밖에|들)$"
)


def spellings(word: str) -> list[str]:
    """A case-folded word and its other spellings, each once.

    >>> spellings("café"), spellings("בבית")
    (['café', 'cafe'], ['בבית', 'בית'])
    """
    if word.isascii():
        return [word]
    plain = folded(word) or word  # of a mark alone
    return list(dict.fromkeys([word, plain, plain[1:] if _HEBREW_PREFIX.match(plain) else plain]))


def hebrew(word: str) -> str:
    """Without plural, gender and possessives; a last letter as it is inside a word."""
    word = folded(word)
    return (_HEBREW_ENDING.sub("", word) if len(word) > 3 else word).translate(_HEBREW_FINALS)


def arabic(word: str) -> str:
    """Without the article, `and`, possessives, plural and gender: about light10 (Larkey 2007)."""
    word = _ARABIC_PREFIX.sub("", folded(word))
    for ending in _ARABIC_ENDINGS:
        word = ending.sub("", word) if len(word) > 3 else word
    return word


def tibetan(syllable: str) -> str:
    """Without the particle that is written to a syllable."""
    return _TIBETAN_PARTICLE.sub("", syllable)


def korean(word: str) -> str:
    """Without its particle.

    >>> korean("서울은"), korean("도서관에서"), korean("사과")
    ('서울', '도서관', '사과')
    """
    return _KOREAN_PARTICLE.sub("", word)
