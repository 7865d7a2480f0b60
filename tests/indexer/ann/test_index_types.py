"""Index types: what is let in and what is not, what a segment becomes, and what that takes on the disk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.indexer.ann import index_types
from ragidx.indexer.ann.index_types import (
    INDEX_TYPES,
    Effort,
    IndexOptions,
    Recipe,
    VectorFootprint,
    candidates,
    check_index_type,
    footprint_of,
    memory_size,
    padded,
    product_codes,
    train_rows,
)
from ragidx.indexer.store.files import VECTORS

from ...raising import message_of


def footprint(index_type: str, rows: int, dim: int) -> VectorFootprint:
    """Of the first choice of an index type."""
    return footprint_of(candidates(index_type, rows, padded(dim))[0], rows, padded(dim))


FACTORY_HINT = (
    "  hint: give a name (auto, flat, pq4, ivfpq4, hnsw, ivf, sq8, ivfpq, rabitq), or a factory string: HNSW16; SQ8, "
    "SQ6, SQ4, RaBitQ4, PQ96x4fs or RaBitQfs; these, SQfp16 or PQ48 with IVF1024, in front; RR, in front of it turns "
    "the vectors"
)
NAMES_HINT = (
    "  hint: known: auto, flat, hnsw, ivf, ivfpq, ivfpq4, pq4, rabitq, sq8, or a factory string such as IVF1024,SQ8"
)

scalars = st.sampled_from(
    ["SQ8", "SQ6", "SQ4", "RaBitQ", *(f"RaBitQ{bits}" for bits in range(2, 10)), "RaBitQfs", "PQ1x4fs", "PQ192x4fs"]
)
in_lists = scalars | st.just("SQfp16") | st.integers(1, 9999).map("PQ{}".format)
recipes = (
    st.integers(4, 128).map(lambda links: Recipe(links=links))
    | st.builds(lambda code, rotate: Recipe(code=code, rotate=rotate), scalars, st.booleans())
    | st.builds(
        lambda lists, code, rotate: Recipe(None, lists, code, rotate), st.integers(1, 999_999), in_lists, st.booleans()
    )
)


def refused(text: str, dim: int | None = None) -> str:
    return message_of(SpecError, lambda: check_index_type(text, dim))


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("HNSW16", Recipe(links=16)),
        ("SQ8", Recipe(code="SQ8")),
        ("RaBitQ", Recipe(code="RaBitQ")),
        ("RR,SQ4", Recipe(code="SQ4", rotate=True)),
        ("PQ96x4fs", Recipe(code="PQ96x4fs")),
        ("RR,IVF64,RaBitQfs", Recipe(lists=64, code="RaBitQfs", rotate=True)),
        ("IVF1024,SQfp16", Recipe(lists=1024, code="SQfp16")),
        ("IVF64,PQ8", Recipe(lists=64, code="PQ8")),
        ("RR,IVF1024,RaBitQ", Recipe(lists=1024, code="RaBitQ", rotate=True)),
    ],
)
def test_a_factory_string_is_read_as_faiss_reads_it(text, recipe):
    assert Recipe.parse(text) == recipe
    assert str(recipe) == text


@pytest.mark.slow
@given(recipes)
def test_a_recipe_prints_as_the_factory_string_that_parses_back(recipe):
    assert Recipe.parse(str(recipe)) == recipe
    check_index_type(str(recipe))


@pytest.mark.parametrize("name", INDEX_TYPES)
def test_every_name_is_an_option_and_has_a_footprint(name):
    assert IndexOptions(name).index_type == name
    assert footprint(name, 20_000, 96).disk_bytes >= 2 * 96 * 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hsnw", "`index_type`: unknown index type 'hsnw'; did you mean 'hnsw'?\n" + NAMES_HINT),
        ("LSH", "`index_type`: unknown index type 'LSH'\n" + NAMES_HINT),
        ("SQ5", "`index_type`: unknown index type 'SQ5'\n" + NAMES_HINT),
        ("RaBitQ1", "`index_type`: unknown index type 'RaBitQ1'\n" + NAMES_HINT),
        *(
            (text, f"`index_type`: index type '{text[:60]}': it is not in the list of those that are known to be right")
            for text in ("HNSW16,PQ8", "RR,HNSW16", "IVF16,Flat", "IVF4,PQ8x5fs", "OPQ8,IVF4,PQ8", "RR,", "", "x," * 40)
        ),
        ("IVF0,SQ8", "`index_type`: index type 'IVF0,SQ8': IVF takes 1 list or more"),
        *(
            (text, f"`index_type`: index type '{text}': did you mean '{meant}'?")
            for text, meant in [
                *((text, "PQ48x4fs") for text in ("PQ48x4", "PQ48fs", "pq48X4fs", "PQ48x4fsr", "PQ48x4fs_64")),
                *((text, "IVF4,RaBitQfs") for text in ("IVF4,RaBitQfs4", "IVF4,RaBitQ4fs", "IVF4,rabitqfs_64")),
                ("RR,IVF4,PQ8x4", "RR,IVF4,PQ8x4fs"),
            ]
        ),
        (
            "PQ48",
            "`index_type`: index type 'PQ48': product codes of 8 bits need lists: IVF256,PQ48; of 4 bits not: PQ96x4fs",
        ),
        ("IVF4,PQ0", "`index_type`: index type 'IVF4,PQ0': PQ takes 1 code or more"),
        ("PQ0x4fs", "`index_type`: index type 'PQ0x4fs': PQ takes 1 code or more"),
        ("SQfp16", "`index_type`: index type 'SQfp16': all vectors in float16 are the type flat"),
        ("HNSW3", "`index_type`: index type 'HNSW3': HNSW takes 4 to 128 links"),
        ("HNSW129", "`index_type`: index type 'HNSW129': HNSW takes 4 to 128 links"),
    ],
)
def test_what_is_not_let_in_is_told_with_what_is(text, message):
    assert refused(text) == (message if NAMES_HINT in message else f"{message}\n{FACTORY_HINT}")


def test_the_factory_string_of_the_hint_is_let_in():
    check_index_type(NAMES_HINT.rpartition(" ")[2], 384)


def test_codes_that_do_not_divide_the_width_name_those_that_do():
    check_index_type("IVF8,PQ48", 384)

    assert refused("IVF8,PQ48", 100) == (
        "`index_type`: index type IVF8,PQ48: 48 codes do not divide 104 dimensions\n"
        "  hint: take one of PQ4, PQ8, PQ13, PQ26, PQ52, PQ104, or another type"
    )
    assert refused("PQ48x4fs", 100).endswith(
        "  hint: take one of PQ4x4fs, PQ8x4fs, PQ13x4fs, PQ26x4fs, PQ52x4fs, PQ104x4fs, or another type"
    )
    assert refused("IVF8,PQ48", 7).endswith("  hint: take one of PQ1, PQ2, PQ4, PQ8, or another type")
    with pytest.raises(SpecError, match="48 codes do not divide 100 dimensions"):
        candidates("IVF8,PQ48", 20_000, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index_type": "exec"}, "`index_type`: unknown index type 'exec'\n" + NAMES_HINT),
        (
            {"target_recall": 0},
            "`target_recall`: a recall of 0 is out of range\n  hint: give more than 0, at most 1",
        ),
        (
            {"target_recall": 1.5},
            "`target_recall`: a recall of 1.5 is out of range\n  hint: give more than 0, at most 1",
        ),
        (
            {"target_recall": float("nan")},
            "`target_recall`: a recall of nan is out of range\n  hint: give more than 0, at most 1",
        ),
        (
            {"max_memory": 0},
            "`max_memory`: 0 bytes of memory hold nothing\n  hint: give a size such as 2GB",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    assert message_of(SpecError, lambda: IndexOptions(**options)) == message


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("hnsw", "ivf", "sq8", "ivfpq", "rabitq", "HNSW8", "SQ6", "SQ4", "RaBitQ", "RaBitQ4", "RR,SQ4"),
        *("IVF8,SQ6", "IVF16,RaBitQ2", "RR,IVF8,RaBitQ4", "pq4", "RaBitQfs", "IVF8,PQ1x4fs", "RR,IVF8,RaBitQfs"),
    ],
)
@pytest.mark.parametrize("dim", [65, *(pytest.param(dim, marks=pytest.mark.slow) for dim in (32, 100))])
def test_the_footprint_is_what_the_files_have(tmp_path, ann_kit, monkeypatch, text, dim):
    """Within two percent, also where rows of bits do not end with a byte."""
    monkeypatch.setattr(index_types, "MIN_ROWS", 1)
    width = padded(dim)
    vectors = ann_kit.write(tmp_path, np.resize(ann_kit.clustered(500, width), (2000, width)))
    (recipe,) = candidates(text, 2000, width)

    made = ann_kit.make(tmp_path, str(recipe), vectors).stat().st_size

    expected, stored = footprint(text, 2000, dim), (tmp_path / VECTORS).stat().st_size
    assert expected.disk_bytes == pytest.approx(made + stored, rel=0.02)
    assert expected.memory_bytes == pytest.approx(made + stored * (recipe.links is not None), rel=0.02)


def test_flat_takes_two_bytes_a_number_and_nothing_else():
    assert footprint("flat", 1000, 384) == VectorFootprint(768_000, 768_000, 0)


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        *((9_999, None), (10_000, None), (13_020, None)),
        *((13_021, "PQ192x4fs"), (333_333, "PQ192x4fs"), (333_334, "IVF2048,PQ192x4fs")),
    ],
)
def test_auto_is_flat_while_that_is_fast_then_codes_and_then_lists_of_them(rows, first):
    found = candidates("auto", rows, 384)

    assert (str(found[0]) if found[0] else None) == first
    assert len(found) == (1 if rows < 10_000 else 2 if first == "PQ192x4fs" else 3)


def test_auto_falls_back_on_what_takes_less_memory_and_then_on_what_reaches_any_recall():
    found = candidates("auto", 1_000_000, 384)

    memory = [footprint_of(recipe, 1_000_000, 384).memory_bytes for recipe in found]
    assert [str(recipe) for recipe in found] == ["IVF2048,PQ192x4fs", "PQ192x4fs", "IVF2048,SQ8"]
    assert memory[1] < 0.9 * memory[0] < memory[2] / 3.5
    assert memory[1] == pytest.approx(2 * 384 * 1_000_000 / 8, rel=0.001)


@pytest.mark.parametrize("name", [*INDEX_TYPES, "IVF4,SQ8", "HNSW16"])
def test_a_small_segment_is_compared_whole_whatever_the_type(name):
    assert candidates(name, 9_999, 96) == [None]
    assert footprint(name, 9_999, 96) == footprint("flat", 9_999, 96)


def test_more_lists_than_the_rows_can_train_become_fewer():
    assert [str(one) for one in candidates("IVF1024,SQ8", 10_000, 8)] == ["IVF256,SQ8"]
    assert [str(one) for one in candidates("RR,IVF1024,RaBitQ4", 10_000, 8)] == ["RR,IVF256,RaBitQ4"]
    assert [str(one) for one in candidates("IVF256,SQ8", 10_000, 8)] == ["IVF256,SQ8"]


@pytest.mark.slow
@given(rows=st.integers(10_000, 10**8), name=st.sampled_from(["ivf", "ivfpq", "rabitq"]), dim=st.integers(1, 1024))
def test_lists_are_a_power_of_two_with_rows_enough_to_train_on(rows, name, dim):
    (recipe,) = candidates(name, rows, dim)

    assert recipe is not None
    assert recipe.lists is not None
    assert recipe.lists & (recipe.lists - 1) == 0
    assert rows >= 39 * recipe.lists
    recipe.check(dim)


@pytest.mark.slow
@given(rows=st.integers(1, 10**9), dim=st.integers(1, 65_536), recipe=recipes)
def test_an_index_is_trained_on_at_most_256_mebibytes(rows, dim, recipe):
    count = train_rows(recipe, rows, dim)

    assert 1 <= count <= rows
    assert 4 * dim * count <= 256 << 20


@given(st.integers(1, 5000))
def test_product_codes_divide_the_width(dim):
    assert dim % product_codes(dim) == 0


def test_product_codes_are_near_a_quarter_of_the_width():
    assert [product_codes(dim) for dim in (384, 256, 100, 65, 7, 1)] == [96, 64, 25, 13, 1, 1]


def test_effort_grows_with_the_hits_and_with_what_a_condition_leaves_out():
    tuned = Effort(beam=40, lists=6, factor=4)

    assert tuned.at(10, 1.0) == tuned
    assert tuned.at(3, 1.0) == tuned
    assert tuned.at(40, 1.0) == Effort(beam=160, lists=12, factor=4)
    assert tuned.at(10, 0.25) == tuned.at(40, 1.0)
    assert tuned.at(3, 0.25) == tuned.at(10, 0.25)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MB", 500_000_000),
        ("2GB", 2_000_000_000),
        ("2g", 2_000_000_000),
        ("1.5GiB", 1_610_612_736),
        ("1.5 gib", 1_610_612_736),
        ("3kb", 3000),
        ("4KiB", 4096),
        ("1TB", 10**12),
        ("12", 12),
        ("12B", 12),
        (" 12 ", 12),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["x", "", "GB", "-1GB", "1e9", "2XB", "1,000", "1.GB", "2GB2", "nan"])
def test_what_is_no_size_is_refused_with_what_is_one(text: str) -> None:
    said = message_of(SpecError, lambda: memory_size(text))

    assert said == f"`max_memory`: '{text}' is not a size\n  hint: write 500MB, 2GB or 1.5GiB"
