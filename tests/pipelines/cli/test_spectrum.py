"""`ragidx lens --spectrum` as a user runs it: tables and JSON, its files, and what goes wrong."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Done
from .conftest import json_of

Run = Callable[..., Done]

pytestmark = pytest.mark.slow


# the spectrum


def test_a_spectrum_is_told_in_shares_and_strongest_directions(run: Run, small_corpus: Path) -> None:
    done = run("lens", "--spectrum", "--corpus", "corpus", "--tokens", "20")

    lines = done.out.splitlines()
    assert done.status == 0
    assert lines[0] == "model    mini-decoder: 256 directions, 30,522 tokens"
    assert re.fullmatch(r"counted  \d+ tokens, \d+ of them different, in 6 texts of corpus", lines[1])
    assert lines[2] == "filter   EmbedFilter, 255 dimensions, from direction 1 on"
    assert re.fullmatch(r"average  its logits have a correlation of -?\d\.\d\d with log p", lines[3])
    assert re.fullmatch(
        r"cosines  0\.9\d\d before the filter, 0\.\d{3} after: the mean of all pairs of 6 texts", lines[4]
    )
    assert re.split(r"  +", lines[6]) == ["share of Σ|Δ|", "directions", "frequent", "rare", "random", "none preferred"]
    assert [re.split(r"  +", line)[:2] for line in lines[7:15]] == [
        ["first 1 %", "3"],
        ["first 5 %", "13"],
        ["first 10 %", "26"],
        ["middle half", "128"],
        ["last 10 %", "26"],
        ["last 5 %", "13"],
        ["last 1 %", "3"],
        ["dropped by the filter", "1"],
    ]
    assert all(re.fullmatch(r".*\d +(\d+\.\d % +){3}\d+\.\d %", line) for line in lines[7:15])
    assert re.split(r"  +", lines[16]) == ["20 tokens", "mean log p", "mean logit", "largest |Δ|: direction and Δ"]
    for name, line in zip(("frequent", "rare", "random"), lines[17:], strict=True):
        assert re.fullmatch(
            rf"{name} +-\d+\.\d\d +-\d+\.\d\d +0 \([+-]\d\.\d{{3}}\)(, \d+ \([+-]\d\.\d{{3}}\)){{3}}", line
        )
    assert done.err == (
        "The average token does not follow frequencies in this head, so Δ says little about them; see --centred.\n"
    )


def test_a_spectrum_of_an_index_counts_its_chunks(run: Run, index: Path) -> None:
    done = run("lens", "--spectrum", "--index", str(index), "--tokens", "9", "--json")

    data = json_of(done)
    assert (data["model"], data["source"], data["n_texts"]) == ("tiny", str(index), 6)
    assert [group["name"] for group in data["groups"]] == ["frequent", "rare", "random"]
    assert data["kept"] == list(range(8, 24))


@pytest.mark.parametrize(
    ("options", "kept", "dim"),
    [
        ("--filter truncation --dim 7", "truncation, 7 dimensions, the first coordinates", 7),
        ("--filter bulk --dim 1", "bulk, 1 dimension, both ends of the spectrum", 1),
        ("--filter none", "none: 256 raw coordinates", 256),
    ],
)
@pytest.mark.usefixtures("small_corpus")
def test_a_spectrum_tells_the_width_that_its_filter_keeps(run: Run, options: str, kept: str, dim: int) -> None:
    args = ("lens", "--spectrum", "--corpus", "corpus", "--tokens", "9", *options.split())

    assert run(*args).out.splitlines()[2] == f"filter   {kept}"
    assert json_of(run(*args, "--json"))["dim"] == dim


@pytest.mark.usefixtures("small_corpus", "model")
def test_a_fitted_filter_has_its_width_from_the_index_and_none_without(run: Run) -> None:
    assert run("build", "corpus", "--model", "tiny", "--filter", "whitening", "--dim", "4").status == 0

    data = json_of(run("lens", "--spectrum", "--index", "ragidx-index", "--tokens", "9", "--json"))
    without = run("lens", "--spectrum", "--corpus", "corpus", "--filter", "whitening")

    assert (data["dim"], data["kept"]) == (4, None)
    assert without == (
        2,
        "",
        "Error: --filter: filter 'whitening' is fitted on a corpus, and there is none here\n"
        "  hint: build an index with it, or take a filter that needs none\n",
    )


@pytest.mark.parametrize("name", ["s.svg", "s.PNG", "s.json"])
def test_a_spectrum_is_written_in_the_format_of_the_files_ending(run: Run, small_corpus: Path, name: str) -> None:
    done = run("lens", "--spectrum", "--corpus", "corpus", "--tokens", "9", "--centred", "--out", name, "--json")

    assert done.status == 0
    assert done.err == f"Written: {name}\n"
    start = {"s.svg": b"<?xml", "s.PNG": b"\x89PNG", "s.json": b'{\n  "model": "mini-decoder"'}[name]
    assert Path(name).read_bytes().startswith(start)
    if name == "s.json":
        assert json.loads(Path(name).read_text()) == json.loads(done.out)


def test_what_is_left_out_of_the_corpus_is_counted_on_stderr(run: Run, small_corpus: Path) -> None:
    (small_corpus / "broken.txt").write_bytes(b"\0" * 5000)

    done = run("lens", "--spectrum", "--corpus", "corpus", "--tokens", "9", "--json")

    assert done.status == 0
    assert done.err == "Skipped: 1 x binary file\n"


# what goes wrong


@pytest.mark.usefixtures("small_corpus")
def test_a_file_of_another_kind_is_refused_before_anything_is_counted(run: Run) -> None:
    assert run("lens", "--spectrum", "--corpus", "nowhere", "--out", "s.gif") == (
        2,
        "",
        "Error: --out: 's.gif' has no known ending\n  hint: name a file that ends in .svg, .png or .json\n",
    )
    assert run("lens", "--spectrum", "--corpus", "nowhere", "--out", "no/s.json") == (
        2,
        "",
        "Error: no: there is no such folder\n  hint: create it, or choose another file with --out\n",
    )


@pytest.mark.usefixtures("small_corpus")
def test_a_file_that_cannot_be_written_is_told_before_anything_is_counted(run: Run) -> None:
    Path("s.svg").mkdir()

    taken = run("lens", "--spectrum", "--corpus", "nowhere", "--out", "s.svg")
    closed = run("lens", "--spectrum", "--corpus", "nowhere", "--out", "/proc/s.json")

    assert (taken.status, taken.out) == (2, "")
    assert taken.err.endswith("Error: Invalid value for '--out': File 's.svg' is a directory.\n")
    assert re.fullmatch(
        r"Error: /proc: the folder cannot be written to: [\w ]+\n  hint: choose another file with --out\n", closed.err
    )
    assert (closed.status, closed.out) == (2, "")


@pytest.mark.usefixtures("small_corpus")
def test_a_file_that_fails_in_the_end_is_told_with_its_own_option(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def full(handle: int, data: bytes) -> int:
        if b'"groups"' in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data)

    monkeypatch.setattr(os, "write", full)

    done = run("lens", "--spectrum", "--corpus", "corpus", "--tokens", "9", "--out", "s.json", "--json")

    assert done.err == (
        "Error: s.json: cannot write: No space left on device\n  hint: choose another file with --out\n"
    )
    assert (done.status, list(Path().glob("*s.json*"))) == (2, [])
