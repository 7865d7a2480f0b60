"""The walk where something cannot be followed or looked at: it is left out, with its reason."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import plant, walk


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder, and this process without root's rights, to whom nothing is forbidden."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in folder.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(folder)


@contextlib.contextmanager
def owner() -> Iterator[None]:
    """The rights of who owns the folder of `nobody`."""
    os.seteuid(0) if os.getuid() == 0 else None
    yield
    os.seteuid(65534) if os.getuid() == 0 else None


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    plant(outside, "secret.txt")
    plant(root, "a.txt", "folder/b.txt")
    (root / "l1").symlink_to("a.txt")
    (root / "l2").symlink_to("folder")
    (root / "l3").symlink_to(outside / "secret.txt")
    (root / "l4").symlink_to(outside)
    (root / "l5").symlink_to("nowhere")
    (root / "l6").symlink_to("l6")
    (root / "l7").symlink_to(root)

    names, skips = walk(root)

    assert names == ["a.txt", "folder/b.txt"]
    assert skips == {
        "l1": "link to a file of the same corpus",
        "l2": "link to a folder of the same corpus",
        "l3": "link out of the corpus",
        "l4": "link out of the corpus",
        "l5": "broken link",
        "l6": "broken link",
        "l7": "link to a folder of the same corpus",
    }


def test_a_link_with_a_name_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    plant(tmp_path, "a.txt")
    (tmp_path / "long").symlink_to("x" * 300)

    assert walk(tmp_path) == (["a.txt"], {"long": "link that cannot be followed: File name too long"})


@pytest.mark.parametrize("target", ["../closed/b.txt", "/proc/1/exe"])  # of the second, the link itself is not read
def test_a_link_that_may_not_be_followed_is_skipped(target: str, nobody: Path) -> None:
    if not os.path.lexists("/proc/1/exe"):
        pytest.skip("no link here that may be seen and not read")
    with owner():
        plant(nobody, "root/a.txt", "closed/b.txt")
        (nobody / "root" / "out").symlink_to(target)
        (nobody / "closed").chmod(0)

    assert walk(nobody / "root") == (["a.txt"], {"out": "link that cannot be followed: Permission denied"})


def test_a_corpus_whose_files_may_not_be_looked_at_is_reported(nobody: Path) -> None:
    with owner():
        plant(nobody, "root/a.txt")
        (nobody / "root").chmod(0o444)

    assert walk(nobody / "root", beir=True) == ([], {"a.txt": "cannot be opened: Permission denied"})


def test_what_may_not_be_opened_is_reported(nobody: Path) -> None:
    with owner():
        plant(nobody, "a.txt", "closed/b.txt")
        (nobody / "closed").chmod(0)

    assert walk(nobody) == (["a.txt"], {"closed/": "cannot be opened: Permission denied"})
