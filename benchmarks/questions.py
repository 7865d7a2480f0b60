"""Questions by a table: answers by it beside those by the model on real judgements, and what a question takes.

    python benchmarks/questions.py --evalset DIR --model FILE|ID [--name NAME] [--method M] [--layer N] [--index DIR]

The index is built, or the one of `--index` is copied, and `train questions` is run (`force`). The judged queries are
asked by the model and by the table, by vectors alone and by the default search. Then whole commands, `ragidx query`,
are timed in turn: by the table, by the model, and in an index of mini, five times each.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adapt import shown
from figures import record

import ragidx
from ragidx.pipelines.experiments.evaluate.tasks import task_of
from ragidx.pipelines.experiments.trials.trial import by_query
from ragidx.retriever.models import ModelPlace
from ragidx.retriever.searcher import Searcher

TIMES = 5


def seconds(question, *options):
    """Of a whole command."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ragidx", "query", question, *options], check=True, capture_output=True)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", help="what the row calls the model")
    parser.add_argument("--method")
    parser.add_argument("--layer", type=int)
    parser.add_argument("--text", type=Path, action="append", default=[])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--index", type=Path, help="an index that is built")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, fast = Path(folder) / "index", Path(folder) / "mini"
        if arguments.index is None:
            ragidx.build(
                arguments.evalset, place, model=arguments.model, method=arguments.method, layer=arguments.layer
            )
        else:
            shutil.copytree(arguments.index, place)
        ragidx.build(arguments.evalset, fast)
        report = ragidx.Index(place).train_questions(text=arguments.text, epochs=arguments.epochs, force=True)
        judged, found = task_of(arguments.evalset).judged, report.comparison
        sides = [Searcher.open(place, ModelPlace(questions=one)) for one in ("model", "table")]
        real = {mode: [by_query(one, judged, mode=mode) for one in sides] for mode in ("dense", "hybrid")}
        question = next(iter(judged.texts.values()))
        commands = {
            "table": ("--index", str(place), "--questions", "table"),
            "model": ("--index", str(place), "--questions", "model"),
            "mini": ("--index", str(fast)),
        }
        taken = {name: [] for name in commands}
        for _ in range(TIMES):
            for name, options in commands.items():
                taken[name].append(seconds(question, *options))
        command = {name: statistics.median(values) for name, values in taken.items()}
        values = {
            "queries made": found.n_queries,
            "made": {name: round(getattr(found, name), 4) for name in ("old", "new", "difference", "low", "high", "p")},
            "queries judged": len(judged.texts),
            "dense": shown(*real["dense"]),
            "hybrid": shown(*real["hybrid"]),
            "tokens": report.n_tokens,
            "pairs": report.n_pairs,
            "bytes": report.n_bytes,
            "table_ms": round(report.table_ms, 2),
            "model_ms": round(report.model_ms, 2),
            "command_s": {name: round(value, 2) for name, value in command.items()},
            "table / mini": round(command["table"] / command["mini"], 2),
            "training_s": round(report.training_seconds, 1),
        }
        record(
            "questions",
            values,
            model=arguments.name or arguments.model,
            set=arguments.evalset.name,
            method=sides[0].spec.encoder.method,
            options=f"layer {arguments.layer}" if arguments.layer else "",
            rows=sides[0].store.manifest.n_chunks,
        )


if __name__ == "__main__":
    main()
