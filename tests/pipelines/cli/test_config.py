"""`ragidx.toml`: what it sets, what wins over it, and what is wrong in it, with the line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store import Store
from ragidx.pipelines.cli.build import command as build
from ragidx.pipelines.cli.config import found_config, options_of_file, read_config

from ...raising import message_of

Run = Callable[..., tuple[int, str, str]]

TWO = """
[index]
path = "made"
dim = 16
chunk-size = "none"
titles = false
exclude = ["*.txt"]

[[source]]
path = "docs"

[[source]]
name = "articles"
path = "papers"
"""


@pytest.fixture
def two(folder: Path) -> Path:
    """Two folders of documents, and a file of settings."""
    for name, text in (("docs/a.md", "bees"), ("docs/x.txt", "not read"), ("papers/b.md", "ants")):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    Path("ragidx.toml").write_text(TWO)
    return folder


@pytest.mark.slow
def test_a_build_without_arguments_follows_the_file(two: Path, run: Run) -> None:
    assert run("build")[0] == 0
    assert [(one.name, one.prefix, one.n_documents) for one in ragidx.Index("made").sources()] == [
        ("docs", "", 1),
        ("articles", "articles/", 1),
    ]
    manifest = Store.open("made").manifest
    spec = IndexSpec.from_json(dict(manifest.spec), where="")
    assert (manifest.dim, spec.chunk.size, spec.chunk.titles) == (16, None, False)


@pytest.mark.slow
def test_the_file_is_found_from_a_folder_below_and_its_paths_are_relative_to_it(
    two: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("build")
    monkeypatch.chdir("docs")
    assert json.loads(run("build", "--json")[1])["n_unchanged"] == 2
    assert json.loads(run("info", "--json")[1])["n_documents"] == 2
    assert json.loads(run("query", "bees", "--json")[1])["hits"]


@pytest.mark.slow
def test_a_model_beside_the_file_is_found_from_a_folder_below(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(Path(str(resources.files("ragidx.indexer"))) / "models" / "mini", "models/own")
    Path("docs").mkdir()
    Path("docs/a.md").write_text("bees")
    Path("ragidx.toml").write_text("[index]\npath = 'made'\nmodel = 'models/own'\n[[source]]\npath = 'docs'\n")
    monkeypatch.chdir("docs")

    assert run("build")[0] == 0
    assert Store.open("../made").manifest.spec["encoder"]["model"] == "../models/own"


def test_what_is_there_beside_the_file_is_meant_and_any_other_text_is_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("own", "mini", "truncation", "lora"):
        Path(name).mkdir()
    Path("head.safetensors").touch()
    below = folder / "below"
    below.mkdir()

    def options(text: str) -> object:
        (folder / "ragidx.toml").write_text(f"[index]\n{text}\n")
        return read_config(folder / "ragidx.toml", options_of_file(build)).options

    assert options("model = 'own'\nfilter = 'head:head.safetensors'") == {
        "model": "own", "filter": "head:head.safetensors"
    }  # fmt: skip
    monkeypatch.chdir(below)
    assert options("model = 'own'\nfilter = 'head:head.safetensors'\nadapter = ['lora', 'org/lora']") == {
        "model": "../own", "filter": "head:../head.safetensors", "adapters": ["../lora", "org/lora"]
    }  # fmt: skip
    for text in ("mini", "Qwen/Qwen3-0.6B", "ollama:x", "", "x" * 5000, "a\u0000b", f"{folder}/own"):
        assert options(f"model = {json.dumps(text)}") == {"model": text}
    assert options("filter = 'truncation'\nmethod = 'own'") == {"filter": "truncation", "method": "own"}


@pytest.mark.slow
def test_the_command_line_wins_over_the_file(two: Path, run: Run) -> None:
    assert run("build", "docs", "--index", "other", "--dim", "32", "--exclude", "!*")[0] == 0
    manifest = Store.open("other").manifest
    assert (manifest.dim, manifest.n_documents) == (32, 2)


@pytest.mark.slow
def test_a_source_that_the_file_names_newly_is_put_beside_the_others(two: Path, run: Run) -> None:
    run("build")
    Path("notes").mkdir()
    Path("notes/c.md").write_text("crickets")
    Path("ragidx.toml").write_text(TWO + '\n[[source]]\npath = "notes"\n')
    report = json.loads(run("build", "--json")[1])
    assert (report["n_added"], report["n_unchanged"], report["n_documents"]) == (1, 2, 3)
    assert [one.name for one in ragidx.Index("made").sources()] == ["docs", "articles", "notes"]


@pytest.mark.slow
def test_a_source_under_another_name_is_refused(two: Path, run: Run) -> None:
    run("build")
    Path("ragidx.toml").write_text(TWO.replace('"articles"', '"texts"'))
    assert run("build") == (
        2,
        "",
        "Error: papers: it is the source 'articles' of the index, and 'texts' is another name\n"
        "  hint: call it 'articles', as ids begin with it, or `ragidx remove-source articles` and build: ids will be "
        "new\n",
    )


@pytest.mark.slow
def test_a_source_of_the_file_has_globs_of_its_own(two: Path, run: Run) -> None:
    for name in ("papers/a.txt", "papers/b.log", "docs/b.log"):
        Path(name).write_text(name)
    Path("ragidx.toml").write_text(TWO + "include = '*.txt'\nexclude = ['b.*']\n")

    assert run("build")[0] == 0
    assert sorted(one.id for one in ragidx.Index("made").documents()) == ["a.md", "articles/a.txt", "b.log"]
    assert [(list(one.include), list(one.exclude)) for one in ragidx.Index("made").sources()] == [
        ([], ["*.txt"]),
        (["*.txt"], ["b.*"]),
    ]
    assert json.loads(run("build", "--json")[1])["committed"] is False


@pytest.mark.slow
def test_globs_that_are_typed_win_over_those_of_a_source(two: Path, run: Run) -> None:
    for name in ("papers/a.txt", "papers/b.log"):
        Path(name).write_text(name)
    Path("ragidx.toml").write_text(TWO + "include = ['*.txt', '*.md']\nexclude = ['b.*']\n")

    def globs(*typed: str) -> list[tuple[list[str], list[str]]]:
        assert run("build", "--allow-removal", *typed)[0] == 0
        return [(list(one.include), list(one.exclude)) for one in ragidx.Index("made").sources()]

    own = (["*.txt", "*.md"], ["b.*"])
    assert globs("--exclude", "*.log") == [([], ["*.log"]), (["*.txt", "*.md"], ["*.log"])]
    assert sorted(one.id for one in ragidx.Index("made").documents()) == [
        "a.md", "articles/a.txt", "articles/b.md", "x.txt"
    ]  # fmt: skip
    assert globs("--include", "*.md", "--exclude", "!*") == [(["*.md"], ["!*"])] * 2
    assert globs() == [(["*.md"], ["*.txt"]), own]  # what was typed is kept where the file says nothing


@pytest.mark.slow
def test_sources_of_python_have_globs_too_and_part_a_folder(two: Path) -> None:
    Path("docs/papers").mkdir()
    Path("docs/papers/c.md").write_text("wasps")
    sources = {"docs": {"path": "docs", "exclude": "papers/"}, "papers": {"path": "docs/papers"}}

    index = ragidx.build(sources, "index")

    assert sorted(one.id for one in index.documents()) == ["a.md", "papers/c.md", "x.txt"]
    assert message_of(SpecError, lambda: ragidx.build({"docs": {"path": "docs", "exlude": "x"}}, "other")) == (
        "unknown key 'exlude'; did you mean 'exclude'?\n  hint: known: exclude, include, path"
    )
    assert message_of(SpecError, lambda: ragidx.build({"docs": {"exclude": "x"}}, "other")) == (
        'a source has no path\n  hint: give {"path": "docs", "exclude": ["drafts/"]}'
    )


def test_a_glob_that_nobody_has_expanded_is_answered_with_include(two: Path, run: Run) -> None:
    assert run("build", "docs/*.md", "--index", "other") == (
        2,
        "",
        "Error: docs/*.md: there is no such file or folder, and a glob is no path\n"
        "  hint: name the folder, and choose of it: `ragidx build docs --include '*.md'`\n",
    )
    assert "`ragidx build . --include '**/*.md'`" in run("build", "**/*.md", "--index", "other", "--plan")[2]


def test_another_file_is_named_by_an_option(two: Path, run: Run) -> None:
    Path("ragidx.toml").rename("mine.toml")
    assert run("sources", "--config", "mine.toml")[2] == (
        "Error: made: there is no such folder\n  hint: build the index first, or name another folder with --index\n"
    )
    assert run("sources", "--config", "none.toml")[2] == (
        "Error: none.toml: cannot be read: No such file or directory\n  hint: name another file\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[index]\nchunk-sizes = 1\n", "ragidx.toml:2: unknown key 'chunk-sizes'; did you mean 'chunk-size'?"),
        ("[index]\nray = 'ray://host:1'\n", "ragidx.toml:2: unknown key 'ray'"),
        (
            "[index]\nheadings = true\n",
            "ragidx.toml:2: the key 'headings' is gone\n"
            "  hint: the title is in front of chunks that lack it: see --titles",
        ),
        ("\n[indexes]\n", "ragidx.toml:2: unknown key 'indexes'; did you mean 'index'?"),
        ("[[source]]\npath = 'a'\nnames = 'b'\n", "ragidx.toml:3: unknown key 'names'; did you mean 'name'?"),
        ("[[source]]\nname = 'b'\n", "ragidx.toml:1: a source has no path"),
        ("[[source]]\npath = 7\n", "ragidx.toml:2: the value of 'path' is of another type"),
        ("[[source]]\npath = 'a'\n[[source]]\nname = 'b'\n", "ragidx.toml:3: a source has no path"),
        ("[[source]]\nname = 5\npath = 'a'\n", "ragidx.toml:2: the value of 'name' is of another type"),
        ("[[files]]\nmatch = 'a'\ntext = 5\n", "ragidx.toml:3: the value of 'text' is of another type"),
        ("[[files]]\nmatch = 'a'\ntext = ['x', true]\n", "ragidx.toml:3: the value of 'text' is of another type"),
        (
            "[[files]]\nmatch = 'a'\ntitle = 'x'\n[[files]]\nmatch = 'b'\ntitle = 5\n",
            "ragidx.toml:6: the value of 'title' is of another type",
        ),
        ("[index]\ntau = [2, 3]\n", "ragidx.toml:2: the value of 'tau' is of another type"),
        ("[index]\n[index.tau]\n", "ragidx.toml:2: the value of 'tau' is of another type"),
        ("[index]\npath = 7\n", "ragidx.toml:2: the value of 'path' is of another type"),
        ("index = 7\n", "ragidx.toml:1: 'index' is no table"),
        ("source = 7\n", "ragidx.toml:1: 'source' is no list of tables"),
        ("[[source]]\npath='a'\n[[source]]\npath='b/a'\n", "ragidx.toml:3: two sources have the name 'a'"),
        ("files = 7\n", "ragidx.toml:1: 'files' is no list of tables"),
        ("[[files]]\ntext = 'a'\n", "ragidx.toml:1: an entry of 'files' has no match"),
        ("[[files]]\nmatch = 'a'\nencoding = 'cp12500'\n", "ragidx.toml:3: unknown encoding 'cp12500'"),
        ("[[files]]\nmatch = 'a'\nhtml = 'all'\n", "ragidx.toml:3: unknown part of a page 'all'"),
        ("[[files]]\nmatch = 'a'\ntexts = 'a'\n", "ragidx.toml:3: unknown key 'texts'; did you mean 'text'?"),
        ("[[files]]\nmatch = 'a'\n\ntitel = 'a'\n", "ragidx.toml:4: unknown key 'titel'; did you mean 'title'?"),
        ("[index]\nexclude = [[1]]\n", "ragidx.toml:2: the value of 'exclude' is of another type"),
        ("[index]\ntau = true\n", "ragidx.toml:2: the value of 'tau' is of another type"),
        ("[index]\ntau = 2\nchunk-size = 'large'\n", "ragidx.toml:3: the value of 'chunk-size': "),
        ("[index]\n\nchunk-overlap = 'x'\n", "ragidx.toml:3: the value of 'chunk-overlap': 'x' is not a valid integer"),
        ("[[source]]\npath = 'a'\nexclude = 7\n", "ragidx.toml:3: the value of 'exclude' is of another type"),
        ("[index]\nlexical = 1\n", "ragidx.toml:2: the value of 'lexical' is of another type"),
        (f"a{'.a' * 40_000} = 1\n", "ragidx.toml: is no TOML: a key has more than 100 dots"),
        (f"x = {{'a'{' . b' * 101} = 1}}\n", "ragidx.toml: is no TOML: a key has more than 100 dots"),
        ("a" + '."\u2028"' * 101 + " = 1\n", "ragidx.toml: is no TOML: a key has more than 100 dots"),
        (f"#{'x' * (1 << 18)}\n", "ragidx.toml: is no TOML: it has more than 256 KiB"),
        ("[index\n", "ragidx.toml: is no TOML: Expected ']' at the end of a table declaration"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str, folder: Path, run: Run) -> None:
    Path("ragidx.toml").write_text(text)
    status, out, err = run("info")
    assert (status, out) == (2, "")
    assert err.startswith(f"Error: {Path.cwd()}/{message}")


def test_what_is_no_plain_file_is_not_read(folder: Path, run: Run) -> None:
    os.mkfifo("pipe")

    for name in ("pipe", "/dev/zero"):
        assert run("info", "--config", name) == (
            2,
            "",
            f"Error: {name}: is no TOML: it is no plain file\n  hint: `ragidx init` writes an example\n",
        )


def test_fields_are_said_by_glob_and_one_text_is_a_list_of_one(folder: Path, run: Run) -> None:
    Path("ragidx.toml").write_text(
        "[index]\ntext-field = 'body'\ninclude = '*.csv'\n"
        "[[files]]\nmatch = 'data/*.csv'\ntext = ['description', 'resolution']\nid = 'key'\n"
        "title = 'product'\ncontext = ['product', 'city']\nmetadata = 'cost'\n"
        "[[files]]\nmatch = 'policies.json'\nrecords = 'policies[]'\ntitle = 'name'\n"
        "[[files]]\nmatch = 'chat.jsonl'\nspeaker = 'messages[].role'\n"
    )

    assert read_config(Path("ragidx.toml"), options_of_file(build)).options == {
        "text_field": ["data/*.csv=description+resolution", "body"],
        "include": ["*.csv"],
        "id_field": ["data/*.csv=key"],
        "records": ["policies.json=policies[]"],
        "fields": {
            "title": ["data/*.csv=product", "policies.json=name"],
            "context": ["data/*.csv=product+city"],
            "metadata": ["data/*.csv=cost"],
            "speaker": ["chat.jsonl=messages[].role"],
        },
    }


@pytest.mark.slow
def test_what_the_file_says_of_fields_reaches_the_build(folder: Path, run: Run) -> None:
    Path("docs").mkdir()
    Path("docs/a.csv").write_text("text,product,city\nIt will not start.,Mower,Oslo\n")
    Path("ragidx.toml").write_text(
        "[index]\npath = 'made'\n"
        "[[files]]\nmatch = '*.csv'\ntitle = 'product'\ncontext = ['city']\nmetadata = ['city']\n"
    )
    assert run("build", "docs")[0] == 0
    (row,) = Store.open("made").segments[0].rows([0])
    assert (row.text, row.heading) == ("city: Oslo\nIt will not start.", "Mower")
    assert {name for name in row.metadata if not name.startswith("file.")} == {"city"}


@pytest.mark.slow
def test_a_source_that_is_added_is_read_by_the_same_settings(folder: Path, run: Run) -> None:
    for name in ("docs", "more"):
        Path(name).mkdir()
        Path(f"{name}/a.csv").write_text("note,product\nIt will not start today either.,Mower\n")
    Path("ragidx.toml").write_text("[[files]]\nmatch = '*.csv'\ntext = 'product'\ntitle = 'note'\n")
    assert run("build", "docs")[0] == 0
    assert run("add-source", "more")[0] == 0
    rows = [row for segment in Store.open("ragidx-index").segments for row in segment.rows([0])]
    assert {(row.text, row.heading) for row in rows} == {("Mower", "It will not start today either.")}
    generation = Store.open("ragidx-index").manifest.generation
    assert run("build")[0] == 0
    assert Store.open("ragidx-index").manifest.generation == generation


def test_a_value_that_no_option_takes_is_refused_with_its_line(folder: Path, run: Run) -> None:
    Path("ragidx.toml").write_text("[index]\ntau = 'many'\n")

    assert run("build", "docs") == (
        2,
        "",
        f"Error: {folder}/ragidx.toml:2: the value of 'tau': 'many' is not a valid float.\n"
        "  hint: as `ragidx build --tau` takes it\n",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[index]\n\nchunk-overlap = -1\n", "3: --chunk-overlap: an overlap of -1 tokens does not fit chunks of 256"),
        ("[index]\ntau = 0\n", "2: --tau: tau=0 would widen the vectors"),
        ("[index]\ndtype = 'float8'\n", "2: unknown dtype 'float8'; did you mean 'float32'?"),
        ("[index]\nlayer = 0\nmethod = 'ecco'\n", "3: unknown method 'ecco'; did you mean 'echo'?"),
        ("[index]\nmax-memory = 'lots'\n", "2: --max-memory: 'lots' is not a size"),
        (
            "[[files]]\nmatch = 'a'\ntext = 'x'\n[[files]]\nmatch = 'b'\ntext = ''\n",
            "6: --text-field: 'b=' is not [GLOB=]FIELD",
        ),
        ("[[files]]\nmatch = 'a'\n\ntitle = ''\n", "4: `title`: 'a=' is not [GLOB=]FIELD"),
    ],
)
def test_a_value_that_is_out_of_range_is_named_with_its_line(text: str, message: str, folder: Path, run: Run) -> None:
    (folder / "a.md").write_text("bees")
    Path("ragidx.toml").write_text(text)

    status, _, err = run("build", "a.md")

    assert (status, err.partition("\n")[0]) == (2, f"Error: {folder}/ragidx.toml:{message}")


def test_a_key_is_looked_for_in_its_own_table(folder: Path, run: Run) -> None:
    Path("ragidx.toml").write_text("[[source]]\npath = 'a'\nexclude = 'x'\n\n[index]  # its own\nexclude = [[5]]\n")

    assert run("info")[2].startswith(f"Error: {folder}/ragidx.toml:6: the value of 'exclude' is of another type")


def test_a_value_that_was_typed_is_not_one_of_the_file(folder: Path, run: Run) -> None:
    (folder / "a.md").write_text("bees")
    Path("ragidx.toml").write_text("[index]\nchunk-overlap = 0\n")

    assert run("build", "a.md", "--chunk-overlap", "-1")[2].startswith("Error: --chunk-overlap: an overlap of -1")


def test_options_for_one_build_are_no_settings() -> None:
    names = set(options_of_file(build))
    assert {"model", "tau", "chunk-size", "include", "strict"} <= names
    assert not names & {"rebuild", "restore", "allow-removal", "reread", "json", "plan", "index", "vectors", "config"}


def test_init_writes_a_file_that_is_read_and_never_overwrites_one(folder: Path, run: Run) -> None:
    assert run("init") == (0, "written  ragidx.toml\n", "")
    config = read_config(Path("ragidx.toml"), options_of_file(build))
    assert (config.index, config.options, config.sources) == ("ragidx-index", {}, {})
    assert run("init") == (
        2,
        "",
        "Error: ragidx.toml: it is there already\n  hint: edit it, or remove it first\n",
    )


def test_every_line_that_init_comments_out_is_a_setting(folder: Path, run: Run) -> None:
    run("init")
    lines = Path("ragidx.toml").read_text().splitlines()
    active = [line.removeprefix("# ") for line in lines if "=" in line or line.endswith("]") or line == "#"]
    Path("ragidx.toml").write_text("\n".join(line for line in active if line != "#"))
    config = read_config(Path("ragidx.toml"), options_of_file(build))
    assert set(config.options) == {
        *("model", "method", "tau", "chunk_size", "stemmer"),
        *("text_field", "id_field", "records", "fields"),
    }
    assert set(config.options["fields"]) == {"title", "speaker", "context", "metadata"}
    assert list(config.sources) == ["docs", "papers"]


def test_the_nearest_file_above_is_the_one(folder: Path) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    (folder / "ragidx.toml").touch()
    assert found_config(below) == folder / "ragidx.toml"
    (below / "ragidx.toml").touch()
    assert found_config(below) == below / "ragidx.toml"
