"""Scanned pages and pictures in a build: through the workers, by the wheel and tesseract; what is said, and cached."""

from __future__ import annotations

import importlib.util
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ragidx
from ragidx.corpora.errors import RagidxError
from ragidx.pipelines.cli.main import cli
from ragidx.pipelines.ingest import file_cache

from ...corpora.readers.test_ocr import FOREIGN, READABLE, drawn

SMALL = {"filter": ragidx.FilterSpec(dim=16)}
AUTO = {"fields": {"ocr": "auto"}}

# What tesseract is asked, and the form of its answer: two languages, and a word with its confidence.
STAND_IN = """#!/bin/sh
if [ "$1" = --list-langs ]; then printf 'List of available languages in "/x/" (3):\\ndeu\\neng\\nosd\\n'; exit; fi
printf '%s, threads %s: ' "$*" "$OMP_THREAD_LIMIT" >> "$0.log"
head -c 15 >> "$0.log"
cat > "$0.picture"
printf 'level\\tpage_num\\tblock_num\\tpar_num\\tline_num\\tword_num\\tleft\\ttop\\twidth\\theight\\tconf\\ttext\\n'
printf '5\\t1\\t1\\t1\\t1\\t1\\t40\\t30\\t200\\t30\\t96\\tLeuchtturm\\n'
"""


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scan of an English and a Russian page, a picture, and a note; settled."""
    pytest.importorskip("faster_paddle", reason="needs the extra 'ocr'")
    monkeypatch.setattr(file_cache, "_SETTLED_NS", 0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(drawn(*READABLE, kind="PDF", more=[FOREIGN]))
    (folder / "b.jpg").write_bytes(drawn("Herons breed in the reeds.", kind="JPEG"))
    (folder / "c.png").write_bytes(drawn(""))
    (folder / "d.txt").write_text("Owls hunt at night.")
    time.sleep(0.05)
    return folder


@pytest.fixture
def tesseract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command `tesseract`, as far as its line, input and output go."""
    pytest.importorskip("PIL", reason="needs the extra 'ocr'")
    path = tmp_path / "bin" / "tesseract"
    path.parent.mkdir()
    path.write_text(STAND_IN)
    path.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    return path


@pytest.mark.slow
def test_scans_are_documents_that_say_so_and_are_read_once(corpus: Path, tmp_path: Path) -> None:
    index, pages = tmp_path / "i", list[int]()
    with ragidx.build(corpus, index, on_progress=lambda now: pages.append(now.n_pages), **SMALL, **AUTO) as first:
        hits = first.search("who climbed to the lamp?", where="file.ocr > 0", k=5)
        found = {hit.doc_id: ("".join(hit.text.split()), hit.page, hit.metadata["file.ocr"]) for hit in hits}
        assert first.report is not None
        report = first.report

    read = "".join(READABLE).replace(" ", "")  # the engine may miss a space
    assert found == {"a.pdf": (read, 1, 1), "b.jpg": ("Heronsbreedinthereeds.", None, 1)}
    assert hits[0].metadata["file.ocr_confidence"] > 0.95
    assert report.left == {
        "scanned pages, script not known": {"class": "lost", "count": 1, "files": 1, "places": ["a.pdf#page=2"]},
        "pages read by OCR": {"class": "guess", "count": 2, "files": 2, "places": ["a.pdf#page=1", "b.jpg"]},
    }
    assert report.skipped == {"picture without text": 1}
    assert pages[-1] == 4
    again = ragidx.build(corpus, index, **AUTO).report
    assert again is not None
    assert (again.n_files_unopened, again.n_unchanged, again.left, again.skipped) == (
        *(4, 3, report.left),
        report.skipped,
    )

    shown = CliRunner().invoke(cli, ["query", "who climbed to the lamp?", "--index", str(index), "-k", "1"])
    assert "a.pdf#page=1  OCR 0.9" in shown.output
    off = CliRunner().invoke(cli, ["build", str(corpus), "--index", str(index), "--allow-removal"])
    assert "1 file not opened" in off.output
    assert (
        "Skipped: 2 x picture, not read without --ocr\n    b.jpg\n    c.png\n    --ocr auto reads Latin and Chinese\n"
        "Lost: 2 x scanned pages in 1 file (a.pdf#page=1)\n    --ocr auto reads Latin and Chinese\n"
    ) in off.output


@pytest.mark.slow
def test_languages_are_read_by_tesseract_which_the_build_runs(tmp_path: Path, tesseract: Path) -> None:
    (tmp_path / "a.png").write_bytes(drawn("Leuchtturm"))

    with ragidx.build(tmp_path / "a.png", tmp_path / "i", **SMALL, fields={"ocr": "*=deu+eng"}) as made:
        [document] = made.documents()
        [hit] = made.search("Leuchtturm")

    assert document.text == "Leuchtturm"
    assert (hit.metadata["file.ocr"], hit.metadata["file.ocr_confidence"]) == (1, 0.96)
    said = tesseract.with_suffix(".log").read_text()
    assert said == "stdin stdout -l deu+eng tsv, threads 1: P5 700 110 255\n"
    assert tesseract.with_suffix(".picture").stat().st_size == 700 * 110


def refusal(setting: str, folder: Path) -> str:
    with pytest.raises(RagidxError) as caught:
        ragidx.build(folder, folder / "i", fields={"ocr": setting})
    return str(caught.value)


@pytest.mark.usefixtures("tesseract")
def test_an_unknown_language_is_refused_with_those_at_hand(tmp_path: Path) -> None:
    assert refusal("deu+fin", tmp_path) == (
        "`ocr`: unknown language of tesseract 'fin'\n  hint: known: deu, eng; or auto, which reads Latin and Chinese"
    )


def test_without_tesseract_languages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="needs the extra 'ocr'")
    monkeypatch.setenv("PATH", os.devnull)

    assert refusal("letters/*=deu", tmp_path) == (
        "`ocr=deu` needs tesseract, which is not installed\n"
        "  hint: install it with its languages (Debian: tesseract-ocr, tesseract-ocr-deu), or give `ocr=auto`"
    )


def test_without_the_extra_auto_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., Any] = importlib.util.find_spec
    missing = ("PIL", "faster_paddle")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in missing else find(name, *more))

    assert refusal("auto", tmp_path) == (
        "`ocr=auto` needs pillow and faster-paddle, which are not installed\n"
        "  hint: pip install '.[ocr]' in a checkout of ragidx"
    )
