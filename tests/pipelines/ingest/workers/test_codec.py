"""What a worker says of documents comes back as it was."""

import dataclasses
import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from ragidx.corpora.chunking import Chunker
from ragidx.corpora.readers.layouts import Layout
from ragidx.corpora.records import Document, Place, Skip
from ragidx.corpora.spec import ChunkSpec
from ragidx.pipelines.ingest.workers import codec
from ragidx.pipelines.ingest.workers.chunks import Cutter, Draft
from ragidx.pipelines.ingest.workers.files import document_hash
from ragidx.pipelines.ingest.workers.frames import FrameError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
ODD = st.text(max_size=20)  # names and reasons may hold half of a surrogate pair
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS, st.lists(TEXTS, max_size=3)),
    st.datetimes(timezones=st.sampled_from([None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-3))])),
)
PLACES = st.builds(
    Place, st.integers(0, 50), st.none() | st.integers(1, 2**31 - 1), st.none() | st.integers(1, 2**31 - 1)
).map(lambda place: (place,))
METADATA = st.dictionaries(TEXTS, SCALARS, max_size=4)
DOCUMENTS = st.builds(
    *(Document, TEXTS, TEXTS, METADATA, st.booleans(), st.none() | st.integers(1, 9**9), TEXTS),
    *(st.just(()) | PLACES, METADATA, st.just(()) | PLACES),
)


def cutter() -> Cutter:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return Cutter(lambda: Chunker(ChunkSpec(size=4, titles=True), tokenizer, limit=8))


CUTTER = cutter()


def draft(document: Document, form: str) -> Draft:
    made = Draft(document.id, document_hash(document), len(document.text), 3, document)
    if form == "document":
        return made
    items = CUTTER.cut(made) if form in ("items", "ids") else None
    if items and form == "ids":
        items = [dataclasses.replace(item, ids=bytes(4 * number)) for number, item in enumerate(items)]
    return dataclasses.replace(made, document=None, items=items)


LAYOUTS = st.builds(Layout, st.none() | st.lists(TEXTS).map(tuple), st.none() | TEXTS.filter(bool))
EVENTS = st.one_of(
    st.builds(Skip, ODD, ODD),
    st.builds(codec.NRead, st.integers(0, 2**40), st.integers(0, 9)),
    st.builds(
        codec.Decided, TEXTS, st.builds(Layout, st.none() | st.lists(TEXTS).map(tuple), st.none() | TEXTS.filter(bool))
    ),
    st.builds(draft, DOCUMENTS, st.sampled_from(["items", "ids", "document", "known"])),
)


@given(st.lists(EVENTS, max_size=6))
def test_events_come_back_as_they_were(events: list[codec.Event]) -> None:
    found = codec.decoded(codec.encoded(events), owner=3)

    assert found == events
    for before, after in zip(events, found, strict=True):
        if isinstance(before, Draft) and before.document is not None:
            assert isinstance(after, Draft)
            assert after.document is not None
            assert (after.document.file, after.document.parts) == (before.document.file, before.document.parts)


@given(st.lists(EVENTS, min_size=1, max_size=3), st.data())
def test_a_damaged_message_is_one_error_or_events(events: list[codec.Event], data: st.DataObject) -> None:
    header, body = codec.encoded(events)
    at = data.draw(st.integers(0, max(0, len(body) - 1)))
    damaged = body[:at] + data.draw(st.binary(max_size=4)) + body[at + 2 :]

    try:
        found = codec.decoded((header, damaged))
    except FrameError:
        return

    assert len(found) == len(events)


ROW = [0, 4, "text", "", "00" * 16, None, None, None, None, None]
WRONG_ROWS = [
    [*ROW[:place], value, *ROW[place + 1 :]]
    for place, value in [
        *((0, None), (0, 1.5), (0, True), (1, -1), (1, 2**63), (2, None), (2, "\udfff"), (3, 1), (4, "00"), (4, "x")),
        *((5, 2**31), (6, "1"), (7, [[0, None]]), (7, 3), (8, 5), (9, "00"), (9, 5)),
    ]
]


def test_a_row_comes_back() -> None:
    said = [[ROW], {"a": {"year": 1999}}, {"a.year": 1999}, '[[4," "]]']
    body = json.dumps([["draft", "a", "00" * 16, 4, "items", said]]).encode()

    (found,) = codec.decoded(({"kind": "events"}, body))

    assert isinstance(found, Draft)
    assert found.items is not None
    row = found.items[0].row
    assert (row.chunk_id, row.metadata, row.gaps) == ("a:0-4", {"a": {"year": 1999}}, '[[4," "]]')
    assert row.seen == {"a.year": 1999}


@pytest.mark.parametrize(
    "events",
    [
        *([["draft", 3, "00" * 16, 1, "known", None]], [["draft", "a", "00", 1, "known", None]]),
        *([["draft", "a", "00" * 16, -1, "known", None]], [["draft", "\ud800", "00" * 16, 1, "known", None]]),
        [["draft", "a", "00" * 16, 1, "items", [2, {}, None, None]]],
        *([["draft", "a", "00" * 16, 1, "items", [[row], {}, None, None]]] for row in WRONG_ROWS),
        [["draft", "a", "00" * 16, 1, "items", [[ROW], {}, None, 7]]],
        [["draft", "a", "00" * 16, 1, "items", [[ROW], {}, 7, None]]],
        *([["skip", "a"]], [["items"]], [3], 7),
    ],
)
def test_events_that_are_none_are_refused(events: object) -> None:
    with pytest.raises(FrameError, match="events that are none"):
        codec.decoded(({"kind": "events"}, json.dumps(events).encode()))
