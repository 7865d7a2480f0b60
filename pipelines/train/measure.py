"""The figures of mini's card: STS-B Spearman and SciFact nDCG@10 by method and filter. Small, and only for this model.

Texts of one length go through the network together, so nothing is padded and any mask is whole. Methods are those of
the papers as `templates.toml` has them; pieces are tokenised apart, which for WordPiece is the same as the whole
string.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from tokenizers import Tokenizer
from transformers import LlamaModel

from ragidx.pipelines.train.tokens import BOS, EOS, bare_tokenizer, special_id

Floats = NDArray[np.float32]
METHODS = {
    "classical, layer 0": ("", "", 1, "causal"),
    "classical, last layer": ("", "", 1, "causal"),
    "classical, last layer, bidirectional": ("", "", 1, "bidirectional"),
    "echo": ("Rewrite the following paragraph:", ". The rewritten paragraph:", 2, "causal"),
    "prompteol": ('This sentence : "', '" means in one word:"', 1, "causal"),
}


class Measured:
    """A model folder, and texts as raw vectors by it."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.model = LlamaModel.from_pretrained(folder, dtype=torch.float32)
        self.tokenizer: Tokenizer = bare_tokenizer(folder)
        self.limit = limit
        table = self.model.embed_tokens.weight.detach().numpy()
        _, directions = np.linalg.eigh(table.T.astype(np.float64) @ table)
        self.directions = directions[:, ::-1].astype(np.float32)

    def ids(self, text: str) -> list[int]:
        """Token ids without special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def rendered(self, text: str, method: str) -> tuple[list[int], int, int]:
        """What the model reads, and the first and last (excluded) place of the pooled span."""
        before, after, copies, _ = METHODS[method]
        limit = None if method.endswith("layer 0") else self.limit
        bos, eos = special_id(self.tokenizer, BOS), special_id(self.tokenizer, EOS)
        body = self.ids(text)[:limit] or [special_id(self.tokenizer, "[UNK]")]
        if copies == 2:
            ids = [bos, *self.ids(before), *body, *self.ids(after), *body, eos]
            return ids, len(ids) - len(body) - 1, len(ids)
        ids = [bos, *self.ids(before), *body, *self.ids(after)]
        return ids, (len(ids) - 1 if after else 1), len(ids)

    @torch.inference_mode()
    def vectors(self, texts: Sequence[str], method: str, budget: int = 8192) -> Floats:
        """(n, d) pooled states, raw."""
        rows = [self.rendered(text, method) for text in texts]
        out = np.zeros((len(rows), self.model.config.hidden_size), dtype=np.float32)
        for some in _equal_lengths([len(ids) for ids, _, _ in rows], budget):
            states = self._states(torch.tensor([rows[place][0] for place in some]), method)
            for state, place in zip(states, some, strict=True):
                _, first, end = rows[place]
                out[place] = state[first:end].mean(dim=0).numpy()
        return out

    def _states(self, ids: torch.Tensor, method: str) -> torch.Tensor:
        if method.endswith("layer 0"):
            embedded: torch.Tensor = self.model.embed_tokens(ids)
            return embedded
        mask = None
        if METHODS[method][3] == "bidirectional":
            mask = torch.zeros(len(ids), 1, ids.shape[1], ids.shape[1])
        last: torch.Tensor = self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return last

    def filters(self) -> Iterator[tuple[str, Floats | None]]:
        """Name and (d, k) columns of each filter measured; None keeps the raw vector."""
        d = len(self.directions)
        yield "none", None
        for tau in (2, 4, 8):
            first = (d - d // tau) // 2
            yield f"embedfilter tau={tau}", self.directions[:, first : first + d // tau]
        for k in (255, 128, 64, 32):
            yield f"embedfilter offset=1 dim={k}", self.directions[:, 1 : 1 + k]


def unit(vectors: Floats, columns: Floats | None) -> Floats:
    """Filtered vectors of length 1."""
    kept = vectors if columns is None else vectors @ columns
    return np.asarray(kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def sts(measured: Measured, path: Path, method: str) -> Callable[[Floats | None], float]:
    """Spearman of cosine and gold score, as a function of the filter."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    left, right = (measured.vectors([row[name] for row in rows], method) for name in ("sentence1", "sentence2"))
    gold = [float(row["score"]) for row in rows]
    return lambda columns: float(spearmanr((unit(left, columns) * unit(right, columns)).sum(axis=1), gold)[0])


def beir(measured: Measured, folder: Path, method: str) -> Callable[[Floats | None], float]:
    """nDCG@10 of the test qrels, as a function of the filter."""
    corpus, queries = (_gzipped(folder / f"{name}.jsonl.gz") for name in ("corpus", "queries"))
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text("utf-8").split("\n")[1:]:
        if line:
            query, document, grade = line.split("\t")
            grades.setdefault(query, {})[document] = int(grade)
    asked = [query for query in queries if query["_id"] in grades]
    names = [document["_id"] for document in corpus]
    documents = measured.vectors([f"{d['title']} {d['text']}".strip() for d in corpus], method)
    questions = measured.vectors([query["text"] for query in asked], method)

    def ndcg(columns: Floats | None) -> float:
        scores = unit(questions, columns) @ unit(documents, columns).T
        found = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        gains = [_ndcg([names[i] for i in row], grades[q["_id"]]) for row, q in zip(found, asked, strict=True)]
        return float(np.mean(gains))

    return ndcg


def _ndcg(found: Sequence[str], grades: dict[str, int]) -> float:
    discount = 1 / np.log2(np.arange(2, 12))
    gained = np.array([grades.get(name, 0) for name in found])
    ideal = np.sort(np.array([*grades.values(), *[0] * 10]))[::-1][:10]
    return float(gained @ discount[: len(gained)] / (ideal @ discount))


def _gzipped(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def _equal_lengths(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    places: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        places.setdefault(length, []).append(place)
    for length, same in places.items():
        size = max(1, budget // length)
        yield from (same[first : first + size] for first in range(0, len(same), size))


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True, help="Model folder.")
@click.option("--corpora", type=click.Path(path_type=Path, exists=True), required=True, help="Folder with eval/.")
@click.option(
    "--split", type=click.Choice(["dev", "test"]), default="dev", show_default=True, help="test: and SciFact."
)
@click.option("--limit", type=int, default=256, show_default=True, help="Tokens of a text, layer 0 excepted.")
@click.option("--method", "methods", multiple=True, type=click.Choice(list(METHODS)), help="Default: all.")
@click.option("--threads", type=int, default=2, show_default=True, help="CPU threads.")
def main(model: Path, corpora: Path, split: str, limit: int, methods: tuple[str, ...], threads: int) -> None:
    """Print one JSON line for each method and filter."""
    torch.set_num_threads(threads)
    measured = Measured(model, limit)
    for method in methods or METHODS:
        similarity = sts(measured, corpora / "eval" / "stsb" / f"{split}.tsv", method)
        retrieval = beir(measured, corpora / "eval" / "scifact", method) if split == "test" else None
        for name, columns in measured.filters():
            row: dict[str, object] = {"method": method, "filter": name, f"stsb_{split}": round(similarity(columns), 4)}
            if retrieval is not None:
                row["scifact_ndcg@10"] = round(retrieval(columns), 4)
            click.echo(json.dumps(row))


if __name__ == "__main__":
    main()
