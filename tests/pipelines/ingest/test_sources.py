"""An index of several folders: which are read, what is deleted, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import CorpusError, QueryError, SpecError
from ragidx.indexer.store.source_list import SourceEntry, sources_of, stored_path
from ragidx.pipelines.ingest.build import add
from ragidx.pipelines.maintain.delete import delete, remove_source

from ...raising import message_of

GOOD = {"number": 1, "name": "a", "path": "x", "include": [], "exclude": []}
SMALL = {"filter": ragidx.FilterSpec(dim=16)}


@pytest.fixture
def two(folder: Path) -> Path:
    """An index of `docs/` (a.md, b.md) and `papers/` (a.md), in the working folder."""
    for name, text in (("docs/a.md", "bees"), ("docs/b.md", "wasps"), ("papers/a.md", "ants")):
        write(name, text)
    ragidx.build(["docs", "papers"], "index", **SMALL)
    return folder


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def ids(where: str | None = None) -> list[str]:
    hits = ragidx.Index("index").search("insects", 100, where=where, mode="dense")
    return sorted(hit.doc_id for hit in hits)


def texts(source: str) -> list[str]:
    return sorted(one.text for one in ragidx.Index("index").documents(source=source))


def test_the_first_source_has_bare_ids_and_later_ones_their_name_in_front(two: Path) -> None:
    assert ids() == ["a.md", "b.md", "papers/a.md"]
    assert [(one.name, one.prefix, one.n_documents) for one in ragidx.Index("index").sources()] == [
        ("docs", "", 2),
        ("papers", "papers/", 1),
    ]


@pytest.mark.slow
def test_adding_a_source_encodes_it_alone_and_renames_nothing(two: Path) -> None:
    write("notes/a.md", "crickets")
    report = add("notes", "index")
    assert (report.n_added, report.n_encoded, report.n_removed, report.n_documents) == (1, 1, 0, 4)
    assert ids() == ["a.md", "b.md", "notes/a.md", "papers/a.md"]


@pytest.mark.slow
def test_a_build_without_a_path_brings_all_sources_up_to_date_in_one_commit(two: Path) -> None:
    write("docs/c.md", "hornets")
    Path("papers/a.md").unlink()
    write("papers/b.md", "beetles")
    report = ragidx.build(index="index").report
    assert (report.n_added, report.n_removed, report.generation) == (2, 1, 2)
    assert ids() == ["a.md", "b.md", "c.md", "papers/b.md"]


@pytest.mark.slow
def test_a_build_of_one_source_leaves_the_others(two: Path) -> None:
    write("docs/c.md", "hornets")
    write("papers/b.md", "beetles")
    Path("papers/a.md").unlink()
    report = ragidx.build("docs", "index").report
    assert (report.n_added, report.n_removed, report.n_documents) == (1, 0, 4)
    assert ids() == ["a.md", "b.md", "c.md", "papers/a.md"]


@pytest.mark.slow
def test_files_of_a_source_that_was_not_built_are_not_opened_by_the_next_build_of_all(two: Path) -> None:
    for path in Path().rglob("*.md"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    ragidx.build(index="index", reread=True)
    write("docs/c.md", "hornets")
    ragidx.build("docs", "index")
    papers = ragidx.build("papers", "index").report
    assert (papers.n_files_unopened, papers.n_unchanged) in ((0, 1), (1, 1))  # times of an inode cannot be set back
    assert ragidx.build(index="index").report.n_documents == 4


@pytest.mark.slow
def test_an_idle_build_of_all_commits_nothing(two: Path) -> None:
    assert ragidx.build(index="index").report.committed is False
    assert ragidx.build("papers", "index").report.committed is False


@pytest.mark.slow
def test_removing_a_source_takes_its_documents_and_nothing_else(two: Path) -> None:
    assert remove_source("papers", "index") == 1
    assert ids() == ["a.md", "b.md"]
    assert [one.name for one in ragidx.Index("index").sources()] == ["docs"]
    assert Path("papers/a.md").is_file()
    assert ragidx.build(index="index").report.n_documents == 2
    add("papers", "index")
    assert remove_source("docs", "index") == 2
    assert ids() == ["papers/a.md"]  # the others keep their ids
    assert ragidx.build("papers", "index").report.committed is False


@pytest.mark.slow
def test_removing_an_unknown_source_names_a_near_one(two: Path) -> None:
    with pytest.raises(QueryError) as fault:
        remove_source("paper", "index")
    assert fault.value.message == "the index has no source 'paper'; did you mean 'papers'?"
    assert fault.value.hint == "`ragidx sources` lists them"


@pytest.mark.slow
def test_a_condition_chooses_a_source(two: Path) -> None:
    assert ids('file.source == "papers"') == ["papers/a.md"]
    assert ids('file.source != "papers"') == ["a.md", "b.md"]
    assert ids('file.source == "docs"') == ["a.md", "b.md"]


@pytest.mark.slow
def test_a_folder_that_is_no_source_is_refused_and_the_index_is_as_it_was(two: Path) -> None:
    write("other/x.md", "moths")
    assert message_of(SpecError, lambda: ragidx.build("other", "index")) == (
        f"other: the index holds {two}/docs (2 documents), {two}/papers (1 document), and not this\n  hint: `ragidx "
        "add-source other` puts it beside, another `index` keeps it apart, `rebuild=True` replaces the index"
    )
    assert ids() == ["a.md", "b.md", "papers/a.md"]


@pytest.mark.slow
def test_a_source_that_was_moved_is_recognised_by_what_it_holds(two: Path) -> None:
    Path("papers").rename("articles")
    report = ragidx.build("articles", "index").report
    assert (report.n_unchanged, report.n_added, report.n_removed, report.committed) == (1, 0, 0, True)
    assert [(one.name, one.root(Path("index")).name) for one in ragidx.Index("index").sources()] == [
        ("docs", "docs"),
        ("papers", "articles"),
    ]
    assert ragidx.build(index="index").report.committed is False


@pytest.mark.slow
def test_an_index_that_moves_with_its_sources_still_finds_them(two: Path) -> None:
    Path("elsewhere").mkdir()
    for name in ("docs", "papers", "index"):
        Path(name).rename(f"elsewhere/{name}")
    assert ragidx.build(index="elsewhere/index").report.n_unchanged == 3


def test_an_index_that_was_moved_alone_names_the_build_that_finds_its_source(folder: Path) -> None:
    write("docs/a.md", "bees")
    ragidx.build("docs", "index", **SMALL)
    Path("elsewhere").mkdir()
    Path("index").rename("elsewhere/index")

    with pytest.raises(CorpusError) as fault:
        ragidx.build(index="elsewhere/index")

    assert str(fault.value) == (
        f"{folder}/elsewhere/docs: the source is not here any more, or the index alone was moved\n"
        "  hint: `ragidx build PLACE` names where it is now, which its files confirm; places are relative to the index"
    )
    assert ragidx.build("docs", "elsewhere/index").report.n_unchanged == 1
    assert ragidx.build(index="elsewhere/index").report.n_unchanged == 1


@pytest.mark.slow
def test_a_root_that_is_gone_stops_the_build(two: Path) -> None:
    Path("papers").rename("gone")
    with pytest.raises(SpecError) as fault:
        ragidx.build(index="index")
    assert fault.value.message == f"the source 'papers' is not at {two}/papers any more"
    with pytest.raises(CorpusError, match="papers: cannot be opened: No such file or directory"):
        ragidx.build("papers", "index")
    assert ids() == ["a.md", "b.md", "papers/a.md"]
    assert ragidx.build(index="index", allow_removal=True).report.n_removed == 1


@pytest.mark.slow
def test_most_of_one_source_is_not_removed_without_being_asked(folder: Path) -> None:
    for number in range(30):
        write(f"docs/{number}.md", f"bees {number}")
    for number in range(10):
        write(f"papers/{number}.md", f"ants {number}")
    ragidx.build(["docs", "papers"], "index", **SMALL)
    for number in range(6):
        Path(f"papers/{number}.md").unlink()
    with pytest.raises(SpecError, match="index: papers: this build would remove 6 of 10 documents"):
        ragidx.build(index="index")
    assert ragidx.build(index="index", allow_removal=True).report.n_removed == 6


@pytest.mark.slow
def test_a_source_that_is_empty_now_keeps_its_documents(two: Path) -> None:
    Path("papers/a.md").unlink()
    assert message_of(SpecError, lambda: ragidx.build(index="index")) == (
        "papers: the source 'papers' has no document now, and had 1\n  hint: `ragidx remove-source papers` takes it "
        "out; `allow_removal=True` removes its documents, and keeps it"
    )
    assert ragidx.build(index="index", allow_removal=True).report.n_removed == 1
    assert [one.n_documents for one in ragidx.Index("index").sources()] == [2, 0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens every file")
def test_a_file_without_permission_keeps_its_documents(two: Path) -> None:
    Path("papers/a.md").chmod(0)
    report = ragidx.build(index="index", reread=True).report
    assert (report.n_unreadable, report.unreadable, report.n_removed) == (1, ["papers/a.md"], 0)


@pytest.mark.slow
def test_a_file_that_became_unreadable_keeps_its_documents_and_is_reported(two: Path) -> None:
    Path("docs/b.md").write_bytes(b"\0\1\2" * 100)
    write("docs/c.md", "hornets")
    report = ragidx.build(index="index").report
    assert (report.n_unreadable, report.unreadable, report.n_removed, report.n_added) == (1, ["b.md"], 0, 1)
    assert ids() == ["a.md", "b.md", "c.md", "papers/a.md"]


@pytest.mark.slow
def test_a_file_that_was_emptied_loses_its_documents(two: Path) -> None:
    Path("docs/b.md").write_text("")
    report = ragidx.build(index="index").report
    assert (report.n_unreadable, report.n_removed, report.removed) == (0, 1, ["b.md"])


@pytest.mark.slow
def test_two_equal_files_of_which_one_goes_lose_one_document(folder: Path) -> None:
    for name in ("docs/a.md", "docs/b.md"):
        write(name, "the same words")
    ragidx.build("docs", "index", **SMALL)
    Path("docs/a.md").unlink()
    assert ragidx.build("docs", "index").report.removed == ["a.md"]
    assert ids() == ["b.md"]


@pytest.mark.slow
def test_globs_of_a_source_hold_for_later_builds(folder: Path) -> None:
    write("docs/a.md", "bees")
    write("docs/a.txt", "wasps")
    ragidx.build("docs", "index", include="*.md", **SMALL)
    assert ragidx.build(index="index").report.n_documents == 1
    assert ragidx.build("docs", "index", include="*").report.n_documents == 2


@pytest.mark.slow
def test_ids_that_look_like_those_of_another_source_change_nothing(two: Path) -> None:
    write("docs/papers/x.md", "moths")
    write("docs/papers/y.md", "mites")
    assert ragidx.build(index="index").report.n_added == 2
    delete(ids=["papers/y.md"], index="index")

    assert remove_source("papers", "index") == 1
    assert ids() == ["a.md", "b.md", "papers/x.md"]
    assert ragidx.build(index="index").report.n_deleted_before == 1
    assert add("papers", "index").n_added == 1
    assert [one.id for one in ragidx.Index("index").documents(source="papers")] == ["papers/a.md"]


@pytest.mark.slow
def test_of_two_sources_with_a_document_of_one_id_the_first_has_it_until_it_goes(two: Path) -> None:
    write("docs/papers/a.md", "moths")
    write("papers/b.md", "beetles")
    repeated = {"its id is another document's": 1}
    assert ragidx.build("docs", "index").report.skipped == repeated  # that of `papers` is there already
    assert ragidx.build(index="index").report.skipped == repeated
    assert texts("docs") == ["bees", "moths", "wasps"]
    write("papers/a.md", "moths")
    assert ragidx.build("papers", "index").report.skipped == repeated
    Path("docs/papers/a.md").unlink()

    report = ragidx.build(index="index", workers=2).report

    assert (report.n_changed, report.skipped, texts("papers")) == (1, {}, ["beetles", "moths"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a#b", "a\nb", "a\\b"])
def test_a_name_that_cannot_begin_ids_is_refused(name: str, two: Path) -> None:
    write("notes/a.md", "crickets")
    with pytest.raises(SpecError, match="cannot be the name of a source"):
        add("notes", "index", name=name)


@pytest.mark.slow
def test_a_name_or_path_that_the_index_has_already_is_refused(two: Path) -> None:
    write("notes/a.md", "crickets")
    with pytest.raises(SpecError, match="the index has a source 'papers' already"):
        add("notes", "index", name="papers")
    with pytest.raises(SpecError, match="it is a source of the index already: 'docs'"):
        add("docs", "index", name="again")
    with pytest.raises(SpecError, match="one name is for one source"):
        add(["notes", "docs"], "index", name="both")


@pytest.mark.slow
def test_a_name_in_another_unicode_form_is_the_same_name(two: Path) -> None:
    write("notes/a.md", "crickets")
    for name in ("caf\u00e9", "cafe\u0301"):
        assert ragidx.build({name: "notes"}, "index").report.n_documents == 4
    assert [one.name for one in ragidx.Index("index").sources()] == ["docs", "papers", "caf\u00e9"]


@pytest.mark.slow
def test_a_path_in_a_source_or_around_one_is_refused_unless_globs_part_them(folder: Path) -> None:
    write("all/docs/a.md", "crickets")
    write("all/b.md", "moths")
    write("more/docs/c.md", "owls")
    ragidx.build("all/docs", "index")

    twice = "its files would be in the index twice\n  hint: "
    for call, message in (
        (lambda: add("all", "index"), f"all: the source 'docs' is in it: {twice}leave it out with `exclude`"),
        (lambda: ragidx.build("all/docs/a.md", "index"), f"all/docs/a.md: it is in the source 'docs' already: {twice}"
         f"`ragidx build {folder / 'all/docs'}` brings that up to date"),
        (lambda: ragidx.build(["all", "all/docs"], "new"), f"all/docs: it is in the source 'all' already: {twice}"
         f"`ragidx build {folder / 'all'}` brings that up to date"),
        (lambda: ragidx.build(["all/docs", "more/docs"], "new"), "`name`: the index has a source 'docs' already\n"
         "  hint: build without it, then `ragidx add-source more/docs --name NAME`"),
    ):  # fmt: skip
        assert message_of(SpecError, call) == message
    add("all", "index", exclude=["docs/"])
    assert {entry.name: entry.n_documents for entry in ragidx.Index("index").sources()} == {"docs": 1, "all": 1}


@pytest.mark.slow
def test_standard_input_and_a_beir_folder_stay_alone(two: Path) -> None:
    write("beir/corpus.jsonl", json.dumps({"_id": "1", "text": "moths"}))
    write("beir/queries.jsonl", "")
    for path, reason in (("-", "standard input"), ("beir", "a BEIR folder")):
        with pytest.raises(SpecError, match=f"{reason} cannot be one of several sources"):
            add(path, "index")
        with pytest.raises(SpecError, match=f"{reason} cannot be one of several sources"):
            ragidx.build(["docs", path], "other", **SMALL)


def test_a_build_of_nothing_says_what_to_name(folder: Path) -> None:
    assert message_of(SpecError, lambda: ragidx.build(index="index")) == (
        "index: there is nothing to build\n  hint: name a folder or a file"
    )


@pytest.mark.slow
def test_what_was_deleted_by_hand_stays_out_until_it_is_restored(two: Path) -> None:
    delete("index", ids=["b.md", "papers/a.md"])
    assert [one.n_documents for one in ragidx.Index("index").sources()] == [1, 0]
    write("docs/b.md", "wasps and hornets")
    report = ragidx.build(index="index", allow_removal=True).report
    assert (report.n_deleted_before, report.n_added, report.committed) == (2, 0, False)
    assert ids() == ["a.md"]
    report = ragidx.build(index="index", restore=True).report
    assert (report.n_deleted_before, report.n_added) == (0, 2)
    assert ids() == ["a.md", "b.md", "papers/a.md"]
    assert ragidx.build(index="index").report.n_deleted_before == 0


@pytest.mark.parametrize(
    "found",
    [
        7,
        [7],
        [{}],
        [{"name": "a"}],
        [GOOD | {"prefix": "b/"}],
        [GOOD | {"path": "x\0"}],
        [GOOD | {"include": "*.md"}],
        [GOOD | {"n_documents": -1}],
        [GOOD | {"number": 0}],
        [GOOD, GOOD | {"number": 2}],
        [GOOD, GOOD | {"name": "b", "prefix": "b/"}],
    ],
)
def test_a_damaged_list_of_sources_is_an_error(found: object, tmp_path: Path) -> None:
    with pytest.raises(ragidx.RagidxError, match="the list of sources is damaged: "):
        sources_of({"sources": found}, tmp_path)  # type: ignore[dict-item]


def test_a_path_is_stored_relative_to_the_index(tmp_path: Path) -> None:
    path = stored_path(tmp_path / "a" / "docs", tmp_path / "b" / "index")
    assert path == "../../a/docs"
    assert (
        SourceEntry(number=1, name="d", path=path).root(tmp_path / "b" / "index") == (tmp_path / "a" / "docs").resolve()
    )


@pytest.mark.slow
def test_the_commands_add_list_and_remove_sources(two: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    write("notes/a.md", "crickets")
    status, out, _ = run("add-source", "notes", "--index", "index")
    assert status == 0
    assert "documents  4: 1 new, 0 changed, 0 unchanged, 3 in other sources\n" in out
    status, out, _ = run("sources", "--index", "index")
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["docs", f"{two}/docs", "2"],
        ["papers", f"{two}/papers", "1"],
        ["notes", f"{two}/notes", "1"],
    ]
    assert run("remove-source", "notes", "--index", "index") == (0, "removed  notes: 1 document\n", "")
    assert json.loads(run("sources", "--index", "index", "--json")[1])["sources"][1]["name"] == "papers"
    assert f"source       papers: 1 document of {two}/papers, " in run("info", "--index", "index")[1]


@pytest.mark.slow
def test_a_build_says_what_is_gone_and_what_could_not_be_read(
    two: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    Path("docs/a.md").unlink()
    Path("docs/b.md").write_bytes(b"\0\1\2" * 100)
    write("docs/c.md", "hornets")
    _, out, err = run("build", "--index", "index")
    assert "4: 1 new, 0 changed, 1 unchanged, 1 removed, 1 not readable now" not in out
    assert "3: 1 new, 0 changed, 1 unchanged, 1 removed, 1 not readable now" in out
    assert "Removed: 1 (a.md); `ragidx rollback 1` brings it back while generation 1 is kept.\n" in err
    assert "Not readable now, kept as before: 1 document (b.md).\n" in err
