"""FAISS's files: loading FAISS, what is written, and files that it must not be shown."""

from __future__ import annotations

import functools
import struct
import sys

import faiss
import numpy as np
import pytest

from ragidx.corpora.errors import IndexFormatError, RagidxError
from ragidx.indexer.ann import search as ann
from ragidx.indexer.ann.faiss_files import HEADER_BYTES, PACKAGES, inner, load_faiss, map_vectors
from ragidx.indexer.ann.index_types import Effort, Recipe
from ragidx.indexer.store.files import ANN, VECTORS

from ...raising import message_of

pytestmark = pytest.mark.slow

PUT_BACK = "  hint: put it back from a copy, or build again with `rebuild=True`"

ROWS, DIM = 300, 8
GRAPH = "HNSW16"


@pytest.fixture
def pair(tmp_path, ann_kit):
    """A vectors file and the graph over it: 300 rows of 8 dimensions."""
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(ROWS, DIM))
    ann_kit.make(tmp_path, GRAPH, vectors)
    return tmp_path


def test_the_vectors_file_is_faiss_own_and_holds_numpys_float16(pair, ann_kit):
    index = faiss.read_index(str(pair / VECTORS))

    assert type(index) is faiss.IndexScalarQuantizer
    expected = ann_kit.clustered(ROWS, DIM).astype("f2")
    np.testing.assert_array_equal(index.reconstruct_n(0, ROWS), expected.astype("f4"))
    assert (pair / VECTORS).read_bytes()[HEADER_BYTES:] == expected.tobytes()


def test_the_graph_file_holds_no_second_copy_of_the_vectors(pair, ann_kit):
    data = (pair / ANN).read_bytes()

    assert ann_kit.clustered(ROWS, DIM).astype("f2").tobytes()[:64] not in data
    assert ann_kit.open(pair / ANN, GRAPH, map_vectors(pair / VECTORS, DIM, ROWS)).ntotal == ROWS


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: faiss.IndexFlatIP(8), "its FAISS type is b'IxFI', not b'IxSQ'"),
        (lambda: faiss.index_factory(8, "IVF1,Flat"), "its FAISS type is b'IwFl', not b'IxSQ'"),
        (
            lambda: faiss.IndexScalarQuantizer(9, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT),
            "it holds 0 rows of 9 dimensions, not 300 of 8",
        ),
        (
            lambda: faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_L2),
            "it is not an inner-product index that is ready to search",
        ),
        (
            lambda: faiss.IndexScalarQuantizer(8, faiss.ScalarQuantizer.QT_bf16, faiss.METRIC_INNER_PRODUCT),
            "it is not a float16 index of 300 rows and 8 dimensions",
        ),
    ],
)
def test_another_faiss_index_in_the_file_is_named(tmp_path, ann_kit, make, reason):
    index = make()
    if index.d == DIM:
        index.train(ann_kit.clustered(ROWS, DIM))
        index.add(ann_kit.clustered(ROWS, DIM))
    faiss.write_index(index, str(tmp_path / VECTORS))

    said = message_of(IndexFormatError, lambda: map_vectors(tmp_path / VECTORS, DIM, ROWS))

    assert said == f"{tmp_path / VECTORS}: the file is damaged: {reason}\n{PUT_BACK}"


def test_a_link_to_a_row_that_is_not_on_its_level_is_found(pair, ann_kit):
    vectors = map_vectors(pair / VECTORS, DIM, ROWS)
    graph = faiss.read_index(str(pair / ANN), faiss.IO_FLAG_SKIP_STORAGE)
    levels, starts = faiss.vector_to_array(graph.hnsw.levels), faiss.vector_to_array(graph.hnsw.offsets)
    links = faiss.vector_to_array(graph.hnsw.neighbors).copy()
    high, low = int(np.argmax(levels > 1)), int(np.argmax(levels == 1))
    data = (pair / ANN).read_bytes()
    begin = data.index(links.tobytes())
    place = begin + 4 * (int(starts[high]) + 2 * 16)  # its first link on level 1
    (pair / ANN).write_bytes(data[:place] + low.to_bytes(4, "little") + data[place + 4 :])

    assert message_of(IndexFormatError, lambda: ann_kit.open(pair / ANN, GRAPH, vectors)) == (
        f"{pair / ANN}: the file is damaged: it is not a graph over the vectors beside it\n{PUT_BACK}"
    )


