"""A static model of one's own, as mini is: a token table whose vectors of texts are like those of a teacher.

chunks of texts and the teacher's vectors of them, which may be there already -> the rows of `tables`, trained on all
texts but those that are held out -> whitened by half, so that the first numbers say most -> a folder that
`build --model` takes
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.unembedding import decompose
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import TOKEN_TABLE
from ragidx.indexer.token_table import TABLE_FILE, TokenTable, plain, token_ids
from ragidx.pipelines.evaluate.sources.raw_vectors import RawVectors, cache_folder
from ragidx.pipelines.ingest.options import build_options
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against
from ragidx.pipelines.stages import OnStage, Stages
from ragidx.pipelines.train.frozen import check_numbers
from ragidx.pipelines.train.tables import MOST_PAIRS, spelled, texts_of, train_rows
from ragidx.pipelines.train.teacher import read_teacher

EPOCHS = 5
MOST_TEXTS = 150_000
FEWEST_TEXTS = 1_000
POWER = 0.5
"""Of the deviation of each direction, that it is divided by: 1 whitens, 0 changes nothing but the order."""

_HELD_OUT = 1_000
_SAMPLE = 20_000  # texts that whitening is fitted on
_READS = 254  # tokens of a text whose vector was given
_LONGEST = 2_048  # tokens of a text that the model reads
_TOKENS_AT_ONCE = 4_096
_BATCH, _RATE = 1_024, 1.5e-3


@dataclass(frozen=True)
class StaticReport:
    """What was trained.

    Attributes:
        folder: of the model.
        teacher: whose vectors it learnt.
        n_texts: that it was trained on.
        n_tokens: of these texts.
        n_rows, n_pairs: tokens and pairs of tokens that have a row.
        dim: width of a row.
        stored: of the vectors that a build stores by default.
        n_bytes: of the folder.
        losses: 1 less the cosine with the teacher's vectors, the mean of each epoch.
        cosine: with the teacher's vectors less their mean, of texts that it was not trained on.
        n_held_out: of them.
        training_seconds: without encoding.
        seconds: of all.
    """

    folder: str
    teacher: str
    n_texts: int
    n_tokens: int
    n_rows: int
    n_pairs: int
    dim: int
    stored: int
    n_bytes: int
    losses: tuple[float, ...]
    cosine: float
    n_held_out: int
    training_seconds: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON types."""
        return dataclasses.asdict(self)


