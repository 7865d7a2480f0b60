"""Which packages are installed, held against what ragidx's own metadata asks for. Nothing is imported.

A lower bound is compared by its leading numbers: a release candidate counts as the release.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ragidx.corpora.errors import install
from ragidx.pipelines.doctor.report import Finding

SHOWN = ("tokenizers", "safetensors", "numpy", "pyarrow")
# FAISS (the extras cpu and gpu) has a line of its own; `test` is for those who change ragidx.
_EXTRAS_ELSEWHERE = {"cpu", "gpu", "test"}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<inner>[^\]]*)\])?(?P<bounds>[^;]*)(?:;(?P<marker>.*))?")


@dataclass(frozen=True)
class Requirement:
    """A line of ragidx's metadata.

    Attributes:
        package: what is asked for.
        floor: the lowest version that is enough; empty where any is.
        extra: the extra that asks for it; empty where everybody needs it.
        inner: the extras of the package that are asked for.
    """

    package: str
    floor: str
    extra: str
    inner: tuple[str, ...]


def requirements(lines: Sequence[str] | None = None) -> list[Requirement]:
    """What ragidx asks for; None: by its own metadata, which is empty where it was not installed.

    >>> requirements(['markitdown[pdf]>=0.1.3; extra == "docs"'])
    [Requirement(package='markitdown', floor='0.1.3', extra='docs', inner=('pdf',))]
    """
    if lines is None:
        try:
            lines = importlib.metadata.requires("ragidx") or []
        except importlib.metadata.PackageNotFoundError:
            lines = []
    found = []
    for parts in filter(None, (_REQUIREMENT.match(line.replace(" ", "")) for line in lines)):
        floor = re.search(r"[>=]=([\d.]+)", parts["bounds"])
        extra = re.search(r"extra==[\"']([\w-]+)", parts["marker"] or "")
        inner = tuple(filter(None, (parts["inner"] or "").split(",")))
        found.append(Requirement(parts["name"], floor[1] if floor else "", extra[1] if extra else "", inner))
    return found


def version_of(package: str) -> str | None:
    """The version that is installed; None where none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def package(name: str, needed: Sequence[Requirement]) -> Finding:
    """One package, held against its lower bound."""
    floor = next((one.floor for one in needed if one.package == name), "")
    wanted = f"'{name}>={floor}'" if floor else name
    version = version_of(name)
    if version is None:
        return Finding(name, "not installed", "warning", f"pip install {wanted}")
    if older(version, floor):
        return Finding(
            name, f"{version}, and ragidx needs {floor} or newer", "warning", f"pip install --upgrade {wanted}"
        )
    return Finding(name, version)


def core(needed: Sequence[Requirement]) -> list[Finding]:
    """The packages that everybody needs: the main ones always, the others where they are missing or too old."""
    names = dict.fromkeys([*SHOWN, *(one.package for one in needed if not one.extra)])
    found = [package(name, needed) for name in names]
    return [finding for finding in found if finding.name in SHOWN or finding.status != "ok"]


def extras(needed: Sequence[Requirement]) -> list[Finding]:
    """A line for each extra that has packages of its own: what is there, or how to get it; one for what is too old."""
    found = []
    for extra in dict.fromkeys(one.extra for one in needed if one.extra and one.extra not in _EXTRAS_ELSEWHERE):
        own = [one.package for one in needed if one.extra == extra and one.package != "ragidx"]
        if not own:  # it only gathers others
            continue
        versions = {name: version_of(name) for name in [*own, *_inherited(extra, needed)]}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            details = f"not installed: {', '.join(missing)}"
            found.append(Finding(f"extra '{extra}'", details, "absent", install(extra)))
        else:
            details = ", ".join(f"{name} {version}" for name, version in versions.items())
            found.append(Finding(f"extra '{extra}'", details))
        found += [one for one in (package(name, needed) for name in own if versions[name]) if one.status != "ok"]
    return found


def _inherited(extra: str, needed: Sequence[Requirement]) -> list[str]:
    """The packages that an extra has from others: `ragidx[eval]` among its requirements."""
    others = {name for one in needed if one.extra == extra and one.package == "ragidx" for name in one.inner}
    return [one.package for one in needed if one.extra in others and one.package != "ragidx"]


def older(version: str, floor: str) -> bool:
    """Whether a version is below another.

    >>> older("2.13.0+cpu", "2.6"), older("5.1.9", "5.2"), older("1.0", "1.0.0"), older("7", "")
    (False, True, False, False)
    """
    return _numbers(version) < _numbers(floor)


def _numbers(version: str) -> list[int]:
    leading = re.match(r"[\d.]*", version)
    numbers = [int(part) for part in leading[0].split(".") if part] if leading else []
    while numbers and numbers[-1] == 0:  # 1.0 is 1.0.0
        numbers.pop()
    return numbers
