"""Metadata of a program come back equal, whatever JSON they are: of documents and of hits, of texts and of vectors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ragidx
from ragidx import CorpusError, Document, Index, field
from ragidx.corpora.readers.records.paths import fields_of
from ragidx.corpora.whole_documents import values_from_json, values_to_json

from ..raising import message_of

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
NAMES = TEXTS | st.sampled_from(["time", "object", "a.b", "doc_id", "heading", "text", "file.path", "more_fields"])
NUMBERS = st.integers() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False, allow_infinity=False)
ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=-5))])
TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
METADATA = st.dictionaries(NAMES, JSON | st.lists(TEXTS, max_size=3), max_size=5)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1 is no True and no 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(st.dictionaries(NAMES, JSON | TIMES | st.lists(TIMES, max_size=2), max_size=5))
def test_what_is_written_as_json_is_read_equal(metadata: dict[str, Any]) -> None:
    assert same(values_from_json(json.loads(json.dumps(values_to_json(metadata)))), metadata)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.lists(METADATA, min_size=1, max_size=4), moment=TIMES)
def test_any_json_comes_back_from_an_index(
    tmp_path_factory: pytest.TempPathFactory, found: list[dict[str, Any]], moment: datetime
) -> None:
    """Each document has names of its own: a field that two share has one type."""
    given_ = {f"d{n}": {f"d{n}": one, "when": [moment], "": None} for n, one in enumerate(found)}
    texts, vectors = (tmp_path_factory.mktemp("whole") / name for name in ("texts", "vectors"))
    with Index.create(texts) as index:
        index.add(
            Document(name, f"The mill number {name}.\n\n" + "It turns. " * 300, one) for name, one in given_.items()
        )
        assert len(index.chunks()) > len(found)
    with Index.create(vectors, dim=2) as index:
        index.add_vectors(given_, [[1, n] for n in range(len(found))], metadata=list(given_.values()))

    for folder in (texts, vectors):
        index = Index(folder)
        for change in (None, "delete", "compact", "rebuild"):
            if change == "delete" and len(found) > 1:
                index.delete(["d0"])
                del given_["d0"]
            if change == "compact":
                index.compact(everything=True)
            if change == "rebuild" and folder == texts:
                index.build(rebuild=True)
            hits = index.search("mill", k=50) if folder == texts else index.search(vector=[1, 0], k=50)
            assert {hit.doc_id for hit in hits} == set(given_)
            assert all(same(hit.metadata, given_[hit.doc_id]) for hit in hits)
            documents = list(index.documents())
            assert {one.id for one in documents} == set(given_)
            assert all(same(one.metadata, given_[one.id]) for one in documents)
        assert index.verify() == []
        given_ = {f"d{n}": {f"d{n}": one, "when": [moment], "": None} for n, one in enumerate(found)}


def test_conditions_see_dotted_names_and_lists_of_texts(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index")
    owner = {"team": "mills", "lead": {"name": "Ada", "since": 1999}, "tags": ["wind", "water"], "ids": [1, 2]}
    index.add([Document("a", "The mill.", {"owner": owner, "big": 2**70}), Document("b", "The lake.", {"big": 3})])

    for where in (
        field("owner.team") == "mills",
        field("owner.lead.since") < 2000,
        field("owner.tags").is_in(["water", "fire"]),
        'owner.ids == "[1,2]"',
        "big > 5",
    ):
        assert [hit.doc_id for hit in index.search("mill", where=where)] == ["a"]
    assert index.count("owner.team is null") == 1
    assert index.values("owner.lead.name") == [("Ada", 1)]


def test_what_conditions_see_is_what_they_see_of_a_record(tmp_path: Path) -> None:
    record: dict[str, Any] = {"a": {"b": {"c": 1}, "d": None}, "l": ["x", "y"], "n": [1, {"z": 2}], "t": True, "f": 0.5}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "r.jsonl").write_text(json.dumps({"id": "r", "text": "The mill.", **record}) + "\n")
    built, index = ragidx.build(tmp_path / "docs", tmp_path / "built"), Index.create(tmp_path / "index")

    index.add(Document("r", "The mill.", record))

    ours = {name: kind for name, kind in built.info().schema.items() if not name.startswith("file.")}
    assert index.info().schema == ours
    [of_file], [of_program] = built.documents(), index.documents()
    assert fields_of(of_program.metadata) == of_file.metadata
    assert of_program.metadata == record


def test_rows_of_files_have_values_as_they_were_read_also_where_a_field_is_text(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    lines = [{"id": "a", "text": "The mill.", "n": 1}, {"id": "b", "text": "The mill.", "n": "one"}]
    (tmp_path / "docs" / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    index = ragidx.build(tmp_path / "docs", tmp_path / "index")

    assert index.schema["n"] == "string"
    assert {one.id: one.metadata["n"] for one in index.documents()} == {"r.jsonl#a": 1, "r.jsonl#b": "one"}
    assert index.count('n == "1"') == 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "nan is not a finite number"),
        ({1, 2}, "{1, 2} is a set"),
        (b"x", "b'x' is a bytes"),
        ((1, 2), "(1, 2) is a tuple"),
        ({3: 4}, "the key 3 is an int"),
        ("\ud800", "half of a surrogate pair, which no UTF-8 file can hold"),
        (2**12_000, "a whole number of 12,001 bits"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_its_field(tmp_path: Path, value: object, why: str) -> None:
    index = Index.create(tmp_path / "index")

    message = message_of(CorpusError, lambda: index.add(Document("a", "The mill.", {"deep": [{"p": value}]})))

    hint = "give texts, finite numbers, true, false, None, times, and lists and dicts of them"
    assert message == f"a: the field 'deep': {why}\n  hint: {hint}"
    assert index.count() == 0


def test_what_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    message = message_of(
        CorpusError, lambda: Index.create(tmp_path / "i").add(Document("a", "The mill.", {"p": value}))
    )

    assert message.startswith("a: the field 'p': nested more than 100 levels deep\n")


def test_an_upgrade_that_sentences_try_keeps_nested_metadata(tmp_path: Path) -> None:
    """The copies that are asked have rows that were read and are written again."""
    index = Index(tmp_path / "index", create=True)
    sentence = "The {} number {} stands by the river of town {}."
    texts = [" ".join(sentence.format(what, n * 37, n * 3) for what in ("mill", "lamp", "heron")) for n in range(30)]
    index.add([Document(f"d{n}", text, {"owner": {"team": f"t{n}", "n": [n, None]}}) for n, text in enumerate(texts)])

    report = index.upgrade(filter=ragidx.FilterSpec("truncation", tau=4), margin=1)

    assert report.committed
    assert report.comparison is not None
    assert report.comparison.queries == "sentence"
    [hit] = index.search("the mill", where='owner.team == "t3"')
    assert hit.metadata == index.get(["d3"])[0].metadata == {"owner": {"team": "t3", "n": [3, None]}}
