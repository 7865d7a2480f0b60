"""The journal: what a killed build finds again."""

from __future__ import annotations

import hashlib
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragidx.indexer.writing.journal import Journal

KEY = "0123456789abcdef" * 4


def hashes(n: int, start: int = 0) -> list[bytes]:
    return [hashlib.sha256(str(number).encode()).digest()[:16] for number in range(start, start + n)]


def vectors(n: int, dim: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def test_every_byte_is_where_the_page_says(tmp_path):
    journal = Journal.open(tmp_path, KEY, 2)
    journal.append([b"h" * 16], np.array([[1.0, -2.0]], np.float32))
    journal.close()

    head = struct.pack("<8sII32s", b"RAGIDXJ1", 1, 2, hashlib.sha256(KEY.encode()).digest())
    body = b"h" * 16 + bytes.fromhex("003c00c0")
    assert (tmp_path / "0123456789abcdef.bin").read_bytes() == (
        head + struct.pack("<I", zlib.crc32(head)) + bytes(12) + body + struct.pack("<I", zlib.crc32(body))
    )


def test_vectors_come_back_after_reopening_rounded_to_float16(tmp_path):
    keys, values = hashes(5), vectors(5)
    first = Journal.open(tmp_path, KEY, 3)
    first.append(keys[:2], values[:2])
    first.append(keys[2:], values[2:].astype(np.float16))
    first.close()

    journal = Journal.open(tmp_path, KEY, 3)
    found = journal.get([keys[4], hashes(1, 99)[0], keys[0]])

    assert list(found) == [keys[4], keys[0]]
    np.testing.assert_array_equal(found[keys[4]], values[4].astype("f2").astype("f4"))
    assert (len(journal), journal.path.stat().st_size) == (5, 64 + 5 * 26)
    journal.close()


def test_vectors_are_found_before_reopening(tmp_path):
    journal = Journal.open(tmp_path, KEY, 3)
    journal.append(hashes(3), vectors(3))

    assert list(journal.get(hashes(4))) == hashes(3)
    journal.close()


def test_a_hash_is_kept_once(tmp_path):
    journal = Journal.open(tmp_path, KEY, 3)
    twice = [*hashes(2), hashes(1)[0]]
    journal.append(twice, vectors(3))
    journal.append(twice, vectors(3, seed=1))

    assert len(journal) == 2
    np.testing.assert_array_equal(journal.get(hashes(2))[hashes(2)[1]], vectors(3)[1].astype("f2"))
    journal.close()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cut=st.integers(0, 64 + 4 * 26 + 10))
def test_whatever_is_torn_off_the_whole_records_before_it_stay(cut):
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), KEY, 3)
        journal.append(hashes(4), vectors(4))
        journal.close()
        data = journal.path.read_bytes() + b"half a record"[:10]
        journal.path.write_bytes(data[: len(data) - cut])

        journal = Journal.open(Path(folder), KEY, 3)

        whole = max(0, (len(data) - cut - 64) // 26)
        assert list(journal.get(hashes(4))) == hashes(whole)
        journal.append(hashes(4), vectors(4))
        assert len(journal) == 4
        journal.close()
        again = Journal.open(Path(folder), KEY, 3)
        assert (len(again), again.path.stat().st_size) == (4, 64 + 4 * 26)
        again.close()


def test_a_flipped_byte_drops_its_record_and_those_behind(tmp_path):
    journal = Journal.open(tmp_path, KEY, 3)
    journal.append(hashes(4), vectors(4))
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[64 + 2 * 26 + 17] ^= 1
    journal.path.write_bytes(data)

    journal = Journal.open(tmp_path, KEY, 3)

    assert list(journal.get(hashes(4))) == hashes(2)
    assert journal.path.stat().st_size == 64 + 2 * 26
    journal.close()


@pytest.mark.parametrize(("key", "dim"), [(KEY[:16] + "0" * 48, 3), (KEY, 4)])
def test_a_journal_of_another_key_or_dimension_is_begun_anew(tmp_path, key, dim):
    journal = Journal.open(tmp_path, KEY, 3)
    journal.append(hashes(2), vectors(2))
    journal.close()

    journal = Journal.open(tmp_path, key, dim)

    assert journal.get(hashes(2)) == {}
    journal.append(hashes(2), vectors(2, dim))
    assert len(journal) == 2
    journal.close()


def test_a_wrong_shape_is_named(tmp_path):
    journal = Journal.open(tmp_path, KEY, 3)

    with pytest.raises(ValueError, match=r"vectors have the shape \(2, 4\), not \(2, 3\)"):
        journal.append(hashes(2), vectors(2, 4))
    with pytest.raises(ValueError, match="2 digests take 10 bytes, not 16 each"):
        journal.append([b"short", b"short"], vectors(2))
    journal.close()
