"""A stage whose files are damaged: one error that names the file, and dividing again is the way on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ragidx
from ragidx.corpora.errors import RagidxError, SpecError
from ragidx.pipelines import distribute
from ragidx.pipelines.distribute import Division

from ...raising import message_of
from .conftest import content, write

AGAIN = "\n  hint: divide again: finished shards lend their vectors"
NOT_AS_WRITTEN = f"the file is damaged: it is not what the division wrote{AGAIN}"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An index, and a stage in which two shards of its next state are done."""
    folder = tmp_path_factory.mktemp("stage")
    write(folder / "corpus", {f"{n}.txt": f"The mill and the river number {n}." for n in range(4)})
    ragidx.build(folder / "corpus", folder / "index").close()
    write(folder / "corpus", {f"{n}.txt": f"The bees and the tower number {n}." for n in range(3, 6)})
    division = distribute.divide(folder / "corpus", 2, folder / "stage", folder / "index")
    for number in range(2):
        distribute.build_shard(division, number)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def stage(pristine: Path) -> Iterator[Callable[[], Path]]:
    """The stage, as it was again at each call; it is at one place, which the division names."""
    kept = pristine.with_name("kept")
    shutil.copytree(pristine, kept)

    def again() -> Path:
        for name in ("stage", "index"):
            shutil.rmtree(pristine / name)
            shutil.copytree(kept / name, pristine / name)
        return pristine / "stage"

    yield again
    again()
    shutil.rmtree(kept)


def flipped(data: bytes, bit: int) -> bytes:
    found = bytearray(data)
    found[bit // 8 % len(found)] ^= 1 << bit % 8
    return bytes(found)


def read_all(stage: Path) -> None:
    division = Division.open(stage)
    division.check()
    distribute.commit(division)  # reads the descriptors of shards, too


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "cut": lambda data, bit: data[: bit % len(data)],
    "a bit is flipped": flipped,
    "zeros": lambda data, bit: bytes(len(data)),
    "longer": lambda data, bit: data + b"\n]",
    "another type": lambda data, bit: [b"[]", b"{}", b"7", b"null", b"[" * 100_000][bit % 5],
}


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 999), bit=st.integers(0, 10**6), damage=st.sampled_from(sorted(DAMAGES)))
def test_a_damaged_file_of_a_division_is_one_error(
    stage: Callable[[], Path], place: int, bit: int, damage: str
) -> None:
    found = stage()
    division = Division.open(found)
    own = [found / "division.json", *(division.folder / name for name in sorted(division.sums))]
    path = [*own, *sorted(division.shards.glob("*.json"))][place % (len(own) + 2)]
    path.write_bytes(DAMAGES[damage](path.read_bytes(), bit))

    with pytest.raises(RagidxError) as caught:
        read_all(found)

    assert found.name in caught.value.where


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "act"),
    [
        ("passed.npy", lambda data: data[:-3], distribute.commit),
        ("passed.npy", lambda data: flipped(data, 8 * 9), distribute.commit),
        ("parts/00000.json", lambda data: bytes(len(data)), lambda division: distribute.build_shard(division, 0)),
    ],
)
def test_it_is_named_and_dividing_again_makes_all_whole(
    stage: Callable[[], Path], name: str, data: Callable[[bytes], bytes], act: Callable[[Division], Any]
) -> None:
    division = Division.open(stage())
    path, corpus, index = division.folder / name, division.stage.parent / "corpus", division.index
    path.write_bytes(data(path.read_bytes()))

    assert message_of(SpecError, lambda: act(division)) == f"{path}: {NOT_AS_WRITTEN}"

    again = distribute.divide(corpus, 2, division.stage, index)
    for number in range(2):
        distribute.build_shard(again, number)
    distribute.commit(again)
    assert again.id != division.id
    assert sorted(row[4] for row in content(index)) == sorted(path.read_text() for path in corpus.iterdir())
