"""The documents of the training corpora, `text/shard-0N.jsonl.zst`.

The last HELD_OUT of the last shard are for held-out loss and never trained on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ragidx.corpora.evalset_files import lines_of

SHARDS = 4
HELD_OUT = 200


def training_documents(corpora: Path) -> Iterator[str]:
    """Texts of all documents but the held-out ones, shard by shard."""
    *full, last = (corpora / "text" / f"shard-{number:02}.jsonl.zst" for number in range(SHARDS))
    for path in full:
        yield from _texts(path)
    yield from [*_texts(last)][:-HELD_OUT]


def _texts(path: Path) -> Iterator[str]:
    return (json.loads(line)["text"] for _, line in lines_of(path))