def mini(
    text: str | os.PathLike[str],
    *,
    teacher: str,
    vectors: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "mini",
    pairs: int = MOST_PAIRS,
    dim: int | None = None,
    stored: int | None = None,
    power: float = POWER,
    limit: int = MOST_TEXTS,
    epochs: int = EPOCHS,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = "",
    on_progress: OnStage | None = None,
) -> StaticReport:
    """Train a static model, and write its folder.

    Args:
        text: a corpus, as of `build`; with `vectors` the folder that the paths of their rows begin in.
        teacher: a model; its tokenizer becomes that of the static model.
        vectors: a folder with the teacher's vectors of texts; None: it encodes the chunks of the corpus.
        out: the folder that is written, which must not be there.
        pairs: of tokens that have a row, at most.
        dim: width of a row; None: that of the teacher.
        stored: what a build stores of a vector by default, its first numbers; None: all.
        power: of the deviation of each direction, that it is divided by; 0 to 1.
        limit: texts that are taken, at most.
        epochs: how often each is seen.
        seed: of what is drawn.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: the corpus or the teacher's files have faults, or there are too few texts.
        SpecError: an option is out of range, or the teacher's vectors have another width than the teacher.
        RagidxError: of the subclass that says what to do.
    """
    began, folder = time.perf_counter(), Path(out)
    check_numbers(limit=limit, epochs=epochs, seed=seed, dim=dim, stored=stored)
    for name, value, wrong in (("pairs", pairs, pairs < 0), ("power", power, not 0 <= power <= 1)):
        if wrong:
            hint = "give 0 or more" if name == "pairs" else "give 0 to 1"
            raise SpecError(f"{name}={value:g} is out of range", hint, where=f"`{name}`")
    check_models("`train mini`")
    if folder.exists():
        raise SpecError("the folder is there already", "name another with `out`, or remove it", where=str(folder))
    tell = Stages(on_progress)
    resolved = resolve_against(build_options("train.mini", model=teacher, filter="none"))
    width = dim or resolved.hidden
    for name, asked, most in (("dim", width, resolved.hidden), ("stored", stored or width, width)):
        if asked > most:
            raise SpecError(f"{name}={asked} is wider than {most}", f"give at most {most}", where=f"`{name}`")
    tell.expect(4 + epochs)
    tell("reading texts and their vectors" if vectors is not None else f"encoding {text}")
    texts, units = _known(Path(text), resolved, vectors, limit, seed, cache)
    if len(texts) < FEWEST_TEXTS:
        few = f"{len(texts):,} texts teach nothing"
        raise CorpusError(few, f"give {FEWEST_TEXTS:,} or more", where=str(text))
    backend = resolved.encoder.tokenizer.pieces
    tokenizer = plain(type(backend).from_str(backend.to_str()))
    ids = token_ids(tokenizer, texts)
    if vectors is not None:
        ids = [row[:_READS] for row in ids]
    order = np.random.default_rng(seed).permutation(len(texts))
    held, rest = np.split(order, [min(_HELD_OUT, len(texts) // 10)])
    learnt, targets = [ids[one] for one in rest.tolist()], units[rest]
    tokens = np.unique(np.concatenate(learnt))
    tell(f"encoding {len(tokens):,} single tokens")
    single = _single(resolved, spelled(tokenizer, tokens), cache)
    started = time.perf_counter()
    trained = train_rows(
        learnt, targets, lambda _: single, pairs=pairs, epochs=epochs, batch=_BATCH, rate=_RATE, seed=seed, tell=tell
    )
    table = trained.table(tokenizer)
    wanted = l2_normalize(units[held] - targets.mean(axis=0)).vectors
    cosine = float((_vectors(table, [ids[one] for one in held.tolist()]) * wanted).sum(axis=1).mean())
    tell("whitening")
    turned = trained.rows @ whitening(_vectors(table, learnt[:_SAMPLE]), power)[:, :width]
    table = TokenTable.of(tokenizer, trained.tokens, trained.pairs, turned)
    seconds = time.perf_counter() - started
    tell("writing the folder")
    _write(folder, table, stored or width)
    return StaticReport(
        folder=str(folder),
        teacher=teacher,
        n_texts=len(learnt),
        n_tokens=sum(map(len, learnt)),
        n_rows=len(table.tokens),
        n_pairs=len(table.pairs),
        dim=width,
        stored=stored or width,
        n_bytes=sum(path.stat().st_size for path in folder.iterdir()),
        losses=trained.losses,
        cosine=cosine,
        n_held_out=len(held),
        training_seconds=seconds,
        seconds=time.perf_counter() - began,
    )


def whitening(vectors: Floats, power: float) -> Floats:
    """(k, k): turns vectors (n, k) to their directions of falling deviation, each divided by that to the `power`."""
    rows = vectors.astype(np.float64)
    spectrum = decompose(rows.T @ rows / len(rows))
    least = spectrum.values[0] * 1e-6  # below it nothing varies
    made: Floats = (spectrum.directions * np.maximum(spectrum.values, least) ** -power).astype(np.float32)
    return made


def _known(
    text: Path,
    resolved: Resolved,
    vectors: str | os.PathLike[str] | None,
    limit: int,
    seed: int,
    cache: str | os.PathLike[str] | None,
) -> tuple[list[str], Floats]:
    """Texts, and (n, d) the teacher's vectors of them, of unit length."""
    if vectors is None:
        texts, raw = texts_of(text, resolved, limit, cache)
        return texts, l2_normalize(raw).vectors
    texts, units = read_teacher(Path(vectors), text)
    if units.shape[1] != resolved.hidden:
        message = f"the vectors are {units.shape[1]} wide, those of the teacher {resolved.hidden}"
        raise SpecError(message, "name the model that made them with `teacher`", where=str(vectors))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(texts))[:limit])
    return [texts[one] for one in drawn.tolist()], units[drawn]


def _single(resolved: Resolved, texts: list[str], cache: str | os.PathLike[str] | None) -> Floats:
    """(u, d) of unit length, or zero where a token spells nothing."""
    spelt = [place for place, text in enumerate(texts) if text.strip()]
    found = np.zeros((len(texts), resolved.hidden), np.float32)
    with RawVectors(resolved, cache_folder(cache)) as known:
        for start in range(0, len(spelt), _TOKENS_AT_ONCE):
            some = spelt[start : start + _TOKENS_AT_ONCE]
            found[some] = l2_normalize(known.texts([texts[place] for place in some])).vectors
    return found


def _vectors(table: TokenTable, ids: list[Any]) -> Floats:
    return np.stack([table.vector(row) for row in ids])


def _write(folder: Path, table: TokenTable, stored: int) -> None:
    preset = {
        "method": "classical",
        "pooling": "mean",
        "attention": "causal",
        "layer": 0,
        "filter": {"name": "truncation", "dim": stored},
    }
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": _LONGEST}
    config = {"model_type": TOKEN_TABLE, "hidden_size": table.dim}
    atomic.make_folder(folder)
    for name, content in (("preset", preset), ("tokenizer_config", tokenizer), ("config", config)):
        atomic.write_file(folder / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
    atomic.write_file(folder / "tokenizer.json", table.tokenizer.to_str().encode())
    atomic.write_file(folder / TABLE_FILE, table.to_bytes(tokenizer=False))
