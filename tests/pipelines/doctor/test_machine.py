"""The doctor of a machine: devices, the cache, and installed packages."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
import torch

import ragidx
from ragidx.pipelines.base import resources
from ragidx.pipelines.base.resources import allowed_bytes, allowed_cores, free_bytes
from ragidx.pipelines.doctor.machine import devices, findings
from ragidx.pipelines.doctor.packages import installed, packages
from ragidx.pipelines.doctor.report import Finding

pytestmark = pytest.mark.slow


# the machine


def test_a_machine_that_lacks_nothing_is_told_in_few_lines() -> None:
    found = {finding.name: finding.value for finding in findings()}

    assert found["ragidx"] == f"{ragidx.__version__}, Python {'.'.join(map(str, sys.version_info[:3]))}"
    assert re.fullmatch(
        r"\w+ \w+, \d+ cores, \d+ usable(, limited to the time of [\d.]+)?, memory [\d.]+ GiB(, limited to .+)?",
        found["machine"],
    )
    assert found["torch"].startswith(f"{torch.__version__}, ")
    assert found["torch"].endswith(f", {torch.backends.cpu.get_cpu_capability()}")
    assert re.match(r"[\d.]+$", found["faiss"])
    assert found.keys() <= {
        "ragidx",
        "machine",
        "torch",
        "gpu",
        "cuda:0",
        "faiss",
        "extras",
        "workers",
        "cache of ragidx",
    }


@pytest.mark.parametrize(
    ("can", "said"),
    [
        (True, Finding("workers", "the kernel refuses them the network, by a filter of system calls")),
        (
            False,
            Finding(
                "workers",
                "Python alone refuses them the network: what a library does by itself, it does not see",
                "warning",
                "read the files of others on Linux, where seccomp is allowed",
            ),
        ),
    ],
)
def test_what_keeps_workers_off_the_network_is_told(can: bool, said: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.doctor.machine.can_close_network", lambda: can)

    assert [found for found in findings() if found.name == "workers"] == [said]


def test_devices_are_named_and_what_is_in_their_way_is_told() -> None:
    cards = ["NVIDIA H100, 80.0 GiB", "Tesla T4, 15.0 GiB"]
    here = {"mps": False, "has_driver": False, "reason": "it is without CUDA"}

    assert devices(cards, **here) == [Finding("cuda:0", cards[0]), Finding("cuda:1", cards[1])]
    assert devices([], **here | {"mps": True}) == [Finding("mps", "an Apple GPU")]
    assert devices([], **here) == [Finding("gpu", "none: models run on the processor")]
    assert devices([], **here | {"has_driver": True}) == [
        Finding(
            "gpu",
            "there is an NVIDIA driver, but torch sees no GPU: it is without CUDA",
            "warning",
            "see whether nvidia-smi lists one, whether CUDA_VISIBLE_DEVICES hides it, and how torch was built",
        )
    ]


def _none(why: str) -> tuple[str, str]:
    made_again = "checksums, spectra, number formats and raw vectors are made again each time"
    return "warning", f"none, as {why}: {made_again}"


@pytest.mark.parametrize(
    ("home", "told"),
    [
        ("{}", ("ok", "{}/.cache/ragidx")),
        ("{}/none/yet", ("ok", "{}/none/yet/.cache/ragidx")),
        ("{}/file", _none("{}/file/.cache/ragidx cannot be written")),
        ("{}/file/x", _none("{}/file/x/.cache/ragidx cannot be written")),
        ("here", _none("there is no home, or a relative path is named")),
    ],
)
def test_the_place_of_the_cache_is_told_or_why_there_is_none(
    home: str, told: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("RAGIDX_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", home.format(tmp_path))

    found = next(finding for finding in findings() if finding.name == "cache of ragidx")

    assert (found.status, found.value) == (told[0], told[1].format(tmp_path))
    assert found.hint == ("" if found.status == "ok" else "name a folder that can be written in RAGIDX_CACHE")
    assert not (tmp_path / "none").exists()


# limits of control groups


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the groups; this process is in `a/b`."""
    membership = tmp_path / "membership"
    membership.write_text("1:name=systemd:/\n0::/a/b\n")
    monkeypatch.setattr(resources, "_MEMBERSHIP", membership)
    monkeypatch.setattr(resources, "_GROUPS", tmp_path)
    return tmp_path


