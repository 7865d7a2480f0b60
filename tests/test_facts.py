"""What pages state is what the code has: bounds, defaults, and that nothing is denied which is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragidx.corpora import ignore, sources
from ragidx.corpora.left_out import KINDS
from ragidx.corpora.limits import GIB, MIB, RATIO_FROM_BYTES, Limits
from ragidx.corpora.readers import fields, html_bounds
from ragidx.corpora.readers.office import odf, package, rtf, trees, xlsx
from ragidx.corpora.readers.packed import archive, mail
from ragidx.corpora.readers.records import delimited, dialect, field_rule, notebook, paths
from ragidx.corpora.vectors.batch import MAX_WIDTH
from ragidx.indexer.encoders import endpoint
from ragidx.indexer.lexical.analyzer import MAX_TOKEN
from ragidx.indexer.models.endpoint_client import PATIENCE
from ragidx.indexer.models.presets import published_presets
from ragidx.indexer.specs import MAX_COPIES
from ragidx.indexer.store.entries import MAX_ROWS
from ragidx.indexer.store.manifest import KEPT, MAX_DIM
from ragidx.indexer.writing import field_bounds, merging, segment_writer
from ragidx.pipelines.cli.main import COMMANDS
from ragidx.pipelines.ingest.encode import WINDOW_CHARS, WINDOW_CHUNKS
from ragidx.pipelines.ingest.workers.process import SILENCE
from ragidx.retriever.where import parser

COUNTED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DOCS = Path(__file__).parents[1] / "docs"
L = Limits()


def size(count: int) -> str:
    return f"{count // GIB} GiB" if count % GIB == 0 else f"{count // MIB} MiB"


RATIO = f"times its size, from {size(RATIO_FROM_BYTES)} on"
BOUNDS = {
    "a file that becomes one document, unpacked": size(L.document_bytes),
    "a `.json` file that is not JSON Lines": size(L.json_bytes),
    "a line of JSON Lines; a line or a field of CSV": size(L.line_bytes),
    "what one `.gz`, `.zst`, `.bz2` or `.xz` unpacks to": (
        f"{size(L.unpacked_bytes)}, and {L.unpacked_ratio} times its size from {size(RATIO_FROM_BYTES)} on"
    ),
    "texts and vectors of a parquet or arrow file, its repeated values written out": f"{L.unpacked_ratio} {RATIO}",
    "members of a `.zip` or `.tar`; what they unpack to": (
        f"{L.archive_members:,}; {size(L.archive_bytes)}, and {L.archive_ratio} times its size from"
        f" {size(RATIO_FROM_BYTES)} on"
    ),
    "a name in an archive": f"{archive._MOST_NAME:,} characters",
    "a message; a header of a part of it; parts inside one another": (
        f"{size(L.mail_bytes)}; {mail.HEADER_CHARS:,} bytes; {mail.DEPTH}"
    ),
    "attributes of a tag of a page; its open elements, counted at each tag": (
        f"{html_bounds._MOST_ATTRIBUTES:,}; {html_bounds._LEAST_WORK:,}, and {html_bounds._WORK_OF_TAG} a tag more"
    ),
    "what a cell of a notebook printed": f"{notebook._OUTPUT_CHARS:,} characters; the rest is cut",
    "elements inside one another in a part of an office file": f"{trees.DEPTH}",
    "parts of an office file; what they unpack to; one of them": (
        f"{L.archive_members:,}; {size(L.archive_bytes)}; {size(L.office_text_bytes)}, and {L.unpacked_ratio} times its"
        f" size from {size(package.RATIO_FROM_BYTES)} on"
    ),
    "empty cells of a sheet that are written; copies of a repeated cell": f"{xlsx._GAP_CELLS}; {odf._REPEATS}",
    "groups inside one another in an `.rtf`": f"{rtf._DEPTH:,}",
    "columns of a `.csv` or `.tsv`; rows that decide how it is cut": (
        f"{delimited._MOST_COLUMNS:,}; {dialect._SAMPLE_ROWS}"
    ),
    "text from a PDF or office file": size(L.office_text_bytes),
    "pages of a file for [`--ocr`](ocr.md#bounds); a picture, by its header": (
        f"{L.ocr_pages:,}; {L.picture_pixels // 1_000_000} million pixels"
    ),
    "memory of a worker": (
        f"{size(L.worker_memory_bytes)}; {size(L.pdf_worker_memory_bytes)} where it reads a PDF without `--ocr`; "
        "for vectors 4 bytes more for each of the file"
    ),
    "CPU time between two documents of a file, or two scanned pages, in a worker; time in which it says nothing": (
        f"{L.worker_cpu_s:.0f} s, and 1 s a MiB of the file; {SILENCE * L.worker_cpu_s:,.0f} s"
    ),
    "a `.gitignore`; one of its rules; its rules without a plain name": (
        f"{size(sources._IGNORE_BYTES)}; {ignore.MAX_RULE_CHARS:,} characters; {ignore.MAX_WILD_RULES:,}"
    ),
    "a list that becomes metadata, as JSON": f"{fields._NESTED_CHARS:,} characters",
    "fields of an index; the JSON of all beyond, a document": (
        f"{field_bounds.MAX_FIELDS:,}; {field_bounds.SHARED_CHARS:,} characters"
    ),
    "records that decide which fields are text": (f"{field_rule.SAMPLE_RECORDS:,}, or {size(field_rule.SAMPLE_CHARS)}"),
    "objects that are looked into": f"{paths._DEPTH} levels; deeper ones are JSON text",
    "width of a vector": f"{MAX_DIM:,} dimensions",
    "rows in a segment; vectors in a segment; text in a segment": (
        f"2^31 - 1; {size(segment_writer.MAX_VECTOR_BYTES)}; {size(segment_writer.MAX_TEXT_BYTES)}"
    ),
    "copies of a text (`--copies`)": f"{MAX_COPIES}",
    "a word": f"{MAX_TOKEN} characters; what follows is not compared",
    "a condition": (
        f"{parser.MAX_CHARS:,} characters, {parser.MAX_DEPTH} levels deep, {parser.MAX_VALUES:,} values after `in`"
    ),
    "kept generations": f"{KEPT}",
    "writers at a time": "1; readers: any number",
    "a request": (
        f"{endpoint.REQUEST_TEXTS} texts, {endpoint.REQUEST_TOKENS:,} tokens (one text may have more);"
        f" {COUNTED[endpoint.AT_ONCE]} at once"
    ),
    "an answer": (
        f"{endpoint._NUMBER_BYTES} bytes for each number of its vectors, and {endpoint._ANSWER_BYTES // 1024} KiB"
    ),
    "a connection; an answer; attempts; the longest wait": (
        f"{PATIENCE.connect_s:.0f} s; {PATIENCE.answer_s:.0f} s; {PATIENCE.attempts}; {PATIENCE.most_s:.0f} s"
    ),
}


def rows_of(page: str) -> dict[str, str]:
    """The rows of two cells of a page's tables, but their heads."""
    found = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", (DOCS / page).read_text("utf-8"), re.MULTILINE))
    return {name: value for name, value in found.items() if set(name) != {"-"} and name != "bound"}


