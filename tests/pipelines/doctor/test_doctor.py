"""The doctor: what it says of a machine, and that each of its checks of a model finds the fault it is there for."""

from __future__ import annotations

import doctest
import importlib.metadata
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
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
from ragidx.pipelines.doctor import packages as installed
from ragidx.pipelines.doctor import report as diagnosis
from ragidx.pipelines.doctor.doctor import default_filter_check, examine
from ragidx.pipelines.doctor.machine import Gpu, caches, devices, findings, processor, threads
from ragidx.pipelines.doctor.packages import core, extras, package, requirements
from ragidx.pipelines.doctor.report import Check, Finding, Report
from ragidx.pipelines.resources import allowed_bytes, allowed_cores

from ..conftest import Done

Run = Callable[..., Done]
Make = Callable[..., Path]

pytestmark = pytest.mark.slow

HEAD = "head for the default filter, embedfilter"
SAME = ["alone and in a batch", "alone and padded right", "alone and padded left"]
PADDINGS = ["no padding", "padded right", "padded left"]


# the machine


def test_the_main_packages_are_listed_with_their_versions() -> None:
    found = {finding.name: finding.value for finding in findings()}

    assert found["ragidx"] == ragidx.__version__
    for name in ("transformers", "tokenizers", "safetensors", "sentence-transformers", "numpy", "pyarrow"):
        assert found[name] == importlib.metadata.version(name)
    assert found["torch"].startswith(f"{torch.__version__}, ")
    assert found["torch"].endswith(f", {torch.backends.cpu.get_cpu_capability()}")
    assert re.match(r"[\d.]+ \(faiss-[cg]pu, (no GPU code|GPU code, \d+ seen), ", found["faiss"])
    assert re.match(r"\d+ cores?, \d+ usable", found["processor"])
    assert found["python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert {"memory", "threads", "extra 'docs'", "cache of ragidx", "cache of the hub", "network"} <= found.keys()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ((1, 1, None), "1 core, 1 usable"),
        ((8, 2, None), "8 cores, 2 usable"),
        ((64, 64, 1.5), "64 cores, 64 usable, limited to the time of 1.5"),
        ((8, 2, 4.0), "8 cores, 2 usable"),
    ],
)
def test_a_processor_is_told_as_far_as_it_may_be_used(given: tuple[int, int, float | None], value: str) -> None:
    assert processor(*given) == Finding("processor", value)


@pytest.mark.parametrize(("count", "usable", "allowed"), [(2, 2, None), (1, 8, 0.5), (3, 8, 3.9)])
def test_threads_that_have_their_cores_are_well(count: int, usable: int, allowed: float | None) -> None:
    assert threads(count, usable, allowed) == Finding("threads", f"torch computes with {count}")


@pytest.mark.parametrize(("count", "usable", "allowed", "room"), [(64, 64, 2.5, "2 cores"), (2, 1, None, "1 core")])
def test_more_threads_than_cores_are_a_warning(count: int, usable: int, allowed: float | None, room: str) -> None:
    assert threads(count, usable, allowed) == Finding(
        "threads",
        f"torch computes with {count} on the time of {room}: they wait for each other",
        "warning",
        f"set OMP_NUM_THREADS={room[0]}",
    )


def test_devices_are_named_and_what_is_in_their_way_is_told() -> None:
    cards = [Gpu("NVIDIA H100", 80 << 30, True), Gpu("Tesla T4", 15 << 30, False)]
    here = {"mps": False, "build": "", "driver": False}

    assert devices(cards, **here) == [
        Finding("cuda:0", "NVIDIA H100, 80.0 GiB, bfloat16"),
        Finding("cuda:1", "Tesla T4, 15.0 GiB, no bfloat16"),
    ]
    assert devices([], **here | {"mps": True}) == [Finding("mps", "an Apple GPU")]
    assert devices([], **here) == [Finding("gpu", "none: models run on the processor")]
    assert devices([], **here | {"driver": True}) == [
        Finding(
            "gpu",
            "there is an NVIDIA driver, but this torch is without CUDA",
            "warning",
            "install a torch that is built with CUDA",
        )
    ]
    assert devices([], **here | {"driver": True, "build": "CUDA 13.2"}, reason="the driver is too old") == [
        Finding(
            "gpu",
            "there is an NVIDIA driver, but torch sees no GPU: the driver is too old",
            "warning",
            "see whether nvidia-smi lists one, and whether CUDA_VISIBLE_DEVICES hides it",
        )
    ]


