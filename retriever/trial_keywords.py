"""The options of what is tried on an index, `adapt`, `train_questions` and `upgrade`, as in `retriever.keywords`.

Those of other training are in `ragidx.pipelines.experiments.train.keywords`; what both have is here.
"""  # annotations are objects here, not text: they are read

from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Annotated, TypedDict

from ragidx.indexer.options import Option
from ragidx.retriever.keywords import UpgradeKeywords

_training, _question, _comparison, _run = (
    partial(Option, group=group) for group in ("Training", "Question", "Comparison", "Run")
)

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

Epochs = Annotated[int, _training("N", "How often each pair is seen.", default=8, least=1)]
ChunkLimit = Annotated[
    int | None, _training("N", "Learn from N chunks at most [default: 100,000; of a model 150,000].", least=1)
]
ChunkEpochs = Annotated[
    int | None, _training("N", "How often each chunk is seen [default: 10; of a model 5].", least=1)
]
Seed = Annotated[int, _training("N", "Seed of what is drawn.", default=0, least=0)]
Cache = Annotated[
    str | PathLike[str] | None,
    _run(
        "DIR|none",
        "Folder where raw vectors are kept between runs; none (in Python None): nowhere [default: in the cache that "
        "`ragidx doctor` shows].",
        default="",
    ),
]
Margin = Annotated[float, _comparison("M", "nDCG@10 that may be lost.", default=0.01)]


class JudgedKeywords(TypedDict, total=False):
    """Queries that an index and a candidate are asked, and what judges the answers."""

    queries: Annotated[
        str | Path | None,
        _question(
            "FILE",
            "Ask these queries: JSON lines, lines of id, tab and text, or TREC topics [default: sentences taken out of "
            "their documents].",
        ),
    ]
    qrels: Annotated[str | Path | None, _question("FILE", "Relevance judgements, BEIR or TREC.")]


class SwapKeywords(JudgedKeywords, total=False):
    """When new vectors take the place of the old ones."""

    margin: Margin
    force: Annotated[bool, _comparison(None, "Swap in any case.")]


class UpgradeIndexKeywords(SwapKeywords, UpgradeKeywords, total=False):
    """The options of an upgrade."""


class AdaptKeywords(JudgedKeywords, total=False):
    """The options of a map of the stored vectors."""

    pairs: Annotated[
        Paths,
        _training("FILE|DIR", 'Train on these too: JSON Lines with "query" and "positive".', default=()),
    ]
    limit: Annotated[int, _training("N", "Take N pairs at most.", default=10_000, least=40)]
    epochs: Epochs
    seed: Seed
    force: Annotated[bool, _comparison(None, "Commit in any case.")]
    cache: Cache


class QuestionsKeywords(JudgedKeywords, total=False):
    """The options of a table that encodes the questions of an index."""

    text: Annotated[
        Paths,
        _run("FILE|DIR", "Train on these texts too, as the model encodes them; a model alone needs one.", default=()),
    ]
    limit: ChunkLimit
    epochs: ChunkEpochs
    seed: Seed
    margin: Margin
    force: Annotated[bool, _comparison(None, "Let the table encode questions in any case.")]
    cache: Cache
