"""A plan of some of several sources says what a build of them would remove, and refuses what it would refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.pipelines.maintain.delete import delete
from ragidx.pipelines.plan.plan import Plan, plan

from ...raising import message_of

pytestmark = pytest.mark.slow

SMALL = {"filter": ragidx.FilterSpec(dim=16)}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of `docs/` (three files) and `papers/` (twelve), in the working folder."""
    monkeypatch.chdir(tmp_path)
    for folder, count in (("docs", 3), ("papers", 12)):
        Path(folder).mkdir()
        for number in range(count):
            Path(folder, f"{number}.md").write_text(f"Insects of {folder}, part {number}.")
    ragidx.build(["docs", "papers"], "index", **SMALL)


def counts(found: Plan) -> tuple[float, float, float, int | None]:
    return found.n_added, found.n_changed, found.n_unchanged, found.n_removed


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("paths", [["docs"], ["papers"], ["docs", "papers"], None], ids=str)
def test_what_a_plan_says_of_sources_is_what_a_build_of_them_does(paths: list[str] | None) -> None:
    Path("docs/0.md").unlink()
    for number in range(4):
        Path(f"papers/{number}.md").unlink()
    Path("docs/new.md").write_text("Hornets.")

    found = plan(paths, "index")
    report = ragidx.build(paths, "index").report

    assert counts(found) == (report.n_added, report.n_changed, report.n_unchanged, report.n_removed)
    assert report.n_removed == sum({"docs": 1, "papers": 4}[path] for path in paths or ("docs", "papers"))


def remove_most_papers() -> None:
    for number in range(8):
        Path(f"papers/{number}.md").unlink()


def remove_docs() -> None:
    for path in Path("docs").iterdir():
        path.unlink()


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("change", [remove_most_papers, remove_docs])
def test_what_a_build_of_a_source_refuses_is_refused_in_its_words(change: Callable[[], None]) -> None:
    change()
    words = [_refusal(call) for call in (plan, ragidx.build)]

    assert words[0] == words[1] != ""
    assert plan(None, "index", allow_removal=True).n_removed == {remove_docs: 3, remove_most_papers: 8}[change]


def _refusal(call: Callable[..., Any]) -> str:
    return message_of(SpecError, lambda: call(None, "index"))


@pytest.mark.usefixtures("two")
def test_documents_of_files_that_cannot_be_read_now_are_not_among_the_removed() -> None:
    Path("docs/0.md").write_bytes(b"\0\1\2" * 99)
    Path("docs/1.md").unlink()

    assert counts(plan("docs", "index")) == (0, 0, 1, 1)


@pytest.mark.usefixtures("two")
def test_what_was_deleted_by_hand_is_not_planned_until_it_is_restored() -> None:
    delete("index", ids=["papers/3.md"])

    assert counts(plan("papers", "index")) == (0, 0, 11, 0)
    assert counts(plan("papers", "index", restore=True)) == (1, 0, 11, 0)
