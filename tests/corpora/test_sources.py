from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import BY_RULE, SETTINGS, Source, sources
from ragidx.indexer.store.files import JOURNAL, LOCK, MANIFEST, SEGMENTS, segment_id
from ragidx.indexer.writing.journal import Journal
from ragidx.pipelines.cli.config import NAME

from ..raising import message_of
from .conftest import plant, walk


def test_files_come_sorted_by_name_within_each_folder(tmp_path: Path) -> None:
    plant(tmp_path, "b.txt", "a/z.txt", "a/b/c.txt", "B.txt", "a.txt", "é.txt")

    names, skips = walk(tmp_path)

    assert names == ["B.txt", "a/b/c.txt", "a/z.txt", "a.txt", "b.txt", "é.txt"]
    assert skips == {}


def test_a_source_knows_its_path_name_and_size(tmp_path: Path) -> None:
    plant(tmp_path, "a/b.txt")

    found = list(sources(tmp_path, on_skip=pytest.fail))

    assert found == [Source(tmp_path / "a" / "b.txt", "a/b.txt", 1)]


def test_a_single_file_is_named_by_itself(tmp_path: Path) -> None:
    plant(tmp_path, "sub/.notes.txt")

    assert walk(tmp_path / "sub" / ".notes.txt") == ([".notes.txt"], {})


def test_a_corpus_that_is_a_link_is_followed(tmp_path: Path) -> None:
    plant(tmp_path, "real/a.txt")
    (tmp_path / "link").symlink_to("real")

    assert walk(tmp_path / "link") == (["a.txt"], {})


def test_a_dash_is_standard_input() -> None:
    assert list(sources("-", on_skip=pytest.fail)) == [Source(None, "-", 0)]


def test_names_are_in_unicode_form_nfc(tmp_path: Path) -> None:
    plant(tmp_path, unicodedata.normalize("NFD", "café.txt"))

    assert walk(tmp_path)[0] == ["café.txt"]


def test_two_names_that_differ_only_in_unicode_form_are_one_document_and_a_report(tmp_path: Path) -> None:
    plant(tmp_path, "café.txt", unicodedata.normalize("NFD", "café.txt"))

    names, skips = walk(tmp_path)

    assert names == ["café.txt"]
    assert list(skips.values()) == ["another file has the same name in Unicode form NFC"]


def test_a_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff.txt")).write_text("x")

    assert walk(tmp_path) == ([], {"a\ufffd.txt": "its name is not UTF-8"})


def test_the_settings_are_no_document_unless_they_are_named(tmp_path: Path) -> None:
    assert SETTINGS == NAME
    plant(tmp_path, "a.toml", "ragidx.toml", "sub/ragidx.toml", "folder/ragidx.toml/a.txt")

    names, skips = walk(tmp_path)

    assert names == ["a.toml", "folder/ragidx.toml/a.txt"]
    assert skips == {"ragidx.toml": "settings of ragidx", "sub/ragidx.toml": "settings of ragidx"}
    assert set(skips.values()) <= BY_RULE
    assert walk(tmp_path / "ragidx.toml")[0] == ["ragidx.toml"]


def test_hidden_and_version_control_folders_are_left_out(tmp_path: Path) -> None:
    plant(tmp_path, ".git/config", ".hidden.txt", "CVS/Root", "_darcs/x", "a/.x/y.txt", "a/b.txt")

    names, skips = walk(tmp_path)

    assert names == ["a/b.txt"]
    assert skips == {
        ".git/": "hidden",
        ".hidden.txt": "hidden",
        "CVS/": "folder of a version control system",
        "_darcs/": "folder of a version control system",
        "a/.x/": "hidden",
    }
    assert BY_RULE.issuperset(skips.values())


def test_nested_gitignore_files_hold_below_their_folder_and_the_inner_one_decides(tmp_path: Path) -> None:
    plant(tmp_path, "keep.log", "a.log", "build/x.txt", "sub/b.log", "sub/deep/c.log", "sub/top.txt", "top.txt")
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n/top.txt\n")
    (tmp_path / "sub" / ".gitignore").write_text("!b.log\r\n# a comment\r\n")

    names, skips = walk(tmp_path)

    assert names == ["keep.log", "sub/b.log", "sub/top.txt"]
    assert {where for where, reason in skips.items() if reason == "ignored by .gitignore"} == {
        "a.log",
        "build/",
        "sub/deep/c.log",
        "top.txt",
    }