ALL = (
    *("PQ16x4fs", "PQ1x4fs", "RaBitQfs", "RR,PQ16x4fs", "IVF8,PQ16x4fs", "IVF8,RaBitQfs", "RR,IVF8,RaBitQfs"),
    *("HNSW8", "SQ8", "SQ6", "SQ4", "RaBitQ", "RaBitQ4", "RR,SQ8", "RR,RaBitQ"),
    *("IVF8,SQfp16", "IVF8,SQ8", "IVF8,SQ6", "IVF8,SQ4", "IVF8,PQ8", "IVF8,RaBitQ", "IVF8,RaBitQ4"),
    *("RR,IVF8,SQfp16", "RR,IVF8,SQ8", "RR,IVF8,PQ8", "RR,IVF8,RaBitQ", "RR,IVF8,RaBitQ4"),
)
QUICK = (
    "HNSW8",
    "SQ8",
    "IVF8,SQ8",
    "RR,IVF8,RaBitQ",
    "PQ16x4fs",
    "IVF8,PQ16x4fs",
    "RaBitQfs",
    "IVF8,RaBitQfs",
)  # of each kind of file one; the others are seen to as well
IN_LISTS = [factory for factory in ALL if "IVF" in factory]
MANY, WIDE = 400, 32
NOT_OURS = "what is at byte "
NO_GRAPH = ("it is not a graph over the vectors beside it", "FAISS cannot read it: ")  # some of it FAISS looks at, too


@pytest.fixture(scope="session")
def made(ann_kit, tmp_path_factory):
    """`made(factory)`: mapped vectors, 400 of 32 dimensions, and the bytes of what was made of them, once a run."""
    folder = tmp_path_factory.mktemp("made")
    vectors = ann_kit.write(folder, ann_kit.clustered(MANY))

    @functools.cache
    def make(factory: str):
        return vectors, ann_kit.make(folder, factory, vectors).read_bytes()

    return make


def reason_of(path, factory, vectors, ann_kit) -> str:
    with pytest.raises(IndexFormatError) as caught:
        ann_kit.open(path, factory, vectors)
    start, end = f"{path}: the file is damaged: ", f"\n{PUT_BACK}"
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(end)
    return str(caught.value).removeprefix(start).removesuffix(end)


def still_searches(path, factory, vectors, ann_kit) -> bool:
    """Whether a file is let in; if so, searches of every width and effort give rows that exist and are allowed."""
    try:
        index = ann_kit.open(path, factory, vectors)
    except IndexFormatError:
        return False
    even = np.arange(MANY) % 2 == 0
    for effort in (Effort(beam=10, lists=1), Effort(beam=64, lists=8, factor=16)):
        for k, allowed in ((5, None), (5, even), (MANY, None)):
            queries = ann_kit.clustered(3, seed=5)
            _, rows = ann.search(index, Recipe.parse(factory), effort, vectors, queries, k, allowed)
            assert (rows >= 0).sum() == 3 * k
            assert rows.max() < MANY
            assert allowed is None or (rows % 2 == 0).all()
    return True


@pytest.mark.parametrize("factory", ALL)
def test_every_type_is_written_and_mapped_as_it_was_made(tmp_path, made, ann_kit, factory):
    vectors, data = made(factory)
    (tmp_path / ANN).write_bytes(data)

    assert still_searches(tmp_path / ANN, factory, vectors, ann_kit)


@pytest.mark.parametrize("factory", ALL)
def test_a_file_of_every_type_cut_anywhere_is_an_error(tmp_path, made, ann_kit, factory):
    """FAISS takes the rest of an item that is cut off for a whole one, and then reads on behind the file."""
    vectors, data = made(factory)
    path = tmp_path / ANN
    lengths = {*range(420), *np.random.default_rng(0).integers(160, len(data), 30).tolist()}

    for length in sorted(lengths | set(range(len(data) - 33, len(data)))):
        path.write_bytes(data[:length])
        assert reason_of(path, factory, vectors, ann_kit)
    path.write_bytes(data + b"x")
    assert reason_of(path, factory, vectors, ann_kit) == "1 bytes follow its end"


