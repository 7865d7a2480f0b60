"""Which packages the wheel holds: every folder of the rooms that has an `__init__.py`.

The repository root is the package `ragidx`, and the tables of pyproject.toml cannot put a prefix before what they find.
The rest of the project's description is in pyproject.toml.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOMS = ("corpora", "indexer", "retriever", "pipelines")


class BuildWithoutThisFile(build_py):
    """Copies the modules of the root, but this one."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """(package, module, file) of each."""
        return [one for one in super().find_package_modules(package, package_dir) if one[1] != "setup"]


found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
setup(packages=["ragidx", *(f"ragidx.{name}" for name in found)], cmdclass={"build_py": BuildWithoutThisFile})
