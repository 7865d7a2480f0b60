"""Models in Ollama's store: names, manifests old and new, and stores that are damaged or lie."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import ModelError
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.gguf import ollama
from ragidx.indexer.models.locate import locate

from ...gguf_kit import twin
from ...raising import message_of

IMAGE = "application/vnd.ollama.image."
LIBRARY = "registry.ollama.ai/library"


class Store:
    """A store that is written as Ollama writes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "blobs").mkdir(parents=True)

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self.root / "blobs" / f"sha256-{digest}").write_bytes(data)
        return f"sha256:{digest}"

    def layers(self, **layers: bytes) -> dict[str, Any]:
        return {"layers": [{"mediaType": IMAGE + kind, "digest": self.blob(data)} for kind, data in layers.items()]}

    def pull(self, name: str, manifest: Any, *, linked: bool = False) -> Path:
        """Write a manifest; `name` is HOST/NAMESPACE/MODEL/TAG. A linked one is a blob, as newer versions have it."""
        path = self.root / ("manifests-v2" if linked else "manifests") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(manifest).encode()
        if linked:
            blob = self.blob(data).replace(":", "-")
            path.symlink_to(os.path.relpath(self.root / "blobs" / blob, path.parent))
        else:
            path.write_bytes(data)
        return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    return Store(tmp_path / "models")


@pytest.fixture
def weights(tiny_model: Callable[..., Path], tmp_path: Path) -> bytes:
    return twin(tiny_model("llama"), tmp_path / "x.gguf").read_bytes()


def told(name: str) -> str:
    return message_of(ModelError, lambda: locate(name))


@pytest.mark.parametrize("linked", [False, True])
def test_a_pulled_model_is_read_and_its_name_is_its_fingerprint(store: Store, weights: bytes, linked: bool) -> None:
    chat = {"template": b"{{ .Prompt }}", "system": b"be kind", "params": b'{"num_ctx": 64}', "license": b"MIT"}
    store.pull(f"{LIBRARY}/tiny/latest", store.layers(model=weights, **chat), linked=linked)

    files = locate("ollama:tiny")

    assert (files.name, files.family) == ("ollama:tiny", "llama")
    assert files.config["max_position_embeddings"] == 128  # not num_ctx
    assert weights_fingerprint(files) == hashlib.sha256(weights).hexdigest()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tiny:1b", f"{LIBRARY}/tiny/1b"),
        ("TINY:1B", f"{LIBRARY}/tiny/1b"),
        ("library/tiny:1b", f"{LIBRARY}/tiny/1b"),
        ("me/tiny", "registry.ollama.ai/me/tiny/latest"),
        ("hf.co/Owner/Repo-GGUF:Q4_K_M", "hf.co/Owner/Repo-GGUF/Q4_K_M"),
        ("localhost:5000/me/tiny", "localhost:5000/me/tiny/latest"),
        ("localhost:5000/me/tiny:1b", "localhost:5000/me/tiny/1b"),
    ],
)
def test_names_are_written_as_ollama_writes_them(store: Store, weights: bytes, name: str, path: str) -> None:
    store.pull(path, store.layers(model=weights))
    store.pull(f"{LIBRARY}/other/latest", {})

    assert locate(f"ollama:{name}").family == "llama"


def test_the_newer_manifest_is_taken(store: Store, weights: bytes) -> None:
    store.pull(f"{LIBRARY}/tiny/latest", {"layers": []})
    store.pull(f"{LIBRARY}/tiny/latest", store.layers(model=weights), linked=True)

    assert locate("ollama:tiny").family == "llama"


