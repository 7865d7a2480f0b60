"""Raw vectors of encoders, kept in the user's cache: a text is encoded once for all filters, widths and runs.

texts -> what is in the cache, else the encoder, batch by batch -> (n, hidden) float32, neither filtered nor normalised.
One folder for each encoder, named by what decides its vectors; in it a journal of documents, one of queries for each
instruction, and the number format of a CPU in which they were made. A run that is killed loses no batch. The cache is
bounded: the folders that were used least recently go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from ragidx.corpora.errors import BusyError
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats, slices
from ragidx.indexer.digests import digest
from ragidx.indexer.encoders import Embedder, Encoder
from ragidx.indexer.model_files import user_cache
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.writing.journal import Journal
from ragidx.pipelines.ingest.encode import encode
from ragidx.pipelines.ingest.report import Progress
from ragidx.pipelines.ingest.resolve import Resolved
from ragidx.pipelines.ingest.workers.chunks import Item

CACHE_BYTES = 8 << 30
"""Size in bytes of all vectors that are kept between runs."""

_NAME = re.compile("[0-9a-f]{32}")  # of an encoder's folder
_DOCUMENTS = "documents"
_FORMAT = "format"
_QUERIES_AT_ONCE = 256
_LAYERS_AT_ONCE = 32  # texts that a killed run loses at most


def cache_folder(cache: str | os.PathLike[str] | None) -> Path | None:
    """Where raw vectors are kept: a folder; "": the user's, if there is one; None: nowhere."""
    if cache is None or cache != "":
        return None if cache is None else Path(cache)
    return user_cache("vectors")


