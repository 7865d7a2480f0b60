"""A model's small files may hold anything: an error names them. A cached digest is checked before it is believed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ragidx.corpora.errors import ModelError
from ragidx.indexer import model_files
from ragidx.indexer.model_files import expanded, user_cache
from ragidx.indexer.models import checkpoint
from ragidx.indexer.models.fingerprint import weights_fingerprint
from ragidx.indexer.models.locate import ModelFiles, locate
from ragidx.indexer.models.modules import check_modules
from ragidx.indexer.prompts.tokenizer import is_plain

DEEP = "[" * 100_000
READERS = {
    "config.json": lambda folder: locate(str(folder)),
    "modules.json": lambda folder: check_modules(folder, "m"),
    "adapter_config.json": lambda folder: locate(str(folder)),
    "model.safetensors.index.json": lambda folder: checkpoint.tensors(ModelFiles("m", folder, {}, False)),
}


@pytest.mark.parametrize("name", READERS)
def test_json_that_is_nested_too_deep_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(DEEP)

    with pytest.raises(ModelError) as caught:
        READERS[name](tmp_path)

    what = "adapter" if name.startswith("adapter") else "model"
    assert str(caught.value).startswith(f"{tmp_path / name}: not readable as JSON: maximum recursion depth exceeded")
    assert str(caught.value).endswith(f"\n  hint: download or copy the {what} again")


@pytest.mark.parametrize("name", [name for name in READERS if name != "adapter_config.json"])
def test_json_that_the_disk_does_not_give_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / name).write_text("{}")
    monkeypatch.setattr(Path, "read_text", broken)

    with pytest.raises(ModelError) as caught:
        READERS[name](tmp_path)

    reason = f"not readable as JSON: [Errno {errno.EIO}] {os.strerror(errno.EIO)}"
    assert str(caught.value) == f"{tmp_path / name}: {reason}\n  hint: download or copy the model again"


def test_settings_of_a_tokenizer_that_are_nested_too_deep_are_left_to_transformers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(DEEP)

    assert not is_plain(ModelFiles("m", tmp_path, {"model_type": "llama"}, False))


@pytest.fixture
def digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the digest of every file is kept."""
    monkeypatch.setattr("ragidx.indexer.models.fingerprint._WORTH_KEEPING", 0)
    monkeypatch.setenv("RAGIDX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "digests"


@pytest.mark.parametrize("held", [b"", b"f" * 63, b"F" * 64, b"\xff" * 64, b"f" * 65])
def test_a_digest_in_the_cache_that_is_none_is_worked_out_again(held: bytes, digests: Path) -> None:
    fresh = weights_fingerprint(locate("mini"))
    kept = sorted(digests.iterdir())
    for path in kept:
        path.write_bytes(held)

    assert weights_fingerprint(locate("mini")) == fresh
    assert all(len(path.read_text("ascii")) == 64 for path in kept)
    assert sorted(kept[0].parent.iterdir()) == kept


def test_a_digest_in_the_cache_is_believed(digests: Path) -> None:
    fresh = weights_fingerprint(locate("mini"))
    for path in digests.iterdir():
        path.write_text("0" * 64)

    assert weights_fingerprint(locate("mini")) != fresh


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ({}, "home/.cache/ragidx"),
        ({"XDG_CACHE_HOME": "{}/xdg"}, "xdg/ragidx"),
        ({"XDG_CACHE_HOME": "{}/xdg", "RAGIDX_CACHE": "{}/own/cache"}, "own/cache"),
        ({"XDG_CACHE_HOME": "", "RAGIDX_CACHE": ""}, "home/.cache/ragidx"),  # as if they were not set
        ({"HOME": ""}, None),
        ({"XDG_CACHE_HOME": "xdg"}, None),
        ({"XDG_CACHE_HOME": "{}/xdg", "RAGIDX_CACHE": "none"}, None),
        ({"RAGIDX_CACHE": "{}/file"}, None),
        ({"RAGIDX_CACHE": "{}/file/below"}, None),
        ({"RAGIDX_CACHE": "{}/dangling"}, None),
        ({"RAGIDX_CACHE": "/proc/sys/ragidx"}, None),  # which root cannot write to either
    ],
)
def test_the_cache_is_where_the_environment_puts_it_or_nowhere(
    named: dict[str, str], place: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name, value in ({"HOME": "{}/home", "XDG_CACHE_HOME": "", "RAGIDX_CACHE": ""} | named).items():
        monkeypatch.setenv(name, value.format(tmp_path)) if value else monkeypatch.delenv(name, raising=False)
    if not named.get("HOME", "set"):  # and no entry in the table of users
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)

    assert user_cache("digests") == (place and tmp_path / place / "digests")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]  # nothing is made by asking


def test_a_home_that_is_not_known_leaves_a_path_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert expanded("~/model") == tmp_path / "model"
    assert expanded("~no-such-user-here/model") == Path("~no-such-user-here/model")


def test_what_fails_while_it_is_written_is_not_kept(tmp_path: Path) -> None:
    def half(path: Path) -> None:
        path.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    model_files.keep(tmp_path / "cache" / "one", half)

    assert list((tmp_path / "cache").iterdir()) == []
