"""Spectroscopy of a model over counted tokens, and its picture."""

from __future__ import annotations

import builtins
import dataclasses
import importlib.util
import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragidx.corpora.errors import CorpusError, ModelError, RagidxError, SpecError
from ragidx.corpora.records import Skip
from ragidx.indexer.filters.logits import average_of_log_p, logits
from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts.tokenizer import load_tokenizer
from ragidx.indexer.specs import FilterSpec
from ragidx.pipelines.experiments.lens import plot as spectrum_plot
from ragidx.pipelines.experiments.lens.plot import draw
from ragidx.pipelines.experiments.lens.spectrum import SpectrumReport, parts_of, spectrum
from ragidx.pipelines.experiments.lens.vocabulary import Vocabulary
from ragidx.pipelines.ingest.build import build
from ragidx.pipelines.vectors import RowWriter

from ....raising import message_of

TinyModel = Callable[..., Path]


@pytest.fixture
def tiny(tiny_model: TinyModel) -> str:
    return str(tiny_model("llama"))


@pytest.fixture
def report(small_corpus: Path, tiny: str) -> SpectrumReport:
    """A random model of 32 directions and 300 tokens over six documents."""
    return spectrum(tiny, corpus=small_corpus, group_size=10)


# what is counted


def test_tokens_are_counted_in_the_documents_of_a_corpus(report: SpectrumReport, small_corpus: Path, tiny: str) -> None:
    texts = document_texts(small_corpus)
    ids = [i for each in load_tokenizer(locate(tiny)).ids(texts) for i in each]

    assert (report.n_texts, report.n_tokens, report.n_distinct) == (6, len(ids), len(set(ids)))
    assert (report.n_vocabulary, report.values.shape, report.source) == (300, (32,), str(small_corpus))
    frequent, rare, random = report.groups
    counts = np.bincount(ids, minlength=300)
    assert counts[list(frequent.ids)].tolist() == sorted(counts, reverse=True)[:10]
    assert counts[list(rare.ids)].tolist() == sorted(counts[counts > 0])[:10]
    assert (frequent.name, rare.name, random.name) == ("frequent", "rare", "random")
    assert len({*random.ids}) == 10


def test_an_index_is_counted_by_its_living_chunks_and_its_own_model_and_filter(
    small_corpus: Path, tmp_path: Path, tiny: str, report: SpectrumReport
) -> None:
    index = tmp_path / "index"
    (small_corpus / "more.txt").write_text("This one goes away again.")
    build(small_corpus, index, model=tiny, method="classical", filter=FilterSpec(dim=5))
    (small_corpus / "more.txt").unlink()
    build(small_corpus, index)

    found = spectrum(index=index, group_size=10)

    assert (found.model, found.source, found.kept) == (tiny, str(index), (13, 14, 15, 16, 17))
    assert found.n_texts == 6
    assert found.n_tokens == report.n_tokens - 3  # no chunk has the line break at the end of its file
    assert found.groups[0].ids[:5] == report.groups[0].ids[:5]


@pytest.mark.slow
def test_an_index_whose_model_has_moved_is_counted_with_the_folder_named(
    small_corpus: Path, tmp_path: Path, tiny: str, tiny_model: TinyModel
) -> None:
    old, moved = tmp_path / "old", tmp_path / "moved"
    shutil.copytree(tiny, old)
    build(small_corpus, tmp_path / "index", model=str(old), method="classical")
    old.rename(moved)

    assert spectrum(str(moved), index=tmp_path / "index", group_size=5).n_texts == 6
    with pytest.raises(ModelError, match="is not the model this index was made with: its files have changed"):
        spectrum(str(tiny_model("gpt2")), index=tmp_path / "index")


def test_what_is_left_out_of_a_corpus_is_told(small_corpus: Path, tiny: str) -> None:
    (small_corpus / "broken.txt").write_bytes(b"\0" * 5000)
    skipped: list[Skip] = []

    spectrum(tiny, corpus=small_corpus, group_size=5, on_skip=skipped.append)

    assert [(skip.where, skip.reason) for skip in skipped] == [("broken.txt", "binary file")]
    assert spectrum(tiny, corpus=small_corpus, group_size=5).n_texts == 6


# what is measured


def test_the_deltas_of_each_group_add_up_to_minus_one(report: SpectrumReport) -> None:
    for group in report.groups:
        assert group.delta.shape == (32,)
        assert group.delta.sum() == pytest.approx(-1.0)


def test_mean_log_p_mean_logit_and_fit_are_those_of_the_average_token(report: SpectrumReport, tiny: str) -> None:
    files = locate(tiny)
    vocabulary = Vocabulary(files, load_tokenizer(files))
    log_p = np.full(300, np.log(1 / (report.n_tokens + 300)))
    counts, _ = vocabulary.count(document_texts(Path(report.source)))
    log_p += np.log(counts + 1)
    read = logits(vocabulary.head, [average_of_log_p(vocabulary.head, vocabulary.spectrum, log_p)])[0]

    assert report.fit == pytest.approx(np.corrcoef(read, log_p)[0, 1])
    for group in report.groups:
        ids = list(group.ids)
        assert (group.log_p, group.logit) == pytest.approx((log_p[ids].mean(), read[ids].mean()))
        assert group.tokens == tuple(vocabulary.shown(i) for i in ids)


