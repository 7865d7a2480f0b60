"""Indexes of a version whose bundled model mini was what is mini-decoder now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.store.manifest import _with_checksum

from ...raising import message_of


@pytest.mark.slow
def test_it_is_asked_by_mini_decoder_and_upgraded_to_mini(small_corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    before = ragidx.build(small_corpus, folder, model="mini-decoder").search("who signed the lease?", k=3)
    for path in (folder / "manifest.json", folder / "manifest.1.json"):
        manifest = json.loads(path.read_text())
        manifest["spec"]["encoder"]["model"] = "mini"
        del manifest["checksum"]
        path.write_bytes(_with_checksum(manifest))

    index = ragidx.Index(folder)
    assert index.search("who signed the lease?", k=3) == before
    assert message_of(SpecError, index.build) == (
        f"{folder}: the index cannot be updated: the files of 'mini' have changed\n"
        "  hint: name the right folder with `model`, take the new files with `ragidx upgrade --model mini`, or replace "
        "it with `rebuild=True`"
    )
    assert index.upgrade(model="mini", force=True).committed
    assert index.spec.encoder is not None
    assert (index.spec.encoder.model, index.spec.filter.name) == ("mini", "truncation")
    assert index.build().n_unchanged == 6