def _group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_tightest_limit_of_the_group_and_of_those_around_it_holds(groups: Path) -> None:
    _group(groups, cpu__max="max 100000", memory__max="max")
    _group(groups / "a", cpu__max="150000 100000", memory__max="2048", memory__current="700")
    _group(groups / "a" / "b", cpu__max="400000 100000", memory__max="1900", memory__current="500")
    assert (allowed_cores(), allowed_bytes(), free_bytes()) == (1.5, 1900, 1348)

    _group(groups / "a", memory__stat="anon 7\ninactive_file 99\nactive_file 50")
    assert free_bytes() == 1400


def test_a_group_whose_path_is_that_outside_the_container_has_the_limits_of_the_root(groups: Path) -> None:
    _group(groups, cpu__max="200000 100000")

    assert allowed_cores() == 2.0


@pytest.mark.parametrize("quota", ["", "max 100000", "100000", "-1 100000", "1 0", "x y"])
def test_what_is_no_limit_is_none(quota: str, groups: Path) -> None:
    _group(groups, cpu__max=quota)

    assert allowed_cores() is None


def test_without_control_groups_there_is_no_limit(groups: Path) -> None:
    (groups / "membership").unlink()

    assert (allowed_cores(), allowed_bytes(), free_bytes()) == (None, None, None)


# what is installed


def test_the_packages_own_metadata_is_what_installed_versions_are_held_against(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragidx.pipelines.doctor.packages._version_of", lambda package: None)

    *required, extras = installed()

    assert "numpy" in [finding.name for finding in required]
    assert extras.value.startswith("not installed: models, docs, ocr, serve, ")


def test_packages_that_are_missing_or_too_old_are_warnings_and_missing_extras_have_a_line() -> None:
    lines = [
        "numpy>=99.1",
        "no-such-package>=2.0",
        "click>=1.0",
        'faiss-cpu>=1.15; extra == "cpu"',
        'pyarrow>=99.1; extra == "have"',
        'no-such-plugin>=1; extra == "want"',
        'ragidx[have]; extra == "more"',
        'hypothesis>=1; extra == "more"',
        'ragidx[have,want]; extra == "all"',
        'pytest>=1; extra == "test"',
    ]
    have = {name: importlib.metadata.version(name) for name in ("numpy", "pyarrow")}

    assert list(packages(lines, ["cpu", "have", "want", "more", "all", "test"])) == [
        Finding("numpy", f"{have['numpy']}, and ragidx needs >=99.1", "warning", "pip install --upgrade 'numpy>=99.1'"),
        Finding("no-such-package", "not installed", "warning", "pip install 'no-such-package>=2.0'"),
        Finding(
            "pyarrow", f"{have['pyarrow']}, and ragidx needs >=99.1", "warning", "pip install --upgrade 'pyarrow>=99.1'"
        ),
        Finding("extras", "not installed: want", "absent", "pip install '.[NAME]' in a checkout of ragidx"),
    ]


def test_a_machine_without_torch_has_a_line_that_says_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # what an import finds where there is none

    assert [finding for finding in findings() if finding.name in ("torch", "gpu")] == [
        Finding(
            "torch",
            "not installed: needed by every model but the bundled one with its preset",
            "absent",
            "pip install '.[models]' in a checkout of ragidx",
        )
    ]


def _faiss() -> Finding:
    return next(finding for finding in findings() if finding.name == "faiss")


def test_two_packages_of_faiss_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("faiss-cpu", "faiss-gpu-cu12"):
        folder = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert _faiss() == Finding(
        "faiss",
        "faiss-cpu and faiss-gpu-cu12 are both installed, and overwrite each other's files",
        "warning",
        "pip uninstall -y faiss-cpu faiss-gpu-cu12, then install one of them again",
    )


def test_no_faiss_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)  # what an import finds where there is none

    assert _faiss() == Finding(
        "faiss",
        "faiss is not installed",
        "warning",
        "pip install '.[cpu]' in a checkout of ragidx",
    )
