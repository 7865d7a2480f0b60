"""What users get wrong about methods: one clear block on standard error, exit status 2, and no index half made."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ...tiny_weights import write_adapter, write_pooler
from ..conftest import Done

Run = Callable[..., Done]

pytestmark = pytest.mark.slow

BELONG = (
    "--pooler: the trainable pooling and its weights belong together\n"
    "  hint: give --pooling trainable and --pooler weights.safetensors, or neither"
)
NO_COPIES = "remove --copies, or use --method reba or --method echo without a template"


@pytest.fixture
def parts(small_corpus: Path, model: Path, folder: Path) -> Path:
    """`corpus`, `tiny`, and beside them adapters and poolers of all sorts."""
    told = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(told | {"_name_or_path": "owner/tiny"}))
    write_adapter(folder / "fits", "owner/tiny")
    write_adapter(folder / "other", "owner/other")
    write_adapter(folder / "lost", "/gone/base")
    write_adapter(folder / "dora", "owner/tiny", use_dora=True)
    (folder / "empty").mkdir()
    write_pooler(folder / "rows.safetensors")
    write_pooler(folder / "layers.safetensors", layers=2)
    write_pooler(folder / "one-layer.safetensors", layers=1)
    return folder


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--template Passage",
            "unknown template 'Passage'\n  hint: known: classical, echo, echo-copies, echo-trained, "
            "knowledge-enhancement, llm2vec, llm2vec-gemma, llm2vec-inst, llm2vec-llama3, llm2vec-qwen2, metaeol, "
            "pooling-and-attention, pretended-cot, prompteol, prompteol-original, reba",
        ),
        (
            "--template 'Passage: '",
            "--template: the template has no {text}\n  hint: say where the text goes, such as 'Passage: {text}'",
        ),
        (
            "--method llm2vec --template '{text} {text}'",
            "--template: the template holds {text} more than once, and this method pools one\n  hint: keep one",
        ),
        (
            "--adapter other",
            "--adapter: the adapter 'other' belongs to 'owner/other', the model is 'owner/tiny'\n"
            "  hint: use --model owner/other with it",
        ),
        (
            "--adapter empty",
            "--adapter: 'empty' has no adapter_config.json, so it is not an adapter\n"
            "  hint: name the folder that `save_pretrained` of a PEFT model wrote",
        ),
        (
            "--adapter gone",
            "--adapter: no adapter 'gone': neither a folder, nor an id of the form owner/name\n"
            "  hint: name the folder that holds its adapter_config.json",
        ),
        (
            "--model lost",
            "{folder}/lost: 'lost' is an adapter, and its base model '/gone/base' is not beside it\n"
            "  hint: name the base with --model and the adapter with --adapter",
        ),
        ("--pooling trainable", BELONG),
        ("--pooler rows.safetensors", BELONG),
        (
            "--pooling trainable --pooler gone.safetensors",
            "--pooler gone.safetensors: there is no such file\n  hint: name the safetensors file of the pooling",
        ),
        (
            "--pooling trainable --pooler one-layer.safetensors",
            "{folder}/one-layer.safetensors: the pooling has vectors for 1 layers, the model has 2 layers\n"
            "  hint: give the pooling that was trained with this model",
        ),
        (
            "--pooling trainable --pooler layers.safetensors --layer 1",
            "--layer: this pooling reads every layer\n  hint: remove --layer",
        ),
        (
            "--layer 3",
            "--layer: the model has 2 layers, there is no layer 3\n"
            "  hint: give 0 (input embeddings) to 2, or -1 for the last",
        ),
        (
            "--method reba --layer 0",
            "--layer: layer 0 has no attention to look back with\n  hint: give a layer from 1 on, or -1 for the last",
        ),
        (
            "--layer-norm",
            "--layer-norm: the last layer's states have gone through the final norm\n"
            "  hint: remove --layer-norm, or give a --layer before the last",
        ),
        ("--method echo --copies 0", "--copies: 0 copies of a text hold nothing\n  hint: give 1 or more"),
        (
            "--method classical --copies 2",
            f"--copies: the template 'classical' does not repeat the text\n  hint: {NO_COPIES}",
        ),
        (
            "--template 'A {text} B {text}' --copies 2",
            f"--copies: the template 'A {{text}} B {{text}}' does not repeat the text\n  hint: {NO_COPIES}",
        ),
        (
            "--method reba --pooling eos",
            "--pooling: backward attention pools the first copy of the text, which eos pooling does not\n"
            "  hint: use --pooling mean, weighted_mean or last",
        ),
        (
            "--method reba --template echo",
            "--template: backward attention needs copies of the text side by side, and the template 'echo' has none\n"
            "  hint: remove --template",
        ),
        (
            "--method reba --attn eager",
            "--attn: backward attention is computed by ragidx itself, with every implementation alike\n"
            "  hint: remove --attn",
        ),
        (
            "--method classical --pooling bos",
            "--pooling: under causal attention the first token sees no other, so every text would have the same "
            "vector\n  hint: use --attention bidirectional, or another --pooling",
        ),
        (
            "--method classical --compute-matched --max-length 9",
            "--compute-matched: the template 'classical' holds the text once: it reads no more than classical does\n"
            "  hint: remove --compute-matched",
        ),
        ("--truncate start", "unknown way to truncate 'start'\n  hint: known: end, middle"),
        ("--max-length 0", "--max-length: a length of 0 tokens holds nothing\n  hint: give 1 or more"),
        (
            "--attn nonsense",
            "unknown attention implementation 'nonsense'\n"
            "  hint: known: auto, eager, flash_attention_2, flash_attention_3, flex_attention, sdpa",
        ),
        (
            "--attn flash_attention_9",
            "--attn: 'tiny' has no attention implementation 'flash_attention_9': its family 'llama' lacks it, or the "
            "package it needs is not installed\n  hint: remove it, or use --attn eager",
        ),
        (
            "--template 'P: {text}' --instruction Find",
            "--instruction: the template 'P: {text}' has no {instruction}, so the instruction would not be read\n"
            "  hint: say where it goes, such as '{instruction} {text}', or remove the instruction",
        ),
    ],
)
def test_a_method_that_cannot_be_is_told_in_one_block(run: Run, options: str, message: str, folder: Path) -> None:
    words = shlex.split(options)
    model = () if "--model" in words else ("--model", "tiny")

    done = run("build", "corpus", *model, *words)

    assert done == (2, "", f"Error: {message.replace('{folder}', str(folder))}\n")
    assert not (folder / "ragidx-index" / "manifest.json").exists()


@pytest.mark.usefixtures("parts")
def test_an_adapter_that_is_more_than_lora_is_refused(run: Run, folder: Path) -> None:
    done = run("build", "corpus", "--model", "tiny", "--adapter", "dora")

    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(
        f"Error: {folder}/dora/adapter_config.json: the adapter is more than plain LoRA: use_dora=True\n"
        "  hint: merge it once with peft"
    )


def test_an_adapter_whose_weights_do_not_fit_is_refused(
    run: Run, small_corpus: Path, tiny_model: Callable[..., Path], folder: Path
) -> None:
    shutil.copytree(tiny_model("llama", hidden_size=64), folder / "wide")
    write_adapter(folder / "mntp", None)

    done = run("build", small_corpus.name, "--model", "wide", "--adapter", "mntp", "--method", "llm2vec")

    assert (done.status, done.out) == (2, "")
    assert "the adapter 'mntp' does not fit this model: for 'layers.0.self_attn.q_proj' it brings 32 x 32, " in done.err
    assert "it was trained on another base model: give that model, or another adapter" in done.err


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        (
            "gemma2",
            "--attn sdpa",
            "--attn: 'other' has no attention implementation 'sdpa': its family 'gemma2' lacks it, or the package it "
            "needs is not installed\n  hint: remove it, or use --attn eager",
        ),
        (
            "bloom",
            "--method reba",
            "'other' cannot be used with backward attention: its family 'bloom' does not let its attention be read in "
            "this version of transformers\n  hint: choose another --method, such as --method echo",
        ),
    ],
)
def test_what_a_family_lacks_is_told(
    run: Run,
    small_corpus: Path,
    tiny_model: Callable[..., Path],
    folder: Path,
    family: str,
    options: str,
    message: str,
) -> None:
    shutil.copytree(tiny_model(family), folder / "other")

    done = run("build", small_corpus.name, "--model", "other", *options.split())

    assert done == (2, "", f"Error: {message}\n")


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("options", "option", "own"),
    [
        ("--pooling mean", "--pooling", "pooling"),
        ("--layer 0", "--layer", "layer"),
        ("--copies 2", "--copies", "copies"),
        ("--no-pool-eos", "--no-pool-eos", "pool eos"),
        ("--layer-norm", "--layer-norm", "layer norm"),
        ("--truncate middle", "--truncate", "truncate"),
        ("--attn sdpa", "--attn", "attention"),
    ],
)
def test_a_model_with_modules_of_its_own_takes_no_options_for_them(
    run: Run, tiny_sentence_transformer: Path, options: str, option: str, own: str
) -> None:
    done = run("build", "corpus", "--model", str(tiny_sentence_transformer), *options.split())

    assert done == (
        2,
        "",
        f"Error: {option}: a sentence-transformers model brings its own {own}\n"
        f"  hint: remove {option}, or choose another --method\n",
    )


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("made", "changed", "difference"),
    [
        ("--method reba", "--copies 3", "--copies is 2 in the index, 3 now"),
        ("--method echo --copies 3", "--copies 2", "--copies is 3 in the index, 2 now"),
        (
            "--method echo",
            "--copies 3",
            "--template is 'echo' in the index, 'echo-copies' now; --copies is not set in the index, 3 now",
        ),
        ("--method echo", "--template echo-trained", "--template is 'echo' in the index, 'echo-trained' now"),
        ("--method echo", "--truncate middle", "--truncate is 'end' in the index, 'middle' now"),
        ("--method echo", "--max-length 9", "--max-length is not set in the index, 9 now"),
        ("--method echo", "--compute-matched", "--compute-matched is off in the index, on now"),
        ("--method echo", "--no-pool-eos", "--pool-eos is on in the index, off now"),
        ("--layer 1", "--layer-norm", "--layer-norm is off in the index, on now"),
        ("--method llm2vec", "--adapter fits", "--adapter is not set in the index, 'fits' now"),
        (
            "--pooling trainable --pooler rows.safetensors",
            "--pooler layers.safetensors",
            "--pooler is 'rows.safetensors' in the index, 'layers.safetensors' now",
        ),
    ],
)
def test_an_index_of_another_method_says_what_differs_and_goes_on_with_its_own(
    run: Run, made: str, changed: str, difference: str
) -> None:
    built = run("build", "corpus", "--model", "tiny", *made.split())
    assert (built.status, built.err) == (0, "")

    done = run("build", "corpus", *changed.split())

    assert done == (
        2,
        "",
        f"Error: ragidx-index: the index was built with other options: {difference}\n"
        "  hint: remove the option to update the index, name another --index, or replace this one with --rebuild\n",
    )
    for same in ("", made):
        assert run("build", "corpus", *same.split()).status == 0
    assert json.loads(run("info", "--json").out)["generation"] == 1


@pytest.mark.usefixtures("parts")
def test_an_index_whose_adapter_has_changed_is_not_queried_with_it(run: Run, folder: Path) -> None:
    assert run("build", "corpus", "--model", "tiny", "--adapter", "fits", "--method", "llm2vec").status == 0
    write_adapter(folder / "fits", "owner/tiny", seed=1)

    assert run("query", "bees") == (
        2,
        "",
        "Error: ragidx-index: 'tiny' with 1 adapter is not the model this index was made with: its files have changed\n"
        "  hint: name the right folder with --model and its adapters, all of them in their order, with --adapter, "
        "or build the index again with --rebuild\n",
    )


@pytest.mark.usefixtures("small_corpus")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("lens", "caf\udce9"), "no Unicode text at character 3"),
        (("build", "corpus", "--instruction", "caf\udce9"), "Error: --instruction: no Unicode text at character 3\n"),
        (("build", "corpus", "--template", "\udcff {text}"), "Error: --template: no Unicode text at character 0\n"),
    ],
)
def test_bytes_that_are_not_utf_8_are_refused(args: tuple[str, ...], message: str, run: Run) -> None:
    done = run(*args)

    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert "defect" not in done.err
