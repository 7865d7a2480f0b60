"""What a build by the model of a server keeps of it: its address, and in the journal its vector of the canary.

An index has the canary beside its vectors (`CANARY_FILE`), and whoever encodes for it compares. A build that was killed
before its first commit has only journals, so they hold the canary as well: one of the vectors to store, and one of the
raw vectors that a filter is fitted on. A server computes the same text a little differently each time, and another fit
would make another index. The canary is encoded again during a build, and written again if it is the same: what is
before it in a journal is good. If it differs, all behind the last canary is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.digests import digest
from ragidx.indexer.encoders.protocol import OtherModelError
from ragidx.indexer.models.address import KEPT_AS
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.files import JOURNAL
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.writing import StoreWriter
from ragidx.indexer.writing.journal import Journal
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.ingest.resolve import Resolved

if TYPE_CHECKING:
    from ragidx.indexer.encoders.endpoint import EndpointEncoder

CHECK_EVERY = 200  # requests: then the canary is encoded again

_KEY = digest("\0canary\0")  # of the canary in a journal; no chunk's


@contextlib.contextmanager
def good_journal(resolved: Resolved, writer: StoreWriter) -> Iterator[None]:
    """The time in which vectors are made; the first build puts its canary into the journal, and beside it the number
    format of a CPU, in which the next one continues.

    Raises:
        OtherModelError: the model of a server is not that of the journal or of the index, or changed meanwhile.
    """
    if not resolved.files.served:
        noted = _noted_format(resolved, writer)
        if resolved.stored is None and noted.is_file():
            resolved.use_format(noted.read_text("ascii", "replace"))
        yield
        atomic.remove(noted)
        return
    try:
        if resolved.stored is None:
            unit = _stored_canary(resolved)
            _check_same(resolved, writer.path, writer.reuse([_KEY]).get(_KEY), unit)
            writer.remember([_KEY], unit, again=True)
        yield
    except OtherModelError:
        writer.forget_since(_KEY)
        raise


def check_model(resolved: Resolved, writer: StoreWriter, every: int | None = None) -> None:
    """Ask a server for the canary again after every some hundred requests, and write it behind what is in the journal;
    of a model on this CPU note its number format.

    Raises:
        OtherModelError: its model is another now.
    """
    encoder = resolved.loaded
    if encoder is None:
        return
    if encoder.has_measured and encoder.dtype != resolved.format:
        resolved.format = encoder.dtype
        atomic.write_file(_noted_format(resolved, writer), resolved.format.encode())
    if resolved.files.served and _of_server(resolved).n_unchecked >= (every or CHECK_EVERY):
        _of_server(resolved).check_again()
        writer.remember([_KEY], _stored_canary(resolved), again=True)


def _noted_format(resolved: Resolved, writer: StoreWriter) -> Path:
    return Journal.path_of(writer.path / JOURNAL, resolved.fingerprint()).with_suffix(".dtype")


def _stored_canary(resolved: Resolved) -> Floats:
    canary = _of_server(resolved).canary
    return l2_normalize(canary if resolved.filter is None else resolved.filter(canary)).vectors


@contextlib.contextmanager
def sample_journal(resolved: Resolved, index: Path) -> Iterator[Journal | None]:
    """Raw vectors of a sample by text hash, from which a build after a kill continues.

    None for other models, and for a server whose numbers are too large or too small for the journal's float16.

    Raises:
        BusyError: another process writes the index.
        ModelError: the vectors are from another model than the one that answers now.
        RagidxError: the folder cannot be written.
    """
    if not resolved.files.served or not 1e-3 < np.abs(canary := _of_server(resolved).canary).max() < 1e3:
        yield None
        return
    atomic.make_folder(index)
    lock = Lock(index)
    try:
        with contextlib.closing(Journal.open(index / JOURNAL, _sample_key(resolved), resolved.hidden)) as journal:
            try:
                _check_same(resolved, index, journal.get([_KEY]).get(_KEY), l2_normalize(canary).vectors)
                journal.append([_KEY], canary, again=True)
                yield journal
                _of_server(resolved).check_again()
                journal.append([_KEY], canary, again=True)
            except OtherModelError:
                journal.drop_since(_KEY)
                raise
    finally:
        lock.release()


def forget_sample(resolved: Resolved, index: Path) -> None:
    """Remove the journal of the sample: what was made of it is committed."""
    if resolved.files.served:
        atomic.remove(Journal.path_of(index / JOURNAL, _sample_key(resolved)))


def _sample_key(resolved: Resolved) -> str:
    """Of the model alone: raw vectors are the same whatever filter is fitted on them, and however it is cut."""
    return hashlib.sha256(f"sample\0{json.dumps(resolved.spec.to_json()['encoder'])}".encode()).hexdigest()


def _of_server(resolved: Resolved) -> EndpointEncoder:
    return cast("EndpointEncoder", resolved.encoder)


def _check_same(resolved: Resolved, index: Path, old: Floats | None, unit: Floats) -> None:
    from ragidx.indexer.encoders.endpoint import difference

    if old is not None and (change := difference(old[None], unit)):
        raise OtherModelError(
            f"the model '{resolved.files.name}' of {_of_server(resolved).address.url} is not the one of the build that "
            f"was interrupted: {change}",
            f"name the right server with `endpoint`, or remove the folder {index / JOURNAL} and encode all again",
            where=str(index),
        )


def check_uncut(resolved: Resolved, *, strict: bool) -> None:
    """Whether the server has read all of the texts so far.

    Raises:
        StrictError: it has cut some, and the build is strict.
    """
    usage = resolved.encoder.usage
    if strict and usage is not None and usage.n_cut:
        raise StrictError(
            f"the endpoint cut {usage.n_cut:,} text{'s' * (usage.n_cut > 1)}: its model reads fewer tokens",
            "use a smaller `chunk_size`, or build without `strict=True`",
            where=usage.url,
        )


def run_notes(resolved: Resolved) -> dict[str, Json]:
    """The notes on where and how the model ran; where it was not needed, those of the index."""
    encoder = resolved.loaded
    before = {} if resolved.stored is None else resolved.stored.manifest.notes
    ran = before if encoder is None else {"device": resolved.device, "dtype": encoder.dtype}
    return {"device": ran.get("device", ""), "dtype": ran.get("dtype", ""), **endpoint_note(resolved)}


def endpoint_note(resolved: Resolved) -> dict[str, Json]:
    """The note on the address: that of this build, else the one that the index keeps."""
    if not resolved.files.served:
        return {}
    if resolved.loaded is not None and resolved.loaded.usage is not None:
        return {KEPT_AS: resolved.loaded.usage.url}
    notes = {} if resolved.stored is None else resolved.stored.manifest.notes
    return {name: url for name, url in notes.items() if name == KEPT_AS}