def test_the_page_of_limits_has_the_bounds_of_the_code() -> None:
    assert (MAX_ROWS, MAX_WIDTH) == (2**31 - 1, MAX_DIM)
    assert rows_of("limits.md") == BOUNDS


@pytest.mark.parametrize(
    ("page", "stated"),
    [
        ("limits.md", f"one window of chunks ({WINDOW_CHUNKS:,} chunks or {WINDOW_CHARS >> 20} Mi characters)"),
        ("indexes.md", f"{size(merging.FOLDED_BYTES)} of vectors, and four rows for each one"),
        ("store.md", f"{size(merging.FOLDED_BYTES)} of vectors, and four rows for each row"),
        ("store.md", f"below {size(merging.SMALL_BYTES)} of vectors is *small*"),
        ("store.md", f"more than {merging.MAX_SMALL} small ones"),
        ("endpoint.md", f"is tried {COUNTED[PATIENCE.attempts]} times"),
    ],
)
def test_a_page_states_the_bound_of_the_code(page: str, stated: str) -> None:
    assert merging.FOLDED_ROWS == 4
    assert stated in " ".join((DOCS / page).read_text("utf-8").split())


def test_no_page_denies_a_command_that_is_there() -> None:
    denied = re.compile(
        r"\b(?:planned|not yet|there is no command|none of this exists|does not exist yet)\b", re.IGNORECASE
    )
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]:
        for sentence in re.split(r"(?<=[.:])\s+|\n\s*\n|\n(?=[-#|])", page.read_text("utf-8")):
            if denied.search(sentence):
                named = {name for name in COMMANDS if re.search(rf"\b{name}s?\b", sentence, re.IGNORECASE)}
                assert named == set(), f"{page.name}: {sentence}"


def test_a_preset_is_the_method_with_the_highest_published_mean() -> None:
    rows = re.findall(
        r"^\| ([\w.-]+) \| (\w+), tau 2.* \| MTEB (.+) \|$", (DOCS / "models.md").read_text(), re.MULTILINE
    )
    every = published_presets().items()
    presets = {name.partition("/")[2]: one["method"] for name, one in every if "weight" not in one}  # of decoders

    assert {name: method for name, method, _ in rows} == presets
    for name, method, figures in rows:
        means = {one: float(half) for one, half in re.findall(r"(echo|prompteol) [\d.]+, ([\d.]+)", figures)}
        assert len(means) == 2
        assert method == max(means, key=means.__getitem__), name


def test_the_kinds_of_what_is_left_out_are_those_of_the_page_each_in_its_class() -> None:
    table = (DOCS / "formats.md").read_text().split("## What is left out")[1].split("## ")[0]
    rows = re.findall(r"^\| (lost|guess|by rule|not known)\b[^|]*\| (.+) \|$", table, re.MULTILINE)

    stated = [(kind, of) for of, kinds in rows for kind in re.findall(r"`([^`]+)`", kinds)]
    assert sorted(stated) == sorted(KINDS.items())


def test_readers_count_kinds_of_the_table_and_each_kind_is_counted_by_one() -> None:
    code = "".join(path.read_text() for path in (DOCS.parent / "corpora").rglob("*.py") if path.name != "left.py")

    assert set(re.findall(r"\.leave\(\s*\"([^\"]+)\"", code)) <= KINDS.keys()
    assert [kind for kind in KINDS if f'"{kind}"' not in code] == []
