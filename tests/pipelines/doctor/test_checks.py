"""The doctor of a model: that each of its checks finds the fault it is there for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import ragidx
from ragidx.corpora.errors import ModelError, SpecError
from ragidx.indexer.encoders import backbone as backbones
from ragidx.indexer.encoders.backbone import Backbone
from ragidx.indexer.encoders.load import encoder_of, load_encoder
from ragidx.indexer.encoders.methods import resolve
from ragidx.indexer.models.locate import locate
from ragidx.pipelines.doctor import checks as probes
from ragidx.pipelines.doctor.doctor import default_filter_check, examine
from ragidx.pipelines.doctor.report import Check, Report

from ...raising import message_of

Make = Callable[..., Path]

pytestmark = pytest.mark.slow

HEAD = "head for the default filter, embedfilter"
SAME = ["alone and in a batch", "alone and padded right", "alone and padded left"]
PADDINGS = ["no padding", "padded right", "padded left"]


# a model that is well


def _named(report: Report, dtype: str = "float32") -> dict[str, Check]:
    return {check.name: check for check in report.checks if check.dtype == dtype}


def test_every_check_of_a_sound_decoder_is_made_and_holds(tiny_model: Make) -> None:
    folder = str(tiny_model("llama"))

    report = examine(folder, method="echo", device="cpu", dtype="bfloat16")

    exact, rough = _named(report), _named(report, "bfloat16")
    assert (report.model, report.device, report.dtype, report.n_failed) == (folder, "cpu", "bfloat16", 0)
    assert list(exact) == [*(f"causal attention, {padding}" for padding in PADDINGS), *SAME]
    assert list(rough) == [*SAME, "bfloat16 against float32"]
    assert {check.status for check in report.checks} == {"ok"}
    assert [exact[name].limit for name in exact] == [1e-6] * 3 + [1e-5] * 3
    assert [rough[name].limit for name in rough] == [1e-3] * 4
    assert all(check.difference is not None and not check.hint for check in [*exact.values(), *rough.values()])
    assert report.checks[-1] == Check(HEAD, "-")


def test_attention_both_ways_must_have_an_effect_and_float32_needs_no_second_look(tiny_model: Make) -> None:
    report = examine(str(tiny_model("gpt2")), method="llm2vec", device="cpu", dtype="float32")

    both_ways = [check for check in report.checks if check.at_least]
    assert [check.name for check in both_ways] == [f"bidirectional attention, {padding}" for padding in PADDINGS]
    assert all((check.difference or 0) > 1e-4 for check in both_ways)
    assert {check.dtype for check in report.checks} == {"float32", "-"}
    assert (report.n_failed, len(report.checks)) == (0, 7)


def test_a_dtype_that_is_left_to_ragidx_is_the_one_that_a_build_would_measure(tiny_model: Make) -> None:
    report = examine(str(tiny_model("llama")), method="classical", device="cpu")

    assert report.dtype in ("float32", "mixed", "bfloat16")
    assert report.n_failed == 0
    assert (f"{report.dtype} against float32" in _named(report, report.dtype)) == (report.dtype != "float32")


@pytest.mark.slow
def test_prompts_for_one_text_and_backward_attention_are_examined_too(tiny_model: Make) -> None:
    for method in ("metaeol", "reba"):
        report = examine(str(tiny_model("llama")), method=method, device="cpu", dtype="float32")

        assert (report.n_failed, len(report.checks)) == (0, 7), method


def test_input_embeddings_have_no_direction(tiny_model: Make) -> None:
    report = examine(str(tiny_model("llama")), method="classical", layer=0, device="cpu", dtype="float32", attn="sdpa")

    without = [check for check in report.checks if check.status == "not applicable"]
    assert [check.name for check in without] == [f"causal attention, {padding}" for padding in PADDINGS]
    assert {check.hint for check in without} == {"layer 0, the input embeddings, has no attention"}
    assert [check.name for check in report.checks if check.status == "ok"] == [*SAME, HEAD]


def test_a_static_model_has_no_direction_and_no_padding(tiny_model: Make) -> None:
    report = examine(str(tiny_model("llama")), method="classical", layer=0, device="cpu")

    done = [(check.name, check.dtype) for check in report.checks if check.status == "ok"]
    assert done == [(SAME[0], "float32"), (HEAD, "-")]
    left_out = {check.name: check.hint for check in report.checks if check.status == "not applicable"}
    directions = [f"causal attention, {padding}" for padding in PADDINGS]
    no_direction = dict.fromkeys(directions, "layer 0, the input embeddings, has no attention")
    assert left_out == no_direction | dict.fromkeys(SAME[1:], "each text is pooled by itself, so nothing is padded")


def test_a_model_with_modules_of_its_own_is_examined_through_them(tiny_sentence_transformer: Path) -> None:
    report = examine(str(tiny_sentence_transformer), device="cpu", dtype="bfloat16")

    done = [(check.name, check.dtype) for check in report.checks if check.status == "ok"]
    assert done == [(SAME[0], "float32"), (SAME[0], "bfloat16"), ("bfloat16 against float32", "bfloat16")]
    left_out = [check for check in report.checks if check.status == "not applicable"]
    *alike, head = left_out
    assert len(alike) == 3 + 2 + 2
    assert {check.hint for check in alike} == {"the model's own modules decide"}
    assert head == Check("head for the default filter, none", "-", status="not applicable", hint="it reads no head")
    assert report.n_failed == 0


# a model that is not: each fault is a real one, put back


def test_padding_that_moves_positions_is_found(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backbone, "_takes_no_positions", True)  # gpt2 then counts the padding before a row

    report = examine(str(tiny_model("gpt2")), method="classical", device="cpu", dtype="float32")

    failed = [check for check in report.checks if check.status == "failed"]
    assert [check.name for check in failed] == ["alone and padded left"]
    assert (failed[0].difference or 0) > 0.01
    assert failed[0].hint == (
        "ragidx pads right, so its vectors are right; do not pad left where other programs make vectors to compare"
    )


def test_attention_that_turns_causal_under_padding_is_found(tiny_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def attend_half_ways(model: Any) -> None:  # the modules' flags alone: the first way that people try
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = False

    monkeypatch.setattr(backbones, "attend_both_ways", attend_half_ways)
    monkeypatch.setattr(backbones, "check_direction", lambda *args: None)

    report = examine(str(tiny_model("llama")), method="llm2vec", device="cpu", dtype="float32")

    found = _named(report)
    assert [found[f"bidirectional attention, {padding}"].status for padding in PADDINGS] == ["ok", "failed", "failed"]
    assert found["bidirectional attention, padded right"].hint == (
        "it does not see later tokens: use a causal method such as `method=echo`, or another version of transformers"
    )
    assert found["alone and in a batch"].status == "failed"  # a batch is padded, a text alone is not


def test_a_model_that_sees_the_future_and_should_not_is_found(
    tiny_model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbones, "check_direction", lambda *args: None)
    encoder: Any = load_encoder(str(tiny_model("llama")), method="classical", device="cpu", dtype="float32")
    backbones.attend_both_ways(encoder.backbone.model)

    checks = probes.directions(encoder)

    assert [check.status for check in checks] == ["failed"] * 3
    assert {check.hint for check in checks} == {
        "it sees later tokens: use `attention=bidirectional`, or another version of transformers"
    }


def _with_states(tiny_model: Make, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """An encoder whose last norm gives what `change` makes of its states."""
    encoder: Any = load_encoder(str(tiny_model("llama")), method="classical", device="cpu", dtype="float32")
    encoder.backbone.model.norm.register_forward_hook(lambda module, args, states: change(states))
    return encoder


def test_a_vector_that_depends_on_its_neighbours_is_found(tiny_model: Make) -> None:
    encoder = _with_states(tiny_model, lambda states: states + 0.01 * states.mean(dim=0, keepdim=True))

    checks = probes.samenesses(encoder, probes._vectors(encoder, probes.TEXTS))

    assert [(check.name, check.status) for check in checks] == [(name, "failed") for name in SAME]
    assert checks[0].hint == (
        "a text's vector depends on what is computed beside it: use `device=cpu`, or another version of transformers"
    )


def test_a_number_that_is_none_fails_and_json_says_null(tiny_model: Make) -> None:
    encoder = _with_states(tiny_model, lambda states: states * float("nan"))

    checks = [
        *probes.directions(encoder),
        *probes.samenesses(encoder, probes._vectors(encoder, probes.TEXTS)),
    ]

    assert {check.status for check in checks} == {"failed"}
    assert all(check.to_json()["difference"] is None for check in checks)


@pytest.mark.slow
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
    assert [check.name for check in others] == [*(f"causal attention, {padding}" for padding in PADDINGS), *SAME]
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

    check = default_filter_check(files, resolve(files))

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
    with pytest.raises(SpecError, match="unknown dtype 'float31'"):
        examine(str(tiny_model("llama")), dtype="float31")


def test_options_of_a_model_without_a_model_are_an_error() -> None:
    assert message_of(SpecError, lambda: examine(max_length=12)) == (
        "`max_length`: it says how a model is run, and no model is named\n"
        "  hint: add `model=mini`, a folder or a hub id"
    )


@pytest.mark.parametrize("model", [None, "mini"])
@pytest.mark.parametrize("wrong", [{"device": "cuba"}, {"dtype": "float33"}, {"attn": "spda"}])
def test_a_machine_that_there_is_not_is_no_failed_check(model: str | None, wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"unknown (device|dtype|attention implementation)"):
        examine(model, **wrong)
