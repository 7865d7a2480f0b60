"""Runs mutated files through the workers of a build: `python tests/corpora/fuzz/fuzzer.py SECONDS [SEED]`.

Files that are findings are kept in build/fuzz; the run ends with their number as its status, at most 1. A worker that
dies of a file is none: the file is one line of the report. How many did is told.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from seeds import STEPS, mutated, office_seeds, seeds

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.left_out import KINDS, LOST, Left, class_of
from ragidx.corpora.limits import GIB, MIB, Limits, ReadOptions
from ragidx.corpora.readers.layouts import Layouts
from ragidx.corpora.records import OnSkip, Skip
from ragidx.corpora.sources import Source, sources
from ragidx.corpora.vectors.files import ENDINGS, Reader, vector_batches
from ragidx.pipelines.ingest.workers.spread import Spread
from ragidx.pipelines.ingest.workers.vectors import vector_reader

OFFICE_SHARE = 0.05
LIMITS = Limits(worker_memory_bytes=GIB, worker_cpu_s=20)


class Answer(NamedTuple):
    """What came of a file.

    Args:
        data: the file.
        documents, rows: how many; rows of vectors.
        skips: what was reported.
        fault: anything but documents and rows that an index can hold, and skips.
    """

    data: bytes
    documents: int
    rows: int
    skips: list[Skip | Left]
    fault: str | None


def answers(folder: Path, files: Iterable[tuple[str, bytes]]) -> Iterator[Answer]:
    """What comes of each file (ending, bytes); one that may hold vectors is read as such, too."""
    skips = list[Skip]()

    def note(one: Skip | Left) -> None:
        if isinstance(one, Skip):
            skips.append(one)
        else:
            assert one.kind in KINDS
            assert len(one.where.encode()) < 1000
            assert one.count > 0
            if class_of(one.kind) == LOST:  # a file of which all is lost is no skip
                skips.append(one)

    spread = Spread(ReadOptions(limits=LIMITS), Layouts(), note, workers=2)
    with vector_reader([MIB], ReadOptions()) as read:
        for source, drafts in spread.drafts(_written(folder, files)):
            assert source.path is not None
            n_documents = n_rows = 0
            fault = None
            try:
                for draft in drafts:
                    document = draft.document
                    n_documents += 1
                    assert document is not None
                    assert document.text.strip()
                    held = [*document.metadata, *map(str, document.metadata.values())]
                    "".join([document.id, document.text, *held]).encode()
                    offsets = [place.offset for place in document.places]
                    assert offsets == sorted(offsets)
                    assert all(0 <= offset < len(document.text) for offset in offsets)
                if source.name.removesuffix(".gz").endswith(ENDINGS):
                    n_rows = _rows(source, read, note)
                for skip in skips:
                    skip.where.encode()
                    if isinstance(skip, Left):
                        assert skip.kind in KINDS, skip.kind
                        continue
                    assert "defect" not in skip.reason, skip.reason
                    assert len(skip.reason.encode()) < 1000, skip.reason[:100]
                assert n_documents or n_rows or skips
            except Exception:  # noqa: BLE001
                fault = traceback.format_exc(limit=-4)
            yield Answer(source.path.read_bytes(), n_documents, n_rows, skips.copy(), fault)
            skips.clear()
            source.path.unlink()


def _written(folder: Path, files: Iterable[tuple[str, bytes]]) -> Iterator[Source]:
    for number, (ending, data) in enumerate(files):
        path = folder / f"{number}{ending}"
        path.write_bytes(data)
        yield from sources(path, on_skip=lambda skip: None)


def _rows(source: Source, read: Reader, on_skip: OnSkip) -> int:
    count = 0
    assert source.path is not None
    try:
        for batch in vector_batches(source.path, on_skip=on_skip, read=read):
            count += len(batch.ids)
            assert batch.vectors.shape == (len(batch.ids), batch.vectors.shape[1])
            assert all(batch.ids)
            assert len(batch.texts) == len(batch.metadata) == len(batch.doc_ids or batch.ids) == len(batch.ids)
            held = [str(value) for fields in batch.metadata for pair in fields.items() for value in pair]
            "".join([*batch.ids, *batch.texts, *(batch.doc_ids or ()), *held]).encode()
    except CorpusError as fault:
        on_skip(Skip(fault.where, fault.message))
    return count


def broken(chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """Good files after some changes, without end."""
    good, office = seeds(), office_seeds()
    while True:
        ending, data = chance.choice(office if chance.random() < OFFICE_SHARE else good)
        steps = [
            (chance.choice(STEPS), chance.random(), chance.random(), chance.randrange(1000))
            for _ in range(chance.choice((1, 1, 2, 3, 6)))
        ]
        yield ending, mutated(data, steps)


def main(seconds: float, seed: int) -> int:
    """Fuzz for some time; 1 if anything was found."""
    kept, end = Path("build/fuzz"), time.monotonic() + seconds
    runs = findings = deaths = 0
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for answer in answers(Path(folder), broken(random.Random(seed))):
            runs += 1
            said = [skip.reason for skip in answer.skips if isinstance(skip, Skip)]
            deaths += any(reason.startswith("the reader ") for reason in said)
            if answer.fault:
                findings += 1
                kept.mkdir(parents=True, exist_ok=True)
                (kept / f"{seed}-{runs}").write_bytes(answer.data)
                if answer.fault not in seen:
                    seen.add(answer.fault)
                    print(f"{kept}/{seed}-{runs}: {answer.fault}")  # noqa: T201
            if time.monotonic() > end:
                break
    print(f"{runs} files, {findings} findings, {len(seen)} of them different; {deaths} deaths; seed {seed}")  # noqa: T201
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)))
