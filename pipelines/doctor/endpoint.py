"""Checks of a model of a server: whether it answers, gives a text one vector, and how soon.

Some ten short texts are sent. A difference is a cosine distance, since servers round: 1e-3 is allowed, as a build does.
"""

from __future__ import annotations

import numpy as np

from ragidx.corpora.errors import RagidxError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders.endpoint import SAME, EndpointEncoder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.doctor.report import Check, measured

TEXTS = (
    "a",
    "Who signed the lease for the house by the lake?",
    "The river rises in the hills and flows past the old mill before it reaches the sea. " * 4,
)
_AGAIN = "builds and queries would be refused: ask the server for one model, on one kind of machine"
_TOGETHER = "a text's vector depends on what is sent with it: update the server, or take another"


def probe_endpoint(files: ModelFiles, spec: EncoderSpec, endpoint: str | None) -> tuple[Check, ...]:
    """The checks; where the server does not answer, that alone."""
    try:
        encoder = encoder_of(files, spec, endpoint=endpoint)
        assert isinstance(encoder, EndpointEncoder)
        together = encoder.encode_document(TEXTS)
        alone = np.concatenate([encoder.encode_document([text]) for text in TEXTS])
        again = encoder.encode_document(TEXTS)
    except RagidxError as fault:
        where = f"{fault.where}: " if fault.where else ""
        return (Check("the endpoint answers", "-", status="failed", hint=f"{where}{fault.message}; {fault.hint}"),)
    return (
        Check(f"the endpoint answers, {encoder.hidden:,} numbers a text", "-"),
        measured("the same text twice", "float32", _distance(again, together), 1 - SAME, hint=_AGAIN),
        measured("alone and in a batch", "float32", _distance(alone, together), 1 - SAME, hint=_TOGETHER),
    )


def _distance(one: Floats, other: Floats) -> float:
    """The largest cosine distance of rows of the same number."""
    cosines = (l2_normalize(one).vectors * l2_normalize(other).vectors).sum(axis=1)
    return max(0.0, 1 - float(cosines.min()))
