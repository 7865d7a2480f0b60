"""Specs print as the text that parses back; wrong values say what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import IndexOptions
from ragidx.indexer.differences import Difference, differences, mismatch
from ragidx.indexer.encoders.pooling import WEIGHTS
from ragidx.indexer.specs import POOLINGS, EncoderSpec, FilterSpec, IndexSpec, Precomputed

from ..raising import message_of

encoders = st.builds(
    EncoderSpec,
    model=st.text(max_size=20),
    method=st.sampled_from(["echo", "classical"]),
    template=st.text(max_size=30),
    layer=st.integers(-5, 40),
    pool_eos=st.booleans(),
    instruction=st.none() | st.text(max_size=20),
    max_length=st.none() | st.integers(1, 5000),
    adapters=st.lists(st.text(max_size=9), max_size=2).map(tuple),
    copies=st.none() | st.integers(1, 9),
)
filters = st.builds(FilterSpec, tau=st.none() | st.floats(1, 64), offset=st.none() | st.integers(0, 300)) | st.builds(
    FilterSpec, dim=st.integers(1, 4096)
)
chunks = st.builds(
    ChunkSpec,
    size=st.none() | st.integers(10, 500),
    overlap=st.integers(0, 9),
    headings=st.booleans(),
    titles=st.booleans(),
)
indexes = st.builds(
    IndexSpec,
    encoder=encoders,
    filter=filters,
    chunk=chunks,
    weights=st.text("0123456789abcdef"),
)
given_indexes = st.builds(
    IndexSpec,
    encoder=st.none() | encoders,
    filter=filters,
    chunk=chunks,
    precomputed=st.builds(Precomputed, made_by=st.text(max_size=9), input_dim=st.none() | st.integers(1, 4096)),
)


@pytest.mark.slow
@given(indexes | given_indexes)
def test_a_spec_goes_to_json_and_back_with_the_same_fingerprint(spec: IndexSpec) -> None:
    again = IndexSpec.from_json(spec.to_json())

    assert again == spec
    assert again.fingerprint() == spec.fingerprint()


def test_only_what_differs_from_the_defaults_is_printed() -> None:
    assert str(FilterSpec(tau=2)) == "FilterSpec(tau=2)"
    assert str(IndexSpec(filter=FilterSpec(dim=64))) == "IndexSpec(filter=FilterSpec(dim=64))"


def test_the_fingerprint_knows_the_weights_and_not_the_name_of_the_model() -> None:
    spec = IndexSpec(encoder=EncoderSpec(model="a"), weights="1")

    moved = dataclasses.replace(spec, encoder=EncoderSpec(model="b"))

    assert moved.fingerprint() == spec.fingerprint()
    assert dataclasses.replace(spec, weights="2").fingerprint() != spec.fingerprint()


def test_a_whole_number_is_one_choice_however_it_is_written() -> None:
    whole, point = FilterSpec(tau=2), FilterSpec(tau=2.0)
    assert (str(point), point.to_json(), point.fingerprint()) == (str(whole), whole.to_json(), whole.fingerprint())
    assert FilterSpec.from_json({"tau": 2.5}).tau == 2.5


def test_the_fingerprint_of_given_vectors_knows_how_questions_are_encoded_and_no_names() -> None:
    asks = EncoderSpec(model="a", method="classical", instruction="one")
    spec = IndexSpec(encoder=asks, precomputed=Precomputed())

    renamed = dataclasses.replace(asks, model="b", instruction="two")

    other = IndexSpec(encoder=renamed, precomputed=Precomputed(made_by="me", input_dim=64))
    assert other.fingerprint() == spec.fingerprint()
    assert dataclasses.replace(spec, encoder=dataclasses.replace(asks, layer=2)).fingerprint() != spec.fingerprint()
    assert dataclasses.replace(spec, encoder=None).fingerprint() != spec.fingerprint()
    assert dataclasses.replace(spec, precomputed=None).fingerprint() != spec.fingerprint()
    assert differences(spec, dataclasses.replace(spec, encoder=renamed)) == []


def test_an_index_without_an_encoder_holds_precomputed_vectors() -> None:
    assert message_of(SpecError, lambda: IndexSpec(encoder=None)) == "an index has an encoder, or precomputed vectors"


def test_fields_that_came_later_leave_older_fingerprints_as_they_were() -> None:
    assert IndexSpec().fingerprint() == "a620f0d3134ef2b4a3ac529f06bb848282d91f62b8f31f8dee92d96f3ab88146"
    changed = dataclasses.replace(IndexSpec(), encoder=EncoderSpec(truncate="middle"))
    assert changed.fingerprint() != IndexSpec().fingerprint()


@pytest.mark.parametrize("index_type", ["auto", "hnsw", "ivf", "sq8", "ivfpq", "pq4", "rabitq", "IVF64,SQ8"])
def test_no_vector_depends_on_the_index_type(index_type: str) -> None:
    assert IndexSpec(index_type=index_type).fingerprint() == IndexSpec(index_type="flat").fingerprint()


def test_differences_name_the_field_in_the_users_words() -> None:
    have = IndexSpec(encoder=EncoderSpec(method="echo"), chunk=ChunkSpec(size=256), weights="1")
    want = IndexSpec(encoder=EncoderSpec(method="prompteol", model="other"), chunk=ChunkSpec(size=64), weights="2")

    found = differences(have, want)

    assert found[1] == Difference("encoder.method", "echo", "prompteol")
    assert [str(one) for one in found] == [
        "`model` is 'mini' in the index, 'other' now",
        "`method` is 'echo' in the index, 'prompteol' now",
        "`chunks.size` is 256 in the index, 64 now",
    ]


def test_a_field_that_the_index_does_not_store_is_a_difference() -> None:
    have = IndexSpec(encoder=None, precomputed=Precomputed())
    want = dataclasses.replace(have, precomputed=Precomputed(input_dim=8))

    assert differences(have, want) == [Difference("precomputed.input_dim", None, 8)]
    assert differences(want, have) == [Difference("precomputed.input_dim", 8, None)]


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (
            {"template": "1b"},
            "the index cannot be updated: the template 'llm2vec-qwen2' is different in this version\n"
            "  hint: replace it with `rebuild=True`",
        ),
        (
            {"weights": "2b"},
            "the index cannot be updated: the files of 'chat/' have changed\n"
            "  hint: name the right folder with `model`, take the new files with `ragidx upgrade --model chat/`, or "
            "replace it with `rebuild=True`",
        ),
        (
            {"weights": "2b", "chunk": ChunkSpec(size=64)},
            "the index was built with other options: `chunks.size` is 256 in the index, 64 now; the files of 'chat/' "
            "have changed\n"
            "  hint: remove the option to update the index, "
            "name another `index`, or replace this one with `rebuild=True`",
        ),
    ],
)
def test_a_template_or_files_that_changed_under_their_name_are_said_so(now: dict[str, Any], message: str) -> None:
    encoder = EncoderSpec(model="chat/", method="llm2vec", template="llm2vec-qwen2")
    have = IndexSpec(encoder=encoder, chunk=ChunkSpec(size=256), template="1a", weights="2a")

    changes = differences(have, dataclasses.replace(have, **now))

    assert str(mismatch(changes, "flat", "ix")) == f"ix: {message}"


def test_a_moved_model_with_the_same_weights_is_no_difference() -> None:
    have, want = IndexSpec(weights="1"), IndexSpec(encoder=EncoderSpec(model="/elsewhere"), weights="1")

    assert differences(have, want) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: FilterSpec(tau=2, dim=3),
            "filter: tau=2 and dim=3 are both set\n  hint: give one of `filter.tau` and `filter.dim`",
        ),
        (
            lambda: FilterSpec(tau=0.5),
            "`filter.tau`: tau=0.5 would widen the vectors\n  hint: give 1 or more: hidden width / kept width",
        ),
        (
            lambda: FilterSpec(tau=float("nan")),
            "`filter.tau`: tau=nan is not a number\n  hint: give 1 or more: hidden width / kept width",
        ),
        (
            lambda: FilterSpec(offset=32).width(32),
            "`filter.offset`: offset=32 leaves nothing of 32 dimensions\n  hint: give at most 31",
        ),
        (lambda: FilterSpec(dim=0), "`filter.dim`: dim=0 keeps nothing\n  hint: give 1 or more"),
        (lambda: FilterSpec(offset=-1), "`filter.offset`: offset=-1 is negative\n  hint: give 0 or more"),
        (
            lambda: FilterSpec(name="none", tau=2),
            "`filter`: filter 'none' keeps all raw coordinates\n"
            "  hint: remove `filter.tau`, `filter.dim` and `filter.offset`",
        ),
        (lambda: EncoderSpec(attention="up"), "unknown attention 'up'\n  hint: known: bidirectional, causal"),
        (lambda: EncoderSpec(max_length=0), "`max_length`: a length of 0 tokens holds nothing\n  hint: give 1 or more"),
        (lambda: ChunkSpec(size=0), "`chunks.size`: a chunk of 0 tokens holds nothing\n  hint: give at least 1"),
        (
            lambda: ChunkSpec(size=8, overlap=8),
            "`chunks.overlap`: an overlap of 8 tokens does not fit chunks of 8\n"
            "  hint: give 0 or more, and less than `chunks.size`",
        ),
        (
            lambda: FilterSpec(tau=64).width(32),
            "`filter.tau`: tau=64 leaves nothing of 32 dimensions\n  hint: give at most 32",
        ),
        (
            lambda: FilterSpec(dim=33).width(32),
            "`filter.dim`: dim=33 is wider than the model, which has 32\n  hint: give at most 32",
        ),
        (
            lambda: FilterSpec(dim=20, offset=20).width(32),
            "`filter.offset`: columns 20 to 40 are asked for, the model has 32\n"
            "  hint: give an offset of at most 12, or a smaller `filter.dim`",
        ),
        (
            lambda: FilterSpec.from_json({"tao": 1}, where="manifest"),
            "manifest: FilterSpec has no field 'tao'\n"
            "  hint: known: name, tau, dim, offset, seed, sample, topk, power, center, adapted",
        ),
        (lambda: FilterSpec.from_json({"dim": "x"}), "FilterSpec.dim is 'x', not int or NoneType"),
        (lambda: FilterSpec.from_json([1]), "FilterSpec is not an object: [1]"),
    ],
)
def test_a_wrong_value_says_what_to_do(make: object, message: str) -> None:
    with pytest.raises(SpecError) as fault:
        make()  # type: ignore[operator]

    assert str(fault.value) == message


def test_the_names_of_poolings_are_those_of_the_functions() -> None:
    assert (*WEIGHTS, "trainable") == POOLINGS


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChunkSpec(size=True),
        lambda: ChunkSpec(overlap=True),
        lambda: FilterSpec(tau=True),
        lambda: FilterSpec(dim=True),
        lambda: FilterSpec(offset=True),
        lambda: EncoderSpec(layer=True),
        lambda: EncoderSpec(max_length=True),
        lambda: IndexOptions(target_recall=True),
    ],
)
def test_true_is_no_number(make: Callable[[], object]) -> None:
    with pytest.raises(SpecError, match=" is True, not a number"):
        make()
