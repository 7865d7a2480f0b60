"""The doctor of a machine: processor, threads, devices, caches, limits, and installed packages."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
import torch

import ragidx
from ragidx.pipelines import resources
from ragidx.pipelines.doctor.machine import devices, findings, processor, threads
from ragidx.pipelines.doctor.packages import core, extras, needs, package
from ragidx.pipelines.doctor.report import Finding
from ragidx.pipelines.resources import allowed_bytes, allowed_cores, free_bytes

pytestmark = pytest.mark.slow


# the machine


def test_the_main_packages_are_listed_with_their_versions() -> None:
    found = {finding.name: finding.value for finding in findings()}

    assert found["ragidx"] == ragidx.__version__
    for name in ("torch", "transformers", "sentence-transformers"):  # the core does without them
        assert f"{name} {importlib.metadata.version(name)}" in found["extra 'models'"]
    assert found["torch"].startswith(f"{torch.__version__}, ")
    assert found["torch"].endswith(f", {torch.backends.cpu.get_cpu_capability()}")
    assert re.match(r"[\d.]+ \(faiss-[cg]pu, (no GPU code|GPU code, \d+ seen), ", found["faiss"])
    assert re.match(r"\d+ cores?, \d+ usable", found["processor"])
    assert found["python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert {"memory", "threads", "extra 'docs'", "cache of ragidx"} <= found.keys()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ((1, 1, None), "1 core, 1 usable"),
        ((8, 2, None), "8 cores, 2 usable"),
        ((64, 64, 1.5), "64 cores, 64 usable, limited to the time of 1.5"),
        ((8, 2, 4.0), "8 cores, 2 usable"),
    ],
)
def test_a_processor_is_told_as_far_as_it_may_be_used(given: tuple[int, int, float | None], value: str) -> None:
    assert processor(*given) == Finding("processor", value)


@pytest.mark.parametrize(
    ("given", "room"),
    [((2, 2, None), ""), ((1, 8, 0.5), ""), ((3, 8, 3.9), ""), ((64, 64, 2.5), "2 cores"), ((2, 1, None), "1 core")],
)
def test_more_threads_than_cores_are_a_warning(given: tuple[int, int, float | None], room: str) -> None:
    value = f"torch computes with {given[0]}"

    assert threads(*given) == (
        Finding(
            "threads",
            f"{value} on the time of {room}: they wait for each other",
            "warning",
            f"set OMP_NUM_THREADS={room[0]}",
        )
        if room
        else Finding("threads", value)
    )


def test_devices_are_named_and_what_is_in_their_way_is_told() -> None:
    cards = ["NVIDIA H100, 80.0 GiB", "Tesla T4, 15.0 GiB"]
    here = {"mps": False, "has_cuda": False, "has_driver": False}

    assert devices(cards, **here) == [Finding("cuda:0", cards[0]), Finding("cuda:1", cards[1])]
    assert devices([], **here | {"mps": True}) == [Finding("mps", "an Apple GPU")]
    assert devices([], **here) == [Finding("gpu", "none: models run on the processor")]
    assert devices([], **here | {"has_driver": True}) == [
        Finding(
            "gpu",
            "there is an NVIDIA driver, but this torch is without CUDA",
            "warning",
            "install a torch that is built with CUDA",
        )
    ]
    assert devices([], **here | {"has_driver": True, "has_cuda": True}, reason="the driver is too old") == [
        Finding(
            "gpu",
            "there is an NVIDIA driver, but torch sees no GPU: the driver is too old",
            "warning",
            "see whether nvidia-smi lists one, and whether CUDA_VISIBLE_DEVICES hides it",
        )
    ]


@pytest.mark.parametrize(
    ("home", "status"), [("", "ok"), ("none/yet", "ok"), ("file", "warning"), ("file/x", "warning")]
)
def test_a_home_that_is_a_file_holds_no_cache(
    home: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / home))

    found = next(finding for finding in findings() if finding.name == "cache of ragidx")

    assert found.status == status
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


def test_the_packages_own_metadata_is_what_installed_versions_are_held_against() -> None:
    asked = needs()

    assert all(one.specifier for ones in asked.values() for one in ones if one.name != "ragidx")
    assert core(asked) == []
    assert {"extra 'models'", "extra 'docs'", "extra 'eval'"} <= {finding.name for finding in extras(asked)}


def test_a_package_that_is_missing_or_too_old_is_a_warning_that_says_what_to_install() -> None:
    have = importlib.metadata.version("numpy")
    needed = needs(["numpy>=99.1", "no-such-package>=2.0", "click>=1.0"])

    found = core(needed)

    assert package("numpy", needed) in found
    assert package("numpy", needed) == Finding(
        "numpy", f"{have}, and ragidx needs >=99.1", "warning", "pip install --upgrade 'numpy>=99.1'"
    )
    assert found[-1] == Finding("no-such-package", "not installed", "warning", "pip install 'no-such-package>=2.0'")
    assert len(found) == 2  # what is well has no line


def test_an_extra_is_told_with_its_packages_or_how_to_get_it() -> None:
    lines = [
        'faiss-cpu>=1.15; extra == "cpu"',
        'pyarrow>=1; extra == "have"',
        'no-such-package>=1; extra == "want"',
        'ragidx[have]; extra == "more"',
        'numpy>=1; extra == "more"',
        'ragidx[have,want]; extra == "all"',
        'pytest>=1; extra == "test"',
    ]
    arrow, numpy = importlib.metadata.version("pyarrow"), importlib.metadata.version("numpy")

    assert list(extras(needs(lines, ["cpu", "have", "want", "more", "all", "test"]))) == [
        Finding("extra 'have'", f"pyarrow {arrow}"),
        Finding(
            "extra 'want'",
            "not installed: no-such-package",
            "absent",
            "pip install '.[want]' in a checkout, or pip install 'ragidx[want]'",
        ),
        Finding("extra 'more'", f"numpy {numpy}"),
    ]


def test_a_package_of_an_extra_that_is_too_old_is_a_warning_beside_it() -> None:
    arrow = importlib.metadata.version("pyarrow")

    assert list(extras(needs(['pyarrow>=99.1; extra == "have"'], ["have"]))) == [
        Finding("extra 'have'", f"pyarrow {arrow}"),
        Finding("pyarrow", f"{arrow}, and ragidx needs >=99.1", "warning", "pip install --upgrade 'pyarrow>=99.1'"),
    ]


def test_a_machine_without_torch_has_a_line_that_says_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # what an import finds where there is none

    assert [finding for finding in findings() if finding.name in ("torch", "threads", "gpu")] == [
        Finding(
            "torch",
            "not installed: needed by every model but the bundled one with its preset",
            "absent",
            "pip install '.[models]' in a checkout, or pip install 'ragidx[models]'",
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
        "pip install '.[cpu]' in a checkout, or pip install 'ragidx[cpu]'; "
        "gpu in place of cpu on a machine with an NVIDIA GPU",
    )