def test_of_a_list_the_entry_with_gguf_is_taken(store: Store, weights: bytes) -> None:
    entries = [
        {"runner": "mlx", "digest": store.blob(json.dumps(store.layers(tensor=b"x")).encode())},
        {"runner": "llamacpp", "digest": store.blob(json.dumps(store.layers(model=weights)).encode())},
    ]
    kind = "application/vnd.ollama.manifest.list.v2+json"
    store.pull(f"{LIBRARY}/tiny/latest", {"mediaType": kind, "manifests": entries}, linked=True)
    store.pull(f"{LIBRARY}/mlx/latest", {"mediaType": kind, "manifests": entries[:1]}, linked=True)

    assert locate("ollama:tiny").family == "llama"
    assert told("ollama:mlx").startswith("`model`: 'ollama:mlx' has no weights in GGUF: it runs in the cloud, or in")


def test_a_name_on_two_hosts_is_asked_for_in_full(store: Store, weights: bytes) -> None:
    for host in ("registry.ollama.ai", "example.org"):
        store.pull(f"{host}/library/tiny/latest", store.layers(model=weights))

    assert told("ollama:tiny") == (
        "`model`: 'ollama:tiny' is more than one model\n  hint: name one: "
        "ollama:example.org/library/tiny:latest or ollama:registry.ollama.ai/library/tiny:latest"
    )
    assert locate("ollama:example.org/library/tiny").family == "llama"


# --- refusals


def test_a_model_that_is_not_pulled_is_told_with_near_misses(store: Store) -> None:
    store.pull(f"{LIBRARY}/qwen3/0.6b", {})
    store.pull("hf.co/a/b/Q4", {})

    assert told("ollama:qwen3") == (
        "`model`: 'ollama:qwen3' is not among the models that Ollama has pulled; did you mean 'ollama:qwen3:0.6b'?\n"
        f"  hint: run 'ollama pull qwen3', or see 'ragidx models'; searched: {store.root}"
    )
    assert "did you mean 'ollama:qwen3:0.6b'?" in told("ollama:qwen3:0.8b")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("qwen3:0.6b", "ollama:qwen3:0.6b"),
        ("qwen3", "ollama:qwen3:0.6b"),
        ("Llama3.2", "ollama:llama3.2:latest"),
        ("hf.co/Owner/Repo-GGUF:Q4_K_M", "ollama:hf.co/Owner/Repo-GGUF:Q4_K_M"),
        ("SmolLM2", "smollm2"),
    ],
)
def test_a_name_without_its_prefix_is_a_near_miss(store: Store, name: str, meant: str) -> None:
    for path in (f"{LIBRARY}/qwen3/0.6b", f"{LIBRARY}/llama3.2/latest", f"{LIBRARY}/smollm2/latest"):
        store.pull(path, {})
    store.pull("hf.co/Owner/Repo-GGUF/Q4_K_M", {})

    assert f"an id of the form owner/name; did you mean '{meant}'?\n" in told(name)


