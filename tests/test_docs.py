"""The pages say what is: commands and options exist, output is real, Python runs, links lead somewhere."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragidx.pipelines.cli.main import COMMANDS, every_command

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WRITTEN = [ROOT / "README.md", *(page for page in PAGES if page.name != "cli.md")]

COMMAND = re.compile(r"^(?: {4}(?:.*\| )?|\$ )(ragidx [a-z].*)$", re.MULTILINE)
TRANSCRIPTS = runpy.run_path(str(DOCS / "transcripts.py"))
# Run by tests/pipelines/cli/test_lens.py and tests/pipelines/distribute/test_engines.py.
ELSEWHERE = ("lens.md", "dask.md", "spark.md")
WITH_EXAMPLES = [p for p in WRITTEN if TRANSCRIPTS["examples"](p.read_text("utf-8")) and p.name not in ELSEWHERE]


def _name(page: Path) -> str:
    return page.name


EVERY = every_command()


def _options(command: str) -> set[str]:
    found = EVERY[command]
    return {name for parameter in found.params for name in [*parameter.opts, *parameter.secondary_opts]}


def _prose(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


# commands


def test_the_command_reference_is_what_help_prints() -> None:
    made = runpy.run_path(str(DOCS / "cli_reference.py"))["reference"]()

    assert (DOCS / "cli.md").read_text("utf-8") == made, "run `make docs`, or python docs/cli_reference.py"


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_command_lines_name_options_that_exist(page: Path) -> None:
    for line in COMMAND.findall(page.read_text("utf-8")):
        words = shlex.split(line, comments=True)
        given = {word for word in words[2:] if re.match(r"--?[a-z]", word)}
        assert given <= _options(words[1] if words[1] in EVERY else " ".join(words[1:3])), line


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_prose_names_commands_and_options_that_exist(page: Path) -> None:
    spans = re.findall(r"`([^`]+)`", _prose(page.read_text("utf-8")))
    every = set().union({"--help", "--help-all", "--version"}, *map(_options, EVERY))

    for span in spans:
        named = re.match(r"ragidx ([a-z][a-z-]*)", span)
        assert named is None or named[1] in COMMANDS, span
        if not span.startswith(("python ", "make ", "pip ")):
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)) <= every, span


# links


@pytest.mark.parametrize("page", [*WRITTEN, DOCS / "cli.md"], ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", _prose(page.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), target
        assert not anchor or anchor in set(_anchors(file)), target


@pytest.mark.parametrize("page", WRITTEN, ids=_name)
def test_prose_names_files_that_exist(page: Path) -> None:
    for span in re.findall(r"`([^`\s]+)`", _prose(page.read_text("utf-8"))):
        if re.match(r"(corpora|indexer|retriever|pipelines|tests|docs|benchmarks)/", span):
            assert any(ROOT.glob(span.rstrip("/"))), span


def _anchors(page: Path) -> Iterator[str]:
    """Of the headings, as GitHub and the site make them."""
    for heading in re.findall(r"^#+ (.+)$", _prose(page.read_text("utf-8")), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "index.md").read_text("utf-8")))

    assert linked == {page.name for page in PAGES} - {"index.md"}


# text


@pytest.mark.parametrize("page", [*WRITTEN, ROOT / "CHANGELOG.md"], ids=_name)
def test_lines_are_wrapped(page: Path) -> None:
    text = re.sub(r"<!-- figures -->.*?<!-- /figures -->", "", _prose(page.read_text("utf-8")), flags=re.DOTALL)

    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "!["))] == []


def test_the_design_lists_every_package() -> None:
    tree = re.findall(r"^( *)(\w+)/ ", (DOCS / "design.md").read_text("utf-8").split("## The tree")[1], re.MULTILINE)
    rooms = [ROOT / room for room in ("corpora", "indexer", "retriever", "pipelines")]
    packages = [found.parent.relative_to(ROOT).parts for room in rooms for found in room.rglob("__init__.py")]

    assert {("  " * (len(parts) - 1), parts[-1]) for parts in packages} <= set(tree)


# output and examples


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=_name)
def test_examples_run_and_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAGIDX_INDEX", raising=False)

    for line, shown, printed in TRANSCRIPTS["run"](page.read_text("utf-8"), tmp_path):
        assert TRANSCRIPTS["steady"](printed) == TRANSCRIPTS["steady"](shown), f"{line}: see docs/transcripts.py"


# the site


@pytest.mark.slow
def test_the_site_is_refused_where_a_link_is_dead_or_a_page_is_not_linked(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the extra 'site' is not installed")
    pytest.importorskip("myst_parser", reason="the extra 'site' is not installed")
    shutil.copy(DOCS / "conf.py", tmp_path)
    pages = {
        "index.md": "# Index\n\n[a](a.md)\n",
        "a.md": "# A\n\n[no page](none.md), [no heading](index.md#none)\n\n![no picture](none.svg)\n",
        "b.md": "# B\n\ntext\n",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", str(tmp_path), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    for warning in (
        "a.md:3: WARNING: 'myst' cross-reference target not found: 'none.md'",
        "a.md:3: WARNING: local id not found in doc 'index': 'none'",
        "a.md:5: WARNING: image file not readable: none.svg",
        "b.md: WARNING: document isn't included in any toctree",
    ):
        assert warning in done.stderr
    assert done.stderr.count("WARNING: ") == 4


def test_every_promise_has_tests_that_try_to_break_it() -> None:
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    promises = re.findall(r"^(\d+)\. \*\*(.+?)\.\*\*", text, re.MULTILINE)
    rows = re.findall(r"^\| (\d+) (.+?) \| (.+?) \| .+ \|$", text, re.MULTILINE)

    assert [number for number, _, _ in rows] == [number for number, _ in promises]
    for _, _, tests in rows:
        paths = re.findall(r"`(tests/[\w/.]+)`", tests)
        assert paths
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_design_says_why_each_dependency_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in ("test", "all")}
    needed = [*project["dependencies"], *(one for needs in extras.values() for one in needs)]
    names = {re.split(r"[^\w-]", one)[0] for one in needed} - {"ragidx"}
    table = (ROOT / "docs" / "design.md").read_text("utf-8").partition("\n## Dependencies\n")[2].partition("\n## ")[0]

    assert sorted(name for name in names if not re.search(rf"\b{name}\b", table)) == []