def test_caches_and_the_network_are_told_and_a_cache_that_cannot_be_written_is_a_warning() -> None:
    folder = Path("/home/ada/.cache/ragidx")

    assert caches(folder, writable=True, hub="/hub", offline=False) == [
        Finding("cache of ragidx", "/home/ada/.cache/ragidx"),
        Finding("cache of the hub", "/hub"),
        Finding("network", "used only for a model named by a hub id that is not in the hub's cache"),
    ]
    closed, _, off = caches(folder, writable=False, hub="/hub", offline=True)
    assert closed == Finding(
        "cache of ragidx",
        "/home/ada/.cache/ragidx cannot be written: spectra and checksums are computed again each time",
        "warning",
        "make it writable, or set HOME to a folder that is",
    )
    assert off.value == "never used: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"


@pytest.mark.parametrize(
    ("home", "status"), [("", "ok"), ("none/yet", "ok"), ("file", "warning"), ("file/x", "warning")]
)
def test_a_home_that_is_a_file_holds_no_cache(
    home: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / home))

    found = next(finding for finding in findings() if finding.name == "cache of ragidx")

    assert found.status == status
    assert not (tmp_path / "none").exists()


# limits of control groups


def _group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_a_limit_of_version_2_is_read_and_the_tightest_of_the_groups_around_holds(tmp_path: Path) -> None:
    _group(tmp_path, cpu__max="max 100000", memory__max="max")
    _group(tmp_path / "a", cpu__max="150000 100000", memory__max="2048")
    _group(tmp_path / "a" / "b", cpu__max="400000 100000", memory__max="4096")

    assert allowed_cores(tmp_path, "0::/a/b\n") == 1.5
    assert allowed_bytes(tmp_path, "0::/a/b\n") == 2048
    assert allowed_cores(tmp_path, "0::/\n") is None
    assert allowed_bytes(tmp_path, "0::/\n") is None


def test_a_limit_of_version_1_is_read_whatever_its_folder_is_called(tmp_path: Path) -> None:
    _group(tmp_path / "cpu" / "box", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    _group(tmp_path / "memory" / "box", memory__limit_in_bytes="9223372036854771712")
    membership = "4:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/\n"

    assert allowed_cores(tmp_path, membership) == 0.5
    assert allowed_bytes(tmp_path, membership) is None


def test_a_group_whose_path_is_that_outside_the_container_has_the_limits_of_the_root(tmp_path: Path) -> None:
    _group(tmp_path, cpu__max="200000 100000")

    assert allowed_cores(tmp_path, "0::/kubepods/pod17\n") == 2.0


@pytest.mark.parametrize("quota", ["", "max 100000", "100000", "-1 100000", "1 0", "x y"])
def test_what_is_no_limit_is_none(quota: str, tmp_path: Path) -> None:
    _group(tmp_path, cpu__max=quota)

    assert allowed_cores(tmp_path, "0::/\n") is None


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert allowed_cores(tmp_path, "") is None
    assert allowed_bytes(tmp_path / "none", "0::/a\n") is None


# what is installed


def test_the_packages_own_metadata_is_what_installed_versions_are_held_against() -> None:
    needed = requirements()

    assert ("torch", "") in [(one.package, one.extra) for one in needed]
    assert all(one.floor for one in needed if one.package != "ragidx")
    assert {finding.status for finding in core(needed)} == {"ok"}


def test_a_package_that_is_missing_or_too_old_is_a_warning_that_says_what_to_install() -> None:
    have = importlib.metadata.version("numpy")
    needed = requirements(["numpy>=99.1", "no-such-package>=2.0", "click>=1.0"])

    found = core(needed)

    assert package("numpy", needed) in found
    assert package("numpy", needed) == Finding(
        "numpy", f"{have}, and ragidx needs 99.1 or newer", "warning", "pip install --upgrade 'numpy>=99.1'"
    )
    assert found[-1] == Finding("no-such-package", "not installed", "warning", "pip install 'no-such-package>=2.0'")
    assert "click" not in [finding.name for finding in found]  # what is well and no main package has no line


def test_an_extra_is_told_with_its_packages_or_how_to_get_it() -> None:
    lines = [
        'faiss-cpu>=1.15; extra == "cpu"',
        'pyarrow>=1; extra == "have"',
        'no-such-package>=1; extra == "want"',
        'ragidx[have]; extra == "more"',
        'numpy>=1; extra == "more"',
        'ragidx[have,want]; extra == "all"',
        'pytest>=1; extra == "test"',
    ]
    arrow, numpy = importlib.metadata.version("pyarrow"), importlib.metadata.version("numpy")

    assert extras(requirements(lines)) == [
        Finding("extra 'have'", f"pyarrow {arrow}"),
        Finding("extra 'want'", "not installed: no-such-package", "absent", "pip install 'ragidx[want]'"),
        Finding("extra 'more'", f"numpy {numpy}, pyarrow {arrow}"),
    ]


def _faiss() -> Finding:
    return next(finding for finding in findings() if finding.name == "faiss")


def test_two_packages_of_faiss_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("faiss-cpu", "faiss-gpu-cu12"):
        folder = tmp_path / f"{name.replace('-', '_')}-1.15.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.15.1\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert _faiss() == Finding(
        "faiss",
        "faiss-cpu and faiss-gpu-cu12 are both installed, and overwrite each other's files",
        "warning",
        "pip uninstall -y faiss-cpu faiss-gpu-cu12, then install one of them again",
    )


