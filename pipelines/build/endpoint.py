"""What a build by the model of a server keeps of it: its address, and in the journal its vector of the canary.

An index has the canary beside its vectors (`CANARY_FILE`), and whoever encodes for it compares. A build that was killed
before its first commit has only a journal, so that holds the canary as well.
"""

from __future__ import annotations

import numpy as np

from ragidx.corpora.errors import ModelError
from ragidx.corpora.spec import Json
from ragidx.indexer.digests import digest
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.store.manifest import JOURNAL
from ragidx.indexer.writing.writer import StoreWriter
from ragidx.pipelines.build.report import StrictError
from ragidx.pipelines.build.resolve import Plan


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
    from ragidx.indexer.encoders.endpoint import CANARY, SAME, EndpointEncoder

    encoder, kept = plan.encoder, plan.filter
    assert isinstance(encoder, EndpointEncoder)
    key = digest(f"\0canary\0{CANARY}")  # no chunk's: its form is not that of documents
    unit = l2_normalize(encoder.canary if kept is None else kept(encoder.canary)).vectors
    old = writer.reuse([key]).get(key)
    if old is None:
        writer.remember([key], unit)
        return
    cosine = float(np.dot(l2_normalize(old[None]).vectors[0], unit[0]))
    if cosine < SAME:
        raise ModelError(
            f"the model '{encoder.files.name}' of {encoder.address.url} is not the one of the build that was "
            f"interrupted: a fixed text has a vector with a cosine of {cosine:.4f} to that one, {SAME} is asked for",
            f"name the right server with `endpoint`, or remove the folder {writer.path / JOURNAL} and encode all again",
            where=str(writer.path),
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
