"""What ragidx finds on this machine: Python, cores, memory, torch, GPUs, which FAISS, extras, caches.

Each line is a `Finding`, with what to do where something is wrong. Only torch, where it is installed, and FAISS are
imported, since only they know what they can do here; no model is loaded. `processor`, `threads` and `devices` take
plain values.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path

from ragidx import __version__
from ragidx.corpora.errors import RagidxError, install
from ragidx.indexer.devices import missing_models
from ragidx.pipelines.doctor import packages
from ragidx.pipelines.doctor.report import Finding
from ragidx.pipelines.resources import allowed_bytes, allowed_cores, usable_cores


def findings() -> tuple[Finding, ...]:
    """Everything that can be found without a model, in a second or two."""
    asked = packages.needs()
    return (
        Finding("ragidx", __version__),
        Finding("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"),
        processor(os.cpu_count() or 1, usable_cores(), allowed_cores()),
        Finding("memory", _memory()),
        *_torch(asked),
        *packages.core(asked),
        _faiss(asked),
        *packages.extras(asked),
        _cache(),
    )


def processor(total: int, usable: int, allowed: float | None) -> Finding:
    """The cores of the machine, those this process is bound to, and the time it gets, in cores (None: no limit)."""
    limit = f", limited to the time of {allowed:g}" if allowed is not None and allowed < usable else ""
    return Finding("processor", f"{_cores(total)}, {usable} usable{limit}")


def threads(count: int, usable: int, allowed: float | None) -> Finding:
    """How many threads torch computes with, and whether there are cores for them."""
    room = usable if allowed is None else max(1, min(usable, int(allowed)))
    value = f"torch computes with {count}"
    if count <= room:
        return Finding("threads", value)
    value += f" on the time of {_cores(room)}: they wait for each other"
    return Finding("threads", value, "warning", f"set OMP_NUM_THREADS={room}")


def devices(gpus: Sequence[str], *, mps: bool, has_cuda: bool, has_driver: bool, reason: str = "") -> list[Finding]:
    """What a model can run on beside the processor.

    Args:
        gpus: those that torch can use.
        mps: whether torch can use an Apple GPU.
        has_cuda: whether torch was built for GPUs.
        has_driver: whether a driver of NVIDIA is installed.
        reason: what torch says about the driver, if anything.
    """
    if gpus:
        return [Finding(f"cuda:{number}", gpu) for number, gpu in enumerate(gpus)]
    if mps:
        return [Finding("mps", "an Apple GPU")]
    if not has_driver:
        return [Finding("gpu", "none: models run on the processor")]
    if not has_cuda:
        value = "there is an NVIDIA driver, but this torch is without CUDA"
        return [Finding("gpu", value, "warning", "install a torch that is built with CUDA")]
    value = f"there is an NVIDIA driver, but torch sees no GPU{f': {reason}' if reason else ''}"
    hint = "see whether nvidia-smi lists one, and whether CUDA_VISIBLE_DEVICES hides it"
    return [Finding("gpu", value, "warning", hint)]


def _torch(asked: packages.Needs) -> list[Finding]:
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
    package = packages.package("torch", asked)
    return [
        dataclasses.replace(package, value=f"{package.value}, {build}, {torch.backends.cpu.get_cpu_capability()}"),
        threads(torch.get_num_threads(), usable_cores(), allowed_cores()),
        *devices(
            [f"{gpu.name}, {_gib(gpu.total_memory)}" for gpu in seen],
            mps=torch.backends.mps.is_available(),
            has_cuda=build != "without CUDA",
            has_driver=shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists(),
            reason=str(said[-1].message).splitlines()[0] if said else "",
        ),
    ]


def _faiss(asked: packages.Needs) -> Finding:
    from ragidx.indexer.ann.faiss_files import PACKAGES, load_faiss

    try:
        faiss = load_faiss()
    except RagidxError as fault:
        return Finding("faiss", fault.message, "warning", fault.hint)
    name = next((name for name in PACKAGES if packages.version_of(name)), "")
    found = packages.package(name, asked) if name else Finding("", faiss.__version__)
    gpu = f"GPU code, {faiss.get_num_gpus()} seen" if hasattr(faiss, "StandardGpuResources") else "no GPU code"
    units = [word for word in faiss.get_compile_options().split() if word.startswith(("AVX", "NEON", "SVE"))]
    details = f"{name or 'of unknown origin'}, {gpu}, {' '.join(units) or 'no vector units'}"
    return dataclasses.replace(found, name="faiss", value=f"{found.value} ({details})")


def _memory() -> str:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return "not known on this system"
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = allowed_bytes()
    return _gib(total) + (f", limited to {_gib(limit)}" if limit is not None and limit < total else "")


def _cache() -> Finding:
    folder = Path.home() / ".cache" / "ragidx"
    there = next(place for place in (folder, *folder.parents) if place.exists())  # a parent may be a file
    if there.is_dir() and os.access(there, os.W_OK):
        return Finding("cache of ragidx", str(folder))
    value = f"{folder} cannot be written: spectra and checksums are computed again each time"
    return Finding("cache of ragidx", value, "warning", "make it writable, or set HOME to a folder that is")


def _cores(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
