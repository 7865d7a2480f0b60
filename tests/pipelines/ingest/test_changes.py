"""What becomes of a document depends on what the index has and on the documents before it, and on nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ragidx.indexer.digests import digest
from ragidx.indexer.store.lookup import Documents
from ragidx.pipelines.ingest.changes import Decisions, Kind
from ragidx.pipelines.ingest.workers.chunks import Draft

IDS = st.sampled_from("abcdef")
TEXTS = st.sampled_from(["one", "two"])


def _draft(doc_id: str, text: str) -> Draft:
    return Draft(doc_id, digest(text), len(text), list)


@given(st.dictionaries(IDS, TEXTS), st.sets(IDS), st.lists(st.tuples(IDS, TEXTS)), st.booleans())
def test_the_first_document_with_an_id_wins(
    had: dict[str, str], deleted: set[str], read: list[tuple[str, str]], anew: bool
) -> None:
    documents = Documents()
    for row, (doc_id, text) in enumerate(had.items()):
        documents.add(doc_id, digest(text), 0, row, 1)

    found = Decisions(documents, deleted, anew=anew).changes(_draft(*one) for one in read)

    seen = set[str]()
    for change, (doc_id, text) in zip(found, read, strict=True):
        if doc_id in deleted:
            expected = Kind.KEPT_OUT
        elif doc_id in seen:
            expected = Kind.REPEATED
        elif doc_id not in had:
            expected = Kind.NEW
        else:
            expected = Kind.SAME if had[doc_id] == text and not anew else Kind.CHANGED
        seen |= set() if doc_id in deleted else {doc_id}
        assert (change.kind, change.draft.id) == (expected, doc_id)
        assert change.is_cut == (expected in (Kind.NEW, Kind.CHANGED))
