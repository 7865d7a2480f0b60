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
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import JOURNAL
from ragidx.indexer.writing.journal import Journal
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.ingest.resolve import Plan

CHECK_EVERY = 200  # requests: then the server is asked for the canary again

_KEY = digest("\0canary\0")  # of the canary in a journal; no chunk's


@contextlib.contextmanager
def good_journal(plan: Plan, writer: StoreWriter) -> Iterator[None]:
    """The time in which vectors are made; the first build puts its canary into the journal.

    Raises:
        OtherModelError: the model of a server is not that of the journal or of the index, or changed meanwhile.
    """
    if not plan.files.served:
        yield
        return
    try:
        if plan.stored is None:
            key, canary = _canary(plan)
            _check_same(plan, writer.path, writer.reuse([key]).get(key), _stored_form(plan, canary))
            writer.remember([key], _stored_form(plan, canary), again=True)
        yield
    except OtherModelError:
        writer.forget_since(_KEY)
        raise


def check_model(plan: Plan, writer: StoreWriter, every: int | None = None) -> None:
    """Ask a server for the canary again after every some hundred requests, and write it behind what is in the journal.

    Raises:
        OtherModelError: its model is another now.
    """
    if plan.loaded is not None and plan.loaded.n_unchecked >= (every or CHECK_EVERY):
        plan.loaded.check_again()
        key, canary = _canary(plan)
        writer.remember([key], _stored_form(plan, canary), again=True)


def _stored_form(plan: Plan, canary: Floats) -> Floats:
    return l2_normalize(canary if plan.filter is None else plan.filter(canary)).vectors


@contextlib.contextmanager
def sample_journal(plan: Plan, index: Path) -> Iterator[Journal | None]:
    """Raw vectors of a sample by text hash, which a build that was killed goes on with.

    None for other models, and for a server whose numbers are too large or too small for the journal's float16.

    Raises:
        BusyError: another process writes the index.
        ModelError: the vectors are from another model than the one that answers now.
        RagidxError: the folder cannot be written.
    """
    if not plan.files.served or not 1e-3 < np.abs(_canary(plan)[1]).max() < 1e3:
        yield None
        return
    atomic.make_folder(index)
    lock = Lock(index)
    try:
        with contextlib.closing(Journal.open(index / JOURNAL, _sample_key(plan), plan.hidden)) as journal:
            key, canary = _canary(plan)
            try:
                _check_same(plan, index, journal.get([key]).get(key), l2_normalize(canary).vectors)
                journal.append([key], canary, again=True)
                yield journal
                plan.encoder.check_again()
                journal.append([key], canary, again=True)
            except OtherModelError:
                journal.drop_since(key)
                raise
    finally:
        lock.release()


def forget_sample(plan: Plan, index: Path) -> None:
    """Remove the journal of the sample: what was made of it is committed."""
    if plan.files.served:
        atomic.remove(Journal.path_of(index / JOURNAL, _sample_key(plan)))


def _sample_key(plan: Plan) -> str:
    """Of the model alone: raw vectors are the same whatever filter is fitted on them, and however it is cut."""
    return hashlib.sha256(f"sample\0{json.dumps(plan.spec.to_json()['encoder'])}".encode()).hexdigest()


def _canary(plan: Plan) -> tuple[bytes, Floats]:
    """Its hash in a journal, and its raw vector (1, hidden) of the model that answers now."""
    from ragidx.indexer.encoders.endpoint import EndpointEncoder

    assert isinstance(plan.encoder, EndpointEncoder)
    return _KEY, plan.encoder.canary


def _check_same(plan: Plan, index: Path, old: Floats | None, unit: Floats) -> None:
    from ragidx.indexer.encoders.endpoint import EndpointEncoder, difference

    encoder = plan.encoder
    assert isinstance(encoder, EndpointEncoder)
    if old is not None and (change := difference(old[None], unit)):
        raise OtherModelError(
            f"the model '{encoder.files.name}' of {encoder.address.url} is not the one of the build that was "
            f"interrupted: {change}",
            f"name the right server with `endpoint`, or remove the folder {index / JOURNAL} and encode all again",
            where=str(index),
        )


def check_uncut(plan: Plan, *, strict: bool) -> None:
    """Whether the server has read all of the texts so far.

    Raises:
        StrictError: it has cut some, and the build is strict.
    """
    usage = plan.encoder.usage
    if strict and usage is not None and usage.n_cut:
        raise StrictError(
            f"the endpoint cut {usage.n_cut:,} text{'s' * (usage.n_cut > 1)}: its model reads fewer tokens",
            "use a smaller `chunk_size`, or build without `strict=True`",
            where=usage.url,
        )


def run_notes(plan: Plan) -> dict[str, Json]:
    """The notes on where and how the model ran."""
    encoder = plan.loaded
    return {"device": plan.device, "dtype": "" if encoder is None else encoder.dtype, **endpoint_note(plan)}


def endpoint_note(plan: Plan) -> dict[str, Json]:
    """The note on the address: that of this build, else the one that the index keeps."""
    from ragidx.indexer.models.address import KEPT_AS

    if not plan.files.served:
        return {}
    usage = None if plan.loaded is None else plan.loaded.usage
    kept = plan.stored.manifest.notes.get(KEPT_AS) if usage is None and plan.stored is not None else None
    url = kept if usage is None else usage.url
    return {} if url is None else {KEPT_AS: url}
