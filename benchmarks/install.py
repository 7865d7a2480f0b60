"""Installation: seconds, MiB and packages of `pip install '.[EXTRAS]'` in a fresh environment, from a commit's files.

    python benchmarks/install.py --extras cpu cpu,models [--commit HEAD] [--into DIR]

With the versions of constraints.txt and without pip's cache, so the packages are fetched again each time: the seconds
are those of this machine and its package index. What the environment held before, pip, is not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import record


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", nargs="+", default=["cpu", "cpu,models"])
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--into", type=Path, help="keep the environments in this folder")
    args = parser.parse_args()
    name = subprocess.run(["git", "rev-parse", "--short", args.commit], check=True, capture_output=True, text=True)
    for extras in args.extras:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            tree.mkdir()
            archive = subprocess.run(["git", "archive", args.commit], check=True, capture_output=True)
            subprocess.run(["tar", "-x", "-C", tree], check=True, input=archive.stdout)
            home = Path(folder) / "venv" if args.into is None else args.into / extras.replace(",", "-")
            record("install", _installed(tree, home, extras), extras=extras, tree=name.stdout.strip())


def _installed(tree, home, extras):
    subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
    before, packages = _size(home), _packages(home)
    command = [home / "bin/python", "-m", "pip", "install", "--quiet", "--no-cache-dir", "-c", "constraints.txt"]
    started = time.perf_counter()
    subprocess.run([*command, f".[{extras}]"], check=True, cwd=tree)
    seconds = time.perf_counter() - started
    return {
        "seconds": round(seconds, 1),
        "MiB": round((_size(home) - before) / 2**20),
        "packages": _packages(home) - packages,
    }


def _size(home):
    """Bytes on the disk, the compiled modules too."""
    return sum(path.lstat().st_blocks * 512 for path in home.rglob("*"))


def _packages(home):
    return len(list(home.glob("lib/python*/site-packages/*.dist-info")))


if __name__ == "__main__":
    main()