@pytest.mark.parametrize("line", ["!", "*a" * 3000])  # longer than a path can be
def test_a_line_that_is_no_gitignore_rule_is_reported_and_the_others_hold(tmp_path: Path, line: str) -> None:
    plant(tmp_path, "a.log", "b.txt")
    (tmp_path / ".gitignore").write_text(f"{line}\n*.log\n")

    names, skips = walk(tmp_path)

    assert names == ["b.txt"]
    assert skips[".gitignore:1"] == "not a valid .gitignore rule"


def test_a_gitignore_file_beyond_all_measure_is_not_read(tmp_path: Path) -> None:
    plant(tmp_path, "a.log")
    (tmp_path / ".gitignore").write_bytes(b"*.log\n" * 200_000)
    reported: list[Skip] = []

    names = [source.name for source in sources(tmp_path, on_skip=reported.append)]

    assert names == ["a.log"]
    assert Skip(".gitignore", "rules of more than 1 MiB are not read") in reported


def test_include_keeps_what_one_glob_matches(tmp_path: Path) -> None:
    plant(tmp_path, "a.md", "b.txt", "docs/c.rst", "docs/d.md")

    names, skips = walk(tmp_path, include=["*.md", "docs/"])

    assert names == ["a.md", "docs/c.rst", "docs/d.md"]
    assert skips == {"b.txt": "not matched by `include`"}


def test_exclude_leaves_out_files_and_whole_folders(tmp_path: Path) -> None:
    plant(tmp_path, "a.md", "b.txt", "old/c.md", "old/d/e.md")

    names, skips = walk(tmp_path, exclude=["*.txt", "old/"])

    assert names == ["a.md"]
    assert skips == {"b.txt": "matched by `exclude`", "old/": "matched by `exclude`"}


A_SEGMENT = f"{SEGMENTS}/{segment_id(1, 0)}/vectors.faiss"
A_JOURNAL = Journal.path_of(Path(JOURNAL), "0123456789abcdef" * 4).as_posix()


@pytest.mark.parametrize("file", [MANIFEST, LOCK])
@pytest.mark.parametrize("other", [A_SEGMENT, A_JOURNAL, f"{SEGMENTS}/", f"{JOURNAL}/"])
def test_an_index_is_left_out_as_one_and_no_file_of_it_is_read(file: str, other: str, tmp_path: Path) -> None:
    plant(tmp_path, "a.md", f"sub/old/{file}", "sub/old/b.md", "sub/old/c/d.md")
    plant(tmp_path, f"sub/old/{other}") if not other.endswith("/") else (tmp_path / "sub/old" / other).mkdir()
    (tmp_path / "sub/old/.gitignore").write_text("!\n")  # whoever reads it reports the line

    names, skips = walk(tmp_path)

    assert names == ["a.md"]
    assert skips == {"sub/old/": "a ragidx index"}
    assert BY_RULE.issuperset(skips.values())


@pytest.mark.parametrize(
    "names",
    [
        [LOCK],
        [MANIFEST],
        [A_SEGMENT, A_JOURNAL],
        [MANIFEST, f"{SEGMENTS}/0001.txt"],
        [LOCK, f"{JOURNAL}/2024.md"],
        [MANIFEST, SEGMENTS],
        [f"{LOCK}/a.txt", A_SEGMENT],
        ["manifest.2.json", A_SEGMENT],
    ],
    ids=",".join,
)
def test_a_folder_that_has_something_in_common_with_an_index_is_read(names: list[str], tmp_path: Path) -> None:
    plant(tmp_path / "kept", *names)

    found, skips = walk(tmp_path)

    assert sorted(found) == sorted(f"kept/{name}" for name in names)
    assert skips == {}


