"""Names of devices, number formats and attention implementations, and checks of what is installed.

A build with nothing to encode loads no model, but still refuses an unknown name. Only `choose_device` loads torch.
"""

from __future__ import annotations

import importlib.util

from ragidx.corpora.errors import SpecError, missing_extra, unknown_name

MODELS = ("torch", "transformers")  # of the extra `models`: what every network needs

DEVICES = ("auto", "cuda", "mps", "cpu")
DTYPES = ("auto", "float32", "bfloat16", "float16", "mixed")  # see ragidx.indexer.encoders.precision
# transformers' names; it also takes the name of a kernel on the hub, owner/name.
IMPLEMENTATIONS = ("auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3", "flex_attention")


def missing_models(*more: str) -> list[str]:
    """Which of torch, transformers and `more` are not installed. Imports none of them."""
    return [name for name in (*MODELS, *more) if importlib.util.find_spec(name.replace("-", "_")) is None]


def check_models(what: str, *more: str) -> None:
    """Whether the extra `models` is installed; cheap, so that it is checked before anything is read.

    Raises:
        RagidxError: torch, transformers or one of `more`, which `what` needs, is not installed.
    """
    missing = missing_models(*more)
    if missing:
        raise missing_extra(f"{what} needs", missing, "models")


def check_device(device: str) -> None:
    """The device may have a number: `cuda:1`.

    Raises:
        SpecError: the device is unknown, or these are several.
    """
    if "," in device:
        raise SpecError(
            f"one device is taken here, not several: '{device}'",
            f"give one, such as `device={device.partition(',')[0].strip()}`; builds take several",
            where="`device`",
        )
    if device.split(":", maxsplit=1)[0] not in DEVICES:
        raise unknown_name("device", device, DEVICES)


def check_devices(device: str) -> list[str]:
    """The devices of a build: one, or several between commas.

    Raises:
        SpecError: one of them is unknown, or `auto` beside others.
    """
    devices = [one.strip() for one in device.split(",")]
    for one in devices:
        check_device(one)
    if len(devices) > 1 and "auto" in devices:
        raise SpecError(
            f"`auto` is one device: '{device}'", "name all of them, such as `device=cuda:0,cuda:1`", where="`device`"
        )
    return devices


def check_dtype(dtype: str) -> None:
    """`auto`, or a number format.

    Raises:
        SpecError: the number format is unknown.
    """
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)


def check_implementation(name: str) -> None:
    """`auto`, a name of transformers', of which newer versions may add flash attentions, or a kernel on the hub.

    Raises:
        SpecError: the attention implementation is unknown.
    """
    if name not in IMPLEMENTATIONS and "/" not in name and not name.startswith("flash_attention_"):
        raise unknown_name("attention implementation", name, IMPLEMENTATIONS)


def choose_device(device: str) -> str:
    """`auto` is the first available of cuda, mps and cpu.

    Raises:
        SpecError: the device is unknown, or is not on this machine.
        RagidxError: torch is not installed.
    """
    check_device(device)
    check_models(f"`device={device}`")
    import torch

    name = device.split(":", maxsplit=1)[0]
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    hint = "use `device=auto` or `device=cpu`"
    if not there[name]:
        raise SpecError(f"there is no {name} device on this machine", hint, where="`device`")
    known = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if device.startswith("cuda:") and device not in known:
        hint = f"known: {', '.join(known)}; or {hint}"
        raise SpecError(f"there is no {device} device on this machine", hint, where="`device`")
    return device
