"""What a build by the model of a server keeps of it: its address, and in the journal its vector of the canary.

An index has the canary beside its vectors (`CANARY_FILE`), and whoever encodes for it compares. A build that was killed
before its first commit has only journals, so they hold the canary as well: one of the vectors to store, and one of the
raw vectors that a filter is fitted on. A server computes the same text a little differently each time, and another fit
would make another index.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ragidx.corpora.errors import ModelError
from ragidx.corpora.spec import Json
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.digests import digest
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.lock import Lock
from ragidx.indexer.store.manifest import JOURNAL
from ragidx.indexer.writing.journal import Journal
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.ingest.report import StrictError
from ragidx.pipelines.ingest.resolve import Plan


def check_journal(plan: Plan, writer: StoreWriter) -> None:
    """Whether the vectors of the journal are from the model that answers now; the first build puts its canary there.

    Args:
        plan: of the build; nothing is to do unless it makes a new index by the model of a server.
        writer: of the index.

    Raises:
        ModelError: they are from another.
    """
    if not plan.files.served or plan.stored is not None:
        return
    kept, (key, canary) = plan.filter, _canary(plan)
    unit = l2_normalize(canary if kept is None else kept(canary)).vectors
    _check_same(plan, writer.path, writer.reuse([key]).get(key), unit)
    writer.remember([key], unit)


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
            _check_same(plan, index, journal.get([key]).get(key), l2_normalize(canary).vectors)
            journal.append([key], canary)
            yield journal
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
    """Its hash in a journal, which is no chunk's, and its raw vector (1, hidden) of the model that answers now."""
    from ragidx.indexer.encoders.endpoint import CANARY, EndpointEncoder

    assert isinstance(plan.encoder, EndpointEncoder)
    return digest(f"\0canary\0{CANARY}"), plan.encoder.canary


def _check_same(plan: Plan, index: Path, old: Floats | None, unit: Floats) -> None:
    from ragidx.indexer.encoders.endpoint import SAME, EndpointEncoder

    encoder = plan.encoder
    assert isinstance(encoder, EndpointEncoder)
    cosine = 1.0 if old is None else float(np.dot(l2_normalize(old[None]).vectors[0], unit[0]))
    if cosine < SAME:
        raise ModelError(
            f"the model '{encoder.files.name}' of {encoder.address.url} is not the one of the build that was "
            f"interrupted: a fixed text has a vector with a cosine of {cosine:.4f} to that one, {SAME} is asked for",
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
