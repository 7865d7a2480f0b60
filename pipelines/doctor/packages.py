"""Which packages are installed, compared with what ragidx's own metadata asks for. Nothing is imported."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ragidx.corpora.errors import install
from ragidx.pipelines.doctor.report import Finding

Needs = Mapping[str, Sequence[Requirement]]
"""What ragidx asks for: under the name of an extra what it adds, under the empty name what everybody needs."""

_EXTRAS_ELSEWHERE = {"cpu", "gpu", "test", "site"}  # FAISS has a line of its own; two are for those who change ragidx


def needs(lines: Sequence[str] = (), extras: Sequence[str] = ()) -> Needs:
    """What lines of requirements ask for; without lines what the metadata of ragidx does, if it is installed."""
    if not lines and (found := list(importlib.metadata.distributions(name="ragidx"))):
        lines, extras = found[0].requires or [], found[0].metadata.get_all("Provides-Extra", [])
    asked = [Requirement(line) for line in lines]
    everybody = [one for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    rest = [one for one in asked if one not in everybody]
    return {"": everybody} | {
        extra: [one for one in rest if one.marker and one.marker.evaluate({"extra": extra})] for extra in extras
    }


def version_of(package: str) -> str | None:
    """The version that is installed; None where none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def package(name: str, asked: Needs) -> Finding:
    """One package, compared with the versions that are asked for."""
    wanted = next((one.specifier for ones in asked.values() for one in ones if one.name == name), SpecifierSet())
    version = version_of(name)
    if version is None:
        return Finding(name, "not installed", "warning", f"pip install '{name}{wanted}'")
    if not wanted.contains(version, prereleases=True):
        hint = f"pip install --upgrade '{name}{wanted}'"
        return Finding(name, f"{version}, and ragidx needs {wanted}", "warning", hint)
    return Finding(name, version)


def core(asked: Needs) -> list[Finding]:
    """A line for each package that everybody needs and that is missing or too old."""
    return _faulty((one.name for one in asked[""]), asked)


def extras(asked: Needs) -> Iterator[Finding]:
    """A line for each extra that has packages of its own: what is there, or how to get it; one for what is too old."""
    for extra, requirements in asked.items():
        versions = {one.name: version_of(one.name) for one in requirements if one.name != "ragidx"}
        if extra in {"", *_EXTRAS_ELSEWHERE} or not versions:  # some only gather others
            continue
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            yield Finding(f"extra '{extra}'", f"not installed: {', '.join(missing)}", "absent", install(extra))
        else:
            yield Finding(f"extra '{extra}'", ", ".join(f"{name} {version}" for name, version in versions.items()))
        yield from _faulty((name for name, version in versions.items() if version), asked)


def _faulty(names: Iterable[str], asked: Needs) -> list[Finding]:
    return [finding for name in names if (finding := package(name, asked)).status != "ok"]
