"""The doctor: what of this machine ragidx can use, and whether a model does on it what its method needs.

`examine` is `ragidx doctor`. Without a model it takes a second or two; with one the model is loaded, and a second time
where a build would use another number format than float32.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Unpack

from ragidx.corpora.errors import ModelError, RagidxError, SpecError
from ragidx.indexer.devices import check_device, check_dtype, check_implementation
from ragidx.indexer.encoders.load import check_network
from ragidx.indexer.encoders.methods import default_filter, located, resolve
from ragidx.indexer.filters.unembedding import find_unembedding
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.options import EncoderOptions
from ragidx.indexer.specs import filter_kind
from ragidx.pipelines.doctor.checks import probe, probe_endpoint, probe_static
from ragidx.pipelines.doctor.machine import findings
from ragidx.pipelines.doctor.report import Check, DoctorReport
from ragidx.pipelines.doctor.unknown_chunks import unknown_chunks


def examine(
    model: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn: str = "auto",
    endpoint: str | None = None,
    index: str | Path | None = None,
    **options: Unpack[EncoderOptions],
) -> DoctorReport:
    """What is on this machine and, where a model is named, how it fares there.

    Args:
        model: as in `load_encoder`; None: the machine alone.
        device: auto, cuda, mps, cpu.
        dtype: auto, float32, bfloat16, float16, mixed.
        attn: how a decoder's attention is computed, a name of transformers'; auto.
        endpoint: where the server of `openai:NAME` is.
        index: an index whose chunks are examined: which its model does not know, and which models here know them.
        options: options of the encoder, as in `load_encoder`.

    Raises:
        IndexFormatError: there is no such index.
        ModelError: there is no such model. One that cannot be loaded, or needs an extra, is a failed check.
        SpecError: an unknown name, a value out of range, or options without a model.
    """
    check_device(device)
    check_dtype(dtype)
    check_implementation(attn)
    chunks = None if index is None else unknown_chunks(Path(index))
    if model is None:
        if named := [name for name, value in options.items() if value not in (None, ())]:
            raise SpecError(
                "it says how a model is run, and no model is named",
                "add `model=mini`, a folder or a hub id",
                where=f"`{named[0]}`",
            )
        return DoctorReport(findings(), chunks=chunks)
    files = located(model, options)
    spec = resolve(files, **options)
    report = DoctorReport(findings(), model, spec, chunks=chunks)
    try:
        needs = check_network(files, spec, device=device, dtype=dtype, attn=attn, endpoint=endpoint)
    except RagidxError as fault:
        loading = Check("loading", "-", status="failed", hint=f"{fault.message}: {fault.hint}")
        return dataclasses.replace(report, checks=(loading,))
    if files.served:
        checks = probe_endpoint(files, spec, endpoint)
        return dataclasses.replace(report, device="a server", dtype="float32", checks=checks)
    if needs is None:
        place, used, checks = "cpu", "float32", probe_static(files, spec)
    else:
        place, used, checks = probe(files, spec, device=device, dtype=dtype, attn=attn)
    if filter_kind(name := default_filter(files, spec).name).head:
        checks += (head_check(files, name),)
    return dataclasses.replace(report, device=place, dtype=used, checks=checks)


def head_check(files: ModelFiles, name: str) -> Check:
    """Whether the model has the unembedding matrix that this filter, the default of its builds, reads."""
    title = f"head for the default filter, {name}"
    try:
        find_unembedding(files)
    except ModelError as fault:
        return Check(title, "-", status="failed", hint=f"{fault.message}: with a build, {fault.hint}")
    return Check(title, "-")
