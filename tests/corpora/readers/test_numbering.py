"""Headings, labels and hidden text, by the styles and the numbering of a document of Word."""

from __future__ import annotations

from ..conftest import ReadBytes
from ..markers.office import nested, para, part, plain, run, word_file


def level(at: int, text: str, form: str = "decimal", more: str = "", start: int = 1) -> str:
    look = f'<w:start w:val="{start}"/><w:numFmt w:val="{form}"/>{more}<w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{at}">{look}</w:lvl>'


def definition(key: int, *levels: str) -> str:
    return f'<w:abstractNum w:abstractNumId="{key}">{"".join(levels)}</w:abstractNum>'


def numbers(key: int, of: int, more: str = "") -> str:
    return f'<w:num w:numId="{key}"><w:abstractNumId w:val="{of}"/>{more}</w:num>'


def item(text: str, list_id: int, at: int = 0) -> str:
    return plain(text, look=f'<w:numPr><w:ilvl w:val="{at}"/><w:numId w:val="{list_id}"/></w:numPr>')


def styled(text: str, style: str, more: str = "") -> str:
    return plain(text, look=f'<w:pStyle w:val="{style}"/>{more}')


def style(key: str, *inner: str, name: str = "", base: str = "") -> str:
    named = (f'<w:name w:val="{name}"/>' if name else "") + (f'<w:basedOn w:val="{base}"/>' if base else "")
    return f'<w:style w:styleId="{key}">{named}{"".join(inner)}</w:style>'


def lines(read_bytes: ReadBytes, body: str, numbering: str = "", styles: str = "") -> list[str]:
    found = read_bytes(
        "a.docx",
        word_file(
            body,
            ("s", "styles", "styles.xml"),
            ("n", "numbering", "numbering.xml"),
            parts={
                "word/styles.xml": part("w:styles", styles),
                "word/numbering.xml": part("w:numbering", numbering),
            },
        ),
    )
    return found.texts[0].replace("\n\n", "\n").split("\n")


def test_the_numbers_of_a_contract_are_those_that_a_person_sees(read_bytes: ReadBytes) -> None:
    contract = definition(0, level(0, "Article %1"), level(1, "%1.%2"), level(2, "(%3)", "lowerLetter"))
    body = [
        *(item("Parties", 1), item("The lessor", 1, 1), item("", 1, 1), item("The lessee", 1, 1)),
        *(item("a person", 1, 2), item("a firm", 1, 2), item("Their heirs", 1, 1), item("a child", 1, 2)),
        *(item("Term", 1), item("It begins", 1, 1), item("late", 1, 2)),
    ]

    assert lines(read_bytes, "".join(body), contract + numbers(1, 0)) == [
        *("Article 1 Parties", "1.1 The lessor", "1.3 The lessee", "(a) a person", "(b) a firm", "1.4 Their heirs"),
        *("(a) a child", "Article 2 Term", "2.1 It begins", "(a) late"),
    ]


def test_lists_of_one_definition_continue_unless_they_start_anew(read_bytes: ReadBytes) -> None:
    anew = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride>'
    other = f'<w:lvlOverride w:ilvl="0">{level(0, "%1)", "upperRoman", start=4)}</w:lvlOverride>'
    kept = definition(0, level(0, "%1.", start=3))
    lists = kept + numbers(1, 0) + numbers(2, 0) + numbers(3, 0, anew) + definition(1) + numbers(4, 1, other)
    body = [item("a", 1), item("b", 2), item("c", 3), item("d", 3), item("e", 1), item("f", 4), item("g", 4)]

    assert lines(read_bytes, "".join(body), lists) == ["3. a", "4. b", "1. c", "2. d", "3. e", "IV) f", "V) g"]


def test_forms_of_numbers(read_bytes: ReadBytes) -> None:
    forms = ["decimalZero", "upperLetter", "lowerRoman", "ordinal", "none", "bullet", "thaiLetters"]
    lists = "".join(
        definition(at, level(0, "%1", form, start=28)) + numbers(at, at) for at, form in enumerate(forms, start=1)
    )
    body = "".join(item(form, at) for at, form in enumerate(forms, start=1)) + item("no such list", 99)

    assert lines(read_bytes, body, lists) == [
        *("28 decimalZero", "BB upperLetter", "xxviii lowerRoman", "28th ordinal", "none", "- bullet"),
        *("28 thaiLetters", "no such list"),
    ]


def test_levels_that_go_on_or_are_written_in_plain_numbers(read_bytes: ReadBytes) -> None:
    lists = definition(
        0,
        level(0, "%1", "upperRoman"),
        level(1, "%1.%2", more='<w:isLgl/><w:lvlRestart w:val="0"/>'),
    )
    body = [item("a", 1), item("b", 1, 1), item("c", 1), item("d", 1, 1), item("e", 1, 2)]

    assert lines(read_bytes, "".join(body), lists + numbers(1, 0)) == ["I a", "1.1 b", "II c", "2.2 d", "e"]


