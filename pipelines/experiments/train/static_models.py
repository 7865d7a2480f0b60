"""A static model of one's own, as mini is: a token table whose vectors of texts are like those of a teacher; and a
table in the space of a model, that encodes its questions.

chunks of texts and the teacher's vectors of them, which may be there already -> the rows of `tables`, trained on all
texts but those that are held out -> whitened by half, so that the first dimensions say most -> a folder that
`build --model` takes; or as it is, a file that `build --questions` takes
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from safetensors import SafetensorError, safe_open

from ragidx.corpora.errors import CorpusError, ModelError, SpecError, check_machine
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.unembedding import decompose
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.options import written_out
from ragidx.indexer.specs import TOKEN_TABLE
from ragidx.indexer.token_table import QUESTIONS_NOTE, TABLE_FILE, TokenTable, plain, token_ids
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.train.frozen import target_of
from ragidx.pipelines.experiments.train.keywords import MiniKeywords, TableKeywords
from ragidx.pipelines.experiments.train.tables import (
    AT_ONCE,
    TrainedTable,
    spelled,
    texts_of,
    train_rows,
    vectors_of,
)
from ragidx.pipelines.experiments.train.teacher import read_teacher
from ragidx.pipelines.ingest.options import build_options, checked, encoding_of
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against

EPOCHS = 5
MOST_TEXTS = 150_000
FEWEST_TEXTS = 1_000

_HELD_OUT = 1_000
_SAMPLE = 20_000  # texts that whitening is fitted on
_READS = 254  # tokens of a text whose vector was given
_LONGEST = 2_048  # tokens of a text that the model reads
_BATCH, _RATE = 1_024, 1.5e-3


@dataclass(frozen=True)
class StaticReport:
    """What the training of a static model, or of a table of questions, made.

    Attributes:
        folder: the folder of the model, or the file of questions.
        teacher: the model whose vectors it learnt.
        n_texts: how many texts it was trained on.
        n_tokens: how many tokens these texts have.
        n_rows, n_pairs: how many tokens and pairs of tokens have a row.
        dim: width of a row.
        stored: how many dimensions a build stores by default.
        n_bytes: size of the folder or file.
        losses: 1 less the cosine with the teacher's vectors, the mean of each epoch.
        cosine: the mean cosine with the teacher's vectors less their mean, of texts that it was not trained on.
        n_held_out: how many texts were held out, for the cosine.
        training_seconds: the time without encoding.
        seconds: the time of the whole call.
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


@written_out
def mini(
    text: str | os.PathLike[str], *, on_progress: OnStage | None = None, **options: Unpack[MiniKeywords]
) -> StaticReport:
    """Train a static model, and write its folder.

    Args:
        text: a corpus, as `build` takes it; with `vectors` the folder that the paths of their rows begin in.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: the corpus or the teacher's files have faults, or there are too few texts.
        SpecError: an option is out of range, or the teacher's vectors have another width than the teacher.
        RagidxError: of the subclass that says what to do.
    """
    began, how = time.perf_counter(), checked("train.mini", MiniKeywords, options)
    folder, teacher = Path(how["out"]), how["teacher"]
    check_models("`train mini`")
    if folder.exists():
        raise SpecError("the folder is there already", "name another with `out`, or remove it", where=str(folder))
    tell = Stages(on_progress)
    resolved = resolve_against(build_options("train.mini", model=teacher, filter="none"))
    width = how["dim"] or resolved.hidden
    stored = how["stored"] or width
    for name, value, most in (("dim", width, resolved.hidden), ("stored", stored, width)):
        if value > most:
            raise SpecError(f"{name}={value} is wider than {most}", f"give at most {most}", where=f"`{name}`")

    def write(rows: TrainedTable, table: TokenTable, ids: list[Ints]) -> TokenTable:
        tell("whitening")
        turned = whitening(table.vectors_of_ids(ids[:_SAMPLE]), how["power"])[:, :width]
        table = dataclasses.replace(rows, rows=rows.rows @ turned).table(table.tokenizer)
        tell("writing the folder")
        _write(folder, table, stored)
        return table

    report = _trained(resolved, text, how, tell, write, folder)
    return dataclasses.replace(report, teacher=teacher, stored=stored, seconds=time.perf_counter() - began)


@written_out
def questions(
    model: str | os.PathLike[str], *, on_progress: OnStage | None = None, **options: Unpack[TableKeywords]
) -> StaticReport:
    """Train a table that encodes questions as a model does, for any index of this model: `build(questions=FILE)`.

    Args:
        model: a model, as `build` takes it.
        on_progress: called when a stage begins.

    Raises:
        CorpusError: the corpus or the files of vectors have faults, or there are too few texts.
        SpecError: an option is wrong, or the vectors have another width than the model.
        RagidxError: of the subclass that says what to do.
    """
    how = checked("train.questions", TableKeywords, options)
    target = target_of(how["out"], "table of questions", _is_questions)
    check_models("`train questions`")
    began, tell = time.perf_counter(), Stages(on_progress)
    encoding = encoding_of(how)
    resolved = resolve_against(build_options("train.questions", model=os.fspath(model), filter="none", **encoding))
    note = json.dumps({"model": os.fspath(model), "vectors": resolved.spec.encoder_fingerprint()})

    def write(rows: TrainedTable, table: TokenTable, ids: list[Ints]) -> TokenTable:
        tell("writing the file")
        atomic.write_file(target, table.to_bytes(notes={QUESTIONS_NOTE: note}))
        return table

    report = _trained(resolved, how["text"], how, tell, write, target)
    return dataclasses.replace(report, teacher=os.fspath(model), seconds=time.perf_counter() - began)