@pytest.mark.parametrize("factory", ALL)
def test_a_changed_byte_in_a_file_of_every_type_is_an_error_or_still_searchable(
    tmp_path, made, ann_kit, monkeypatch, factory
):
    """No change may end the process: this test itself would be gone."""
    monkeypatch.setattr(ann, "cost_of", lambda *_: 0)
    vectors, data = made(factory)
    path, rng = tmp_path / ANN, np.random.default_rng(0)
    refused = 0
    for number in range(60):
        place = int(rng.integers(min(len(data), 300 if number % 2 else len(data))))
        changed = bytearray(data)
        byte, other = bytes([rng.integers(256)]), bytes(rng.integers(256, size=8).tolist())
        wild = [byte, other, b"\xff" * 4, b"\xff" * 8, b"\0" * 8]
        new = wild[number % len(wild)][: len(data) - place]
        changed[place : place + len(new)] = new
        path.write_bytes(changed)
        refused += not still_searches(path, factory, vectors, ann_kit)
    assert refused


@pytest.mark.parametrize("factory", ALL)
def test_what_another_recipe_made_is_refused(tmp_path, made, ann_kit, factory):
    vectors, _ = made(factory)
    path = tmp_path / ANN
    for other in QUICK:
        if other != factory:
            path.write_bytes(made(other)[1])
            assert reason_of(path, factory, vectors, ann_kit)


@pytest.mark.parametrize("factory", ALL)
def test_what_was_made_of_other_vectors_is_refused(tmp_path, made, ann_kit, factory):
    vectors = ann_kit.write(tmp_path, ann_kit.clustered(MANY - 1))
    (tmp_path / ANN).write_bytes(made(factory)[1])

    assert reason_of(tmp_path / ANN, factory, vectors, ann_kit) == (
        f"it holds {MANY} rows of {WIDE} dimensions, not {MANY - 1} of {WIDE}"
    )


