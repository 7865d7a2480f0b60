"""Which packages the wheel holds: every folder of the rooms that has an `__init__.py`.

The repository root is the package `ragidx`, and the tables of pyproject.toml cannot put a prefix before what they find.
The rest of the project's description is in pyproject.toml.
"""

from setuptools import find_packages, setup

ROOMS = ("corpora", "indexer", "retriever", "pipelines")
NOT_SHIPPED = ("pipelines.train.mini_decoder",)  # how the bundled model was made

found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")], exclude=NOT_SHIPPED)
setup(packages=["ragidx", *(f"ragidx.{name}" for name in found)])
