"""Office packages: what nobody asked for is counted, and what is damaged does not end the reading."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ragidx.corpora.left_out import Tally
from ragidx.corpora.limits import Limits, UnreadableError
from ragidx.corpora.readers.office.package import Package, about, properties

from ..fuzz.office_files import zipped
from ..markers.office import part, related


def made(tmp_path: Path, parts: dict[str, str | bytes], limits: Limits | None = None) -> Package:
    path = tmp_path / "a.docx"
    path.write_bytes(zipped(parts))
    return Package(path, limits or Limits(), Tally())


def test_parts_that_were_not_opened_are_counted_by_what_they_are(tmp_path: Path) -> None:
    word = "vbaProject.bin media/a.PNG embeddings/o.bin activeX/x.bin chunk.rtf theme/theme1.xml diagrams/drawing1.xml"
    word += " embeddings/a.zip embeddings/Old.doc embeddings/plan.vsdx embeddings/shown.emf more/plan.pdf font.vml"
    names = [*(f"word/{name}" for name in word.split()), "docProps/thumbnail.jpeg", "customXml/item1.xml"]
    package = made(
        tmp_path,
        {
            **dict.fromkeys(names, "<a>b</a>"),
            "word/new.xml": part("x:a", "two words"),
            "word/bad.xml": "<!DOCTYPE a><a/>",
            "word/asked.xml": part("x:a", "three more words"),
            "word/new.zz": part("x:a", "four words of XML"),
            "word/notes": "five words of plain text",
            "word/data.bin": b"no\0text",
            "word/data.dat": b"\xff\xfe\xfd",
            "word/style.css": "p { margin: 0 }",
        },
    )

    package.tree("word/asked.xml")
    package.count_unopened()

    assert {kind: count for kind, (count, _) in package.left.items()} == {
        **{"scripts": 1, "pictures": 2, "embedded objects": 7},
        **{"words of unknown parts": 11, "damaged parts": 1},
    }


def test_of_two_parts_of_one_name_the_first_is_read_and_the_other_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (("a.xml", "first"), ("A.XML", "second")):
            archive.writestr(name, f"<a>{text}</a>")

    package = Package(path, Limits(), Tally())

    assert (package.tree("a.xml").text, package.left) == ("first", {"damaged parts": (1, "")})


def test_elements_are_given_as_they_end_and_last_what_is_around_them(tmp_path: Path) -> None:
    package = made(tmp_path, {"a.xml": "<a><b>0</b><body><c>1</c>x<d><c>2</c></d></body><e>3</e></a>"})

    found = ["".join(element.itertext()) for element in package.elements("a.xml", "body")]

    assert found == ["1", "2", "03"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(archive_members=1), "has more than 1 parts"),
        (Limits(archive_bytes=1 << 10), "unpacks to more than 1 KiB"),
        (Limits(office_text_bytes=1 << 10), "has a part of more than 1 KiB"),
    ],
)
def test_bounds_are_of_what_is_read(tmp_path: Path, limits: Limits, reason: str) -> None:
    with pytest.raises(UnreadableError) as fault:
        made(tmp_path, {"a.xml": "<a/>", "b.xml": f"<a>{'x' * 2000}</a>"}, limits).tree("b.xml")

    assert str(fault.value) == reason


def test_a_member_that_is_damaged_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(zipped({"a.xml": "<a>word</a>"}).replace(b"\x00\x00a.xml", b"\x00\x00b.xml", 1))
    package = Package(path, Limits(), Tally())

    assert package.tree("a.xml").text is None
    assert package.left == {"damaged parts": (1, "#a.xml")}


def test_properties_have_the_names_of_elements_or_of_attributes(tmp_path: Path) -> None:
    user = (
        '<x:meta><x:user x:name="Client"><x:v>Kingfisher</x:v></x:user><x:title> A  title </x:title><x:none/></x:meta>'
    )
    package = made(tmp_path, {"meta.xml": part("x:a", user)})

    assert properties(package, "meta.xml", "none.xml") == {"Client": "Kingfisher", "title": "A title"}


def test_properties_of_a_document_are_found_by_its_relations(tmp_path: Path) -> None:
    package = made(
        tmp_path,
        {
            "_rels/.rels": related(("c", "core-properties", "package/core.psmdcp")),
            "package/core.psmdcp": part(
                "x:a", f"<x:title>{'T' * 9999}</x:title><x:category>{'long ' * 999}</x:category>"
            ),
        },
    )

    found = about(package)

    assert (found.title, found.author, [*found.fields]) == ("T" * 1000, "", ["category"])
    assert len(found.fields["category"]) == 1000