def test_no_faiss_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)  # what an import finds where there is none

    assert _faiss() == Finding(
        "faiss",
        "faiss is not installed",
        "warning",
        "pip install 'ragidx[cpu]' (or 'ragidx[gpu]' on a machine with an NVIDIA GPU)",
    )


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

    assert report.dtype in ("float32", "mixed")
    assert report.n_failed == 0
    assert (f"{report.dtype} against float32" in _named(report, report.dtype)) == (report.dtype == "mixed")


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
        "ragidx pads right, so its vectors stand; do not pad left where other programs make vectors to compare"
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
        "it does not see later tokens: use a causal method such as --method echo, or another version of transformers"
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
        "it sees later tokens: use --attention bidirectional, or another version of transformers"
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
        "a text's vector depends on what is computed beside it: use --device cpu, or another version of transformers"
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
    assert (check.status, check.hint) == ("failed", "use --dtype float32")


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
            hint="the weights do not fit into the memory of 'cpu': use a smaller model, or --device cpu",
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
        "padding; it is no decoder: use it as a sentence-transformers model, or ask for --attention bidirectional"
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
            hint=f"'{folder}' has no unembedding matrix, so it has no spectrum: with a build, use --filter none, or one"
            " that reads no head: truncation, random, whitening, pca",
        )
    ]
    with pytest.raises(ModelError, match="has no unembedding matrix, so it has no spectrum"):
        ragidx.build(small_corpus, tmp_path / "index", model=folder, **options)
    assert ragidx.build(small_corpus, tmp_path / "index", model=folder, **options, filter="truncation").n_chunks == 6


