"""The options of a build: one list of names for Python and the command line, and what is said of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_type_hints

import click
import pytest

import ragidx
from ragidx.corpora.errors import SpecError
from ragidx.indexer.encoders.methods import EncoderOptions, FilterOptions
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.pipelines.ingest.options import (
    BuildKeywords,
    BuildOptions,
    ChunkOptions,
    QueryKeywords,
    StoreKeywords,
    SweepKeywords,
    build_options,
)
from ragidx.pipelines.ingest.resolve import resolve_against
from ragidx.pipelines.plan.plan import plan
from ragidx.pipelines.sweep.sweep import sweep


def test_the_options_of_an_encoder_and_a_filter_have_the_types_of_the_specs_fields() -> None:
    encoder, filter_ = get_type_hints(EncoderSpec), get_type_hints(FilterSpec)

    for name, kind in get_type_hints(EncoderOptions).items():
        assert kind == encoder[name] | (Literal["auto"] if name == "layer" else None) | None, name
    for name, kind in get_type_hints(FilterOptions).items():
        assert kind == filter_["name" if name == "filter" else name.removeprefix("filter_")] | None, name
    assert len(get_type_hints(FilterOptions)) == len(filter_)


def test_every_keyword_of_a_build_is_a_field_of_its_options_or_of_one_of_their_groups() -> None:
    groups = {"encoder": EncoderOptions, "filter": FilterOptions, "chunk": ChunkOptions}
    fields, keywords = get_type_hints(BuildOptions), get_type_hints(BuildKeywords)
    grouped = {name: kind for group in groups.values() for name, kind in get_type_hints(group).items()}

    for name, group in groups.items():
        assert fields.pop(name) is group

    fields["max_memory"] |= str  # such as 2GB: the options hold bytes
    fields["workers"] |= str  # auto
    for name in ("text_field", "id_field", "records"):
        assert fields[name] == tuple[str, ...] | None  # of several settings, or one
        fields[name] = str | Sequence[str] | None
    assert fields["fields"] == Mapping[str, tuple[str, ...]]
    fields["fields"] = Mapping[str, str | Sequence[str]] | None
    assert keywords == fields | grouped
    assert keywords.items() >= get_type_hints(QueryKeywords).items()
    assert keywords.items() >= get_type_hints(StoreKeywords).items()
    assert keywords.items() >= get_type_hints(SweepKeywords).items()


def test_the_command_line_has_every_keyword_of_a_build_but_fields_and_no_other() -> None:
    from ragidx.pipelines.cli.build import command

    options = {option.name for option in command.params if isinstance(option, click.Option) and option.expose_value}

    assert options - {"vectors", "vector_field", "index", "plan", "watch", "offline", "as_json"} == set(
        get_type_hints(BuildKeywords)
    ) - {"fields"}  # of `ragidx.toml` alone


def test_what_was_not_said_is_in_no_group() -> None:
    options = build_options(method="echo", layer=None, chunk_size="none", tau=None, strict=True)

    assert options == BuildOptions(encoder={"method": "echo"}, chunk={"chunk_size": "none"}, strict=True)


def test_one_glob_may_be_a_str_and_a_size_text() -> None:
    options = build_options(include="*.md", exclude="drafts/", max_memory="2GB")

    assert options == BuildOptions(include=("*.md",), exclude=("drafts/",), max_memory=2_000_000_000)


def test_settings_of_fields_are_tuples_and_a_name_that_is_none_is_refused() -> None:
    options = build_options(fields={"title": "product", "context": ["*.csv=a+b", "c"], "metadata": ()})

    assert options == BuildOptions(fields={"title": ("product",), "context": ("*.csv=a+b", "c")})
    with pytest.raises(SpecError) as fault:
        build_options(fields={"titel": "product"})
    assert str(fault.value) == (
        "`fields`: unknown setting 'titel'; did you mean 'title'?\n  hint: known: context, metadata, speaker, title"
    )
    with pytest.raises(SpecError) as fault:
        build_options(fields={"context": "*.csv="})
    assert str(fault.value) == (
        "`context`: '*.csv=' is not [GLOB=]FIELD\n  hint: write it as product+city, or 'data/*.csv=product+city'"
    )


@pytest.mark.parametrize(("door", "call"), [("build", ragidx.build), ("build", plan), ("sweep", sweep)])
def test_a_name_that_no_build_takes_is_refused_with_the_near_miss(door: str, call: object, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")

    with pytest.raises(SpecError) as fault:
        call(tmp_path, chunk_sise=3)  # type: ignore[operator]

    known = ", ".join(sorted((SweepKeywords if door == "sweep" else BuildKeywords).__annotations__))
    assert str(fault.value) == (
        f"{door} takes no such option: 'chunk_sise'; did you mean 'chunk_size'?\n  hint: known: {known}"
    )


@pytest.mark.parametrize("wrong", [{"device": "cuba"}, {"dtype": "float33"}, {"attn": "spda"}])
def test_a_machine_that_is_not_there_is_refused_when_the_options_are_made(wrong: dict[str, str]) -> None:
    with pytest.raises(SpecError, match=r"unknown (device|dtype|attention implementation)"):
        build_options(**wrong)


def test_a_plan_follows_from_options_alone_where_no_index_is_gone_on_with() -> None:
    plan = resolve_against(build_options(method="echo", tau=4, chunk_size="none", chunk_overlap=0))

    assert (plan.spec.encoder.method, plan.spec.filter.tau, plan.spec.chunk.size) == ("echo", 4, None)
    assert plan.stored is None
    assert dataclasses.replace(plan.spec, index_type="flat").fingerprint() == plan.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "is_told"), [(128, True), (256, False)])
def test_a_narrower_width_of_an_index_names_the_command_that_encodes_nothing(
    dim: int, is_told: bool, small_corpus: Path, tmp_path: Path
) -> None:
    ragidx.build(small_corpus, tmp_path / "index", dim=192)

    with pytest.raises(SpecError) as fault:
        ragidx.build(small_corpus, tmp_path / "index", dim=dim)

    told = f"; 'ragidx shrink --dim {dim} --index {tmp_path / 'index'}' makes it narrower, and encodes nothing"
    assert fault.value.hint.endswith(told) == is_told
