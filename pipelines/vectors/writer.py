"""Writing an index of precomputed vectors: rows in by id, one commit at the end.

    with RowWriter("index/", dim=384) as writer:
        writer.add_vectors(ids, vectors, texts, metadata)      vectors (n, dim), of any length but zero
        writer.delete_others()
        writer.commit()

A row whose id the index has is replaced where it differs, and left alone where it does not. Without `commit` nothing
changes. A build (`add_sound`) skips rows that `ragidx delete` removed; a program that adds one takes it in again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.readers.records.paths import fields_of
from ragidx.corpora.spec import Json
from ragidx.corpora.vectors.batch import MAX_WIDTH, VectorRows
from ragidx.corpora.whole_documents import in_utc, values_to_json
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.digests import DIGEST_BYTES, as_digests, digest
from ragidx.indexer.normalize import UnitRows, cut_rows, l2_normalize
from ragidx.indexer.store import Store
from ragidx.indexer.store.files import DELETED_FILE
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.manifest import Manifest
from ragidx.indexer.store.rows import Row
from ragidx.indexer.store.source_list import PROGRAM
from ragidx.indexer.writing import StoreWriter
from ragidx.pipelines.ingest.endpoint import endpoint_note
from ragidx.pipelines.ingest.options import index_options
from ragidx.pipelines.ingest.removal import deleted_file, deleted_ids
from ragidx.pipelines.vectors.imported import Adopted
from ragidx.pipelines.vectors.known_rows import KnownRows, stored_rows
from ragidx.pipelines.vectors.rows import NOTHING_ADDED, checked_rows, shown
from ragidx.pipelines.vectors.spec import spec_of_vectors

if TYPE_CHECKING:
    from ragidx.pipelines.ingest.resolve import Resolved

SEEN_BEFORE = "the id was seen before"
DELETED = "deleted by hand"


class RowWriter:
    """The one writer of an index of precomputed vectors, until `close`. A context manager.

    Rows that are broken are refused, and it continues. Where writing fails, it takes nothing more: make another one.

    Args:
        path: the index folder; made if it is missing.
        dim: width of the vectors that are added: the index's, or what it was before it was shrunk; they are cut then.
        made_by: what made the vectors, in the user's words; kept, and never looked up. "": the index's own.
        queries: the model that encodes questions, of `model_of_queries`; None: the index's own, else there is none.
        place: what becomes of a row before it is written.
        replace: the new state has only what this writer adds; the old one stays until then.
        restore: whether documents that `ragidx delete` removed are taken in again where they are added.
        timeout: seconds to wait for another writer.
        opened: a state of the index that is open.
        compact: whether the commit may drop dead rows.
        options: `index_type`, `target_recall`, `max_memory`, `stemmer` and `lexical` of a build.

    Attributes:
        n_added, n_changed, n_unchanged: rows whose ids were new, held something else, held the same.
        n_removed: rows that were deleted.
        base: the committed state, also one that is replaced; None: there is none that can be read.

    Raises:
        SpecError: the index in the folder holds something else, or `dim` is not a width.
        BusyError: another writer holds the index.
        IndexFormatError: the folder is something else, or the index in it is damaged or newer.
    """

    def __init__(
        self,
        path: str | Path,
        dim: int,
        *,
        made_by: str = "",
        queries: Resolved | Adopted | None = None,
        place: Callable[[Row], Row] | None = None,
        replace: bool = False,
        restore: bool = False,
        timeout: float = 0.0,
        opened: Store | None = None,
        compact: bool = True,
        **options: Any,
    ) -> None:
        dim = _width(dim)
        self.path, self.dim = Path(path), dim
        old = None if replace else committed_or_none(self.path)
        self.spec = spec_of_vectors(
            old,
            dim,
            index_type=options.get("index_type"),
            made_by=made_by,
            queries=None if queries is None else queries.spec,
            where=str(path),
        )
        self.stored_dim = dim if old is None else old.dim
        before = IndexOptions() if old is None else old.index
        self._writer = StoreWriter(
            self.path,
            spec=self.spec.to_json(),
            fingerprint=self.spec.fingerprint(),
            dim=self.stored_dim,
            index=index_options(before, self.stored_dim, **options | {"index_type": self.spec.index_type}),
            blobs={} if queries is None else queries.blobs(),
            replace=replace,
            journal=False,
            timeout=timeout,
            opened=opened,
        )
        self._writer.compacts = compact
        self._notes = (
            {} if queries is None else queries.notes if isinstance(queries, Adopted) else endpoint_note(queries)
        )
        self._place = place
        try:
            # what is committed now: another writer may have been waited for since `old`
            self.base, store = self._writer.base, self._writer.store
            self._known = KnownRows(store)
            if store is not None:
                self._writer.blobs = {name: store.blob(name) for name in store.manifest.files}
            deleted = deleted_ids(self._writer.blobs.get(DELETED_FILE)).get(PROGRAM, set())
            self._deleted = set() if restore else deleted
        except BaseException:
            self._writer.close()
            raise
        self.n_added = self.n_changed = self.n_unchanged = self.n_removed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    def add_vectors(
        self,
        ids: Iterable[str | int],
        vectors: ArrayLike,
        texts: Sequence[str | None] | None = None,
        metadata: Sequence[Mapping[str, object]] | None = None,
        doc_ids: Iterable[str | int] | None = None,
    ) -> None:
        """Add rows, or replace those of the same ids: all of them, or none where one is broken.

        The arguments are those of `Index.add_vectors`; of two calls with one id the later one wins.

        Raises:
            ValueError: there are not n of everything, or the vectors have another width.
            CorpusError: a vector is zero or not finite, an id is repeated, a string is not Unicode text, or a value is
                nothing that metadata can be. It names the id.
        """
        batches = checked_rows(self.dim, ids, vectors, texts, metadata, doc_ids)
        names = [name for batch in batches for name in batch.ids]
        faults, first = _repeated([digest(name) for name in names], range(len(names))), 0
        for batch in batches:
            _, cut = self._unit(batch.vectors)
            faults |= {first + row: reason for row, reason in cut.faults}
            first += len(batch.ids)
        if faults:
            row = min(faults)
            raise CorpusError(faults[row], NOTHING_ADDED, where=shown(names[row]))
        self._deleted -= set(names)
        with self._writer.whole():
            for batch in batches:
                whole, cut = self._unit(batch.vectors)
                self._put(batch, whole.vectors, cut.vectors, np.arange(len(batch.ids)))

    def add_sound(self, rows: VectorRows) -> dict[int, str]:
        """As `add_vectors`, of rows that are clean but for their vectors and ids: broken ones are skipped.

        Returns:
            The number of each row that was skipped, and why; DELETED: it is one that `ragidx delete` removed.
        """
        keys = [digest(name) for name in rows.ids]
        given, cut = self._unit(rows.vectors)
        faults = dict(cut.faults)
        if self._deleted:
            faults |= {row: DELETED for row, name in enumerate(rows.ids) if name in self._deleted}
        again = self._known.kept(self._known.find(keys))
        faults |= {row: SEEN_BEFORE for row in np.flatnonzero(again).tolist() if row not in faults}
        faults |= _repeated(keys, [row for row in range(len(keys)) if row not in faults])
        sound = np.array([row for row in range(len(keys)) if row not in faults], np.int64)
        if len(sound):
            with self._writer.whole():
                self._put(rows, given.vectors, cut.vectors, sound)
        return faults

    def adopt(self, other: Store) -> list[str]:
        """Take over all rows of another index of the same spec, none of which is dead; its segments are linked.

        As in `add_sound`, of rows with one id the first stays, and what the index holds already is not written again.

        Returns:
            The ids of the rows that are not taken, since an earlier row had them.
        """
        with self._writer.whole():
            repeated: list[str] = []
            keys, documents, dead = [], [], []
            for rows in stored_rows(other):
                numbers = self._known.find(rows.keys)
                again = self._known.kept(numbers)
                same = ~again & self._known.hold(numbers, rows.hashes)
                replaced = numbers[~again & ~same & (numbers >= 0)]
                self._known.keep(numbers[same])
                self._writer.delete_rows(replaced)
                self._known.drop(replaced)
                repeated += [rows.ids[row].as_py() for row in np.flatnonzero(again).tolist()]
                keys.append(as_digests(rows.keys))
                documents.append(rows.documents)
                dead.append(again | same)
                self.n_changed += len(replaced)
                self.n_unchanged += int(same.sum())
                self.n_added += int((~again & ~same).sum()) - len(replaced)
            if dead and not (none := np.concatenate(dead)).all():
                left_out = self._writer.adopt(other) + np.flatnonzero(none)
                self._known.add(np.concatenate(keys), np.concatenate(documents))
                self._writer.delete_rows(left_out)
                self._known.drop(left_out)
            return repeated

    def remove(self, numbers: NDArray[np.int64]) -> int:
        """Delete rows by their numbers; how many there were."""
        self._writer.delete_rows(numbers)
        self._known.drop(numbers)
        self.n_removed += len(numbers)
        return len(numbers)

    def delete_others(self) -> int:
        """Delete all rows whose ids were not added by this writer; how many there were."""
        return self.remove(self._known.others())

    def count_others(self) -> int:
        """How many rows `delete_others` would delete."""
        return len(self._known.others())

    def commit(self, notes: Mapping[str, Json] | None = None, *, changed: bool = False) -> Manifest:
        """Make everything visible at once, and end this writer; where nothing differs, no commit is made.

        Args:
            notes: notes for the manifest.
            changed: commit in any case.

        Raises:
            RagidxError: the disk is full or failed; the committed state is what it was.
            SpecError: nothing that fits into the memory reaches the recall asked for.
            ValueError: this writer committed, was closed, or failed before.
        """
        with self._writer.whole():  # cannot be undone from here on: what is known of the rows goes
            n_documents = len(np.unique(self._known.documents()))
            self._known = KnownRows()  # of a million rows it takes 100 MB, which the making of an index had better use
            self._writer.blobs.pop(DELETED_FILE, None)
            self._writer.blobs |= {DELETED_FILE: deleted_file({PROGRAM: self._deleted})} if self._deleted else {}
            return self._writer.commit({**self._notes, **(notes or {})}, n_documents, changed=changed)

    def close(self) -> None:
        """Release the index. What was not committed is gone."""
        self._writer.close()

    def _unit(self, vectors: NDArray[Any]) -> tuple[UnitRows, UnitRows]:
        """Vectors of length 1, as wide as they are given, and as wide as they are stored."""
        given = l2_normalize(vectors)
        return given, cut_rows(given, self.stored_dim)

    def _put(
        self, rows: VectorRows, given: NDArray[np.float32], cut: NDArray[np.float32], sound: NDArray[np.int64]
    ) -> None:
        """Write those of the sound rows that are new, or differ from what the index has under their ids."""
        keys = [digest(rows.ids[row]) for row in sound.tolist()]
        hashes = _hashes(rows, given, sound)
        numbers = self._known.find(keys)
        same = self._known.hold(numbers, as_digests(hashes))
        self._known.keep(numbers[same])
        replaced = numbers[~same & (numbers >= 0)]
        self._writer.delete_rows(replaced)
        self._known.drop(replaced)
        fresh = np.flatnonzero(~same)
        places = sound[fresh]
        if len(places):
            held = [hashes[row] for row in fresh.tolist()]
            written = _index_rows(rows, places.tolist(), held)
            self._writer.add_rows(written if self._place is None else list(map(self._place, written)), cut[places])
            mine = as_digests([keys[row] for row in fresh.tolist()])
            doc_ids = rows.doc_ids
            of_document = mine if doc_ids is None else as_digests([digest(doc_ids[row]) for row in places.tolist()])
            self._known.add(mine, of_document)
        self.n_changed += int((replaced < self._known.n_committed).sum())
        self.n_unchanged += int(same.sum())
        self.n_added += len(places) - len(replaced)


def _repeated(keys: Sequence[bytes], rows: Sequence[int]) -> dict[int, str]:
    """Those of the rows whose key an earlier one of them has."""
    if len({keys[row] for row in rows}) == len(rows):  # as nearly always
        return {}
    first = {keys[row]: row for row in reversed(rows)}
    return {row: SEEN_BEFORE for row in rows if first[keys[row]] != row}


def _width(dim: object) -> int:
    """`dim`, where it is a width."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or not 1 <= dim <= MAX_WIDTH:
        raise SpecError(
            f"dim is {dim!r}, no whole number from 1 to {MAX_WIDTH:,}", "give the width of the vectors that are added"
        )
    return int(dim)


