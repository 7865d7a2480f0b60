"""Reads files that may be broken, in a process with limits that scale with each file; one answer a file.

    stdin   a path a line
    stdout  a line of JSON: {"documents": n, "rows": n, "skips": n, "peak": MiB, "fault": text or null}

A file that may hold vectors is read as such, too, and the error that refuses it counts as a skip. A fault is anything
but Documents and rows that an index can hold, and Skips. Where a limit ends the process, there is no answer.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from ragidx.corpora.errors import CorpusError
from ragidx.corpora.readers.registry import read_all
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import sources
from ragidx.corpora.vectors.files import ENDINGS, vector_batches

MIB = 1 << 20
SPARE_BYTES, BYTES_A_BYTE = 512 * MIB, 300  # of address space
SPARE_S, S_A_MIB = 20, 60  # of CPU time


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        _limit(path.stat().st_size)
        print(json.dumps(_answer(path)), flush=True)  # noqa: T201


def _limit(size: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES + BYTES_A_BYTE * size, -1))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    seconds = spent.ru_utime + spent.ru_stime + SPARE_S + S_A_MIB * size / MIB
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), -1))


def _answer(path: Path) -> dict[str, object]:
    skips: list[Skip] = []
    count = rows = 0
    fault = None
    try:
        for source in sources(path, on_skip=skips.append):
            for document in read_all([source], on_skip=skips.append):
                count += 1
                assert document.text.strip()
                held = [*document.metadata, *map(str, document.metadata.values())]
                "".join([document.id, document.text, *held]).encode()
        if path.name.removesuffix(".gz").endswith(ENDINGS):
            rows = _rows(path, skips.append)
        for skip in skips:
            assert "defect" not in skip.reason, skip.reason
            skip.where.encode()
            assert len(skip.reason.encode()) < 1000, skip.reason[:100]
        assert count or rows or skips
    except Exception:  # noqa: BLE001
        fault = traceback.format_exc(limit=-4)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"documents": count, "rows": rows, "skips": len(skips), "peak": peak, "fault": fault}


def _rows(path: Path, on_skip: Callable[[Skip], None]) -> int:
    count = 0
    try:
        for batch in vector_batches(path, on_skip=on_skip):
            count += len(batch.ids)
            assert batch.vectors.shape == (len(batch.ids), batch.vectors.shape[1])
            assert all(batch.ids)
            assert len(batch.texts) == len(batch.metadata) == len(batch.doc_ids or batch.ids) == len(batch.ids)
            held = [str(value) for fields in batch.metadata for pair in fields.items() for value in pair]
            "".join([*batch.ids, *batch.texts, *(batch.doc_ids or ()), *held]).encode()
    except CorpusError as fault:
        on_skip(Skip(fault.where, fault.message))
    return count


if __name__ == "__main__":
    main()
