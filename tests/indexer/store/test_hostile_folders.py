"""Folders that are no index, and manifests that are damaged or lie: each is one error that says what to do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from fault_reader import canonical, sign

from ragidx import __version__
from ragidx.corpora.errors import IndexFormatError

from ...raising import message_of
from .hostile_kit import GO_BACK, refused


def lie(index: Path, change) -> None:
    """Change the manifest and give it a checksum that fits."""
    data = json.loads((index / "manifest.json").read_bytes())
    change(data)
    sign(index, data)


def test_a_folder_that_is_not_there(tmp_path):
    assert refused(tmp_path / "none") == (
        f"{tmp_path / 'none'}: there is no such folder\n"
        "  hint: build the index first, or name another folder with `index`"
    )


def test_a_folder_that_is_no_index(tmp_path):
    (tmp_path / "letter.txt").write_text("hello")

    assert refused(tmp_path) == (
        f"{tmp_path}: it is not an index: manifest.json is missing\n  hint: name another folder with `index`"
    )


def test_an_index_whose_first_build_was_interrupted(tmp_path, kit):
    with kit.writer(tmp_path / "index") as writer:
        kit.add(writer, kit.rows("a", ["one"]))

    assert refused(tmp_path / "index") == (
        f"{tmp_path / 'index'}: the index is not built yet: nothing was committed\n"
        "  hint: run the same 'ragidx build' or 'ragidx reindex' again"
    )


def test_a_folder_of_something_else_is_not_written_to(tmp_path, kit):
    (tmp_path / "letter.txt").write_text("hello")

    assert message_of(IndexFormatError, lambda: kit.writer(tmp_path)) == (
        f"{tmp_path}: it is not an index, and not empty\n  hint: choose another folder with `index`"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def test_a_file_is_not_written_to(tmp_path, kit):
    (tmp_path / "letter.txt").write_text("hello")

    assert message_of(IndexFormatError, lambda: kit.writer(tmp_path / "letter.txt")) == (
        f"{tmp_path / 'letter.txt'}: it is a file, not a folder\n  hint: choose another folder with `index`"
    )


def test_an_empty_folder_is_written_to(tmp_path, kit):
    manifest, _ = kit.build(tmp_path, {"a": ["one"]})

    assert manifest.generation == 1


@pytest.mark.slow
def test_a_part_of_the_index_that_is_a_link_is_not_followed_by_a_writer(index, tmp_path, kit):
    (tmp_path / "elsewhere" / "00000009-0000").mkdir(parents=True)
    shutil.rmtree(index / "segments")
    (index / "segments").symlink_to(tmp_path / "elsewhere")

    assert message_of(IndexFormatError, lambda: kit.writer(index, replace=True)) == (
        f"{index}: 'segments' in it is a link, and is not followed\n  hint: choose another folder with `index`"
    )
    assert (tmp_path / "elsewhere" / "00000009-0000").exists()


def test_a_newer_format_names_both_versions_and_is_never_replaced(index, kit):
    (index / "manifest.json").write_bytes(canonical({"format": 8, "ragidx": "9.1.0", "shape": "unknown"}))
    expected = (
        f"{index / 'manifest.json'}: the index has the format 8 (written by ragidx '9.1.0'); "
        f"ragidx {__version__} reads format 7\n"
        "  hint: install a newer version of ragidx"
    )

    assert refused(index) == expected
    assert message_of(IndexFormatError, lambda: kit.writer(index, replace=True)) == expected


@pytest.mark.parametrize(("required", "shown"), [("heads", "'heads'"), (["heads"], "\"['heads']\"")])
def test_what_a_later_version_requires_is_refused_by_its_name(index, required, shown):
    data = json.loads((index / "manifest.json").read_bytes()) | {"requires": [required]}
    data.pop("checksum")
    (index / "manifest.json").write_bytes(canonical(data))

    assert refused(index).endswith(
        f"the index needs a reader that knows {shown} (written by ragidx '{__version__}')\n"
        "  hint: install a newer version of ragidx"
    )


def test_an_older_format_is_to_be_built_again(index):
    (index / "manifest.json").write_bytes(canonical({"format": 6, "ragidx": "0.0.9"}))

    assert refused(index) == (
        f"{index / 'manifest.json'}: the index has the format 6 (written by ragidx '0.0.9'); "
        f"ragidx {__version__} reads format 7\n  hint: build it again with `rebuild=True`"
    )


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format":7}', b'{"format":NaN}']
)
def test_a_manifest_that_is_none(index, content):
    (index / "manifest.json").write_bytes(content)

    text = refused(index)

    assert text.startswith(f"{index / 'manifest.json'}: the manifest is damaged: ")
    assert text.endswith(GO_BACK)


def test_a_manifest_whose_checksum_does_not_fit(index):
    path = index / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"n_chunks":299', b'"n_chunks":298'))

    assert refused(index) == f"{path}: the manifest is damaged: checksum: it does not fit the rest\n{GO_BACK}"


def test_a_manifest_that_is_a_pipe_is_not_waited_for(index):
    (index / "manifest.json").unlink()
    os.mkfifo(index / "manifest.json")

    assert refused(index) == f"{index / 'manifest.json'}: the manifest is damaged: it is not a plain file\n{GO_BACK}"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["segments"][0].update(id="../../etc"), "segments[0].id: '../../etc' is not allowed there"),
        (lambda d: d["segments"][0].update(id="a/b"), "segments[0].id: 'a/b' is not allowed there"),
        (lambda d: d["files"].update({"../x": d["files"]["filter.safetensors"]}), "files: '../x' is not allowed there"),
        (
            lambda d: d["segments"][0]["files"].update({"x.so": d["deletions"]}),
            "segment 00000001-0000: 'x.so' is unknown",
        ),
        (
            lambda d: d["segments"][0]["files"].pop("ann.faiss"),
            "segment 00000001-0000: 'ann.faiss' is missing",
        ),
        (lambda d: d.update(dim=16), "segment 00000001-0000: vectors.faiss cannot hold 300 rows of 16 dimensions"),
        (lambda d: d.update(dim=65537), "dim: 65537 is not an integer from 1 to 65536"),
        (lambda d: d.update(dim=True), "dim: True is not an integer from 1 to 65536"),
        (lambda d: d.update(dim=8.0), "dim: 8.0 is not an integer from 1 to 65536"),
        (
            lambda d: d["segments"][0].update(rows=2**40),
            "segments[0].rows: 1099511627776 is not an integer from 1 to 2147483647",
        ),
        (lambda d: d["segments"].append(d["segments"][0]), "segments: two have the same id"),
        (lambda d: d.update(n_chunks=-1), "n_chunks: -1 is not an integer from 0 to 9007199254740992"),
        (lambda d: d.update(n_chunks=303), "n_chunks: 303 is more than the 302 rows of the segments"),
        (lambda d: d["index"].update(index_type="exec"), "index: unknown index type 'exec'"),
        (lambda d: d["index"].update(index_type=1), "index.index_type: 1 is not allowed there"),
        (
            lambda d: d["index"].update(index_type="HNSW16" * 30),
            f"index.index_type: '{('HNSW16' * 30)[:59]}... is not allowed there",
        ),
        (lambda d: d["index"].update(target_recall=1.5), "index.target_recall: 1.5 is not a number from 0 to 1"),
        (lambda d: d["index"].update(target_recall=0), "index: a recall of 0 is out of range"),
        (lambda d: d["index"].update(target_recall=True), "index.target_recall: True is not a number from 0 to 1"),
        (lambda d: d["index"].update(max_memory=0), "index.max_memory: 0 is not an integer from 1 to 9007199254740992"),
        (lambda d: d.update(index="flat"), "index: it is not an object"),
        (lambda d: d.update(index_type="flat"), "'index_type' is unknown"),
        (
            lambda d: d["segments"][0].update(ann=None),
            "segment 00000001-0000: 'ann.faiss' is unknown",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(factory="Flat"),
            "segments[0].ann: unknown index type 'Flat'; did you mean 'flat'?",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(factory="IVF4,PQ3"),
            "segment 00000001-0000: index type IVF4,PQ3: 3 codes do not divide 8 dimensions",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(beam=-1),
            "segments[0].ann.beam: -1 is not an integer from 0 to 2147483647",
        ),
        (
            lambda d: d["segments"][0]["ann"].update(recall=2),
            "segments[0].ann.recall: 2 is not a number from 0 to 1",
        ),
        (lambda d: d["segments"][0]["ann"].pop("sample"), "segments[0].ann: 'sample' is missing"),
        (lambda d: d["segments"][0].update(ann=[]), "segments[0].ann: it is not an object"),
        (lambda d: d.update(fingerprint="../" * 10), f"fingerprint: '{'../' * 10}' is not allowed there"),
        (lambda d: d.update(schema={"year": "date"}), "schema.year: 'date' is not allowed there"),
        (lambda d: d.update(spec=[]), "spec: it is not an object"),
        (lambda d: d.update(extra=1), "'extra' is unknown"),
        (lambda d: d.pop("notes"), "'notes' is missing"),
        (lambda d: d["deletions"].update(sha256="x" * 64), f"deletions.sha256: '{'x' * 59}... is not allowed there"),
    ],
)
def test_a_manifest_that_lies_is_refused_by_field(index, change, reason):
    lie(index, change)

    assert refused(index) == f"{index / 'manifest.json'}: the manifest is damaged: {reason}\n{GO_BACK}"


def test_more_chunks_than_there_are(index):
    lie(index, lambda data: data.update(n_chunks=3))

    assert refused(index) == (
        f"{index}: the manifest counts 3 chunks, its segments and deletions 299\n"
        "  hint: build again with `rebuild=True`"
    )
