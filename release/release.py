"""A release from the committed state: sdist and wheel, built twice and compared, and the list of what they depend on.

    make release    ->    dist/ragidx-VERSION.tar.gz, .whl, .cdx.json, SHA256SUMS

Nothing is uploaded. Whoever has the same commit, Python and pins gets the same bytes: times are those of the commit,
and the sdist, in which setuptools leaves names and times of the machine, is packed anew. docs/release.md says the rest.
"""

from __future__ import annotations

import argparse
import email.parser
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("mini", "mini-decoder")


def main() -> None:
    """Make `dist/` anew from the last commit."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder that is made anew")
    dist = parser.parse_args().dist
    if changed := _git("status", "--porcelain"):
        sys.exit(f"Error: there are changes that are not committed:\n{changed}\n  hint: commit or stash them")
    epoch = int(_git("log", "-1", "--pretty=%ct"))
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("first", "second"):
            source = Path(scratch, name)
            source.mkdir()
            packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)
            built = build(source, Path(scratch, f"{name}-dist"), epoch)
        check_equal(Path(scratch, "first-dist"), Path(scratch, "second-dist"))
        shutil.copytree(Path(scratch, "first-dist"), dist)
    version = metadata_of(next(dist.glob("*.whl")))["Version"]
    bill = bill_of_materials(ROOT, version, epoch)
    (dist / f"ragidx-{version}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")
    files = [*built, f"ragidx-{version}.cdx.json"]
    sums = "".join(f"{_sha256(dist / name)}  {name}\n" for name in files)
    (dist / "SHA256SUMS").write_text(sums)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *(dist / name for name in built)], check=True)
    print(sums + "".join(f"{(dist / name).stat().st_size:>12,} bytes  {name}\n" for name in files), end="")


def build(source: Path, dist: Path, epoch: int) -> list[str]:
    """The sdist of a folder, and the wheel that is built from the sdist alone; their names.

    Args:
        source: a tree of the project; the build leaves files in it.
        dist: where they go.
        epoch: the time of all files in them, in seconds since 1970.
    """
    dist.mkdir(parents=True)
    _build("sdist", source, dist, epoch)
    sdist = next(dist.glob("*.tar.gz"))
    _pack_anew(sdist, epoch)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        _build("wheel", next(Path(scratch).iterdir()), dist, epoch)
    return sorted(path.name for path in dist.iterdir())


def _build(kind: str, tree: Path, dist: Path, epoch: int) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(dist), str(tree)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, umask=0o022, check=False)
    if done.returncode:  # else what setuptools says of folders of data is of no use
        sys.exit(f"{done.stdout}{done.stderr}")


def _pack_anew(sdist: Path, epoch: int) -> None:
    """Order, times, owners and rights of the members are the same for the same content."""
    with tarfile.open(sdist) as archive:
        members = sorted((member for member in archive if member.isfile()), key=lambda member: member.name)
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as anew:
                for member in members:
                    clean = tarfile.TarInfo(member.name)
                    clean.size, clean.mtime, clean.mode = member.size, epoch, 0o644
                    anew.addfile(clean, archive.extractfile(member))
            packed.seek(0)
            whole = sdist.with_suffix(".new")
            with whole.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as stream:
                shutil.copyfileobj(packed, stream)
    whole.replace(sdist)


def check_equal(first: Path, second: Path) -> None:
    """Whether two folders have the same files, byte for byte.

    Raises:
        SystemExit: they have not.
    """
    sums = [{path.name: _sha256(path) for path in sorted(folder.iterdir())} for folder in (first, second)]
    if sums[0] != sums[1]:
        sys.exit(f"Error: two builds of the same commit differ: {sums[0]} and {sums[1]}")


def metadata_of(wheel: Path) -> Any:
    """The fields of a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(archive.read(name).decode())


def bill_of_materials(root: Path, version: str, epoch: int) -> dict[str, Any]:
    """CycloneDX 1.6 of the pins in constraints.txt, and of the bundled models.

    Scope `required` is what every installation has; the others come with an extra, or with the tests.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    required = {_normal(re.split(r"[\[<>=~; ]", one)[0]) for one in project["dependencies"]}
    pins = [line.split("==") for line in (root / "constraints.txt").read_text("utf-8").splitlines() if "==" in line]
    own = f"pkg:pypi/ragidx@{version}"
    libraries = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{_normal(name)}@{pin.strip()}",
            "name": name,
            "version": pin.strip(),
            "scope": "required" if _normal(name) in required else "optional",
            "purl": f"pkg:pypi/{_normal(name)}@{pin.strip()}",
        }
        for name, pin in pins
    ]
    models = [
        {
            "type": "machine-learning-model",
            "bom-ref": f"{own}#indexer/models/{name}",
            "name": name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": _sha256(root / "indexer/models" / name / "model.safetensors")}],
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }
        for name in MODELS
    ]
    components = models + libraries
    needed = [one["bom-ref"] for one in components if one.get("scope") != "optional"]
    content = json.dumps(components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "ragidx",
                "version": version,
                "licenses": [{"license": {"id": project["license"]}}],
                "purl": own,
            },
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": sorted(needed)}],
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
