"""The language of a corpus, from its function words."""

from __future__ import annotations

import pytest

from ragidx.corpora.errors import SpecError
from ragidx.indexer.lexical.stemming import check_stemmer, guess_language, languages, stemmer

SENTENCES = {
    "english": "Arno Penzias did not set out to study the origin of the universe. In 1964 they had an antenna.",
    "german": "Im Jahre 1850 wurde die erste Eisenbahn gebaut, und der König war nicht erfreut über das Werk.",
    "french": "La première ligne fut construite en 1850, et le roi n'était pas content. Elle va de Paris au sud.",
    "spanish": "La primera línea fue construida en 1850 y el rey no estaba contento con ella, pero el pueblo sí.",
    "portuguese": "A primeira linha foi construída em 1850, e o rei não estava contente com isso, mas o povo sim.",
    "italian": "La prima linea è stata costruita nel 1850 e il re non era contento di questa decisione.",
    "dutch": "De eerste spoorlijn werd in 1850 gebouwd en de koning was er niet blij mee, maar het volk wel.",
    "swedish": "Den första järnvägen byggdes 1850 och kungen var inte glad över det, men folket tyckte om den.",
    "danish": "Den første jernbane blev bygget i 1850, og kongen var ikke glad for det, men folket kunne lide den.",
    "russian": "Первая железная дорога была построена в 1850 году, и король не был этому рад, но народ был доволен.",
    "polish": "Pierwsza linia kolejowa została zbudowana w 1850 roku i król nie był z tego zadowolony, ale to nic.",
    "turkish": "İlk demiryolu 1850 yılında inşa edildi ve kral bu durumdan çok memnun değildi ama halk için iyi.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_names_its_language(language: str) -> None:
    assert guess_language([SENTENCES[language]]) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = [y for y in x]; y",
        "7f 3a 9c 11",
        "Arno Penzias, Robert Wilson, Holmdel, New Jersey",
        "我喜欢自然语言处理",
    ],
)
def test_text_of_no_known_language_has_none(text: str) -> None:
    assert guess_language([text]) == "none"


def test_two_languages_in_equal_parts_are_undecided() -> None:
    assert guess_language(["the of and to which", "der die und zu sich"]) == "none"


def test_every_language_has_a_stemmer() -> None:
    for language in languages():
        check_stemmer(language)
        stem = stemmer(language)
        assert stem("a")
        assert stem("σω")
    assert stemmer("none")("leases") == "leases"


def test_an_unknown_stemmer_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="unknown stemmer 'englsh'; did you mean 'english'"):
        check_stemmer("englsh")
