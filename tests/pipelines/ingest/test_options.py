"""The options of a build: the value that they become, and what is refused."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.corpora.field_settings import OTHERS
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.options import EncoderOptions, options_of
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.pipelines.cli.vector_options import with_values
from ragidx.pipelines.experiments.evaluate.axes import FILTER_FIELDS
from ragidx.pipelines.experiments.evaluate.evaluate import KNOWN
from ragidx.pipelines.experiments.evaluate.options import Grid
from ragidx.pipelines.ingest.options import OPTIONS, BuildOptions, build_options
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.pipelines.plan.plan import plan
from ragidx.retriever.keywords import ChunkKeywords, FilterKeywords, ReadKeywords


def changed(**members: object) -> BuildOptions:
    """The options of a build of which nothing was said, but for these members."""
    return dataclasses.replace(build_options(), **members)  # type: ignore[arg-type]


def shown(member: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """What `help()` and completion show of a member."""
    return dict(inspect.signature(member).parameters)


def test_the_options_of_an_encoder_have_the_types_of_the_specs_fields() -> None:
    fields = get_type_hints(EncoderSpec) | {"adapters": Sequence[str]}  # a list may be given

    for name, kind in get_type_hints(EncoderOptions).items():
        assert kind == fields[name] | None, name


def test_what_is_typed_of_a_filter_and_of_chunks_are_the_fields_of_the_specs() -> None:
    filter_ = {name.removeprefix("filter_") for name in FilterKeywords.__annotations__}
    chunks = {name.removeprefix("chunk_") for name in ChunkKeywords.__annotations__}

    assert filter_ - {"filter"} | {"name", "adapted"} == {field.name for field in dataclasses.fields(FilterSpec)}
    assert chunks | {"headings"} == {field.name for field in dataclasses.fields(ChunkSpec)}
    assert options_of(ReadKeywords)["fields"][1].about.endswith(f"by name: {', '.join(OTHERS)}.")


def test_an_evaluation_takes_options_of_a_build_that_are_no_axes_and_fields_of_filters() -> None:
    assert {*KNOWN} - {*OPTIONS} == {*FILTER_FIELDS}
    assert not {*KNOWN} & {*Grid.__annotations__}


def test_the_options_of_an_encoder_are_shown_too() -> None:
    assert {"method", "pooling", "filter", "device"} <= set(shown(ragidx.load_embedder))
    assert set(EncoderOptions.__annotations__) < set(shown(ragidx.load_encoder))


def test_what_was_not_said_is_in_no_group() -> None:
    options = build_options(method="echo", layer=None, filter="pca", strict=True)

    assert options == changed(encoder={"method": "echo"}, filter=FilterSpec("pca"), strict=True)
    with pytest.raises(SpecError) as fault:
        build_options(chunks=128)
    assert str(fault.value) == "`chunks`: 128 is no ChunkSpec\n  hint: give ragidx.ChunkSpec(...)"


def test_flat_options_become_values_of_which_only_what_was_given_counts() -> None:
    flat = {"tau": 2.0, "dim": None, "filter": None, "filter_seed": None, "chunk_size": "none", "model": "mini"}

    options = with_values(flat)

    assert options == {"model": "mini", "filter": FilterSpec(tau=2), "chunks": ChunkSpec(size=None)}
    assert (options["filter"].given, options["chunks"].given) == ({"tau"}, {"size"})
    assert with_values({"tau": None, "titles": None}) == {}


def test_one_glob_may_be_a_str_and_a_size_text() -> None:
    options = build_options(include="*.md", exclude="drafts/", max_memory="2GB")

    assert options == changed(include=("*.md",), exclude=("drafts/",), max_memory=2_000_000_000)


def test_settings_of_fields_are_tuples_and_a_name_that_is_none_is_refused() -> None:
    options = build_options(fields={"title": "product", "context": ["*.csv=a+b", "c"], "metadata": ()})

    assert options == changed(fields={"title": ("product",), "context": ("*.csv=a+b", "c")})
    with pytest.raises(SpecError) as fault:
        build_options(fields={"titel": "product"})
    assert str(fault.value) == (
        "`fields`: unknown setting 'titel'; did you mean 'title'?\n"
        "  hint: known: context, encoding, html, metadata, ocr, speaker, title"
    )
    with pytest.raises(SpecError) as fault:
        build_options(fields={"context": "*.csv="})
    assert str(fault.value) == (
        "`context`: '*.csv=' is not [GLOB=]FIELD\n  hint: write it as product+city, or 'data/*.csv=product+city'"
    )


@pytest.mark.parametrize(("door", "call"), [("build", ragidx.build), ("build", plan), ("evaluate", ragidx.evaluate)])
def test_a_name_that_no_build_takes_is_refused_with_the_near_miss(door: str, call: object, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")

    with pytest.raises(SpecError) as fault:
        call(tmp_path, exclud=3)  # type: ignore[operator]

    known = ", ".join(sorted(KNOWN if door == "evaluate" else OPTIONS))
    assert str(fault.value) == (
        f"{door} takes no such option: 'exclud'; did you mean 'exclude'?\n  hint: known: {known}"
    )


@pytest.mark.parametrize("wrong", [{"device": "cuba"}, {"dtype": "float33"}, {"attn": "spda"}])
def test_a_machine_that_is_not_there_is_refused_when_the_options_are_made(wrong: dict[str, str]) -> None:
    with pytest.raises(SpecError, match=r"unknown (device|dtype|attention implementation)"):
        build_options(**wrong)


def test_a_plan_follows_from_options_alone_where_no_index_is_gone_on_with() -> None:
    plan = resolve_against(
        build_options(
            model="mini-decoder",
            method="echo",
            filter=FilterSpec(tau=4),
            chunks=ragidx.ChunkSpec(size=None, overlap=0),
        )
    )

    assert (plan.spec.encoder.method, plan.spec.filter.tau, plan.spec.chunk.size) == ("echo", 4, None)
    assert plan.stored is None
    assert dataclasses.replace(plan.spec, index_type="flat").fingerprint() == plan.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "is_told"), [(128, True), (256, False)])
def test_a_narrower_width_of_an_index_names_the_command_that_encodes_nothing(
    dim: int, is_told: bool, small_corpus: Path, tmp_path: Path
) -> None:
    ragidx.build(small_corpus, tmp_path / "index", filter=FilterSpec(dim=192))

    with pytest.raises(SpecError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", filter=FilterSpec(dim=dim))

    told = f"; 'ragidx shrink --dim {dim} --index {tmp_path / 'index'}' makes it narrower, and encodes nothing"
    assert fault.value.hint.endswith(told) == is_told
