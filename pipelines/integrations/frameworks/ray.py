"""Ray: the rows of a `ray.data.Dataset` that has vectors become an index, by one commit. Extra `ray`.

    dataset.write_datasink(Datasink("index/"))        columns: id and vector, perhaps text, doc_id and metadata

Each write task writes its rows as a shard of given vectors; the driver commits when all have ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ragidx

try:
    from ray import nodes
    from ray.data import Datasink as _Datasink
    from ray.data.block import Block, BlockAccessor
except ImportError as fault:
    raise ragidx.RagidxError(
        "the Ray adapter needs ray[data], which is not installed",
        "pip install 'ray[data]>=2.50'",
    ) from fault


class Datasink(_Datasink[Any]):
    """What `Dataset.write_datasink` takes: the index holds the rows of the dataset afterwards, and no others.

    Where the write fails, the index is as it was. Rows of one document may come from several tasks; of rows with one id
    the first stays. After the write, `report` says what was done, as that of `ragidx.build(vectors=...)`.

    Args:
        index: the folder of the index; it is made if it is missing.
        stage: a folder that all nodes see; None, where Ray has one node: one beside the index, removed at the end.
        options: options of `ragidx.distribute.divide_vectors`.
    """

    def __init__(self, index: str | Path, *, stage: str | Path | None = None, **options: Any) -> None:
        self._index, self._options = Path(index).absolute(), options
        self._stage = self._index.with_name(f"{self._index.name}.stage") if stage is None else Path(stage).absolute()
        self._is_own = stage is None
        self._division: Any = None
        self.report: ragidx.BuildReport | None = None

    def on_write_start(self, schema: Any = None) -> None:
        """Divide the work, at the driver."""
        alive = [node for node in nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray does not type it
        if self._is_own and len(alive) > 1:
            raise ragidx.SpecError("a cluster needs a stage", "name a folder that all nodes see", where="`stage`")
        self._division = ragidx.distribute.divide_vectors(self._stage, self._index, **self._options)

    def write(self, blocks: Iterable[Block], ctx: Any) -> Any:
        """Write the rows of a task as a shard, and return its descriptor."""
        tables = (BlockAccessor.for_block(block).to_arrow() for block in blocks)
        return ragidx.distribute.build_vector_shard(self._division, ctx.task_idx, tables)

    def on_write_complete(self, write_result: Any) -> None:
        """Make all the index, at the driver."""
        if self._division is None:  # the dataset is empty
            self.on_write_start()
        self.report = ragidx.distribute.commit(self._division, write_result.write_returns)
        self._clear()

    def on_write_failed(self, error: Exception) -> None:
        """Remove what was written; the index is as it was."""
        if self._division is not None:
            self._division.discard()
            self._clear()

    def _clear(self) -> None:
        if self._is_own:
            shutil.rmtree(self._stage, ignore_errors=True)
