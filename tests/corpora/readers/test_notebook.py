"""Notebooks: what of a cell is text, its place, and cells that are none."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragidx.corpora.records import Place

from ..conftest import ReadBytes

OBJECT = "<pandas.io.formats.style.Styler at 0x7f0>"
MARKDOWN = "<IPython.core.display.Markdown object>"


def notebook(*cells: Any, **metadata: Any) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": list(cells)})


def code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs), "execution_count": 1}


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source}


def test_cells_become_markdown_with_code_in_fences_and_results_as_text(read_bytes: ReadBytes) -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "iVBOR", "text/plain": "<Figure size 640x480>"}}
    printed = {"output_type": "stream", "name": "stdout", "text": ["deep\n", "cold\n"]}
    value = {"output_type": "execute_result", "data": {"text/plain": "1642", "text/html": "<b>1642</b>"}}
    error = {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["\x1b[31mlong\x1b[0m"]}
    data = notebook(
        markdown("# Lakes\n\nBaikal ![map](data:image/png;base64,iVBOR) is deep."),
        code(["x = 1\n", "print(x)"], printed, value, picture, error),
        code("", picture),
        kernelspec={"language": "julia"},
        authors=[{"name": "Ada Byron"}],
    )

    (document,) = read_bytes("a.ipynb", data).documents

    assert document.text == (
        "# Lakes\n\nBaikal ![map]() is deep.\n\n```julia\nx = 1\nprint(x)\n```\n\n"
        "```\ndeep\ncold\n1642\nKeyError: 'x'\n```"
    )
    assert document.metadata == {"title": "Lakes", "author": "Ada Byron"}
    assert document.places == (Place(0, page=1), Place(document.text.index("```julia"), page=2))
    assert document.markdown


def test_a_long_result_is_cut_and_a_fence_in_code_is_fenced(read_bytes: ReadBytes) -> None:
    data = notebook(code("s = '```'", {"output_type": "stream", "text": "x" * 5000}))

    (document,) = read_bytes("a.ipynb", data).documents

    assert document.text == "````python\ns = '```'\n````\n\n```\n" + "x" * 2000 + "...\n```"


def test_a_notebook_of_version_3_is_read(read_bytes: ReadBytes) -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Lakes"]},
        {"cell_type": "code", "input": "x", "outputs": [{"output_type": "pyout", "text": ["1642"]}]},
    ]

    (document,) = read_bytes("a.ipynb", json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]})).documents

    assert document.text == "## Lakes\n\n```python\nx\n```\n\n```\n1642\n```"


def test_a_cell_whose_source_is_null_is_an_empty_one(read_bytes: ReadBytes) -> None:
    data = notebook({"cell_type": "code", "source": None, "outputs": []}, markdown("Deep."))

    found = read_bytes("a.ipynb", data)

    assert (found.texts, found.reasons) == (["Deep."], [])


def test_a_cell_that_is_none_is_skipped_and_the_others_are_read(read_bytes: ReadBytes) -> None:
    data = notebook(5, {"cell_type": "markdown", "source": {"a": 1}}, markdown("Deep \udcff\x00."), code(["x", 1]))

    found = read_bytes("a.ipynb", data)

    assert found.texts == ["Deep ?."]
    assert found.documents[0].places == (Place(0, page=3),)
    assert found.reasons == [(f"a.ipynb#cell={number}", "a cell without text") for number in (1, 2, 4)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("[1]", "not a notebook: it has no cells"),
        ('{"cells": {}}', "not a notebook: it has no cells"),
        ('{"cells": []}', "empty text"),
        ('{"cells": [', "not valid JSON: Expecting value, column 12"),
        ('{"cells": ' + "[" * 200_000, "not valid JSON: nested too deep"),
        ("9" * 5000, "not valid JSON: a number of too many digits"),
        (notebook(markdown("x"))[:60] + "\0\1", "binary file"),
    ],
    ids=["list", "object", "empty", "truncated", "deep", "digits", "binary"],
)  # fmt: skip
def test_what_is_no_notebook_is_skipped(read_bytes: ReadBytes, data: str, reason: str) -> None:
    assert read_bytes("a.ipynb", data).reasons == [("a.ipynb", reason)]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"text/html": ["<table><tr><td>Orlov</td><td>417</td></tr></table>"], "text/plain": OBJECT}, "Orlov | 417"),
        ({"text/html": "<p>Alone.</p>"}, "Alone."),
        ({"text/markdown": "**Teff** wins", "text/html": "<b>x</b>", "text/plain": MARKDOWN}, "**Teff** wins"),
        ({"text/latex": "$a^2$", "text/plain": "<IPython.core.display.Latex object>"}, "$a^2$"),
        ({"text/csv": "lake,m\nBaikal,1642", "text/javascript": "a()"}, "lake,m\nBaikal,1642"),
        ({"application/json": {"köln": [1]}, "text/plain": "<IPython.core.display.JSON object>"}, '{"köln": [1]}'),
        ({"text/html": "<b>1642</b>", "text/plain": "1642"}, "1642"),
        ({"text/html": "<script>x</script>", "text/plain": OBJECT}, OBJECT),
        ({"text/plain": "<div>words</div>", "text/html": "<div>words</div>"}, "<div>words</div>"),
    ],
)
def test_a_result_without_a_text_of_its_own_is_its_richer_form(
    read_bytes: ReadBytes, data: dict[str, Any], text: str
) -> None:
    found = read_bytes("a.ipynb", notebook(code("x", {"output_type": "execute_result", "data": data})))

    assert found.texts == [f"```python\nx\n```\n\n```\n{text}\n```"]


def test_results_that_only_a_program_shows_are_counted_unless_there_is_a_text_beside_them(
    read_bytes: ReadBytes,
) -> None:
    chart: dict[str, Any] = {"application/vnd.plotly.v1+json": {"data": []}}
    results = [chart, {**chart, "text/plain": "<Chart object>"}, {**chart, "text/plain": "3 bars"}, {"video/mp4": "AA"}]

    found = read_bytes(
        "a.ipynb", notebook(code("x", *({"output_type": "display_data", "data": data} for data in results)))
    )

    assert found.kinds == {"embedded objects": 3}


def test_what_is_no_text_of_a_notebook_is_counted(read_bytes: ReadBytes) -> None:
    cell = code(
        "x",
        {"output_type": "display_data", "data": {"image/svg+xml": "<svg/>", "application/javascript": "a"}},
        {"output_type": "error", "ename": "KeyError", "evalue": "x", "traceback": ["a", "b"]},
        {"output_type": "stream", "text": "x" * 1990 + " one two"},
    )
    cell["metadata"] = {"tags": ["a", "b"]}
    widgets = {"application/vnd.jupyter.widget-state+json": {"state": {"m1": {}, "m2": {}}}}

    found = read_bytes("a.ipynb", notebook(markdown("A ![](data:image/png;base64,AB)"), cell, widgets=widgets))

    assert found.kinds == {
        "pictures": 2,
        "tags of cells": 2,
        "scripts": 1,
        "tracebacks": 1,
        "words of long results": 3,  # the end of the one that is cut, too
        "values of widgets": 2,
    }
    assert {one.where for one in found.left} == {"a.ipynb", "a.ipynb#cell=1", "a.ipynb#cell=2"}


RESULTS: list[tuple[str, str | None]] = [  # kind of a result, and what counts it where it is no text
    *((kind, None) for kind in ("text/plain", "text/html", "text/markdown", "text/latex", "text/csv", "text/x-new")),
    *((kind, "embedded objects") for kind in ("application/vnd.new+json", "application/x-new", "video/mp4")),
    *(("image/png", "pictures"), ("application/javascript", "scripts")),
]


def random_cell(rng: random.Random, words: list[str], counts: Counter[str]) -> dict[str, Any]:
    def word(kind: str | None = None) -> str:
        made = f"w{rng.getrandbits(40):x}"
        if kind:
            counts[kind] += 1
        else:
            words.append(made)
        return made

    kind = rng.choice(["markdown", "raw", "heading", "new kind", "code", "code"])
    cell: dict[str, Any] = {"cell_type": kind, "source": word(), "new key": "words"}
    if kind == "code":
        results = [rng.choice(RESULTS) for _ in range(rng.randint(0, 4))]
        cell["outputs"] = [
            {"output_type": rng.choice(["display_data", "new type"]), "data": {name: word(counted)}}
            for name, counted in results
        ]
        cell["outputs"].append({"output_type": "stream", "text": [word()]})
    elif kind == "markdown" and rng.random() < 0.5:
        cell["attachments"] = {"a.png": {"image/png": word("pictures")}}
    return cell


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_each_word_of_random_cells_is_given_or_counted(seed: int, read_bytes: ReadBytes) -> None:
    rng, words, counts = random.Random(seed), list[str](), Counter[str]()
    data = notebook(*(random_cell(rng, words, counts) for _ in range(rng.randint(1, 6))))

    found = read_bytes("a.ipynb", data)

    assert [word for word in found.texts[0].split() if word.startswith("w")] == words
    assert found.kinds == counts
