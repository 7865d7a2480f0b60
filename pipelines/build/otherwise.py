"""The error of a build whose options differ from what the index was made with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ragidx.corpora.errors import SpecError


def made_otherwise(changes: Sequence[str], index_type: str, where: str) -> SpecError:
    """What differs, and what to do.

    Args:
        changes: a line for each field, as `indexer.specs.differences` writes them.
        index_type: the one that is asked for; where nothing else differs, no vector has to be made again for it.
        where: the index folder.
    """
    hint = "leave the option out to go on with the index, or replace it with --rebuild"
    if len(changes) == 1 and changes[0].startswith("index_type "):
        reindex = f"ragidx reindex DIR --index {shlex.quote(where)} --index-type {shlex.quote(index_type)}"
        hint += f"; '{reindex}' makes one of that type beside it, and encodes nothing"
    return SpecError("the index was made otherwise: " + "; ".join(changes), hint, where=where)
