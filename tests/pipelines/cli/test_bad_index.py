"""An index that is missing, damaged, newer, of another spec or in use: an error that says so, and nothing lost."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import manifest_bytes, read_manifest

from ..conftest import Done
from .bad_input_kit import TINY, check_still_answers, damage, documents_of

Run = Callable[..., Done]


def test_where_there_is_no_index_the_message_says_what_is_there(run: Run, small_corpus: Path, folder: Path) -> None:
    (folder / "begun").mkdir()
    (folder / "begun" / "LOCK").touch()
    name_another = "  hint: name another folder with --index\n"
    wanted = {
        "nowhere": "there is no such folder\n  hint: build the index first, or name another folder with --index\n",
        "corpus": f"it is not an index: manifest.json is missing\n{name_another}",
        "corpus/lease.txt": f"it is a file, not a folder\n{name_another}",
        "begun": "the index is not built yet: nothing was committed\n"
        "  hint: run the same 'ragidx build' or 'ragidx reindex' again\n",
    }

    for command in (["query", "x"], ["info"], ["verify"]):
        for place, message in wanted.items():
            assert run(*command, "--index", place) == (2, "", f"Error: {place}: {message}")


@pytest.mark.parametrize("command", [["query", "x"], ["info"], ["verify"], ["build", "corpus"], ["compact"]])
def test_a_folder_whose_name_is_no_utf_8_is_refused_and_not_made(
    command: list[str], run: Run, small_corpus: Path, folder: Path
) -> None:
    done = run(*command, "--index", "ind\udcff")

    hint = "rename the folder, or name another one with --index"
    assert done == (2, "", f"Error: ind?: its name is not UTF-8\n  hint: {hint}\n")
    assert not (folder / "ind\udcff").exists()


@pytest.mark.usefixtures("model")
def test_a_build_touches_no_folder_that_is_something_else(run: Run, small_corpus: Path) -> None:
    before = sorted(small_corpus.iterdir())

    folder, file = (run("build", "corpus", *TINY, "--index", place) for place in ("corpus", "corpus/lease.txt"))

    hint = "  hint: choose another folder with --index\n"
    assert folder == (2, "", f"Error: corpus: it is not an index, and not empty\n{hint}")
    assert file == (2, "", f"Error: corpus/lease.txt: it is a file, not a folder\n{hint}")
    assert sorted(small_corpus.iterdir()) == before


def test_a_damaged_manifest_is_told_and_its_copy_mends_it(run: Run, index: Path) -> None:
    damage(index / "manifest.json")

    for args in (["query", "x"], ["info"], ["build", "corpus"]):
        assert run(*args) == (
            2,
            "",
            "Error: ragidx-index/manifest.json: the manifest is damaged: checksum: it does not fit the rest\n"
            "  hint: copy the newest manifest.<number>.json beside it over manifest.json, "
            "or build again with --rebuild\n",
        )

    shutil.copy(index / "manifest.1.json", index / "manifest.json")
    check_still_answers(run)


HEAL = "  hint: put it back from a copy, or build again with --rebuild\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vectors.faiss", "chunks.arrow"])
def test_a_flipped_byte_is_told_and_a_rebuild_mends_it(run: Run, index: Path, name: str) -> None:
    damage(index / "segments" / "00000001-0000" / name)

    for args in (["query", "x"], ["info"], ["build", "corpus"]):
        assert run(*args) == (
            2,
            "",
            f"Error: ragidx-index/segments/00000001-0000/{name}: "
            f"the file is damaged: its checksum differs from the manifest's\n{HEAL}",
        )

    assert documents_of(run("build", "corpus", *TINY, "--rebuild")) == 6
    status, out, err = run("verify")
    assert (status, out) == (0, "ragidx-index: intact\n")
    assert "there is no rollback to generation 1; the committed state is not touched" in err


def test_verify_reads_the_spec_as_a_question_does(run: Run, index: Path) -> None:
    manifest = read_manifest(index)
    spec = manifest.to_json()["spec"]
    spec["chunk"]["size"] = True
    assert manifest.to_json()["spec"] != spec  # a caller's change of what it was given is its own
    (index / "manifest.json").write_bytes(manifest_bytes(dataclasses.replace(manifest, spec=spec)))

    asked, verified = run("query", "x"), run("verify")

    assert asked.status == 2
    assert "ChunkSpec.size is True, not int" in asked.err
    assert verified.status == 1
    assert "ChunkSpec.size is True, not int" in verified.out


@pytest.mark.slow
@pytest.mark.usefixtures("small_corpus", "model")
@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ("--dim 4", "--tau is 2 in the index, not set now; --dim is not set in the index, 4 now"),
        (
            "--filter none",
            "--filter is 'embedfilter' in the index, 'none' now; --tau is 2 in the index, not set now",
        ),
        ("--chunk-size none", "--chunk-size is 256 in the index, not set now"),
    ],
)
def test_another_spec_for_an_index_is_an_error_that_says_what_differs(run: Run, options: str, difference: str) -> None:
    assert run("build", "corpus", "--model", "tiny", "--method", "echo", "--tau", "2").status == 0

    done = run("build", "corpus", *options.split())

    shrink = "; 'ragidx shrink --dim 4 --index ragidx-index' makes it narrower, and encodes nothing"
    narrower = shrink if options == "--dim 4" else ""
    assert done == (
        2,
        "",
        f"Error: ragidx-index: the index was built with other options: {difference}\n"
        f"  hint: remove the option to update the index, "
        f"name another --index, or replace this one with --rebuild{narrower}\n",
    )
    assert json.loads(run("info", "--json").out)["generation"] == 1


@pytest.mark.usefixtures("index")
def test_another_index_type_is_an_error_that_names_the_way_without_encoding(run: Run) -> None:
    done = run("build", "corpus", "--index-type", "hnsw")

    assert done == (
        2,
        "",
        "Error: ragidx-index: the index was built with other options: --index-type is 'auto' in the index, 'hnsw' now\n"
        "  hint: remove the option to update the index, "
        "name another --index, or replace this one with --rebuild; 'ragidx reindex DIR "
        "--index ragidx-index --index-type hnsw' makes one of that type beside it, and encodes nothing\n",
    )
    assert run("reindex", "DIR", "--index", "ragidx-index", "--index-type", "hnsw").status == 0


def test_two_builds_at_once_are_one_build_and_an_error(run: Run, index: Path) -> None:
    lock = Lock(index)
    try:
        done = run("build", "corpus")
        check_still_answers(run)
    finally:
        lock.release()

    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(
        rf"Error: ragidx-index: the index is being written by process {os.getpid()}, "
        r"since \d{4}-\d\d-\d\d [\d:]{8} UTC"
        r"\n  hint: wait until that ends, then run again\n",
        done.err,
    )
    assert run("build", "corpus").status == 0
