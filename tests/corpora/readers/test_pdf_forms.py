"""PDF: what is typed into forms and notes, and what of them is counted."""

from __future__ import annotations

from typing import Any

import pypdf
import pytest

from ..conftest import ReadBytes
from ..markers.pdf_pages import entries, form, forms, note, page, shown, stream, written

pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")


def field(writer: Any, made: Any, name: str, kind: str = "Tx", **values: Any) -> Any:
    return note(writer, made, "Widget", FT=f"/{kind}", T=name, DA="/F1 11 Tf 0 g", **values)


def test_values_of_fields_are_lines_at_the_end_of_their_page(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    made = page(writer, [shown("Application", 50, 800)])
    drawn = form(writer, [shown("Bartholomew Quince", 2, 4)])
    fields = [
        field(writer, made, "applicant", V="Bartholomew Quince", AP=entries(N=drawn)),
        field(writer, made, "vessel", V="MV Persimmon"),
        field(writer, made, "remarks", V="two lines\rof remarks", Ff=4096),
        field(writer, made, "berth", "Ch", V="n", Opt=[["n", "north quay"], ["s", "south quay"]], Ff=1 << 17),
        field(writer, made, "cargo", "Ch", V=["salt", "rope"], I=[0, 2], Opt=["salt", "coal", "rope"], Ff=1 << 21),
        field(writer, made, "insured", "Btn", V="/Yes", AS="/Yes", AP=entries(N=entries(Yes=drawn, Off=drawn))),
        field(writer, made, "armed", "Btn", V="/Off", AS="/Off", AP=entries(N=entries(Yes=drawn, Off=drawn))),
        field(writer, made, "send", "Btn", V="/Send", Ff=1 << 16),
        field(writer, made, "empty"),
        field(writer, made, "secret", V="hidden word", Ff=1 << 13),
        field(writer, made, "shadow", V="three hidden words", F=2),
    ]
    choice = writer._add_object(entries(FT="/Btn", T="pilot", V="/With", Ff=1 << 15, Kids=[]))
    for state in ("With", "Without"):
        shown_as = "/With" if state == "With" else "/Off"
        one = note(
            writer, made, "Widget", Parent=choice, AS=shown_as, AP=entries(N=entries(**{state: drawn, "Off": drawn}))
        )
        choice.get_object()[pypdf.generic.NameObject("/Kids")].append(one)
    address = writer._add_object(entries(T="address", Kids=[]))
    town = note(writer, made, "Widget", FT="/Tx", T="town", V="Wick", Parent=address)
    address.get_object()[pypdf.generic.NameObject("/Kids")].append(town)
    forms(writer, [*fields, choice, address])
    page(writer, [shown("Next page", 50, 800)])

    found = read_bytes("a.pdf", written(writer))

    assert found.texts == [
        "Application\napplicant: Bartholomew Quince\nvessel: MV Persimmon\nremarks: two lines of remarks\n"
        "berth: north quay\ncargo: salt, rope\ninsured: Yes\npilot: With\naddress.town: Wick\n\nNext page"
    ]
    assert found.kinds == {"choices of forms": 2, "hidden words": 6}


@pytest.mark.parametrize("has_forms", [False, True])
def test_a_field_that_no_form_lists_is_read(has_forms: bool, read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    made = page(writer, [shown("Application", 50, 800)])
    if has_forms:
        forms(writer, [field(writer, made, "berth", V="north")])
    field(writer, made, "vessel", V="MV Persimmon")

    (text,) = read_bytes("a.pdf", written(writer)).texts

    assert text.split("\n") == ["Application", *["berth: north"] * has_forms, "vessel: MV Persimmon"]


def test_what_notes_say_is_text_and_what_is_beside_it_is_counted(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    made = page(writer, [shown("Printed line", 50, 800)])
    for kind in ("FreeText", "Text", "Highlight", "Stamp", "Line"):
        note(writer, made, kind, Contents=f"said by {kind}", T="Mara")
    note(writer, made, "Popup", Contents="said by Popup")
    note(writer, made, "Text", Contents="first line\r\nsecond line")
    note(writer, made, "Link", A=entries(S="/URI", URI="https://example.org"))
    note(writer, made, "Stamp", AP=entries(N=form(writer, [shown("only drawn", 2, 4)])))
    file = stream(writer, b"attached", Type="/EmbeddedFile")
    note(writer, made, "FileAttachment", FS=entries(Type="/Filespec", F="a.txt", EF=entries(F=file)))
    writer.add_attachment("b.txt", b"attached to the whole")

    found = read_bytes("a.pdf", written(writer))

    said = "\n".join(f"said by {kind}" for kind in ("FreeText", "Text", "Highlight", "Stamp", "Line"))
    assert found.texts == [f"Printed line\n{said}\nfirst line\nsecond line"]
    assert found.kinds == {
        "attached files": 2,
        "authors of comments": 5,
        "addresses of links": 1,
        "embedded objects": 1,
    }


def test_a_scan_with_a_note_is_a_page_and_counted(read_bytes: ReadBytes) -> None:
    writer = pypdf.PdfWriter()
    picture = stream(
        writer,
        b"\0",
        Type="/XObject",
        Subtype="/Image",
        Width=1,
        Height=1,
        BitsPerComponent=8,
        ColorSpace="/DeviceGray",
    )
    made = page(writer, ["q 595 0 0 842 0 0 cm /I Do Q"], XObject=entries(I=picture))
    note(writer, made, "Text", Contents="See the stamp")
    with_words = ["q 595 0 0 842 0 0 cm /I Do Q", "3 Tr", shown("read by another program", 50, 800)]
    page(writer, with_words, XObject=entries(I=picture))

    found = read_bytes("a.pdf", written(writer))

    assert found.texts == ["See the stamp\n\nread by another program"]
    assert [(one.where, one.kind, one.count) for one in found.left] == [("a.pdf#page=1", "scanned pages", 1)]


def test_a_field_that_is_its_own_parent_and_a_form_of_xml_end_nothing(
    read_bytes: ReadBytes, capfd: pytest.CaptureFixture[str]
) -> None:
    writer = pypdf.PdfWriter()
    made = page(writer, [shown("Please wait", 50, 800)])
    one = field(writer, made, "me", V="value")
    one.get_object()[pypdf.generic.NameObject("/Parent")] = one
    forms(writer, [one])
    writer._root_object["/AcroForm"][pypdf.generic.NameObject("/XFA")] = stream(writer, b"<xdp/>")
    writer._root_object[pypdf.generic.NameObject("/NeedsRendering")] = pypdf.generic.BooleanObject(True)

    found = read_bytes("a.pdf", written(writer))

    assert [text.split("\n")[0] for text in found.texts] == ["Please wait"]
    assert found.kinds == {"embedded objects": 1}
    assert capfd.readouterr() == ("", "")