def _hashes(rows: VectorRows, unit: NDArray[np.float32], sound: NDArray[np.int64]) -> list[bytes]:
    """16 bytes for all that is given for a row but its id: the vector's float16 code, document, text and metadata."""
    codes, size = unit.astype("<f2").tobytes(), 2 * unit.shape[1]
    own = rows.ids if rows.doc_ids is None else rows.doc_ids
    found = []
    for row in sound.tolist():
        document = "" if own[row] == rows.ids[row] else own[row]
        text, metadata = rows.texts[row], rows.metadata[row]
        rest = f"{len(document)} {len(text)} {document}{text}{ascii(values_to_json(metadata)) if metadata else ''}"
        # `ascii`, not `repr`, which changes with the Unicode tables of Python's versions
        found.append(hashlib.sha256(codes[size * row : size * (row + 1)] + rest.encode()).digest()[:DIGEST_BYTES])
    return found


def _index_rows(rows: VectorRows, places: Sequence[int], hashes: Sequence[bytes]) -> list[Row]:
    documents, found = rows.ids if rows.doc_ids is None else rows.doc_ids, []
    for row, held in zip(places, hashes, strict=True):
        text, given = rows.texts[row], in_utc(rows.metadata[row]) if rows.file else rows.metadata[row]
        seen = fields_of(given)
        if [] in seen.values():  # a list of nothing has no type
            seen = {name: value for name, value in seen.items() if value != []}
        fields = None if seen is given else seen
        found.append(Row(rows.ids[row], documents[row], 0, len(text), text, "", held, held, given, fields=fields))
    return found