@pytest.mark.parametrize("factory", IN_LISTS)
@pytest.mark.parametrize("number", [-1, -(2**63), MANY, 2**31, 2**62, "twice"])
def test_a_row_number_that_leads_nowhere_is_found_before_the_first_search(tmp_path, made, ann_kit, factory, number):
    """The last list has several rows. Their numbers end the file, or its codes of whole blocks of 32 rows do."""
    (vectors, data), recipe = made(factory), Recipe.parse(factory)
    index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    size = inner(index).invlists.list_size(7)
    end = len(data) - recipe.in_registers * (8 + -(-size // 32) * 32 * recipe.code_bytes(WIDE))
    planted = data[end - 16 : end - 8] if number == "twice" else number.to_bytes(8, "little", signed=True)
    (tmp_path / ANN).write_bytes(data[: end - 8] + planted + data[end:])

    assert reason_of(tmp_path / ANN, factory, vectors, ann_kit) == "its lists do not hold each row once"


@pytest.mark.parametrize(
    "change",
    [
        *({"link": link} for link in (-2, -(2**31), MANY, 2**31 - 1)),
        *({"entry_point": entry} for entry in (-1, MANY)),
        *({"max_level": level} for level in (99, -1)),
    ],
    ids=str,
)
def test_a_graph_that_leads_nowhere_is_found_before_the_first_search(tmp_path, made, ann_kit, change):
    vectors, data = made("HNSW8")
    (tmp_path / ANN).write_bytes(data)
    graph = faiss.read_index(str(tmp_path / ANN), faiss.IO_FLAG_SKIP_STORAGE)
    if "link" in change:
        links = faiss.vector_to_array(graph.hnsw.neighbors)
        links[-1] = change["link"]
        faiss.copy_array_to_vector(links, graph.hnsw.neighbors)
    else:
        for name, value in change.items():
            setattr(graph.hnsw, name, value)
    faiss.write_index(graph, str(tmp_path / ANN), faiss.IO_FLAG_SKIP_STORAGE)
    assert (tmp_path / ANN).stat().st_size == len(data)

    assert reason_of(tmp_path / ANN, "HNSW8", vectors, ann_kit).startswith(NO_GRAPH)


@pytest.mark.parametrize(
    ("factory", "inside", "reason"),
    [
        ("SQ8", "Flat", "its FAISS type is b'IxFI', not b'IxSQ'"),
        ("HNSW8", "HNSW8", "its FAISS type is b'IHNf', not b'IHNs'"),
        ("SQ8", "SQ6", NOT_OURS),
        ("RR,SQ8", "PCA32,SQ8", NOT_OURS),
        ("RR,SQ8", "RR32,RR32,SQ8", NOT_OURS),
        ("RR,SQ8", "RR16,SQ8", "a list in it has 512 items, not 1,024"),
        ("RR,SQ8", "RR32,Flat", "its FAISS type is b'IxFI', not b'IxSQ'"),
        ("RR,SQ8", "RR32,HNSW4", "its FAISS type is b'IHNf', not b'IxSQ'"),
        ("IVF8,SQ8", "IVF8_HNSW4,SQ8", "its FAISS type is b'IHNf', not b'IxFI'"),
        ("IVF8,SQ8", "IVF8,Flat", "its FAISS type is b'IwFl', not b'IwSq'"),
        ("IVF8,SQ8", "IVF4,SQ8", NOT_OURS),
        ("IVF8,PQ8", "IVF8,PQ4", NOT_OURS),
        ("IVF8,RaBitQ4", "IVF8,RaBitQ2", NOT_OURS),
    ],
)
def test_parts_that_the_recipe_does_not_have_are_refused_before_faiss_reads_them(
    tmp_path, made, ann_kit, factory, inside, reason
):
    index = faiss.index_factory(WIDE, inside, faiss.METRIC_INNER_PRODUCT)
    if isinstance(index, faiss.IndexIVFPQ):
        index.do_polysemous_training = False  # takes seconds, and serves other searches
    index.train(ann_kit.clustered(MANY))
    index.add(ann_kit.clustered(MANY))
    faiss.write_index(index, str(tmp_path / ANN))

    assert reason_of(tmp_path / ANN, factory, made("SQ8")[0], ann_kit).startswith(reason)


def test_lists_that_would_lie_in_another_file_are_refused_before_it_is_opened(tmp_path, made, ann_kit):
    vectors, data = made("IVF8,SQ8")
    index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    outside = faiss.OnDiskInvertedLists(8, index.invlists.code_size, str(tmp_path / "elsewhere"))
    outside.merge_from_1(index.invlists)
    index.replace_invlists(outside, False)
    faiss.write_index(index, str(tmp_path / ANN))
    (tmp_path / "elsewhere").unlink()

    assert reason_of(tmp_path / ANN, "IVF8,SQ8", vectors, ann_kit).startswith(NOT_OURS)


def test_lists_most_of_which_are_empty_are_laid_out_otherwise_and_read(tmp_path, ann_kit):
    vectors = ann_kit.write(tmp_path, np.repeat(ann_kit.clustered(3), 20, axis=0))
    path = ann_kit.make(tmp_path, "IVF32,SQ8", vectors)

    assert b"sprs" in path.read_bytes()
    assert ann_kit.open(path, "IVF32,SQ8", vectors).ntotal == 60


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([0, 60, 1], "a list in it has no size"),
        ([0, 40, 0, 20], "its lists do not hold each row once"),
        ([32, 60], "FAISS cannot read it: "),
    ],
    ids=str,
)
def test_sizes_of_lists_that_do_not_come_in_pairs_of_their_own_are_refused(tmp_path, ann_kit, numbers, reason):
    vectors = ann_kit.write(tmp_path, np.repeat(ann_kit.clustered(3), 20, axis=0))
    path = ann_kit.make(tmp_path, "IVF32,SQ8", vectors)
    before, after = path.read_bytes().split(b"sprs")
    after = after[8 + 8 * int.from_bytes(after[:8], "little") :]
    path.write_bytes(before + b"sprs" + np.array([len(numbers), *numbers], "<u8").tobytes() + after)

    assert reason_of(path, "IVF32,SQ8", vectors, ann_kit).startswith(reason)