def test_without_ollama_the_folders_that_were_searched_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(ollama.sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert f"searched: {tmp_path}/.ollama/models and /usr/share/ollama/.ollama/models" in told("ollama:x")
    assert "did you mean" not in told("ollama")


def test_a_store_that_may_not_be_read_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> NoReturn:  # which no folder does to root
        raise PermissionError

    monkeypatch.setattr(Path, "iterdir", refuse)

    assert told("ollama:tiny") == (
        f"`model`: 'ollama:tiny' was not found, and this user may not read {store.root / 'manifests-v2'}\n"
        "  hint: allow it, or copy the model's file and name that"
    )


@pytest.mark.parametrize(
    "name", ["", "a/b/c/d", "../x", "a/../x", "x:y/z", "x y", "x" * 129, "..", "x:..", "/x", "x:", "é"]
)
def test_what_is_no_name_is_told(store: Store, name: str) -> None:
    store.pull(f"{LIBRARY}/x/latest", {"layers": []})

    message = told(f"ollama:{name}")

    if name == "x:":  # no tag is the default one
        assert "has no weights in GGUF" in message
    else:
        assert message == (
            f"`model`: 'ollama:{name}' is no name of a model in Ollama\n"
            "  hint: write it as 'ollama list' does, such as ollama:qwen3:0.6b"
        )


def test_a_model_with_an_adapter_is_refused(store: Store, weights: bytes) -> None:
    store.pull(f"{LIBRARY}/tuned/latest", store.layers(model=weights, adapter=b"lora"))

    assert told("ollama:tuned") == (
        "`model`: 'ollama:tuned' is a model with a LoRA adapter on top, which cannot be read from GGUF\n"
        "  hint: name the model without it, or safetensors with `adapters`"
    )


@pytest.mark.parametrize("layers", [{}, {"tensor": b"x", "json": b"{}"}, {"template": b"x"}])
def test_a_model_without_gguf_is_told(store: Store, layers: dict[str, bytes]) -> None:
    store.pull(f"{LIBRARY}/cloud/latest", store.layers(**layers))

    assert told("ollama:cloud") == (
        "`model`: 'ollama:cloud' has no weights in GGUF: it runs in the cloud, or in Ollama's MLX runner\n"
        "  hint: pull a tag with GGUF weights, or name the folder with the model's safetensors"
    )


def test_a_blob_that_is_missing_is_told(store: Store, weights: bytes) -> None:
    manifest = store.layers(model=weights)
    store.pull(f"{LIBRARY}/tiny/latest", manifest)
    blob = manifest["layers"][0]["digest"].replace(":", "-")
    (store.root / "blobs" / blob).unlink()

    assert told("ollama:tiny") == (
        f"{store.root / 'blobs'}: the file {blob} of 'tiny:latest' is missing\n"
        "  hint: run 'ollama pull tiny:latest' again"
    )


@pytest.mark.parametrize("digest", ["sha256:../../../../etc/passwd", "sha256:" + "0" * 63, "md5:00", None, 7, ["a"]])
def test_a_digest_that_is_none_is_told(store: Store, digest: Any) -> None:
    path = store.pull(f"{LIBRARY}/tiny/latest", {"layers": [{"mediaType": f"{IMAGE}model", "digest": digest}]})

    assert told("ollama:tiny") == (
        f"{path}: it names a file by {ascii(digest)[:60]}, which is no sha256\n"
        "  hint: run 'ollama pull tiny:latest' again"
    )


def test_a_blob_that_leads_out_of_the_store_is_refused(store: Store, weights: bytes, tmp_path: Path) -> None:
    manifest = store.layers(model=weights)
    store.pull(f"{LIBRARY}/tiny/latest", manifest)
    blob = store.root / "blobs" / manifest["layers"][0]["digest"].replace(":", "-")
    blob.rename(tmp_path / blob.name)
    blob.symlink_to(tmp_path / blob.name)

    assert "is missing" in told("ollama:tiny")


def test_a_manifest_that_leads_out_of_the_store_is_refused(store: Store, weights: bytes, tmp_path: Path) -> None:
    path = store.pull(f"{LIBRARY}/tiny/latest", store.layers(model=weights))
    path.rename(tmp_path / "manifest")
    path.symlink_to(tmp_path / "manifest")

    assert told("ollama:tiny") == (
        f"{path}: it leads to no manifest of Ollama's store\n  hint: run 'ollama pull tiny:latest' again"
    )


def test_a_store_on_another_disk_is_read(store: Store, weights: bytes, tmp_path: Path) -> None:
    store.pull(f"{LIBRARY}/tiny/latest", store.layers(model=weights), linked=True)
    (store.root / "blobs").rename(tmp_path / "disk")
    (store.root / "blobs").symlink_to(tmp_path / "disk")

    assert locate("ollama:tiny").family == "llama"


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["layers", "manifests", "mediaType", "digest", "runner", "x"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_any_manifest_is_a_model_error(tmp_path_factory: pytest.TempPathFactory, manifest: Any) -> None:
    root = tmp_path_factory.mktemp("store")
    path = root / "manifests" / LIBRARY / "x" / "latest"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(manifest))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OLLAMA_MODELS", str(root))

        with pytest.raises(ModelError):
            ollama.blob_of("ollama:x")
