"""No file, however broken, is more than documents and skips: half a minute of what `make fuzz` does for ten."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from fuzzer import Readers
from seeds import STEPS, VECTOR_FILES, Step, mutated, office_seeds, seeds

FOUND = sorted(Path(__file__).with_name("found").iterdir())
SHARE = st.floats(0, 1, exclude_max=True)
STEP = st.tuples(st.sampled_from(STEPS), SHARE, SHARE, st.integers(0, 999))


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    with Readers(tmp_path_factory.mktemp("fuzz")) as found:
        yield found


@pytest.mark.slow
@settings(derandomize=True, max_examples=600)
@given(
    seed=st.sampled_from(seeds()), steps=st.lists(st.tuples(st.sampled_from(STEPS), SHARE, SHARE, st.integers(0, 999)))
)
def test_a_broken_file_is_documents_and_skips(seed: tuple[str, bytes], steps: list[Step], readers: Readers) -> None:
    ending, data = seed

    assert readers.read(ending, mutated(data, steps))["fault"] is None


@pytest.mark.slow
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_a_file_that_was_a_finding_is_none_now(path: Path, readers: Readers) -> None:
    assert readers.read(path.suffix, path.read_bytes())["fault"] is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: seed[0])
def test_a_good_file_is_documents(seed: tuple[str, bytes], readers: Readers) -> None:
    answer = readers.read(*seed)

    assert answer["fault"] is None
    assert answer["documents"] + answer["rows"] > 0
    assert answer["rows"] >= (2 if seed in VECTOR_FILES else 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", office_seeds(), ids=lambda seed: seed[0])
def test_a_good_office_file_is_documents(seed: tuple[str, bytes], readers: Readers) -> None:
    pytest.importorskip("markitdown", reason="needs the extra 'docs'")

    answer = readers.read(*seed)

    assert (answer["documents"], answer["fault"]) == (1, None)


@pytest.mark.slow
def test_a_reader_that_ends_or_fails_is_a_finding(readers: Readers) -> None:
    answer = readers.read(".txt", b"a\xed\xa0\x80" * 9)

    assert answer["fault"] is None
    readers._child.kill()  # type: ignore[union-attr]
    assert readers.read(".txt", b"words")["fault"] == "the reader ended with status -9"
    assert readers.read(".txt", b"words")["documents"] == 1
