"""Archives: members read by their endings, and everything that a hostile one may hold."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from ragidx.corpora.limits import MIB, Limits, ReadOptions

from ..conftest import ReadBytes
from ..fuzz.office_files import pdf, tarred, zipped

FILES = {"docs/a.md": "# Lakes\n\nBaikal.", "b.txt": "Tanganyika.", "rows.csv": "id,text\n7,Tahoe\n"}


def linked(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("odd")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.zip", zipped(FILES)),
        ("x.tar", tarred(FILES)),
        ("x.tar.gz", tarred(FILES, "w:gz")),
        ("x.tgz", tarred(FILES, "w:gz")),
        ("x.tar.bz2", tarred(FILES, "w:bz2")),
        ("x.tar.xz", tarred(FILES, "w:xz")),
        ("x.TXZ", tarred(FILES, "w:xz")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_members_are_documents_named_below_the_archive(read_bytes: ReadBytes, name: str, data: bytes) -> None:
    found = read_bytes(name, data)

    assert [(document.id, document.text) for document in found.documents] == [
        (f"{name}/docs/a.md", "# Lakes\n\nBaikal."),
        (f"{name}/b.txt", "Tanganyika."),
        (f"{name}/rows.csv#7", "Tahoe"),
    ]
    assert found.documents[0].metadata == {"title": "Lakes"}
    assert found.reasons == []


def test_odd_members_are_named_and_the_others_read(read_bytes: ReadBytes) -> None:
    members = {
        "../up.txt": "x",
        "a/../../up.txt": "x",
        ".hidden/x.txt": "x",
        "__MACOSX/x.txt": "x",
        "inner.zip": zipped(FILES),
        "inner.tar.gz": tarred(FILES, "w:gz"),
        "picture.png": b"\x89PNG\r\n\x1a\n\0\0",
        "empty.txt": "",
        "x" * 5000: "x",
        "/good.txt": "Good.",
        "good.txt": "Again.",
        "also\\good.txt": "Good, too.",
    }

    found = read_bytes("x.zip", zipped(members))

    assert found.texts == ["Good.", "Good, too."]
    assert found.ids == ["x.zip/good.txt", "x.zip/also/good.txt"]
    assert found.reasons == [
        ("x.zip/../up.txt", "its name leads out of the archive"),
        ("x.zip/a/../../up.txt", "its name leads out of the archive"),
        ("x.zip/.hidden/x.txt", "hidden"),
        ("x.zip/__MACOSX/x.txt", "hidden"),
        ("x.zip/inner.zip", "an archive inside another file"),
        ("x.zip/inner.tar.gz", "an archive inside another file"),
        ("x.zip/picture.png", "picture, not read without `ocr`"),
        ("x.zip/empty.txt", "empty text"),
        (f"x.zip/{'x' * 100}...", "its name has more than 4,096 characters"),
        ("x.zip/good.txt", "another member has the same name"),
    ]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_only_regular_members_of_a_tar_are_read(read_bytes: ReadBytes, kind: bytes) -> None:
    found = read_bytes("x.tar", tarred({"odd": linked(kind), "b.txt": "Good."}))

    assert (found.texts, found.reasons) == (["Good."], [("x.tar/odd", "not a regular file")])


def test_links_in_a_zip_are_not_read(read_bytes: ReadBytes) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("b.txt", "Good.")

    found = read_bytes("x.zip", sink.getvalue())

    assert (found.texts, found.reasons) == (["Good."], [("x.zip/link.txt", "not a regular file")])


def test_encrypted_and_unknown_members_are_reported(read_bytes: ReadBytes) -> None:
    data = bytearray(zipped({"a.txt": "secret", "b.txt": "odd", "c.txt": "Good."}))
    for name, place, value in ((b"a.txt", 8, 1), (b"b.txt", 10, 99)):  # flags and method, in the directory
        entry = data.rfind(b"PK\x01\x02", 0, data.rfind(name))
        data[entry + place] = value
        data[data.find(b"PK\x03\x04", 0, data.find(name) + 1) + place - 2] = value

    found = read_bytes("x.zip", bytes(data))

    assert found.texts == ["Good."]
    assert found.reasons == [
        ("x.zip/a.txt", "encrypted"),
        ("x.zip/b.txt", "packed by a method that is not read"),
    ]


def test_a_damaged_member_does_not_lose_the_others(read_bytes: ReadBytes) -> None:
    data = zipped({"a.txt": "x" * 5000, "b.txt": "Good."})
    broken = data.replace(data[40:50], b"\xff" * 10, 1)

    found = read_bytes("x.zip", broken)

    assert found.texts == ["Good."]
    assert found.reasons[0][0] == "x.zip/a.txt"
    assert found.reasons[0][1].startswith("damaged: ")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "tar", "tgz"])
def test_an_archive_cut_anywhere_never_ends_the_reading(read_bytes: ReadBytes, kind: str) -> None:
    data = zipped(FILES) if kind == "zip" else tarred(FILES, "w:gz" if kind == "tgz" else "w")

    for end in range(0, 3072 if kind == "tar" else len(data), 37):
        found = read_bytes(f"x.{kind}", data[:end])
        assert found.reasons or end % 512 == 0  # a tar may end after any member


LIMITS = Limits(archive_bytes=MIB, archive_members=3)


@pytest.mark.parametrize("kind", ["zip", "tar", "tgz"])
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"a.txt": "Good.", "b.txt": "x" * 2 * MIB, "c.txt": "x"}, "expands to more than 1 MiB: the rest is skipped"),
        ({f"{n}.txt": "x" for n in range(9)}, "an archive of more than 3 files: the rest is skipped"),
    ],
)
def test_bounds_count_what_is_read(
    read_bytes: ReadBytes, kind: str, members: dict[str, str], reason: str
) -> None:  # fmt: skip
    data = zipped(members) if kind == "zip" else tarred(members, "w:gz" if kind == "tgz" else "w")

    found = read_bytes(f"x.{kind}", data, ReadOptions(limits=LIMITS))

    assert 1 <= len(found.documents) <= 3
    assert [why for _, why in found.reasons] == [reason]


@pytest.mark.slow
def test_a_zip_that_lies_about_a_size_is_bounded_by_what_it_gives(read_bytes: ReadBytes) -> None:
    data = bytearray(zipped({"a.txt": b"x" * 4 * MIB}))
    entry = data.find(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (5).to_bytes(4, "little")  # the size of 4 MiB in the directory

    found = read_bytes("x.zip", bytes(data), ReadOptions(limits=LIMITS))

    assert sum(map(len, found.texts)) <= 5
    assert found.reasons[0][0] == "x.zip/a.txt"


def test_a_chain_of_headers_ends_in_a_report(read_bytes: ReadBytes) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1
    data = (header.tobuf(tarfile.GNU_FORMAT) + b"x" + bytes(511)) * 1000

    found = read_bytes("x.tar", data)

    assert found.reasons == [("x.tar", "damaged: headers nested too deep: the rest is skipped")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x.zip", "expands to more than 100 times its size: the rest is skipped"),
        ("x.tar.bz2", "expands to more than 200 times its size"),
    ],
)
def test_a_bomb_of_many_times_its_size_is_stopped(read_bytes: ReadBytes, name: str, reason: str) -> None:
    members = {"a.txt": "Good.", "b.txt": b"x" * 90 * MIB}

    found = read_bytes(name, zipped(members) if name == "x.zip" else tarred(members, "w:bz2"))

    assert found.texts == ["Good."]
    assert found.reasons[0] == (f"{name}/b.txt", reason)
    assert {why for _, why in found.reasons} == {reason}


@pytest.mark.slow
def test_members_that_are_packed_or_need_a_path_are_read_as_files_are(read_bytes: ReadBytes) -> None:
    pytest.importorskip("pypdfium2", reason="needs the extra 'docs'")
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": ["k"], "text": ["Vostok."]}), sink)
    members = {"a.pdf": pdf([["Baikal"], ["Tahoe"]]), "b.txt.gz": gzip.compress(b"Deep."), "c.parquet": sink.getvalue()}

    for name, data in {"x.zip": zipped(members), "x.tgz": tarred(members, "w:gz")}.items():
        found = read_bytes(name, data)

        assert found.reasons == []
        assert [(document.id, document.text) for document in found.documents] == [
            (f"{name}/a.pdf", "Baikal\n\nTahoe"),
            (f"{name}/b.txt.gz", "Deep."),
            (f"{name}/c.parquet#k", "Vostok."),
        ]
        assert [place.page for place in found.documents[0].places] == [1, 2]


@pytest.mark.parametrize(
    ("name", "data", "fault"),
    [
        ("x.tar", tarred({"\udcff.txt": "x", "b.txt": "Good."}), ("x.tar/?.txt", "its name is not UTF-8")),
        ("x.zip", zipped({"\1.txt": "x", "b.txt": "Good."}).replace(b"\1.txt", b"\0.txt"),  # zipfile cuts it at a NUL
         ("x.zip/", "its name leads out of the archive")),
    ],
    ids=["tar", "zip"],
)  # fmt: skip
def test_a_member_without_a_name_that_can_be_used_is_reported(
    read_bytes: ReadBytes, name: str, data: bytes, fault: tuple[str, str]
) -> None:
    found = read_bytes(name, data)

    assert (found.texts, found.reasons) == (["Good."], [fault])