def test_a_head_of_eight_bits_is_told(tiny_model: Make, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model("llama", tie_word_embeddings=False), tmp_path / "tiny")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"lm_head.weight": weights["lm_head.weight"].to(torch.int8)}, folder / "model.safetensors")
    files = locate(str(folder))

    check = default_filter_check(files, resolve(files))

    assert (check.name, check.status) == (HEAD, "failed")
    assert check.hint == (
        "the unembedding matrix 'lm_head.weight' is stored as I8, which has no spectrum: with a build, use a "
        "checkpoint with the head in float16, bfloat16 or float32; or use --filter none, or one that reads no head: "
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
    with pytest.raises(SpecError) as fault:
        examine(max_length=12)

    assert str(fault.value) == (
        "--max-length: it says how a model is run, and no model is named\n"
        "  hint: add --model mini, a folder or a hub id"
    )


# the command


def test_the_command_shows_the_machine_on_one_screen(run: Run) -> None:
    people, machines = run("doctor"), run("doctor", "--json")

    report = json.loads(machines.out)
    lines = people.out.splitlines()
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert re.split(r"  +", lines[0]) == ["status", "what", "found"]
    assert len(lines) <= 40
    for finding in report["findings"]:
        line = rf"^{finding['status']} +{re.escape(finding['name'])} +{re.escape(finding['value'])}$"
        assert re.search(line, people.out, re.MULTILINE), finding["name"]
        assert finding["status"] == "ok" or f"-> {finding['hint']}" in people.out
    assert list(report) == ["ragidx", "findings", "model", "encoder", "device", "dtype", "checks", "n_failed"]
    assert (report["model"], report["checks"], report["n_failed"]) == (None, [], 0)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_the_command_shows_the_checks_of_a_model_and_ends_well(run: Run) -> None:
    args = ("doctor", "--model", "tiny", "--method", "llm2vec", "--device", "cpu", "--dtype", "float32")

    people, machines = run(*args), run(*args, "--json")

    report = json.loads(machines.out)
    blocks = people.out.split("\n\n")
    assert (people.status, people.err, machines.status, machines.err) == (0, "", 0, "")
    assert blocks[1].splitlines() == [
        "model         tiny",
        "encoder       llm2vec, mean pooling, bidirectional attention, last layer",
        "a build here  cpu, float32",
    ]
    head, *table = blocks[2].splitlines()
    assert re.split(r"  +", head) == ["status", "check", "in", "worst", "limit", "what to do"]
    for line, check in zip(table, report["checks"], strict=True):
        if check["name"] == HEAD:
            assert re.split(r"  +", line) == ["ok", HEAD, "-", "-", "-"]
            continue
        limit = f"> {check['limit']:.0e}" if check["at_least"] else f"<= {check['limit']:.0e}"
        expected = ["ok", check["name"], "float32", f"{check['difference']:.1e}", limit]
        assert re.split(r"  +", line) == expected
    assert blocks[3] == "All is well: 7 checks.\n"
    assert (report["model"], report["n_failed"]) == ("tiny", 0)


def test_the_command_ends_with_status_1_where_a_check_fails(
    run: Run, folder: Path, tiny_sentence_transformer: Path
) -> None:
    shutil.copytree(tiny_sentence_transformer, folder / "bert")

    done = run("doctor", "--model", "bert", "--method", "echo", "--device", "cpu")
    for_machines = run("doctor", "--model", "bert", "--method", "echo", "--device", "cpu", "--json")

    row = next(line for line in done.out.splitlines() if line.startswith("failed"))
    assert (done.status, done.err, for_machines.status) == (1, "", 1)
    assert re.split(r"  +", row)[:5] == ["failed", "loading", "float32", "-", "-"]
    assert done.out.endswith("\n\n2 of 2 checks failed.\n")
    assert json.loads(for_machines.out)["n_failed"] == 2


def test_the_command_ends_with_status_2_where_the_user_slipped(run: Run) -> None:
    done = run("doctor", "--method", "echo")

    assert done == (
        2,
        "",
        "Error: --method: it says how a model is run, and no model is named\n"
        "  hint: add --model mini, a folder or a hub id\n",
    )


@pytest.mark.slow
def test_offline_is_told(run_process: Run) -> None:
    done = run_process("doctor", "--offline", "--json", env={"HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "1"})

    network = next(one for one in json.loads(done.out)["findings"] if one["name"] == "network")
    assert network["value"] == "never used: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"


def test_the_command_has_every_option_of_an_encoder_and_hands_it_on(run: Run) -> None:
    from ragidx.indexer.encoders.methods import ENCODER_OPTIONS
    from ragidx.pipelines.cli.doctor import command

    options = {option.name: option for option in command.params if isinstance(option, click.Option)}

    assert set(options) == {*ENCODER_OPTIONS, "model", "device", "dtype", "attn", "offline", "as_json"}
    assert options["model"].help == "Examine this model too: mini, a folder, or a hub id."
    for name in ENCODER_OPTIONS:
        typed = options[name].opts[0]
        value = [] if options[name].is_flag else ["1"]
        assert run("doctor", typed, *value).err.startswith(f"Error: {typed}: it says how a model is run, "), typed


def test_the_examples_of_the_docstrings_are_true() -> None:
    for module in (diagnosis, installed):
        assert doctest.testmod(module).failed == 0
        assert doctest.testmod(module).attempted > 0