def test_taking_the_mean_away_changes_what_is_measured_and_not_what_is_counted(
    report: SpectrumReport, small_corpus: Path, tiny: str
) -> None:
    centred = spectrum(tiny, corpus=small_corpus, group_size=10, centred=True)

    assert (centred.centred, report.centred) == (True, False)
    assert centred.n_tokens == report.n_tokens
    for one, other in zip(centred.groups, report.groups, strict=True):
        assert one.ids == other.ids
        assert one.delta.sum() == pytest.approx(-1.0)
        assert abs(one.delta - other.delta).max() > 1e-3
    shift = [other.log_p - one.log_p for one, other in zip(centred.groups, report.groups, strict=True)]
    assert shift == pytest.approx([shift[0]] * 3)


def test_a_seed_draws_the_same_tokens_again_and_another_seed_others(
    report: SpectrumReport, small_corpus: Path, tiny: str
) -> None:
    again, other = (spectrum(tiny, corpus=small_corpus, group_size=10, seed=seed) for seed in (0, 1))

    assert json.dumps(again.to_json()) == json.dumps(report.to_json())
    assert other.groups[0].ids == report.groups[0].ids
    assert other.groups[2].ids != report.groups[2].ids


@pytest.mark.parametrize(
    ("filter", "kept"),
    [
        (None, range(8, 24)),  # the default of a decoder: the middle at tau 2
        (FilterSpec(dim=3, offset=4), (4, 5, 6)),
        (FilterSpec(name="secondary", dim=3), (0, 1, 2)),
        (FilterSpec(name="bulk", dim=3), (0, 1, 31)),
        (FilterSpec(name="truncation", dim=3), None),  # coordinates are no directions
        (FilterSpec(name="none"), None),
    ],
    ids=str,
)
def test_the_kept_directions_are_those_of_the_filter(
    small_corpus: Path, tiny: str, filter: FilterSpec | None, kept: Any
) -> None:
    found = spectrum(tiny, corpus=small_corpus, filter=filter, group_size=5)

    assert found.kept == (None if kept is None else tuple(kept))
    names = {part.name: part for part in found.groups[0].parts}
    assert ("dropped by the filter" in names) == (kept is not None)
    if kept is not None:
        sizes = abs(found.groups[0].delta)
        left_out = names["dropped by the filter"]
        assert left_out.n_directions == 32 - len(kept)
        assert left_out.share == pytest.approx(1 - sizes[list(kept)].sum() / sizes.sum())


@given(d=st.integers(2, 300), seed=st.integers(0, 2**32 - 1))
def test_the_parts_of_a_spectrum_are_shares_of_the_whole(d: int, seed: int) -> None:
    changes = np.random.default_rng(seed).standard_normal(d)

    parts = {part.name: part for part in parts_of(changes, (0,))}

    assert list(parts) == [
        *("first 1 %", "first 5 %", "first 10 %", "middle half"),
        *("last 10 %", "last 5 %", "last 1 %", "dropped by the filter"),
    ]
    sizes = abs(changes) / abs(changes).sum()
    tenth = parts["first 10 %"].n_directions
    assert parts["first 10 %"].share == pytest.approx(sizes[:tenth].sum())
    assert parts["last 10 %"].share == pytest.approx(sizes[-tenth:].sum())
    assert parts["dropped by the filter"].share == pytest.approx(1 - sizes[0])
    assert parts["first 1 %"].share <= parts["first 5 %"].share <= parts["first 10 %"].share
    assert all(1 <= part.n_directions <= d and 0 <= part.share <= 1 + 1e-12 for part in parts.values())


def test_a_report_goes_to_json(report: SpectrumReport) -> None:
    data = json.loads(json.dumps(report.to_json()))

    assert list(data) == [field.name for field in dataclasses.fields(report)]
    assert (len(data["values"]), len(data["groups"]), data["kept"]) == (32, 3, list(range(8, 24)))
    group = data["groups"][0]
    assert list(group) == ["name", "tokens", "log_p", "logit", "parts", "delta"]
    assert group["tokens"][0] == {"id": report.groups[0].ids[0], "token": report.groups[0].tokens[0]}
    assert list(group["parts"][0]) == ["name", "directions", "share"]


