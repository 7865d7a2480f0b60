"""What a build by the model of a server keeps of it: its address, and in the journal its vector of the canary.

An index has the canary beside its vectors (`CANARY_FILE`), and whoever encodes for it compares. A build that was killed
before its first commit has only journals, so they hold the canary as well: one of the vectors to store, and one of the
raw vectors that a filter is fitted on. A server computes the same text a little differently each time, and another fit
would make another index. The canary is asked for again during a build, and written again where it is the same: what
stands before it in a journal is good. Where it is another, what stands behind the last one is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.digests import digest
from ragidx.indexer.encoders.protocol import OtherModelError
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.files import JOURNAL
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.writing.journal import Journal
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.ingest.resolve import Resolved

CHECK_EVERY = 200  # requests: then the server is asked for the canary again

_KEY = digest("\0canary\0")  # of the canary in a journal; no chunk's


@contextlib.contextmanager
def good_journal(resolved: Resolved, writer: StoreWriter) -> Iterator[None]:
    """The time in which vectors are made; the first build puts its canary into the journal, and beside it the number
    format of a CPU, so that the next one goes on in it.

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
            key, canary = _canary(resolved)
            _check_same(resolved, writer.path, writer.reuse([key]).get(key), _stored_form(resolved, canary))
            writer.remember([key], _stored_form(resolved, canary), again=True)
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
    if resolved.loaded is not None and resolved.loaded.has_measured and resolved.loaded.dtype != resolved.format:
        resolved.format = resolved.loaded.dtype
        atomic.write_file(_noted_format(resolved, writer), resolved.format.encode())
    if resolved.loaded is not None and resolved.loaded.n_unchecked >= (every or CHECK_EVERY):
        resolved.loaded.check_again()
        key, canary = _canary(resolved)
        writer.remember([key], _stored_form(resolved, canary), again=True)


def _noted_format(resolved: Resolved, writer: StoreWriter) -> Path:
    return Journal.path_of(writer.path / JOURNAL, resolved.fingerprint()).with_suffix(".dtype")


def _stored_form(resolved: Resolved, canary: Floats) -> Floats:
    return l2_normalize(canary if resolved.filter is None else resolved.filter(canary)).vectors


@contextlib.contextmanager
def sample_journal(resolved: Resolved, index: Path) -> Iterator[Journal | None]:
    """Raw vectors of a sample by text hash, which a build that was killed goes on with.

    None for other models, and for a server whose numbers are too large or too small for the journal's float16.

    Raises:
        BusyError: another process writes the index.
        ModelError: the vectors are from another model than the one that answers now.
        RagidxError: the folder cannot be written.
    """
    if not resolved.files.served or not 1e-3 < np.abs(_canary(resolved)[1]).max() < 1e3:
        yield None
        return
    atomic.make_folder(index)
    lock = Lock(index)
    try:
        with contextlib.closing(Journal.open(index / JOURNAL, _sample_key(resolved), resolved.hidden)) as journal:
            key, canary = _canary(resolved)
            try:
                _check_same(resolved, index, journal.get([key]).get(key), l2_normalize(canary).vectors)
                journal.append([key], canary, again=True)
                yield journal
                resolved.encoder.check_again()
                journal.append([key], canary, again=True)
            except OtherModelError:
                journal.drop_since(key)
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


def _canary(resolved: Resolved) -> tuple[bytes, Floats]:
    """Its hash in a journal, and its raw vector (1, hidden) of the model that answers now."""
    from ragidx.indexer.encoders.endpoint import EndpointEncoder

    assert isinstance(resolved.encoder, EndpointEncoder)
    return _KEY, resolved.encoder.canary


def _check_same(resolved: Resolved, index: Path, old: Floats | None, unit: Floats) -> None:
    from ragidx.indexer.encoders.endpoint import EndpointEncoder, difference

    encoder = resolved.encoder
    assert isinstance(encoder, EndpointEncoder)
    if old is not None and (change := difference(old[None], unit)):
        raise OtherModelError(
            f"the model '{encoder.files.name}' of {encoder.address.url} is not the one of the build that was "
            f"interrupted: {change}",
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
    """The notes on where and how the model ran."""
    encoder = resolved.loaded
    before = {} if resolved.stored is None else resolved.stored.manifest.notes
    ran = {"device": resolved.device, "dtype": encoder.dtype} if encoder is not None else before
    return {"device": ran.get("device", ""), "dtype": ran.get("dtype", ""), **endpoint_note(resolved)}


def endpoint_note(resolved: Resolved) -> dict[str, Json]:
    """The note on the address: that of this build, else the one that the index keeps."""
    from ragidx.indexer.models.address import KEPT_AS

    if not resolved.files.served:
        return {}
    usage = None if resolved.loaded is None else resolved.loaded.usage
    kept = resolved.stored.manifest.notes.get(KEPT_AS) if usage is None and resolved.stored is not None else None
    url = kept if usage is None else usage.url
    return {} if url is None else {KEPT_AS: url}
