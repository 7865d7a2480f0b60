"""What configurations are compared on: judged queries of a corpus or an index, pairs of sentences, or finished runs.

paths -> `Task`: its kind by what lies there, its queries and judgements read and checked before anything is encoded.
Queries that nobody judged are left out and counted; a judged query that finds nothing counts 0.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ragidx.corpora.errors import CorpusError, SpecError
from ragidx.corpora.evalset_files import ENDINGS
from ragidx.corpora.evalsets import (
    Qrels,
    Run,
    SentencePairs,
    has_pairs,
    has_qrels,
    has_queries,
    load_pairs,
    load_qrels,
    load_queries,
    load_run,
    place_in_qrels,
)
from ragidx.corpora.sources import beir_corpus
from ragidx.indexer.store.files import MANIFEST
from ragidx.pipelines.experiments.evaluate.options import Questions

CORPUS, INDEX, PAIRS, RUN = "corpus", "index", "pairs", "run"
_NPY = (".npy", ".npy.gz", ".npy.zst")
_TABLES, _RUNS = (".tsv", ".csv"), (".run", ".trec")
_NO_LABELS = "or make queries of the corpus itself: `Questions.made()`"


@dataclass(frozen=True)
class Judged:
    """Queries with judgements, both by query id, in one order.

    Attributes:
        texts: texts of the queries; empty where only runs are measured.
        qrels: judgements of each query; empty where nothing is judged.
        notes: notes on what is left out, and what does not belong together.
        place: the file and line of the first judgement of a document, or of a query: `place_in_qrels`.
        synthetic: what the queries were made of, sentence or title; None: they were given.
    """

    texts: dict[str, str]
    qrels: Qrels
    notes: tuple[str, ...] = ()
    place: Callable[..., str] = str
    synthetic: str | None = None

    def some(self, names: Sequence[str]) -> Judged:
        """The queries with these ids."""
        texts = {name: self.texts[name] for name in names}
        return replace(self, texts=texts, qrels={name: self.qrels[name] for name in names})


@dataclass(frozen=True)
class Task:
    """One data set.

    Attributes:
        name: name of the file or folder.
        kind: corpus, index, pairs or run.
        path: path of the file or folder.
        judged: the queries of a corpus or an index; None: pairs, a run, or no labels are needed.
        pairs: pairs of sentences, with their scores.
        run: the run that a file holds; which queries it is measured on is not known here.
    """

    name: str
    kind: str
    path: Path
    judged: Judged | None = None
    pairs: SentencePairs | None = None
    run: Run | None = None

    @property
    def synthetic(self) -> str | None:
        """What its queries were made of; None: they were given."""
        return None if self.judged is None else self.judged.synthetic


def task_of(source: str | os.PathLike[str], questions: Questions = Questions.read(), *, costs: bool = False) -> Task:
    """The data set that lies at a path.

    Args:
        source: a BEIR folder, another corpus, an index, a file or folder of pairs, or a TREC run.
        questions: the queries that ask, and what judges them.
        costs: whether storage and time are measured: then queries and judgements are not needed.

    Raises:
        CorpusError: a file is missing or has faults, or queries and judgements do not belong together.
        SpecError: there are no queries or judgements.
    """
    path = Path(source)
    name = path.resolve().name or str(path)
    if not path.exists() and str(source) != "-":
        raise CorpusError("no such file or folder", "check the path", where=str(path))
    if path.name.lower().endswith(_NPY) and path.is_file():
        raise SpecError(
            "a file of vectors is not a corpus: there is no text that a model could read",
            f"make an index of it and name that: ragidx build --vectors {path.name} --index DIR",
            where=str(source),
        )
    kind = _kind(path, questions, may_be_pairs=not questions.without_labels and not costs)
    task = Task(name, kind, path)
    if (questions.log is not None or costs) and kind in (PAIRS, RUN):
        of_what = "pairs of sentences" if kind == PAIRS else "a run"
        what = "costs are of" if costs else "a log of queries asks"
        raise SpecError(f"it is {of_what}, and {what} a corpus or an index", where=str(path))
    if questions.log is not None:
        return replace(task, judged=Judged(load_queries(questions.log), {}))
    if kind == PAIRS:
        pairs = load_pairs(path, split=questions.split)
        if len(pairs.scores) > 1 == len(set(pairs.scores)):
            raise CorpusError(f"all scores are {pairs.scores[0]:g}", "give pairs that differ in it", where=str(path))
        return replace(task, pairs=pairs)
    if kind == RUN:
        return replace(task, run=load_run(path))
    return task if questions.without_labels else replace(task, judged=_judged(task, questions, costs=costs))


def _judged(task: Task, questions: Questions, *, costs: bool) -> Judged | None:
    """The queries of a corpus or an index, with their judgements; where costs are measured these may be missing."""
    path, split = task.path, questions.split
    own = path if path.is_dir() and task.kind == CORPUS else None
    if costs and own and (questions.queries is not None or beir_corpus(own) is None):
        own = None
    asks = questions.queries or (own if own and has_queries(own) else None)
    judges = questions.qrels or (own if own and has_qrels(own, split) else None)
    if costs and asks is None and questions.qrels is not None:
        raise SpecError("qrels judge queries, and there are none", "name their file with `queries`", where="`qrels`")
    if costs and (asks is None or judges is None):
        return None if asks is None else Judged(load_queries(asks), {})
    if asks is None and (own or judges):
        nor = "" if split == "test" else f", and no pairs of the split '{split}'"
        raise SpecError(f"there are no queries{nor}", f"give `queries` and `qrels`, {_NO_LABELS}", where=str(path))
    if asks is None or judges is None:
        raise no_judgements(task)
    place = functools.partial(place_in_qrels, judges, split=split)
    return judged_of(load_queries(asks), load_qrels(judges, split=split), place)


def check_together(queries: object, qrels: object) -> None:
    """Whether both are given, or neither.

    Raises:
        SpecError: one is.
    """
    if (queries is None) != (qrels is None):
        raise SpecError("queries and what judges them go together", "give both, `queries` and `qrels`, or neither")


def no_judgements(task: Task) -> SpecError:
    """The fault that nothing says what is relevant."""
    hint = "give `qrels`" if task.kind == RUN else f"give `queries` and `qrels`, {_NO_LABELS}"
    return SpecError(f"nothing says which documents answer which query of this {task.kind}", hint, where=str(task.path))


def with_names(tasks: Sequence[Task]) -> list[Task]:
    """The same tasks, with their paths as names where two have one name."""
    count = Counter(task.name for task in tasks)
    return [task if count[task.name] == 1 else replace(task, name=str(task.path)) for task in tasks]


def judged_of(texts: dict[str, str], qrels: Qrels, place: Callable[..., str]) -> Judged:
    """The queries that are judged.

    Raises:
        CorpusError: none is.
    """
    both = {name: text for name, text in texts.items() if name in qrels}
    if not both:
        raise CorpusError(
            f"no query is judged (queries: '{next(iter(texts))}', ...; qrels: '{next(iter(qrels))}', ...)",
            "give the qrels that belong to the queries",
            where=place(next(iter(qrels)), is_query=True),
        )
    unknown = [name for name in qrels if name not in texts]
    left_out, notes = len(texts) - len(both), list[str]()
    if unknown:
        first = f"'{unknown[0]}' ({place(unknown[0], is_query=True)})"
        notes.append(f"Not among the queries: {len(unknown):,} x judged query; first: {first}.")
    if left_out:
        notes.append(f"Without judgements, and left out: {left_out:,} x query.")
    return Judged(both, {name: qrels[name] for name in both}, tuple(notes), place)


def check_documents(judged: Judged, doc_ids: Iterable[str]) -> Iterator[str]:
    """Notes on relevant documents that are not in the corpus.

    Raises:
        CorpusError: none is.
    """
    relevant = {name: None for judgements in judged.qrels.values() for name, gain in judgements.items() if gain > 0}
    here = set(doc_ids)
    missing = [name for name in relevant if name not in here]
    if relevant and len(missing) == len(relevant):
        raise CorpusError(
            f"no relevant document is here (qrels: '{missing[0]}', ...; documents: '{min(here, default='')}', ...)",
            "give the qrels that belong to the corpus",
            where=judged.place(missing[0]),
        )
    if missing:
        first = f"'{missing[0]}' ({judged.place(missing[0])})"
        yield f"Not in the corpus, so never found: {len(missing):,} x relevant document; first: {first}."


def check_run(task: Task, qrels: Qrels) -> Iterator[str]:
    """Notes on queries of a run that nobody judged, and on judged ones that it does not answer.

    Raises:
        CorpusError: it answers none that is judged.
    """
    run = task.run or {}
    if not run.keys() & qrels.keys():
        raise CorpusError(
            f"the run answers no judged query (run: '{next(iter(run))}', ...; qrels: '{next(iter(qrels))}', ...)",
            "give the qrels of this run's queries",
            where=str(task.path),
        )
    for count, what in (
        (len(run.keys() - qrels.keys()), "Without judgements, and left out"),
        (len(qrels.keys() - run.keys()), "Judged and not answered, so 0"),
    ):
        if count:
            yield f"{what} of {task.name}: {count:,} x query."


def _kind(path: Path, questions: Questions, *, may_be_pairs: bool) -> str:
    may_be_pairs &= questions.queries is None and questions.qrels is None
    if path.is_dir():
        if (path / MANIFEST).exists():
            return INDEX
        is_pairs = may_be_pairs and has_pairs(path, questions.split) and beir_corpus(path) is None
        return PAIRS if is_pairs else CORPUS
    name, first = path.name.lower(), _first_line(path)
    for ending in ENDINGS[1:]:
        name = name.removesuffix(ending)
    columns = first.split()
    if name.endswith(_RUNS) or (len(columns) == 6 and columns[1].upper() == b"Q0"):
        return RUN
    return PAIRS if may_be_pairs and (name.endswith(_TABLES) or b'"sentence1"' in first) else CORPUS


def _first_line(path: Path) -> bytes:
    import pyarrow as pa

    try:
        with pa.input_stream(str(path)) as file:
            return bytes(file.read(4096).split(b"\n", 1)[0])
    except OSError:
        return b""  # its reader says so
