"""What users get wrong about methods: one clear block on standard error, exit status 2, and no index half made."""

from __future__ import annotations

import json
import shlex
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
    write_adapter(folder / "lost", "/gone/base")
    write_pooler(folder / "rows.safetensors")
    write_pooler(folder / "layers.safetensors", layers=2)
    return folder


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--model lost",
            "{folder}/lost: 'lost' is an adapter, and its base model '/gone/base' is not beside it\n"
            "  hint: name the base with --model and the adapter with --adapter",
        ),
        ("--pooling trainable", BELONG),
        (
            "--layer-norm",
            "--layer-norm: the last layer's states have gone through the final norm\n"
            "  hint: remove --layer-norm, or give a --layer before the last",
        ),
        (
            "--template 'A {text} B {text}' --copies 2",
            f"--copies: the template 'A {{text}} B {{text}}' does not repeat the text\n  hint: {NO_COPIES}",
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
@pytest.mark.parametrize(
    ("made", "changed", "difference"),
    [
        (
            "--method echo",
            "--copies 3",
            "--template is 'echo' in the index, 'echo-copies' now; --copies is not set in the index, 3 now",
        ),
        ("--method echo", "--max-length 9", "--max-length is not set in the index, 9 now"),
        ("--method echo --max-length 9", "--compute-matched", "--compute-matched is off in the index, on now"),
        ("--method echo", "--template-query q:{text}", "--template-query is not set in the index, 'q:{text}' now"),
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
