"""The file of a head: what it holds, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.filters.filter import Filter, head_filter, make_filter
from ragidx.indexer.filters.heads import Head, load_head
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import FilterSpec

from ...raising import message_of

HEAD = Head(np.arange(12, dtype=np.float32).reshape(4, 3), np.ones(3, np.float32), {"kind": "linear", "pairs": 7})


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.head").write_bytes(HEAD.to_bytes())

    head = load_head(tmp_path / "a.head")

    assert np.array_equal(head.matrix, HEAD.matrix)
    assert np.array_equal(head.shift, HEAD.shift)
    assert head.made == HEAD.made


def test_in_an_index_it_is_named_by_its_content() -> None:
    spec = HEAD.named(FilterSpec("head:anywhere/a.head"))
    other = Head(HEAD.matrix + 1, HEAD.shift, HEAD.made).named(FilterSpec("head:anywhere/a.head"))

    assert spec.name.startswith("head:")
    assert len(spec.name) == len("head:") + 16
    assert spec == HEAD.named(FilterSpec("head:b.head"))
    assert spec.dim == 3
    assert spec.name != other.name
    assert spec.fingerprint() != other.fingerprint()


def test_narrower_is_its_first_numbers_and_wider_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.head").write_bytes(HEAD.to_bytes())
    made = head_filter(HEAD, FilterSpec("head:a", dim=2))

    assert np.array_equal(made.matrix, HEAD.matrix[:, :2])
    assert np.array_equal(made(np.ones((1, 4))), np.array([[17, 21]]))
    assert make_filter(FilterSpec(f"head:{tmp_path / 'a.head'}", tau=2), None).dim == 2  # type: ignore[arg-type, union-attr]
    assert message_of(SpecError, lambda: HEAD.named(FilterSpec("head:a", dim=4))) == (
        "`dim`: the head has 3 dimensions, not 4\n  hint: give at most 3"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 40,
        save_tensors({"matrix": HEAD.matrix, "shift": HEAD.shift}),
        save_tensors({"matrix": HEAD.matrix}, {"ragidx head": "{}"}),
        save_tensors({"matrix": HEAD.matrix, "shift": HEAD.shift}, {"ragidx head": "{"}),
        HEAD.to_bytes()[:-4],
    ],
)
def test_what_is_no_head_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.head"
    file.write_bytes(data)

    assert message_of(SpecError, lambda: load_head(file)) == (
        f"{file}: the file is no head\n  hint: name a file that `ragidx train head` wrote"
    )


@pytest.mark.parametrize(
    ("matrix", "shift"),
    [
        (np.full((4, 3), np.nan, np.float32), HEAD.shift),
        (HEAD.matrix, np.ones(2, np.float32)),
        (HEAD.matrix.T.copy(), np.ones(4, np.float32)),
        (HEAD.matrix.astype(np.float64), HEAD.shift),
    ],
)
def test_a_damaged_head_is_refused(tmp_path: Path, matrix: np.ndarray, shift: np.ndarray) -> None:
    file = tmp_path / "a.head"
    file.write_bytes(save_tensors({"matrix": matrix, "shift": shift}, {"ragidx head": "{}"}))

    assert message_of(SpecError, lambda: load_head(file)) == (
        f"{file}: the head in the file is damaged\n  hint: name a file that `ragidx train head` wrote"
    )


def test_a_file_that_is_not_there_is_named() -> None:
    assert message_of(SpecError, lambda: load_head(Path("none.head"))) == (
        "none.head: the file of the head cannot be read\n  hint: name a file that `ragidx train head` wrote: head:FILE"
    )
    assert "did you mean 'head:FILE'?" in message_of(SpecError, lambda: FilterSpec("head:"))


# maps behind a filter, of an index that was adapted


def test_a_map_behind_a_filter_takes_what_that_gives_at_unit_length() -> None:
    first = Filter(np.array([[3.0, 0], [0, 4]], np.float32))
    both = first.followed(Filter(np.array([[0.0, 5], [5, 0]], np.float32), shift=np.array([1.0, 0])))

    units = l2_normalize(both(np.array([[1.0, 1]]))).vectors  # (3, 4) / 5
    assert np.allclose(units, [[0.6, 0.8]])
    assert np.allclose(both.mapped(units), [[0.7071068, 0.7071068]])  # (4 - 1, 3 - 0), at unit length
    assert not both.mapped(np.zeros((1, 2), np.float32)).any()
    assert first.mapped(units) is units


def test_maps_are_kept_in_their_order_and_a_prefix_is_of_the_last_one() -> None:
    drawn = np.random.default_rng(0)
    maps = [Filter(drawn.standard_normal((4, 4)), shift=drawn.standard_normal(4)) for _ in range(2)]
    whole = Filter(np.eye(4), np.arange(4)).centred(np.ones(4), np.zeros(4)).followed(maps[0]).followed(maps[1])
    units = l2_normalize(drawn.standard_normal((5, 4)).astype(np.float32)).vectors

    kept = Filter.from_bytes(whole.to_bytes())

    assert (kept.dim, kept.content()) == (4, whole.content())
    second = l2_normalize(maps[0](units)).vectors
    assert np.array_equal(kept.mapped(units), l2_normalize(maps[1](second)).vectors)
    assert np.array_equal(kept.of_queries().mapped(units), kept.mapped(units))
    narrow = kept.narrowed(2)
    assert narrow.dim == 2
    assert narrow.content() != kept.content()
    assert np.allclose(narrow.mapped(units), l2_normalize(kept.mapped(units)[:, :2]).vectors, atol=1e-6)


def test_a_map_of_another_width_or_with_numbers_that_are_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="a map of width 3 behind a filter that gives 2"):
        Filter(np.eye(2)).followed(Filter(np.eye(3)))
    broken = Filter(np.eye(2)).followed(Filter(np.full((2, 2), np.nan), shift=np.zeros(2)))
    assert "not finite" in message_of(IndexFormatError, lambda: Filter.from_bytes(broken.to_bytes()))
