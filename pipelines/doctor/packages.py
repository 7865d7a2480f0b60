"""Which packages are installed, compared with what ragidx's own metadata asks for. Nothing is imported."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement

from ragidx.corpora.errors import install
from ragidx.pipelines.doctor.report import Finding

_EXTRAS_ELSEWHERE = {"cpu", "test", "site"}  # FAISS has a line of its own; two are for those who change ragidx


def installed() -> Iterator[Finding]:
    """The extras and packages that the metadata of ragidx names, if it is installed."""
    for ragidx in importlib.metadata.distributions(name="ragidx"):
        yield from packages(ragidx.requires or [], ragidx.metadata.get_all("Provides-Extra", []))
        return


def packages(requirements: Sequence[str], extras: Sequence[str]) -> Iterator[Finding]:
    """A line for each extra that has packages of its own, and for each package that is too old or missing.

    Args:
        requirements: lines such as `torch>=2.6; extra == "models"`.
        extras: their names.
    """
    asked = [one for one in map(Requirement, requirements) if one.name != "ragidx"]
    versions = {one.name: _version_of(one.name) for one in asked}
    for name, one in {one.name: one for one in asked}.items():
        version, wanted = versions[name], f"'{name}{one.specifier}'"
        if version is None and one.marker is None:
            yield Finding(name, "not installed", "warning", f"pip install {wanted}")
        elif version is not None and not one.specifier.contains(version, prereleases=True):
            value = f"{version}, and ragidx needs {one.specifier}"
            yield Finding(name, value, "warning", f"pip install --upgrade {wanted}")
    for extra in extras:
        own = [one.name for one in asked if one.marker and one.marker.evaluate({"extra": extra})]
        if extra in _EXTRAS_ELSEWHERE or not own:  # some only gather others
            continue
        if missing := [name for name in own if versions[name] is None]:
            yield Finding(f"extra '{extra}'", f"not installed: {', '.join(missing)}", "absent", install(extra))
        else:
            yield Finding(f"extra '{extra}'", ", ".join(f"{name} {versions[name]}" for name in own))


def _version_of(package: str) -> str | None:
    """The version that is installed; None where none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
