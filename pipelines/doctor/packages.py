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
    """A line for each package that is too old or missing, and one for the extras that are not installed.

    Args:
        requirements: lines such as `torch>=2.6; extra == "models"`.
        extras: names of the extras.
    """
    required = [line for line in map(Requirement, requirements) if line.name != "ragidx"]
    versions = {line.name: _version_of(line.name) for line in required}
    for name, line in {line.name: line for line in required}.items():
        version, wanted = versions[name], f"'{name}{line.specifier}'"
        if version is None and line.marker is None:
            yield Finding(name, "not installed", "warning", f"pip install {wanted}")
        elif version is not None and not line.specifier.contains(version, prereleases=True):
            value = f"{version}, and ragidx needs {line.specifier}"
            yield Finding(name, value, "warning", f"pip install --upgrade {wanted}")
    missing = {
        extra: None
        for extra in extras
        for line in required
        if versions[line.name] is None and line.marker and line.marker.evaluate({"extra": extra})
    }
    if absent := [extra for extra in missing if extra not in _EXTRAS_ELSEWHERE]:
        yield Finding("extras", f"not installed: {', '.join(absent)}", "absent", install("NAME"))


def _version_of(package: str) -> str | None:
    """The version that is installed; None where none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
