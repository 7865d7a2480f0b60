"""What the tests of workers share: a chunker, corpora of many kinds, what is read of them, and what is built."""

import json
import os
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.limits import Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import sources
from ragidx.corpora.spec import ChunkSpec
from ragidx.pipelines.ingest.workers.chunks import Cutter
from ragidx.pipelines.ingest.workers.files import drafts_of
from ragidx.pipelines.ingest.workers.spread import Spread

WORDS = ["the", "river", "rises", "in", "hills", "and", "flows", "past", "old", "mill"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc are those of Linux")


def chunker(**more: Any) -> Chunker:
    tokenizer = Tokenizer(models.WordLevel({"the": 1, "[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return Chunker(ChunkSpec(size=8, overlap=2), tokenizer, limit=64, **more)


def read(
    corpus: Path, workers: int = 0, limits: Limits | None = None, watch: Callable[[], object] = lambda: None
) -> tuple[list[Any], list[Skip], int, Any]:
    """Drafts with their items, skips, bytes and layouts; without workers all is read and cut here."""
    skips, counts, layouts, cutter = list[Skip](), list[int](), Layouts(), Cutter(chunker)
    arguments = ReadOptions(limits=limits or Limits()), layouts, skips.append, counts.append
    files = sources(corpus, on_skip=skips.append)
    by_file = (
        Spread(*arguments, cutter, workers).drafts(files)
        if workers
        else ((source, drafts_of(source, *arguments)) for source in files)
    )
    found = [
        (source.name, draft.id, draft.hash, draft.n_chars, cutter.cut(draft))
        for source, drafts in by_file
        for draft in drafts
        if not watch()
    ]
    return [found, sorted(skips, key=lambda skip: skip.where), sum(counts), layouts.to_json()]


def lines(path: Path, n_records: int, seed: int = 0) -> Path:
    """JSON Lines with all that a reader can object to."""
    chance = random.Random(seed)
    odd = ["", "  ", "{broken", "[1]", json.dumps({"body": "x"}), json.dumps({"id": 1, "text": "again and again"})]
    with path.open("w") as file:
        for number in range(n_records):
            text = " ".join(chance.choices(WORDS, k=chance.randint(1, 40)))
            record = {"id": str(number), "text": text, "n": number, "when": "2024-05-03"}
            file.write((chance.choice(odd) if chance.random() < 0.02 else json.dumps(record)) + "\n")
    return path


def children() -> list[int]:
    """The processes that this one started and did not wait for."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for path in found for pid in path.read_text().split()]


def large(folder: Path, ending: str) -> Path:
    """A file that takes a worker a second or so."""
    chance, path = random.Random(1), folder / f"large.{ending}"
    texts = [" ".join(chance.choices(WORDS, k=2000)) for _ in range(60)]
    if ending == "csv":
        path.write_text("ticket_id,body\n" + "".join(f"T-{n % 50},{text}\n" for n, text in enumerate(texts)))
    elif ending == "jsonl":
        lines(path, 3000)
    elif ending == "parquet":
        pq.write_table(pa.table({"key": range(len(texts)), "body": texts}), path, row_group_size=20)
    elif ending == "mbox":
        path.write_text("".join(f"From a\nSubject: S{n}\n\n{text}\n\n" for n, text in enumerate(texts)))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for n, text in enumerate(texts):
                archive.writestr(f"{n}.{('txt', 'html', 'md', 'csv')[n % 4]}", text)
    return path


def state(index: Path) -> tuple[dict[str, bytes], dict[str, object]]:
    """The files of all segments, and the notes."""
    files = {str(p.relative_to(index)): p.read_bytes() for p in (index / "segments").rglob("*") if p.is_file()}
    notes = json.loads((index / "manifest.json").read_text())["notes"]
    for source in notes["sources"]:
        del source["built"]
    return files, notes
