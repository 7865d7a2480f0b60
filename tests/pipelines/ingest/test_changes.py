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
OWNERS = st.integers(0, 2)


def _draft(doc_id: str, text: str, owner: int) -> Draft:
    return Draft(doc_id, digest(text), len(text), owner)


@given(
    had=st.dictionaries(IDS, st.tuples(TEXTS, OWNERS)),
    deleted=st.dictionaries(OWNERS, st.sets(IDS)),
    found=st.lists(st.tuples(IDS, TEXTS, OWNERS)),
    read=st.sets(st.integers(1, 2)),
    anew=st.booleans(),
)
def test_the_first_document_with_an_id_wins_and_none_takes_that_of_a_source_that_is_not_read(
    had: dict[str, tuple[str, int]],
    deleted: dict[int, set[str]],
    found: list[tuple[str, str, int]],
    read: set[int],
    anew: bool,
) -> None:
    documents = Documents()
    for row, (doc_id, (text, owner)) in enumerate(had.items()):
        documents.add(doc_id, digest(text), row, 1, owner=owner)

    changes = Decisions(documents, read, deleted, anew=anew).changes(_draft(*one) for one in found)

    first = dict[str, int]()
    for change, (doc_id, text, owner) in zip(changes, found, strict=True):
        stored = had.get(doc_id, (None, None))
        elsewhere = None if stored[1] in (owner, *read) else stored[1]
        winner = first.get(doc_id, elsewhere)
        if doc_id in deleted.get(owner, ()):
            expected = Kind.DELETED
        elif winner is not None:
            expected = Kind.TAKEN if winner == 0 else Kind.REPEATED
        elif doc_id not in had:
            expected = Kind.NEW
        else:
            expected = Kind.SAME if stored == (text, owner) and not anew else Kind.CHANGED
        if expected in (Kind.NEW, Kind.CHANGED, Kind.SAME):
            first[doc_id] = owner
        assert (change.kind, change.draft.id) == (expected, doc_id)
        assert change.is_cut == (expected in (Kind.NEW, Kind.CHANGED))
