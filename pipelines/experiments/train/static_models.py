"""A static model of one's own, as mini is: a token table whose vectors of texts are like those of a teacher; and a
table in the space of a model, that encodes its questions.

chunks of texts and the teacher's vectors of them, which may be there already -> the rows of `tables`, trained on all
texts but those that are held out -> whitened by half, so that the first numbers say most -> a folder that
`build --model` takes; or as it is, a file that `build --questions` takes
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
from safetensors import SafetensorError, safe_open

from ragidx.corpora.errors import CorpusError, ModelError, SpecError, check_machine
from ragidx.indexer import atomic
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.devices import check_models
from ragidx.indexer.filters.unembedding import decompose
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.specs import TOKEN_TABLE
from ragidx.indexer.token_table import QUESTIONS_NOTE, TABLE_FILE, TokenTable, plain, token_ids
from ragidx.pipelines.base.stages import OnStage, Stages
from ragidx.pipelines.experiments.train.frozen import check_numbers, check_target
from ragidx.pipelines.experiments.train.tables import (
    AT_ONCE,
    MOST_PAIRS,
    TrainedTable,
    spelled,
    texts_of,
    train_rows,
    vectors_of,
)
from ragidx.pipelines.experiments.train.teacher import read_teacher
from ragidx.pipelines.ingest.options import QUERY_OPTIONS, build_options, check_names
from ragidx.pipelines.ingest.resolve import Resolved, resolve_against

EPOCHS = 5
MOST_TEXTS = 150_000
FEWEST_TEXTS = 1_000
POWER = 0.5
"""Of the deviation of each direction, that it is divided by: 1 whitens, 0 changes nothing but the order."""

_HELD_OUT = 1_000
_SAMPLE = 20_000  # texts that whitening is fitted on
_READS = 254  # tokens of a text whose vector was given
_LONGEST = 2_048  # tokens of a text that the model reads
_BATCH, _RATE = 1_024, 1.5e-3


@dataclass(frozen=True)
class StaticReport:
    """What was trained.

    Attributes:
        folder: of the model, or the file.
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
    learnt = _learn(resolved, text, vectors, limit, seed, cache, pairs=pairs, epochs=epochs, tell=tell)
    tell("whitening")
    sample = learnt.table.vectors_of_ids(learnt.ids[:_SAMPLE])
    table = dataclasses.replace(learnt.trained, rows=learnt.trained.rows @ whitening(sample, power)[:, :width]).table(
        learnt.table.tokenizer
    )
    tell("writing the folder")
    _write(folder, table, stored or width)
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return learnt.report(str(folder), teacher, stored or width, width, n_bytes, began)


def questions(
    model: str | os.PathLike[str],
    *,
    text: str | os.PathLike[str],
    vectors: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "questions.safetensors",
    pairs: int = MOST_PAIRS,
    limit: int = MOST_TEXTS,
    epochs: int = EPOCHS,
    seed: int = 0,
    cache: str | os.PathLike[str] | None = "",
    on_progress: OnStage | None = None,
    **options: Any,
) -> StaticReport:
    """Train a table that encodes questions as a model does, for any index of this model: `build(questions=FILE)`.

    Args:
        model: as of `build`.
        text: a corpus; with `vectors` the folder that the paths of their rows begin in.
        vectors: a folder with the model's vectors of texts; None: it encodes the chunks of the corpus.
        out: the file that is written.
        pairs: of tokens that have a row, at most.
        limit: texts that are taken, at most.
        epochs: how often each is seen.
        seed: of what is drawn.
        cache: folder of raw vectors; "": the user's; None: nothing is kept.
        on_progress: called when a stage begins.
        options: of the encoder, as of `build`.

    Raises:
        CorpusError: the corpus or the files of vectors have faults, or there are too few texts.
        SpecError: an option is wrong, or the vectors have another width than the model.
        RagidxError: of the subclass that says what to do.
    """
    target = _question_target(Path(out))
    check_names("train.questions", options, tuple(name for name in QUERY_OPTIONS if name != "filter"))
    check_numbers(limit=limit, epochs=epochs, seed=seed)
    check_models("`train questions`")
    began, tell = time.perf_counter(), Stages(on_progress)
    resolved = resolve_against(build_options("train.questions", model=os.fspath(model), filter="none", **options))
    learnt = _learn(resolved, text, vectors, limit, seed, cache, pairs=pairs, epochs=epochs, tell=tell)
    tell("writing the file")
    note = json.dumps({"model": os.fspath(model), "vectors": resolved.spec.encoder_fingerprint()})
    data = learnt.table.to_bytes(notes={QUESTIONS_NOTE: note})
    atomic.write_file(target, data)
    return learnt.report(str(out), os.fspath(model), learnt.table.dim, learnt.table.dim, len(data), began)