IN_REGISTERS = {  # where each field lies that FAISS would believe, by hand: 400 rows of 32 dimensions
    "PQ16x4fs": {
        **{"dim": (4, "i"), "rows": (8, "q"), "trained": (32, "B"), "metric": (33, "i")},
        **{"table: dim": (37, "q"), "codes": (45, "q"), "bits": (53, "q"), "entries": (61, "q")},
        **{"implem": (2117, "i"), "bbs": (2121, "i"), "qbs": (2125, "i"), "rows of all blocks": (2129, "q")},
        **{"codes, even": (2137, "q"), "bytes": (2145, "q")},
    },
    "RaBitQfs": {
        **{"table: dim": (37, "q"), "bytes a row": (45, "q"), "its metric": (53, "i"), "bits": (57, "q")},
        **{"centre": (65, "q"), "query bits": (201, "B"), "bbs": (202, "i"), "rows of all blocks": (206, "q")},
        **{"codes, even": (214, "q"), "bytes of a row": (222, "q"), "bytes": (230, "q")},
    },
    "IVF8,PQ16x4fs": {
        **{"lists": (37, "q"), "dim of lists": (57, "i"), "number of lists": (61, "q"), "centres": (90, "q")},
        **{"map": (1122, "B"), "residual": (1131, "B"), "bytes a row": (1132, "q"), "bbs": (1140, "i")},
        **{"codes, even": (1144, "q"), "implem": (1152, "i"), "qbs2": (1156, "q"), "table: dim": (1164, "q")},
        **{"codes": (1172, "q"), "bits": (1180, "q"), "entries": (1188, "q"), "lists again": (3248, "q")},
        **{"bytes a row again": (3256, "q"), "rows a block": (3264, "q"), "bytes a block": (3272, "q")},
        **{"rows of the first list": (3280, "q")},
    },
    "IVF8,RaBitQfs": {
        **{"table: dim": (1131, "q"), "bytes a row": (1139, "q"), "its metric": (1147, "i"), "bits": (1151, "q")},
        **{"residual": (1159, "B"), "bytes of a row": (1160, "q"), "bbs": (1168, "i"), "qbs2": (1172, "q")},
        **{"codes, even": (1180, "q"), "implem": (1188, "i"), "query bits": (1192, "B"), "centred": (1193, "B")},
        **{"lists again": (1198, "q"), "rows a block": (1214, "q"), "bytes a block": (1222, "q")},
        **{"rows of the first list": (1230, "q")},
    },
}


@pytest.mark.parametrize("factory", IN_REGISTERS)
def test_a_field_of_codes_in_registers_that_lies_is_found_before_faiss_reads_it(tmp_path, made, ann_kit, factory):
    """FAISS would compare blocks that are not there, or with tables that are too short."""
    vectors, data = made(factory)
    path = tmp_path / ANN
    for name, (place, kind) in IN_REGISTERS[factory].items():
        field = struct.Struct(f"<{kind}")
        (true,) = field.unpack_from(data, place)
        limit = 1 << 8 * field.size
        for lie in {0, 1, true + 1, true * 2, true + 32, limit // 2, limit - 1} - {true}:
            changed = bytearray(data)
            changed[place : place + field.size] = (lie % limit).to_bytes(field.size, "little")
            if bytes(changed) != data:
                path.write_bytes(changed)
                reason = reason_of(path, factory, vectors, ann_kit)
                assert not reason.startswith("FAISS"), (name, lie)


def test_a_file_that_is_not_there_is_an_error(tmp_path, made, ann_kit):
    assert reason_of(tmp_path / ANN, "SQ8", made("SQ8")[0], ann_kit) == "No such file or directory"


def test_faiss_that_is_not_installed_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)

    assert message_of(RagidxError, load_faiss) == (
        "faiss is not installed\n  hint: pip install '.[cpu]' in a checkout of ragidx"
    )


def test_two_faiss_packages_are_named_with_what_to_uninstall(monkeypatch, tmp_path):
    for name in PACKAGES[:2]:
        folder = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert message_of(RagidxError, load_faiss) == (
        "faiss-cpu and faiss-gpu are both installed, and overwrite each other's files\n"
        "  hint: pip uninstall -y faiss-cpu faiss-gpu, then install one of them again"
    )
