"""An index of six facts in a table and a note, made once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import ragidx

FACTS = [
    ("lease", "The lease of the house by the lake was signed by Ada Lovelace.", 1840, "law"),
    ("mill", "The old mill stands where the river reaches the sea.", 1790, "history"),
    ("tower", "The tower in Tokyo is painted orange and white.", 1958, "architecture"),
    ("bees", "Bees dance to tell where the flowers are.", 1946, "biology"),
    ("neptune", "Neptune was found with a pencil before a telescope.", 1846, "astronomy"),
    ("printing", "Movable metal type was cast in Korea before Gutenberg.", 1377, "history"),
]


@pytest.fixture(scope="session")
def facts_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    lines = ["id,text,year,subject", *(f'{name},"{text}",{year},{subject}' for name, text, year, subject in FACTS)]
    (folder / "facts.csv").write_text("\n".join(lines) + "\n")
    (folder / "note.md").write_text("# Of bees\n\nThey were seen at noon.\n")
    ragidx.build([folder / "facts.csv", folder / "note.md"], folder / "index")
    return folder / "index"