@pytest.mark.slow
def test_the_top_direction_of_mini_decoder_carries_all_tokens_and_when_centred_its_bottom_the_frequent_ones() -> None:
    from ragidx.pipelines.cli.demo import sample_corpus

    plain, centred = (spectrum(corpus=sample_corpus(), centred=centred) for centred in (False, True))

    for group in plain.groups:
        assert int(np.argmax(abs(group.delta))) == 0
        assert group.delta[0] == pytest.approx(-1.0, abs=0.1)
    last = [next(part.share for part in group.parts if part.name == "last 5 %") for group in centred.groups]
    assert last[0] > 0.2 > max(last[1:])
    assert plain.fit < 0 < centred.fit


# what goes wrong


def test_tokens_are_counted_in_one_place(small_corpus: Path) -> None:
    for more in ({}, {"corpus": small_corpus, "index": small_corpus}):
        with pytest.raises(SpecError) as told:
            spectrum(**more)

        assert str(told.value) == (
            "tokens are counted in a corpus or in an index\n  hint: give one of `corpus` and `index`"
        )


def test_a_group_needs_a_token_and_a_corpus_enough_of_them(small_corpus: Path, tiny: str) -> None:
    with pytest.raises(SpecError) as none:
        spectrum(tiny, corpus=small_corpus, group_size=0)
    with pytest.raises(CorpusError) as few:
        spectrum(tiny, corpus=small_corpus)

    n = spectrum(tiny, corpus=small_corpus, group_size=1).n_distinct
    assert str(none.value) == "`group_size`: groups of 0 tokens hold none\n  hint: give 1 or more"
    assert str(few.value) == (
        f"{small_corpus}: {n} different tokens were counted; 100 frequent and 100 rare ones need 200\n"
        f"  hint: count a larger corpus, or ask for at most {n // 2} with `group_size`"
    )
    assert spectrum(tiny, corpus=small_corpus, group_size=n // 2).n_distinct == n


def test_a_corpus_without_text_has_nothing_to_count(tmp_path: Path, tiny: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "blank.txt").write_text(" \n")

    assert message_of(CorpusError, lambda: spectrum(tiny, corpus=tmp_path / "empty")) == (
        f"{tmp_path / 'empty'}: there is no text in it to count tokens of\n  hint: name a corpus with documents"
    )


# the picture


@pytest.mark.slow
@pytest.mark.parametrize("centred", [False, True])
def test_a_picture_is_drawn_in_both_formats_the_same_each_time(
    small_corpus: Path, tiny: str, tmp_path: Path, centred: bool
) -> None:
    found = spectrum(tiny, corpus=small_corpus, group_size=10, centred=centred)

    png, svg = draw(found, "png"), draw(found, "svg")

    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(svg) < 150_000
    assert draw(found, "svg") == svg


@pytest.mark.slow
def test_a_picture_shades_what_the_filter_leaves_out_and_no_more(small_corpus: Path, tiny: str) -> None:
    ends, none, everything = (
        draw(spectrum(tiny, corpus=small_corpus, filter=filter, group_size=5), "svg").count(b"fill: #e9e4d8")
        for filter in (FilterSpec(tau=2.0), FilterSpec(name="none"), FilterSpec(tau=1.0))
    )

    assert ends == 2 * 4 + 1  # both ends, in four panels, and the legend
    assert (none, everything) == (0, 1)


@pytest.mark.slow
def test_a_wide_spectrum_keeps_its_points_in_one_bitmap_a_panel(
    report: SpectrumReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = draw(report, "svg").count(b"<image")
    monkeypatch.setattr(spectrum_plot, "_POINTS", 8)

    assert (vectors, draw(report, "svg").count(b"<image") >= 3) == (0, True)


def test_an_unknown_format_is_refused(report: SpectrumReport) -> None:
    said = message_of(SpecError, lambda: draw(report, "sgv"))

    assert said == "unknown format of a picture 'sgv'; did you mean 'svg'?\n  hint: known: png, svg"


def test_without_matplotlib_a_picture_names_the_extra(report: SpectrumReport, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else real(name))

    assert message_of(RagidxError, lambda: draw(report, "png")) == (
        "pictures need matplotlib, which is not installed\n  hint: pip install '.[plot]' in a checkout of ragidx"
    )


def test_a_spectrum_needs_no_matplotlib(small_corpus: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise AssertionError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)

    assert spectrum(tiny, corpus=small_corpus, group_size=5).n_texts == 6


def document_texts(corpus: Path) -> list[str]:
    from ragidx.corpora.readers.registry import documents

    return [document.text for document in documents(corpus, on_skip=lambda skip: None)]


@pytest.mark.slow
def test_an_index_of_precomputed_vectors_has_no_tokens(tmp_path: Path) -> None:
    with RowWriter(tmp_path / "index", dim=2) as writer:
        writer.add_vectors(["a"], [[1.0, 0.0]])
        writer.commit()

    assert message_of(ModelError, lambda: spectrum(index=tmp_path / "index")) == (
        f"{tmp_path / 'index'}: the index holds precomputed vectors, and no model whose tokens could be counted\n"
        "  hint: count in a corpus with `corpus`, and name a `model`"
    )
