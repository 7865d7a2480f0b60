"""Checking an index fully: every byte and every row of the committed state, every byte of the kept ones before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ragidx.corpora.errors import IndexFormatError, SpecError
from ragidx.indexer.ann.moments import spread_of
from ragidx.indexer.ann.prefixes import is_prefix_of, is_whole, prefix_files
from ragidx.indexer.arrays import slices
from ragidx.indexer.damage import damaged
from ragidx.indexer.specs import IndexSpec
from ragidx.indexer.store.deletions import read_deletions
from ragidx.indexer.store.files import ANN, MANIFEST, SEGMENTS, VECTORS, numbered_path
from ragidx.indexer.store.generations import UNTOUCHED, check_file, earlier, read_numbered, segments_of
from ragidx.indexer.store.lookup import checked_document
from ragidx.indexer.store.manifest import Manifest, files_of, read_manifest
from ragidx.indexer.store.rows import NORM_TOLERANCE
from ragidx.indexer.store.segment import BATCH_ROWS, Segment


def verify(folder: Path) -> list[str]:
    """Read everything; one line for each fault: the file, what is wrong, what to do. Empty: no fault.

    The faults of the committed state come first.
    """
    return verify_committed(folder) + verify_kept(folder)


def verify_kept(folder: Path) -> list[str]:
    """The faults of kept files on which no search depends.

    These are narrower copies of the vectors, which can be made again, and the earlier generations.
    """
    try:
        manifest = read_manifest(folder)
    except (FileNotFoundError, IndexFormatError):
        return []  # the kept generations are unknown
    return _damaged_prefixes(folder, manifest) + _own_copy_faults(folder, manifest) + _past_faults(folder, manifest)


def verify_committed(folder: Path) -> list[str]:
    """The faults of the committed state.

    A writer removes files of states that are no longer committed. So faults count only if their state still is; else
    the newer one is checked, and of it only the segments that are new.
    """
    checked: Manifest | None = None
    known: dict[Segment, list[str]] = {}
    faults: list[str] = []
    while True:
        try:
            manifest = read_manifest(folder)
        except FileNotFoundError:
            return [f"{folder}: it holds no index; name another folder with `index`"]
        except IndexFormatError as fault:
            return [line_of(fault)]
        if manifest == checked:
            return faults
        checked, faults = manifest, _state_faults(folder, manifest, known)
        if not faults:
            return []


def line_of(fault: IndexFormatError) -> str:
    """A fault in one line: the file, what is wrong, what to do."""
    return f"{fault.where}: {fault.message}; {fault.hint}"


def _faults(check: Callable[..., object], *args: object, **options: object) -> list[str]:
    """The line of what a check finds, if it finds anything."""
    try:
        check(*args, **options)
    except IndexFormatError as fault:
        return [line_of(fault)]
    return []


def _state_faults(folder: Path, manifest: Manifest, known: dict[Segment, list[str]]) -> list[str]:
    """The faults of a state; `known` has those of the segments that were read, and gets the others."""
    faults: list[str] = []
    try:
        IndexSpec.from_json(dict(manifest.spec), where=str(folder))
    except SpecError as fault:
        faults.append(f"{folder}: {fault.message}; build it again with `rebuild=True`")
    for path, entry in files_of(dataclasses.replace(manifest, segments=())).items():
        faults += _faults(check_file, folder / path, entry, read=True)
    faults = faults or _faults(read_deletions, folder, manifest)
    for segment in segments_of(folder, manifest, list(known)):
        if segment not in known:
            known[segment] = _segment_faults(segment)
        faults += known[segment]
    return faults


def _segment_faults(segment: Segment) -> list[str]:
    faults: list[str] = []
    for name, entry in segment.entry.files.items():
        faults += _faults(check_file, segment.folder / name, entry, read=True)
    faults = faults or _faults(_read_all, segment)  # one line about a damaged file is enough
    wrong = "it does not hold the first dimensions of the vectors beside it; it can be made again: delete it"
    return faults or [f"{path}: the file is damaged: {wrong}" for path in _wrong_prefixes(segment)]


def _read_all(segment: Segment) -> None:
    """Decode every row of a segment, columns and vectors.

    Raises:
        IndexFormatError: its content is damaged.
    """
    segment.map()
    if segment.entry.ann is not None:
        _ = segment.ann_index  # checks every link and row number
        if segment.repeats is not None and segment.entry.has_vectors and not segment.repeats.same(segment.codes):
            raise damaged(segment.folder / ANN, "a row that it lists as a repeat has another vector")
    n_zeros = 0
    for numbers in slices(range(segment.entry.rows), BATCH_ROWS):
        for row in segment.rows(numbers):
            if row.whole:
                checked_document(segment.folder, row.doc_id, row.whole, row.doc_hash)
        lengths = np.linalg.norm(segment.vectors(numbers).astype(np.float64), axis=1)
        n_zeros += int(np.count_nonzero(are_zeros := (lengths == 0) & (segment.entry.zeros > 0)))
        bad = np.flatnonzero(~((np.abs(lengths - 1) <= 2 * NORM_TOLERANCE) | are_zeros))
        if len(bad):
            raise damaged(segment.folder, f"row {numbers[bad[0]]} is not of unit length")
    if n_zeros != segment.entry.zeros:
        raise damaged(segment.folder, f"{n_zeros:,} rows have no vector, and the manifest says {segment.entry.zeros:,}")
    if segment.postings is not None:
        segment.postings.read_all()
    if segment.moments is not None and not _are_moments(segment):
        raise damaged(segment.folder / str(segment.entry.moments), "it does not hold the moments of the vectors")


def _wrong_prefixes(segment: Segment) -> list[Path]:
    """Narrower copies that a search would read but that do not match the vectors."""
    if not segment.entry.has_vectors:
        return []
    found = prefix_files(segment.folder, segment.entry.files[VECTORS].sha256)
    return [path for path in found if is_whole(path) and not is_prefix_of(path, segment.exact_index)]


def _are_moments(segment: Segment) -> bool:
    """Whether moments are those of the vectors: by the mean and spread of the cosines with some rows."""
    assert segment.moments is not None
    rows = segment.entry.rows
    asked = segment.vectors(np.unique(np.linspace(0, rows - 1, 4).astype(np.int64)))
    counted = np.ones(rows, np.bool_)
    counted[segment.left_out] = False
    found, expected = segment.moments.spread(asked), spread_of(segment.scan(asked, segment.moments.n, counted))
    pairs = ((found.mean, expected.mean), (found.deviation, expected.deviation))
    return all(np.allclose(one, other, atol=1e-4) for one, other in pairs)


def _damaged_prefixes(folder: Path, manifest: Manifest) -> list[str]:
    """One line for each narrower copy of vectors that differs from its name; no search reads it."""
    return [
        f"{path}: the file is damaged: its checksum differs from the one in its name; it can be made again: delete it"
        for segment in manifest.segments
        if segment.has_vectors
        for path in prefix_files(folder / SEGMENTS / segment.id, segment.files[VECTORS].sha256)
        if not is_whole(path) and path.exists()  # else a writer removed it
    ]


def _own_copy_faults(folder: Path, manifest: Manifest) -> list[str]:
    """The faults of the numbered copy of the committed manifest, which can replace a damaged one."""
    try:
        read_numbered(folder, manifest.generation)
    except FileNotFoundError:
        return []
    except IndexFormatError as fault:
        return [f"{fault.where}: {fault.message}; copy {MANIFEST} over it; {UNTOUCHED}"]
    return []


def _past_faults(folder: Path, manifest: Manifest) -> list[str]:
    """One line for each fault in files of earlier generations alone; a writer may remove these at the same time."""
    before = earlier(folder, manifest.generation)
    lines = [line_of(fault) for fault in before.faults.values()]
    seen = set(files_of(manifest))
    for past in reversed(before.manifests):
        for path, entry in files_of(past).items():
            if path in seen:
                continue
            seen.add(path)
            try:
                check_file(f"{folder}/{path}", entry, read=True)
            except IndexFormatError as fault:
                if (folder / numbered_path(past.generation)).exists():  # else a writer removed it, this file first
                    lost = f"without it there is no rollback to generation {past.generation}; {UNTOUCHED}"
                    lines.append(f"{fault.where}: {fault.message}; put it back from a copy; {lost}")
    return lines