def test_a_level_that_nothing_came_before_counts_from_its_start(read_bytes: ReadBytes) -> None:
    lists = definition(0, level(0, "%1", start=2), level(1, "%1.%2")) + numbers(1, 0)

    assert lines(read_bytes, item("a", 1, 1) + item("b", 1), lists) == ["2.1 a", "3 b"]


def test_headings_are_those_of_the_styles_in_any_language(read_bytes: ReadBytes) -> None:
    styles = [
        style("berschrift1", name="heading 1"),
        style("Titre2", '<w:pPr><w:outlineLvl w:val="1"/></w:pPr>'),
        style("Own", base="Titre2"),
        style("Titel", name="Title"),
        style("Deep", '<w:pPr><w:outlineLvl w:val="8"/></w:pPr>'),
        style("Body", '<w:pPr><w:outlineLvl w:val="9"/></w:pPr>', base="Titre2"),
        *(style("Loop", base="Loop2"), style("Loop2", base="Loop")),
    ]
    keys = ["Titel", "berschrift1", "Titre2", "Own", "Deep", "Body", "Loop", "Heading3"]
    own = styled("direct", "Body", '<w:outlineLvl w:val="2"/>')

    assert lines(read_bytes, "".join(styled(key, key) for key in keys) + own, styles="".join(styles)) == [
        *(
            "# Titel",
            "# berschrift1",
            "## Titre2",
            "## Own",
            "###### Deep",
            "Body",
            "Loop",
            "### Heading3",
            "### direct",
        )
    ]


def test_numbers_of_headings_come_from_their_styles(read_bytes: ReadBytes) -> None:
    linked = definition(
        0, level(0, "%1", more='<w:pStyle w:val="H1"/>'), level(1, "%1.%2", more='<w:pStyle w:val="H2"/>')
    )
    listed = '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
    deeper = '<w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr>'
    styles = [
        *(style("H1", listed, name="heading 1"), style("H2", listed, name="heading 2")),
        *(style("List", listed), style("Deeper", deeper, base="List")),
    ]
    off = '<w:numPr><w:numId w:val="0"/></w:numPr>'
    body = [
        *(styled("One", "H1"), styled("Term", "H2"), styled("End", "H2"), styled("Two", "H1")),
        *(styled("None", "H1", off), styled("Deep", "Deeper")),
    ]

    assert lines(read_bytes, "".join(body), linked + numbers(1, 0), "".join(styles)) == [
        *("# 1 One", "## 1.1 Term", "## 1.2 End", "# 2 Two", "# None", "2.1 Deep")
    ]


def test_a_list_may_be_that_of_a_style(read_bytes: ReadBytes) -> None:
    lists = (
        definition(0, level(0, "%1)", "lowerLetter"))
        + definition(1, '<w:numStyleLink w:val="Listed"/>')
        + numbers(1, 0)
        + numbers(2, 1)
    )
    styles = style("Listed", '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>')

    assert lines(read_bytes, item("a", 2) + item("b", 1), lists, styles) == ["a) a", "b) b"]


def test_text_that_a_style_hides_is_counted(read_bytes: ReadBytes) -> None:
    styles = style("Gone", "<w:rPr><w:vanish/></w:rPr>") + style(
        "Back", '<w:rPr><w:vanish w:val="0"/></w:rPr>', base="Gone"
    )
    body = para(
        run("seen "), run("unseen", '<w:rStyle w:val="Gone"/>'), run("back", '<w:rStyle w:val="Back"/>')
    ) + para(run("two words"), run("shown", '<w:vanish w:val="false"/>'), look='<w:pStyle w:val="Gone"/>')

    found = read_bytes(
        "a.docx",
        word_file(body, ("s", "styles", "styles.xml"), parts={"word/styles.xml": part("w:styles", styles)}),
    )

    assert (found.texts, found.kinds) == (["seen back\n\nshown"], {"hidden words": 3})


def test_a_paragraph_that_is_deleted_has_no_number(read_bytes: ReadBytes) -> None:
    lists = definition(0, level(0, "%1.")) + numbers(1, 0)
    listed = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'
    gone = para(nested("w:del w:r w:delText", "gone"), look=f"{listed}<w:rPr><w:del/></w:rPr>")

    assert lines(read_bytes, item("a", 1) + gone + item("b", 1), lists) == ["1. a", "2. b"]


def test_numbers_of_hostile_size_are_short(read_bytes: ReadBytes) -> None:
    wild = definition(0, level(0, "%1" * 99, "lowerLetter", start=999_999_999), level(8, "%9%8%1", start=10**12))
    body = item("a", 1) + item("b", 1, 8) + item("c", 1, 99)

    (found, *more) = lines(read_bytes, body, wild + numbers(1, 0))

    assert len(found) == 9 * 50 + 2
    assert more == ["01999999999 b", "11999999999 c"]