class RawVectors(contextlib.ExitStack):
    """The raw vectors of one encoder. Closing it closes its files.

    Args:
        resolved: the encoder; it is loaded when a text is not in the cache.
        cache: folder of the cache; None: a temporary one.

    Raises:
        RagidxError: the folder cannot be written.
    """

    def __init__(self, resolved: Resolved, cache: Path | None) -> None:
        super().__init__()
        self.resolved = resolved
        self._journals: dict[str, Journal] = {}
        self._folder = self._opened(cache)
        self._format = self._folder / _FORMAT
        if self._format.exists():
            resolved.use_format(self._format.read_text("ascii", "replace").strip())

    @property
    def encoder(self) -> Encoder:
        """The encoder that makes the vectors, loaded when it is first asked for."""
        return self.resolved.encoder

    def documents(self, items: Sequence[Item], progress: Progress) -> dict[bytes, Floats]:
        """Vectors by text hash, without those that are zero; `progress` counts the items.

        Raises:
            ModelError: a vector is not finite.
            RagidxError: the disk is full.
        """
        journal, done = self._journal(_DOCUMENTS), progress.n_chunks + len(items)
        vectors = journal.get(list({item.row.text_hash for item in items}))
        missing = [item for item in items if item.row.text_hash not in vectors]
        progress.n_chunks += len(items) - len(missing)
        if missing:
            for keys, batch in encode(missing, Embedder(self.encoder), progress, raw=True):
                self._append(journal, keys, batch)
                vectors |= zip(keys, batch, strict=True)
                progress.n_chunks += len(keys)
            self._note_format()
        progress.n_chunks = done
        return vectors

    def texts(self, texts: Sequence[str]) -> Floats:
        """(n, hidden) vectors of texts as documents; zero where the model gives none, or does not know one."""
        return self._rows(_DOCUMENTS, texts, lambda batch: Embedder(self.encoder).raw(batch))

    def queries(self, texts: Sequence[str]) -> Floats:
        """(q, hidden) vectors of queries, with the encoder's instruction."""
        said = self.encoder.query_instruction(None)
        return self._rows(f"queries {said}", texts, lambda batch: Embedder(self.encoder).raw(batch, said))

    def layers(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """(L, n, hidden) vectors of texts at each layer from 1 on; with an instruction, which may be empty, of queries.

        Raises:
            SpecError: as of `Encoder.encode_layers`.
        """
        n_layers = len(self.encoder.encode_layers([]))

        def make(batch: Sequence[str]) -> Floats:
            return self.encoder.encode_layers(batch, instruction).transpose(1, 0, 2).reshape(len(batch), -1)

        rows = self._rows(f"{n_layers} layers {instruction}", texts, make, n_layers)
        return np.ascontiguousarray(rows.reshape(len(texts), n_layers, -1).transpose(1, 0, 2))

    def _rows(
        self, role: str, texts: Sequence[str], make: Callable[[Sequence[str]], Floats], n_layers: int = 1
    ) -> Floats:
        """(n, n_layers * hidden): those that are kept, and those that are made."""
        journal, step = self._journal(role, n_layers), _QUERIES_AT_ONCE if n_layers == 1 else _LAYERS_AT_ONCE
        keys = [digest(text) for text in texts]
        missing = list({key: text for key, text in zip(keys, texts, strict=True) if not journal.get([key])}.items())
        for part in slices(missing, step):
            self._append(journal, [key for key, _ in part], make([text for _, text in part]))
        if missing:
            self._note_format()
        rows = np.zeros((len(texts), n_layers * self.resolved.hidden), np.float32)
        for row, key in enumerate(keys):
            rows[row] = journal.get([key])[key]
        return rows

    def _journal(self, role: str, n_layers: int = 1) -> Journal:
        if role not in self._journals:
            key = hashlib.sha256(role.encode()).hexdigest()
            with self._room():
                journal = Journal.open(self._folder, key, n_layers * self.resolved.hidden, raw=True)
            self._journals[role] = journal
            self.callback(journal.close)
        return self._journals[role]

    def _append(self, journal: Journal, keys: Sequence[bytes], vectors: Floats) -> None:
        with self._room():
            journal.append(keys, vectors)

    def _room(self) -> AbstractContextManager[None]:
        """What cannot be written is named with what to do: it is no index."""
        kept = ("the cache of vectors", "free some space, or name another folder with `cache`")
        return atomic.temporary_room(self._folder, *kept) if self._is_kept else atomic.temporary_room(self._folder)

    def _opened(self, cache: Path | None) -> Path:
        """The folder of the encoder, locked; a temporary one where another process has it."""
        if cache is not None:
            self._folder, self._is_kept = cache / _key(self.resolved), True
            folder = self._folder
            with contextlib.suppress(BusyError), self._room():
                atomic.make_folder(folder)
                lock = Lock(folder)
                self.callback(lock.release)
                os.utime(folder)
                _make_room(cache, folder)
                return folder
        self._is_kept = False
        return Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ragidx-vectors-")))

    def _note_format(self) -> None:
        if self.encoder.device == "cpu" and self.encoder.dtype:
            with self._room():
                self._format.write_text(self.encoder.dtype, "ascii")


def _key(resolved: Resolved) -> str:
    """What decides the raw vectors, as the name of a folder."""
    options = resolved.options
    named = f"{resolved.spec.encoder_fingerprint()} {options.dtype} {options.endpoint if resolved.files.served else ''}"
    if resolved.files.served:
        named += resolved.encoder_spec.model
    return hashlib.sha256(named.encode()).hexdigest()[:32]


def _make_room(cache: Path, own: Path) -> None:
    """Remove the folders that were used least recently, until the rest is within `CACHE_BYTES`."""
    used: list[tuple[float, int, Path]] = []
    for folder in cache.iterdir():
        with contextlib.suppress(OSError):  # another process may be removing it
            if _NAME.fullmatch(folder.name) and folder.is_dir():  # the user may have other things here
                size = sum(file.stat().st_size for file in folder.iterdir())
                used.append((folder.stat().st_mtime, size, folder))
    total = sum(size for _, size, _ in used)
    for _, size, folder in sorted(used):
        if total <= CACHE_BYTES or folder == own:
            continue
        with contextlib.suppress(BusyError, OSError), Lock(folder):
            shutil.rmtree(folder)
            total -= size
