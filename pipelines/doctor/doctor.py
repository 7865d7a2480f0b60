"""The doctor: what of this machine ragidx can use, and whether a model does on it what its method needs.

`examine` is `ragidx doctor`. Without a model it takes a second or two; with one the model is loaded, on a GPU or where
another number format is asked for a second time.
"""

from __future__ import annotations

from typing import Unpack

from ragidx.corpora.errors import ModelError, RagidxError, SpecError
from ragidx.indexer.devices import check_device, check_dtype, check_implementation, check_models
from ragidx.indexer.encoders.load import check_network
from ragidx.indexer.encoders.methods import default_filter, located, resolve
from ragidx.indexer.filters.unembedding import find_unembedding
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.specs import FILTERS, EncoderOptions, EncoderSpec
from ragidx.pipelines.doctor.machine import findings
from ragidx.pipelines.doctor.report import Check, Report


def examine(
    model: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn: str = "auto",
    endpoint: str | None = None,
    **options: Unpack[EncoderOptions],
) -> Report:
    """What is on this machine and, where a model is named, how it fares there.

    Args:
        model: as in `load_encoder`; None: the machine alone. Checks of a model that runs here need the extra `models`;
            without it, the report says whether a build does.
        device: auto, cuda, mps, cpu.
        dtype: auto, float32, bfloat16, float16, mixed.
        attn: how a decoder's attention is computed, a name of transformers'; auto.
        endpoint: where the server of `openai:NAME` is.
        options: of the encoder, as in `load_encoder`.

    Raises:
        ModelError: there is no such model. One that cannot be loaded, or needs an extra, is a failed check.
        SpecError: an unknown name, a value out of range, or options without a model.
    """
    check_device(device)
    check_dtype(dtype)
    check_implementation(attn)
    if model is None:
        given = [name for name, value in options.items() if value not in (None, ())]
        if given:
            raise SpecError(
                "it says how a model is run, and no model is named",
                "add `model=mini`, a folder or a hub id",
                where=f"`{given[0]}`",
            )
        return Report(tuple(findings()))
    files = located(model, options)
    spec = resolve(files, **options)
    about = tuple(findings())
    try:
        check_network(files, spec, device=device, dtype=dtype, attn=attn, endpoint=endpoint)
    except RagidxError as fault:
        loading = Check("loading", "-", status="failed", hint=f"{fault.message}: {fault.hint}")
        return Report(about, model, spec, checks=(loading,))
    if files.served:
        from ragidx.pipelines.doctor.endpoint import probe_endpoint

        return Report(about, model, spec, "a server", "float32", probe_endpoint(files, spec, endpoint))
    try:
        check_models("this check")
    except RagidxError as fault:
        left_out = Check("vectors", "-", status="not applicable", hint=f"{fault.message}: {fault.hint}")
        return Report(about, model, spec, "cpu", "float32", (left_out, default_filter_check(files, spec)))
    from ragidx.pipelines.doctor.checks import probe  # loads torch

    examined = probe(files, spec, device=device, dtype=dtype, attn=attn)
    checks = (*examined.checks, default_filter_check(files, spec))
    return Report(about, model, spec, examined.device, examined.dtype, checks)


def default_filter_check(files: ModelFiles, spec: EncoderSpec) -> Check:
    """Whether the model has the unembedding matrix that the filter of a build reads, where no other is asked for."""
    name = default_filter(files, spec).name
    title = f"head for the default filter, {name}"
    if not FILTERS[name].head:
        return Check(title, "-", status="not applicable", hint="it reads no head")
    try:
        find_unembedding(files)
    except ModelError as fault:
        return Check(title, "-", status="failed", hint=f"{fault.message}: with a build, {fault.hint}")
    return Check(title, "-")
