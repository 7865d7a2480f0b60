"""The doctor of a model: that each of its checks finds the fault it is there for."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders import backbone as backbones
from ragidx.indexer.encoders.load import encoder_of, load_encoder
from ragidx.indexer.models.locate import locate
from ragidx.pipelines.doctor import Check, DoctorReport, examine
from ragidx.pipelines.doctor import checks as probes
from ragidx.pipelines.doctor.doctor import head_check

Make = Callable[..., Path]

pytestmark = pytest.mark.slow

HEAD = "head for the default filter, embedfilter"
SAME = "alone and in a batch"
BOTH = "causal against both ways: cosine "


# a model that is well


def _named(report: DoctorReport, dtype: str = "float32") -> dict[str, Check]:
    return {check.name: check for check in report.checks if check.dtype == dtype}


def test_every_check_of_a_sound_decoder_is_made_and_holds(tiny_model: Make) -> None:
    folder = str(tiny_model("llama"))

    report = examine(folder, method="echo", device="cpu", dtype="bfloat16")

    assert (report.model, report.device, report.dtype, report.n_failed) == (folder, "cpu", "bfloat16", 0)
    direction, exact, both, rough, against, head = report.checks
    assert both.name.startswith(BOTH)
    assert (direction, head) == (Check("causal attention", "float32"), Check(HEAD, "-"))
    assert [(check.name, check.dtype, check.limit) for check in (exact, rough, against)] == [
        (SAME, "float32", 1e-5),
        (SAME, "bfloat16", 1e-3),
        ("bfloat16 against float32", "bfloat16", 1e-3),
    ]
    assert all(check.difference is not None and not check.hint for check in (exact, rough, against))


@pytest.mark.parametrize(
    ("options", "direction"),
    [
        ({"method": "llm2vec", "template": "see:{text}"}, ["bidirectional attention"]),
        ({"method": "metaeol"}, ["causal attention"]),
        ({"method": "reba"}, ["causal attention"]),
        ({"method": "classical", "layer": 0, "attn": "sdpa"}, []),  # the input embeddings have no attention
        ({"method": "classical", "layer": 0}, []),  # static: no network at all
    ],
)
def test_each_method_is_examined_and_float32_needs_no_second_look(
    tiny_model: Make, options: dict[str, Any], direction: list[str]
) -> None:
    dtype = "float32" if options.get("layer") is None or "attn" in options else "auto"

    report = examine(str(tiny_model("llama")), device="cpu", dtype=dtype, **options)

    reads_layers = bool(direction) and options["method"] != "reba"
    names = [check.name for check in report.checks if not check.name.startswith(BOTH)]
    assert names == [*direction, SAME, HEAD]
    assert len(report.checks) == len(names) + reads_layers
    assert {check.dtype for check in report.checks} == {"float32", "-"}
    assert report.n_failed == 0


def test_a_decoder_that_attends_both_ways_is_tried_behind_a_beginning(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examined() -> Check:
        checks = examine(str(tiny_model("llama")), method="llm2vec", device="cpu", dtype="float32").checks
        return next(check for check in checks if check.name.startswith("rests of texts found: "))

    found = examined()
    plain, behind = (float(word) for word in re.findall(r"0\.\d\d", found.name))
    assert re.fullmatch(r"rests of texts found: 0\.\d\d, behind a beginning 0\.\d\d", found.name)
    assert 0 < plain < 1
    assert (found.status, found.dtype, bool(found.hint)) == ("ok", "float32", behind > plain + 0.1)
    monkeypatch.setattr(probes, "_MUCH", -1)
    assert examined().hint == (
        "use `template='Represent the meaning of this text, so that similar texts are found:{text}'`"
    )


def _both(folder: Path, **options: Any) -> Check:
    checks = examine(str(folder), device="cpu", dtype="float32", **options).checks
    return next(check for check in checks if check.name.startswith("causal against both ways"))


@pytest.mark.parametrize(("method", "read_as"), [("echo", "classical"), ("llm2vec", "llm2vec")])
def test_states_causal_and_both_ways_are_compared_by_layer_as_two_models_give_them(
    tiny_model: Make, method: str, read_as: str
) -> None:
    folder = tiny_model("llama")
    texts = [" ".join(words) for words in probes._passages()[:3]]
    options: dict[str, Any] = {"method": read_as, "device": "cpu", "dtype": "float32"}
    causal, both = (
        load_encoder(str(folder), attention=attention, **options).encode_layers(texts)
        for attention in ("causal", "bidirectional")
    )
    units = [states / np.linalg.norm(states, axis=2, keepdims=True) for states in (causal, both)]
    one, two = (units[0] * units[1]).sum(axis=2).mean(axis=1)

    least = f"{min(one, two):.2f} in layer {1 if one < two else 2}"
    said = f"causal against both ways: cosine {(one + two) / 2:.2f}, least {least}: states change little"
    assert _both(folder, method=method) == Check(said, "float32")


def test_a_model_whose_states_change_much_is_to_be_trained_before_it_attends_both_ways(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_ALIKE", 1)

    found = _both(tiny_model("llama"), method="classical")

    assert found.name.endswith(": states change much")
    assert (found.status, found.hint) == ("ok", "before it attends both ways, train it: `ragidx train mntp`")


def test_a_model_that_stays_causal_is_told_with_the_reason(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("llama")
    monkeypatch.setattr(backbones, "attend_both_ways", lambda model: [])

    found = _both(folder, method="classical")

    assert found == Check(
        "causal against both ways",
        "float32",
        status="not applicable",
        hint=f"'{folder}' was asked for bidirectional attention and stays causal in a batch without padding",
    )


def test_a_dtype_that_is_left_to_ragidx_is_the_one_that_a_build_would_measure(tiny_model: Make) -> None:
    report = examine(str(tiny_model("llama")), method="classical", device="cpu")

    assert report.dtype in ("float32", "mixed", "bfloat16")
    assert report.n_failed == 0
    assert (f"{report.dtype} against float32" in _named(report, report.dtype)) == (report.dtype != "float32")


def test_a_model_with_modules_of_its_own_is_examined_through_them(tiny_sentence_transformer: Path) -> None:
    report = examine(str(tiny_sentence_transformer), device="cpu", dtype="bfloat16")

    assert [(check.name, check.dtype, check.status) for check in report.checks] == [  # its builds read no head
        (SAME, "float32", "ok"),
        (SAME, "bfloat16", "ok"),
        ("bfloat16 against float32", "bfloat16", "ok"),
    ]


# a model that is not: each fault is a real one


def test_padding_that_moves_vectors_is_found(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def attend_half_ways(model: Any) -> backbones.Settings:  # the modules' flags alone: as people try it first
        return backbones._put([(one, "is_causal", False) for one in model.modules() if hasattr(one, "is_causal")])

    monkeypatch.setattr(backbones, "attend_both_ways", attend_half_ways)
    monkeypatch.setattr(backbones, "check_direction", lambda *args: None)

    report = examine(str(tiny_model("llama")), method="llm2vec", device="cpu", dtype="float32")

    assert _named(report)[SAME].status == "failed"  # a batch is padded, a text alone is not


def test_attention_in_the_other_direction_is_found(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "attend_both_ways", lambda model: None)
    folder = str(tiny_model("llama"))

    loading, *_ = examine(folder, method="llm2vec", device="cpu", dtype="float32").checks

    assert (loading.name, loading.status) == ("loading", "failed")
    assert loading.hint == (
        f"'{folder}' was asked for bidirectional attention and stays causal in a batch without padding; choose a "
        "causal method for it, such as `method=echo`"
    )


def _with_states(tiny_model: Make, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """An encoder whose last norm gives what `change` makes of its states."""
    encoder: Any = load_encoder(str(tiny_model("llama")), method="classical", device="cpu", dtype="float32")
    encoder.backbone.model.norm.register_forward_hook(lambda module, args, states: change(states))
    return encoder


def test_a_vector_that_depends_on_its_neighbours_is_found(tiny_model: Make) -> None:
    encoder = _with_states(tiny_model, lambda states: states + 0.01 * states.mean(dim=0, keepdim=True))

    check = probes.alone_and_together(encoder, encoder.encode_document(probes.TEXTS))

    assert (check.name, check.status) == (SAME, "failed")
    assert check.hint == (
        "a text's vector depends on what is computed beside it: use `device=cpu`, or another version of transformers"
    )


def test_a_number_that_is_none_fails_without_a_difference(tiny_model: Make) -> None:
    encoder = _with_states(tiny_model, lambda states: states * float("nan"))

    check = probes.alone_and_together(encoder, np.full((len(probes.TEXTS), encoder.hidden), np.nan, np.float32))

    assert (check.status, check.difference) == ("failed", None)


def test_a_dtype_that_moves_vectors_too_far_is_found(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ROUGH", 1e-9)

    report = examine(str(tiny_model("llama")), method="classical", device="cpu", dtype="bfloat16")

    check = _named(report, "bfloat16")["bfloat16 against float32"]
    assert (check.status, check.hint) == ("failed", "use `dtype=float32`")


def test_weights_that_do_not_fit_in_float32_are_looked_at_in_the_dtype_that_is_used(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small_card(*args: Any, dtype: str, **options: Any) -> Any:
        if dtype == "float32":
            raise torch.OutOfMemoryError
        return encoder_of(*args, dtype=dtype, **options)

    monkeypatch.setattr(probes, "encoder_of", small_card)

    report = examine(str(tiny_model("llama")), method="classical", device="cpu", dtype="bfloat16")

    first, *others, head = report.checks
    assert first == Check(
        "loading",
        "float32",
        status="not applicable",
        hint="the weights do not fit into the memory of 'cpu': only bfloat16 is looked at",
    )
    assert [check.name for check in others] == ["causal attention", SAME]
    assert {(check.dtype, check.status) for check in others} == {("bfloat16", "ok")}
    assert head == Check(HEAD, "-")

    too_large = examine(str(tiny_model("llama")), method="classical", device="cpu", dtype="float32")

    assert too_large.checks == (
        Check(
            "loading",
            "float32",
            status="failed",
            hint="the weights do not fit into the memory of 'cpu': use a smaller model, or `device=cpu`",
        ),
        head,
    )


def test_a_model_that_cannot_be_loaded_as_asked_is_a_failed_check(tiny_sentence_transformer: Path) -> None:
    report = examine(str(tiny_sentence_transformer), method="echo", device="cpu")

    check, head = report.checks
    assert (check.name, check.status, report.n_failed) == ("loading", "failed", 2)
    assert (head.name, head.status) == (HEAD, "failed")
    assert check.hint == (
        f"'{tiny_sentence_transformer}' was asked for causal attention and attends both ways in a batch without "
        "padding; it is not a decoder: use it as a sentence-transformers model, or ask for `attention=bidirectional`"
    )


def test_a_model_without_the_head_that_its_default_filter_reads_is_told_and_a_build_says_the_same(
    tiny_model: Make, small_corpus: Path, tmp_path: Path
) -> None:
    folder = str(tiny_model("bert"))
    options = {"method": "llm2vec", "device": "cpu", "dtype": "float32"}

    report = examine(folder, **options)

    assert [check for check in report.checks if check.status == "failed"] == [
        Check(
            HEAD,
            "-",
            status="failed",
            hint=f"'{folder}' has no unembedding matrix, so it has no spectrum: with a build, use `filter=none`, or one"
            " that reads no head: truncation, random, whitening, pca",
        )
    ]
    with pytest.raises(ModelError, match="has no unembedding matrix, so it has no spectrum"):
        ragidx.build(small_corpus, tmp_path / "index", model=folder, **options)
    assert (
        ragidx.build(small_corpus, tmp_path / "index", model=folder, **options, filter="truncation").report.n_chunks
        == 6
    )


def test_a_head_of_eight_bits_is_told(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("llama", tie_word_embeddings=False), tmp_path / "tiny")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"lm_head.weight": weights["lm_head.weight"].to(torch.int8)}, folder / "model.safetensors")
    files = locate(str(folder))

    check = head_check(files, "embedfilter")

    assert (check.name, check.status) == (HEAD, "failed")
    assert check.hint == (
        "the unembedding matrix 'lm_head.weight' is stored as I8, which has no spectrum: with a build, use a "
        "checkpoint with the head in float16, bfloat16 or float32; or use `filter=none`, or one that reads no head: "
        "truncation, random, whitening, pca"
    )


# what the user got wrong


def test_a_slip_of_the_user_is_an_error_and_no_failed_check(tiny_model: Make) -> None:
    with pytest.raises(ModelError, match="no model 'minni'"):
        examine("minni")
    with pytest.raises(SpecError, match="unknown method 'ecco'; did you mean 'echo'"):
        examine(str(tiny_model("llama")), method="ecco")
    with pytest.raises(SpecError, match="the model has 2 layers, there is no layer 9"):
        examine(str(tiny_model("llama")), layer=9, device="cpu")


@pytest.mark.parametrize("model", [None, "mini"])
@pytest.mark.parametrize("wrong", [{"device": "cuba"}, {"dtype": "float33"}, {"attn": "spda"}])
def test_a_machine_that_there_is_not_is_no_failed_check(model: str | None, wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"unknown (device|dtype|attention implementation)"):
        examine(model, **wrong)
