"""Which packages are installed, held against what ragidx's own metadata asks for. Nothing is imported."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ragidx.corpora.errors import install
from ragidx.pipelines.doctor.report import Finding

_EXTRAS_ELSEWHERE = {"cpu", "gpu", "test", "site"}  # FAISS has a line of its own; two are for those who change ragidx


def requirements(lines: Sequence[str] | None = None) -> list[Requirement]:
    """What ragidx asks for; None: by its own metadata, which is empty where it was not installed."""
    if lines is None:
        try:
            lines = importlib.metadata.requires("ragidx") or []
        except importlib.metadata.PackageNotFoundError:
            lines = []
    return [Requirement(line) for line in lines]


def version_of(package: str) -> str | None:
    """The version that is installed; None where none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def package(name: str, needed: Sequence[Requirement]) -> Finding:
    """One package, held against the versions that are asked for."""
    wanted = next((one.specifier for one in needed if one.name == name), SpecifierSet())
    version = version_of(name)
    if version is None:
        return Finding(name, "not installed", "warning", f"pip install '{name}{wanted}'")
    if not wanted.contains(version, prereleases=True):
        hint = f"pip install --upgrade '{name}{wanted}'"
        return Finding(name, f"{version}, and ragidx needs {wanted}", "warning", hint)
    return Finding(name, version)


def core(needed: Sequence[Requirement]) -> list[Finding]:
    """A line for each package that everybody needs and that is missing or too old."""
    found = [package(one.name, needed) for one in _asked_by("", needed)]
    return [finding for finding in found if finding.status != "ok"]


def extras(needed: Sequence[Requirement], names: Sequence[str] | None = None) -> list[Finding]:
    """A line for each extra that has packages of its own: what is there, or how to get it; one for what is too old.

    Args:
        needed: what ragidx asks for.
        names: of the extras; None: by its own metadata.
    """
    if names is None:
        names = importlib.metadata.metadata("ragidx").get_all("Provides-Extra", []) if needed else []
    findings = []
    for extra in (name for name in names if name not in _EXTRAS_ELSEWHERE):
        requirements = _asked_by(extra, needed)
        packages = [each.name for each in requirements if each.name != "ragidx"]
        if not packages:  # it only gathers others
            continue
        others = {name for each in requirements if each.name == "ragidx" for name in each.extras}
        versions = {name: version_of(name) for name in packages}
        versions |= {each.name: version_of(each.name) for name in others for each in _asked_by(name, needed)}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            details = f"not installed: {', '.join(missing)}"
            findings.append(Finding(f"extra '{extra}'", details, "absent", install(extra)))
        else:
            details = ", ".join(f"{name} {version}" for name, version in versions.items())
            findings.append(Finding(f"extra '{extra}'", details))
        checked = (package(name, needed) for name in packages if versions[name])
        findings += [finding for finding in checked if finding.status != "ok"]
    return findings


def _asked_by(extra: str, needed: Sequence[Requirement]) -> list[Requirement]:
    """What an extra asks for beside what everybody needs; empty: that."""
    everybody = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    if not extra:
        return everybody
    return [one for one in needed if one not in everybody and one.marker and one.marker.evaluate({"extra": extra})]