def test_links_make_no_index_of_a_folder(tmp_path: Path) -> None:
    plant(tmp_path, "a/one.md", f"a/{A_SEGMENT}", "b/two.md", f"b/{MANIFEST}", f"b/kept/{segment_id(1, 0)}")
    (tmp_path / "a" / LOCK).symlink_to("one.md")
    (tmp_path / "b" / SEGMENTS).symlink_to("kept")

    names, skips = walk(tmp_path)

    assert names == ["a/one.md", f"a/{A_SEGMENT}", f"b/kept/{segment_id(1, 0)}", f"b/{MANIFEST}", "b/two.md"]
    assert skips == {
        f"a/{LOCK}": "link to a file of the same corpus",
        f"b/{SEGMENTS}": "link to a folder of the same corpus",
    }


def test_what_somebody_leaves_out_is_so_also_where_it_is_an_index(tmp_path: Path) -> None:
    for name in (".hidden", "ignored", "excluded"):
        plant(tmp_path / name, LOCK, A_SEGMENT)
    (tmp_path / ".gitignore").write_text("ignored/\n")

    names, skips = walk(tmp_path, exclude=["excluded"], indexes=["excluded", "ignored"])

    assert names == []
    assert skips == {
        ".gitignore": "hidden",
        ".hidden/": "hidden",
        "excluded/": "matched by `exclude`",
        "ignored/": "ignored by .gitignore",
    }


@pytest.mark.parametrize("folder", ["index", "a/b/index", "café", "in[d]ex*", "!index", "index "])
@pytest.mark.parametrize("holds", [LOCK, "notes.md"])
def test_an_index_that_is_known_by_name_is_left_out_whatever_it_holds(folder: str, holds: str, tmp_path: Path) -> None:
    plant(tmp_path, f"{folder}/{holds}", f"z/{folder}/a.md")

    names, skips = walk(tmp_path, indexes=[folder])

    assert names == [f"z/{folder}/a.md"]
    assert skips == {f"{folder}/": "a ragidx index"}


def test_a_glob_that_is_none_is_an_error() -> None:
    said = message_of(SpecError, lambda: sources(".", include=["!"], on_skip=pytest.fail))

    assert said == "`include`: invalid git pattern: '!'\n  hint: write it as in a .gitignore file"


def test_fifos_and_sockets_are_left_out_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    os.mkfifo("pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.txt")

        names, skips = walk(".")

    assert names == []
    assert skips == {"pipe.txt": "not a regular file: FIFO", "s.txt": "not a regular file: socket"}


def test_a_device_is_left_out(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "null", 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")

    assert walk(tmp_path) == ([], {"null": "not a regular file: device"})


@pytest.mark.slow
def test_folders_nested_deeper_than_python_calls_are_walked(tmp_path: Path) -> None:
    path = str(tmp_path)
    try:
        for _ in range(1500):
            path += "/d"
            Path(path).mkdir()
        Path(path, "x.txt").write_text("x")
        names, skips = walk(tmp_path)
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)  # shutil recurses

    assert names == ["d/" * 1500 + "x.txt"]
    assert skips == {}


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("none", lambda path: None, "cannot be opened: No such file or directory\n"
         "  hint: give a folder, a file, or - for standard input"),
        ("pipe", os.mkfifo, "is a FIFO, not a file or folder\n  hint: give - to read standard input"),
        ("a\udcff.txt", Path.touch, "its name is not UTF-8\n  hint: rename the file"),
        ("index", lambda path: plant(path, MANIFEST, A_SEGMENT), "is an index, not a corpus\n"
         "  hint: name a folder of documents"),
    ],
)  # fmt: skip
def test_what_is_no_corpus_is_an_error(tmp_path: Path, name: str, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / name)

    said = message_of(CorpusError, lambda: walk(tmp_path / name))

    assert said == f"{tmp_path}/{name}: {message}".replace("\udcff", "\ufffd")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=9).filter(
    lambda name: not name.startswith(".") and len(name.encode()) < 200
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, unique_by=lambda name: unicodedata.normalize("NFC", name), max_size=6))
def test_every_file_is_found_once_whatever_its_name(tmp_path: Path, names: list[str]) -> None:
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    plant(root, *names)

    found, skips = walk(root)

    assert sorted(found) == sorted(unicodedata.normalize("NFC", name) for name in names)
    assert skips == {} or "folder of a version control system" in skips.values()
