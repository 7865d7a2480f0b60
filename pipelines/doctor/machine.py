"""What ragidx finds on this machine: cores, memory, torch, GPUs, FAISS, missing packages, the cache.

Each line is a `Finding`, with what to do where something is wrong. Only torch, where it is installed, and FAISS are
imported, since only they know what they can do here; no model is loaded.
"""

from __future__ import annotations

import os
import platform
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

from ragidx import __version__
from ragidx.corpora.errors import RagidxError, install
from ragidx.indexer.devices import missing_models
from ragidx.indexer.model_files import named_cache, user_cache
from ragidx.pipelines.base.no_network import can_close_network
from ragidx.pipelines.base.resources import allowed_bytes, allowed_cores, usable_cores
from ragidx.pipelines.doctor.packages import installed
from ragidx.pipelines.doctor.report import Finding


def findings() -> tuple[Finding, ...]:
    """Everything that can be found without a model, in a second or two."""
    return (
        Finding("ragidx", f"{__version__}, Python {platform.python_version()}"),
        Finding("machine", f"{platform.system()} {platform.machine()}, {_cores()}, {_memory()}"),
        *_torch(),
        _faiss(),
        *installed(),
        _workers(),
        _cache(),
    )


def devices(gpus: Sequence[str], *, mps: bool, has_driver: bool, reason: str) -> list[Finding]:
    """What a model can run on beside the processor.

    Args:
        gpus: GPUs that torch can use.
        mps: whether torch can use an Apple GPU.
        has_driver: whether a driver of NVIDIA is installed.
        reason: why torch sees no GPU, as far as it is known.
    """
    if gpus:
        return [Finding(f"cuda:{number}", gpu) for number, gpu in enumerate(gpus)]
    if mps:
        return [Finding("mps", "an Apple GPU")]
    if not has_driver:
        return [Finding("gpu", "none: models run on the processor")]
    value = f"there is an NVIDIA driver, but torch sees no GPU{f': {reason}' if reason else ''}"
    hint = "see whether nvidia-smi lists one, whether CUDA_VISIBLE_DEVICES hides it, and how torch was built"
    return [Finding("gpu", value, "warning", hint)]


def _torch() -> list[Finding]:
    if "torch" in missing_models():
        value = "not installed: needed by every model but the bundled one with its preset"
        return [Finding("torch", value, "absent", install("models"))]
    try:
        import torch
    except (ImportError, OSError) as fault:
        return [Finding("torch", f"cannot be loaded: {fault}", "warning", "install it again")]
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm" if torch.version.hip else "without CUDA"
    with warnings.catch_warnings(record=True) as said:  # torch warns where the driver is too old for it
        warnings.simplefilter("always")
        seen = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [
        Finding("torch", f"{torch.__version__}, {build}, {torch.backends.cpu.get_cpu_capability()}"),
        *devices(
            [f"{gpu.name}, {_gib(gpu.total_memory)}" for gpu in seen],
            mps=torch.backends.mps.is_available(),
            has_driver=shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists(),
            reason=str(said[-1].message).splitlines()[0] if said else "it is without CUDA" * (build == "without CUDA"),
        ),
    ]


def _faiss() -> Finding:
    from ragidx.indexer.ann.faiss_files import load_faiss

    try:
        faiss = load_faiss()
    except RagidxError as fault:
        return Finding("faiss", fault.message, "warning", fault.hint)
    return Finding("faiss", str(faiss.__version__))


def _cores() -> str:
    limit = allowed_cores()
    limited = "" if limit is None else f", limited to the time of {limit:g}"
    return f"{os.cpu_count()} cores, {usable_cores()} usable{limited}"


def _memory() -> str:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return "memory not known"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = allowed_bytes()
    return f"memory {_gib(total)}" + (f", limited to {_gib(limit)}" if limit is not None and limit < total else "")


def _workers() -> Finding:
    """What keeps the processes that read files off the network."""
    if can_close_network():
        return Finding("workers", "the kernel refuses them the network, by a filter of system calls")
    value = "Python alone refuses them the network: what a library does by itself, it does not see"
    return Finding("workers", value, "warning", "read the files of others on Linux, where seccomp is allowed")


def _cache() -> Finding:
    if (folder := user_cache()) is not None:
        return Finding("cache of ragidx", str(folder))
    named = named_cache()
    why = "there is no home, or a relative path is named" if named is None else f"{named} cannot be written"
    value = f"none, as {why}: checksums, spectra, number formats and raw vectors are made again each time"
    return Finding("cache of ragidx", value, "warning", "name a folder that can be written in RAGIDX_CACHE")


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