def _trained(
    resolved: Resolved,
    text: str | os.PathLike[str],
    how: MiniKeywords | TableKeywords,
    tell: Stages,
    write: Callable[[TrainedTable, TokenTable, list[Ints]], TokenTable],
    place: Path,
) -> StaticReport:
    """Train a table of texts and a model's vectors of them; `write` writes it to its place, as it is or changed.

    Raises:
        ModelError: a server has the model, and its tokenizer is not known.
    """
    vectors, cache, seed = how["vectors"], how["cache"], how["seed"]
    limit, epochs = how["limit"] or MOST_TEXTS, how["epochs"] or EPOCHS
    if resolved.files.served and resolved.encoder_spec.tokenizer is None:
        what = "a table is made of tokens, and the tokenizer of the endpoint's model is not known"
        raise ModelError(what, "name a model that is here", where=resolved.files.name)
    tell("reading texts and their vectors" if vectors is not None else f"reading {text}")
    units = None
    if vectors is None:
        texts = texts_of(Path(text), resolved, limit)
    else:
        texts, units = _given(Path(text), resolved, vectors, limit, seed)
    if len(texts) < FEWEST_TEXTS:
        few = f"{len(texts):,} texts teach nothing"
        raise CorpusError(few, f"give {FEWEST_TEXTS:,} or more", where=str(text))
    tell.expect(3 + epochs + (0 if vectors is not None else -(-len(texts) // AT_ONCE)))
    if units is None:
        units = l2_normalize(vectors_of(texts, resolved, cache, tell)).vectors
    backend = resolved.encoder.tokenizer.pieces
    tokenizer = plain(type(backend).from_str(backend.to_str()))
    ids = [row if vectors is None else row[:_READS] for row in token_ids(tokenizer, texts)]
    order = np.random.default_rng(seed).permutation(len(texts))
    held, rest = np.split(order, [min(_HELD_OUT, len(texts) // 10)])
    learnt, targets = [ids[number] for number in rest.tolist()], units[rest]
    tokens = np.unique(np.concatenate(learnt))
    tell(f"encoding {len(tokens):,} single tokens")
    single = _single(resolved, spelled(tokenizer, tokens), cache)
    began = time.perf_counter()
    sizes = {"pairs": how["pairs"], "epochs": epochs, "batch": _BATCH}
    rows = train_rows(learnt, targets, lambda _: single, **sizes, rate=_RATE, seed=seed, tell=tell)
    table = rows.table(tokenizer)
    wanted = l2_normalize(units[held] - targets.mean(axis=0)).vectors
    cosines = (table.vectors_of_ids([ids[number] for number in held.tolist()]) * wanted).sum(axis=1)
    training_s = time.perf_counter() - began
    table = write(rows, table, learnt)
    return StaticReport(
        folder=str(place),
        teacher=resolved.encoder_spec.model,
        n_texts=len(learnt),
        n_tokens=sum(map(len, learnt)),
        n_rows=len(table.tokens),
        n_pairs=len(table.pairs),
        dim=table.dim,
        stored=table.dim,
        n_bytes=sum(path.stat().st_size for path in (place, *place.glob("*")) if path.is_file()),
        losses=rows.losses,
        cosine=float(cosines.mean()),
        n_held_out=len(held),
        training_seconds=training_s,
        seconds=0.0,
    )


def whitening(vectors: Floats, power: float) -> Floats:
    """Map (k, k) that turns vectors (n, k) to their directions of falling deviation, each over that to the `power`."""
    rows = vectors.astype(np.float64)
    spectrum = decompose(rows.T @ rows / len(rows))
    least = spectrum.values[0] * 1e-6  # below it nothing varies
    turned: Floats = (spectrum.directions * np.maximum(spectrum.values, least) ** -power).astype(np.float32)
    return turned


def _is_questions(file: Path) -> bool:
    try:
        with safe_open(file, "numpy") as stored:
            return QUESTIONS_NOTE in (stored.metadata() or {})
    except (OSError, SafetensorError) as fault:
        check_machine(fault, file)
        return False


def _given(
    text: Path, resolved: Resolved, vectors: str | os.PathLike[str], limit: int, seed: int
) -> tuple[list[str], Floats]:
    """Texts, and (n, d) the teacher's vectors of them, of unit length, which are there."""
    texts, units = read_teacher(Path(vectors), text)
    if units.shape[1] != resolved.hidden:
        message = f"the vectors are {units.shape[1]} wide, those of the teacher {resolved.hidden}"
        raise SpecError(message, "name the model that made them with `teacher`", where=str(vectors))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(texts))[:limit])
    return [texts[number] for number in drawn.tolist()], units[drawn]


def _single(resolved: Resolved, texts: list[str], cache: str | os.PathLike[str] | None) -> Floats:
    """(u, d) of unit length, or zero where a token spells nothing."""
    spelt = [place for place, text in enumerate(texts) if text.strip()]
    vectors = np.zeros((len(texts), resolved.hidden), np.float32)
    vectors[spelt] = l2_normalize(vectors_of([texts[place] for place in spelt], resolved, cache)).vectors
    return vectors


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