@dataclass(frozen=True)
class _Learnt:
    """A table in the space of a model."""

    table: TokenTable
    trained: TrainedTable
    ids: list[Ints]
    cosine: float
    n_held: int
    seconds: float

    def report(self, place: str, teacher: str, stored: int, dim: int, n_bytes: int, began: float) -> StaticReport:
        return StaticReport(
            folder=place,
            teacher=teacher,
            n_texts=len(self.ids),
            n_tokens=sum(map(len, self.ids)),
            n_rows=len(self.table.tokens),
            n_pairs=len(self.table.pairs),
            dim=dim,
            stored=stored,
            n_bytes=n_bytes,
            losses=self.trained.losses,
            cosine=self.cosine,
            n_held_out=self.n_held,
            training_seconds=self.seconds,
            seconds=time.perf_counter() - began,
        )


def _learn(
    resolved: Resolved,
    text: str | os.PathLike[str],
    vectors: str | os.PathLike[str] | None,
    limit: int,
    seed: int,
    cache: str | os.PathLike[str] | None,
    *,
    pairs: int,
    epochs: int,
    tell: Stages,
) -> _Learnt:
    """A table of texts and a model's vectors of them.

    Raises:
        ModelError: a server has the model, and its tokenizer is not known.
    """
    if resolved.files.served and resolved.encoder_spec.tokenizer is None:
        what = "a table is made of tokens, and the tokenizer of the endpoint's model is not known"
        raise ModelError(what, "name a model that is here", where=resolved.files.name)
    tell("reading texts and their vectors" if vectors is not None else f"reading {text}")
    if vectors is None:
        texts = texts_of(Path(text), resolved, limit)
    else:
        texts, units = _given(Path(text), resolved, vectors, limit, seed)
    if len(texts) < FEWEST_TEXTS:
        few = f"{len(texts):,} texts teach nothing"
        raise CorpusError(few, f"give {FEWEST_TEXTS:,} or more", where=str(text))
    tell.expect(3 + epochs + (0 if vectors is not None else -(-len(texts) // AT_ONCE)))
    if vectors is None:
        units = l2_normalize(vectors_of(texts, resolved, cache, tell)).vectors
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
    began = time.perf_counter()
    trained = train_rows(
        learnt, targets, lambda _: single, pairs=pairs, epochs=epochs, batch=_BATCH, rate=_RATE, seed=seed, tell=tell
    )
    table = trained.table(tokenizer)
    wanted = l2_normalize(units[held] - targets.mean(axis=0)).vectors
    cosine = float((table.vectors_of_ids([ids[one] for one in held.tolist()]) * wanted).sum(axis=1).mean())
    return _Learnt(table, trained, learnt, cosine, len(held), time.perf_counter() - began)


def whitening(vectors: Floats, power: float) -> Floats:
    """(k, k): turns vectors (n, k) to their directions of falling deviation, each divided by that to the `power`."""
    rows = vectors.astype(np.float64)
    spectrum = decompose(rows.T @ rows / len(rows))
    least = spectrum.values[0] * 1e-6  # below it nothing varies
    made: Floats = (spectrum.directions * np.maximum(spectrum.values, least) ** -power).astype(np.float32)
    return made


def _question_target(out: Path) -> Path:
    """The file to write, unless it is something else than a table of questions."""
    check_target(out)
    if out.exists():
        try:
            with safe_open(out, "numpy") as stored:
                is_one = QUESTIONS_NOTE in (stored.metadata() or {})
        except (OSError, SafetensorError) as fault:
            check_machine(fault, out)
            is_one = False
        if not is_one:
            raise SpecError("the file is no table of questions", "name another", where=str(out))
    return out


def _given(
    text: Path, resolved: Resolved, vectors: str | os.PathLike[str], limit: int, seed: int
) -> tuple[list[str], Floats]:
    """Texts, and (n, d) the teacher's vectors of them, of unit length, which are there."""
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
    found[spelt] = l2_normalize(vectors_of([texts[place] for place in spelt], resolved, cache)).vectors
    return found


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
