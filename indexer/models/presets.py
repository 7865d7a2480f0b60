"""Presets: the best known options of a model, bundled (preset.json in its folder) or by hub id (presets.toml)."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A line of `ragidx models`: a model that is bundled or on the hub, and the best known options of it."""

    name: str
    preset: str
    width: int
    memory: str


@functools.cache
def published_presets() -> dict[str, dict[str, Any]]:
    """Presets by hub id."""
    return tomllib.loads(resources.files("ragidx.indexer.models").joinpath("presets.toml").read_text("utf-8"))


def preset_called(name: object, width: int | None) -> dict[str, Any]:
    """The preset of a model by the name that its GGUF file gives it, and by its width; empty without one.

    >>> preset_called("Mistral 7B Instruct v0.3", 4096)["filter"]
    {'tau': 2.0, 'offset': 128}
    """
    presets = {_plain(hub_id.partition("/")[2]): preset for hub_id, preset in published_presets().items()}
    called = f"-{_plain(str(name))}"  # the owner may come first
    found = next((preset for known, preset in presets.items() if called.endswith(f"-{known}")), {})
    return found if found.get("width") == width else {}


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name).lower()


def known_presets() -> list[Preset]:
    """The presets, that of the bundled model first."""
    rows = []
    for name, memory in (("mini", "23 MB"), ("mini-decoder", "45 MB / 23 MB")):
        folder = resources.files("ragidx.indexer") / "models" / name
        preset = json.loads(folder.joinpath("preset.json").read_text("utf-8"))
        config = json.loads(folder.joinpath("config.json").read_text("utf-8"))
        rows.append(Preset(name, _summary(preset), config["hidden_size"], memory))
    for name, preset in published_presets().items():
        size = preset["parameters"]
        rows.append(Preset(name, _summary(preset), preset["width"], f"{_bytes(size * 4)} / {_bytes(size * 2)}"))
    return rows


def _bytes(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def _summary(preset: dict[str, Any]) -> str:
    kept = {name: value for name, value in preset.get("filter", {}).items() if value is not None and name != "name"}
    options = ", ".join(f"{name} {value:g}" for name, value in kept.items())
    layer = f", layer {preset['layer']}" if "layer" in preset else ""
    name = preset.get("filter", {}).get("name", "embedfilter")
    if name == "none":
        return f"{preset['method']}; weight {preset['weight']:g} of the vectors"
    return f"{preset['method']}{layer}; {'EmbedFilter' if name == 'embedfilter' else name} {options}"
