"""The options of a build and of a search: each is one line here, from which every place where it can be given is made.

Python's keywords are these types; the command line, its help, `ragidx.toml`, HTTP, the tools of agents, `help()` and
docs/cli.md follow. What is done with them is in `ragidx.pipelines.ingest.options` and `ragidx.retriever.options`.
"""  # annotations are objects here, not text: they are read

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypedDict

from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.index_types import INDEX_TYPES, MIN_ROWS
from ragidx.indexer.options import Device, Dtype, EncoderOptions, Endpoint, Option, RunOptions
from ragidx.indexer.specs import FILTERS, FilterSpec

_model, _filter, _chunk, _index, _file, _run, _ranking, _hit = (
    partial(Option, group=group) for group in ("Model", "Filter", "Chunk", "Index", "File", "Run", "Ranking", "Hit")
)


@dataclass(frozen=True, slots=True)
class Rerank:
    """A model that reads the best passages with the question, and orders them again.

    Attributes:
        model: a cross-encoder or a decoder: a folder or a hub id.
        top: passages that it reads; never fewer than there are to be hits.
        method: auto, cross-encoder, or the name of a prompt: `reranker_methods`.
    """

    model: str
    top: int = 20
    method: str = "auto"


class PlaceKeywords(TypedDict, total=False):
    """Where an index's model is now and how it runs; None: where it was, when the index was made."""

    model: Annotated[str | None, _model("PATH", "Where the index's model is now, if it was moved.")]
    adapters: Annotated[
        Sequence[str] | None, _model("PATH", "Where its LoRA adapters are now: all of them, in order.", typed="adapter")
    ]
    pooler: Annotated[str | None, _model("FILE", "Where the weights of its trainable pooling are now.")]
    device: Device
    dtype: Dtype
    endpoint: Endpoint
    questions: Annotated[
        str | None,
        Option("Q", "What encodes questions: table (of `train questions`) or model [default: as trained].", "Question"),
    ]


class WidthKeywords(TypedDict, total=False):
    """How vectors are compared, by name; None: the default."""

    dim: Annotated[int | None, _ranking("N", "Compare only the first N dimensions of the vectors.", least=1)]
    rerank_dim: Annotated[
        int | None, _ranking("N", "With `dim`: compare the found chunks again, by the first N dimensions.", least=1)
    ]
    min_score: Annotated[float | None, _ranking("C", "Drop chunks with a cosine below C.", least=-1, most=1)]


class RankKeywords(WidthKeywords, total=False):
    """How chunks are ranked for a question, by name: the options of a search for documents."""

    mode: Annotated[
        Literal["dense", "lexical", "hybrid"] | None,
        _ranking(
            "M",
            "dense (by the vectors), lexical (by the words), or hybrid, which is the default where the index has both.",
        ),
    ]
    weight: Annotated[
        float | None,
        _ranking("W", "Weight of the vectors in hybrid search [default: the index's own, else 0.5].", least=0, most=1),
    ]
    fusion: Annotated[
        Literal["z", "rrf"] | None,
        _ranking("F", "z (scores against those of all chunks) or rrf (places) [default: z]."),
    ]
    min_z: Annotated[float | None, _ranking("Z", "Drop chunks with a score of hybrid search below Z.")]
    rerank: Annotated[
        Rerank | None,
        Option("MODEL", "Let a cross-encoder or a decoder read the best, and order them again.", "Reranking"),
    ]


class ShapeKeywords(TypedDict, total=False):
    """What becomes of the ranked chunks, by name."""

    per_document: Annotated[int | None, _hit("N", "At most N hits of a document.", least=1)]
    fold: Annotated[bool, _hit(None, "Show equal and nearly equal passages once.", default=True)]
    mmr: Annotated[
        float | None, _hit("L", "Prefer hits unlike those before; 1 is by score, 0 by unlikeness.", least=0, most=1)
    ]
    context: Annotated[int, _hit("N", "Show N chunks of the document on each side.", default=0, least=0)]


class VectorKeywords(WidthKeywords, ShapeKeywords, total=False):
    """The options of a search by vectors, by name, without the condition."""


class SearchKeywords(RankKeywords, ShapeKeywords, total=False):
    """The options of a search in words, by name, without the condition."""


class AskKeywords(TypedDict, total=False):
    """What is asked for beside them."""

    k: Annotated[int, _hit("N", "Hits to return.", default=10, least=1, for_agents=True)]
    where: Annotated[
        str | None, _ranking("EXPR", "Keep chunks whose metadata match, such as 'year >= 1900'.", for_agents=True)
    ]
    instruction: Annotated[
        str | None, Option("S", "Task sentence put before the query, or task:NAME; '' for none.", "Question")
    ]


class ModelKeywords(TypedDict, total=False):
    """Which model."""

    model: Annotated[
        str | None,
        _model(
            "ID|PATH",
            "mini (bundled, the default), mini-decoder, a folder, a GGUF file, ollama:NAME, smollm2, a hub id, or "
            "openai:NAME at an `endpoint`.",
        ),
    ]


class FilterKeywords(TypedDict, total=False):
    """The fields of a `FilterSpec` as the command line and a sweep name them."""

    tau: Annotated[float | None, _filter("N", "The filter keeps hidden width / N dimensions.")]
    dim: Annotated[int | None, _filter("N", "The filter keeps N dimensions.")]
    filter: Annotated[str | None, _filter("F", f"{', '.join(FILTERS)} (the raw coordinates), head:FILE.")]
    filter_offset: Annotated[
        int | None, _filter("N", "embedfilter: first kept direction of the spectrum [default: the middle].")
    ]
    filter_seed: Annotated[int | None, _filter("N", "Random seed of the filter [default: 0].")]
    center: Annotated[
        bool | None,
        _filter(
            None,
            "Take the mean of documents off documents, and that of questions off questions [default: the index's own, "
            "else no].",
        ),
    ]
    filter_power: Annotated[
        float | None,
        _filter("P", "pca: divide components by their standard deviation to the power P, 0 to 1, which is whitening."),
    ]
    filter_topk: Annotated[int | None, _filter("N", "optimal: count the N most frequent tokens [default: 100].")]
    filter_sample: Annotated[
        int | None, _filter("N", "Fit optimal, whitening and pca on at most N chunks of the corpus [default: 4096].")
    ]


class ChunkKeywords(TypedDict, total=False):
    """The fields of a `ChunkSpec` as the command line names them."""

    chunk_size: Annotated[
        int | str | None, _chunk("N|NONE", "At most N tokens a chunk; none for whole documents [default: 256].")
    ]
    chunk_overlap: Annotated[int | None, _chunk("N", "Neighbouring chunks share at most N tokens [default: 0].")]
    titles: Annotated[
        bool | None,
        _chunk(None, "Put the title in front of chunks that lack it [default: the index's own, else yes]."),
    ]


class FieldKeywords(TypedDict, total=False):
    """Settings of files that the command line has options for; the others of `fields` are of `ragidx.toml`."""

    encoding: Annotated[
        Sequence[str] | None,
        _file(
            "[GLOB=]NAME",
            "Encoding of files of text that are not UTF-8, such as 'notes/*.txt=cp1250' [default: guessed, and "
            "reported].",
        ),
    ]
    html: Annotated[Sequence[str] | None, _file("[GLOB=]P", "What of HTML is read, main or whole [default: main].")]
    ocr: Annotated[
        Sequence[str] | None,
        _file(
            "[GLOB=]E",
            "What reads scanned pages and pictures: off, auto (Latin and Chinese; needs the extra `ocr`), or languages "
            "of tesseract, such as deu+eng [default: off].",
        ),
    ]


class UpgradeKeywords(ModelKeywords, EncoderOptions, RunOptions, total=False):
    """How vectors are made; of `RunOptions`, a build takes several devices: `cuda:0,cuda:1`."""

    filter: Annotated[
        FilterSpec | str | None,
        _filter(
            None,
            'As `FilterSpec("embedfilter", tau=2)`; a name is the filter with the index\'s own values, else the '
            "preset's.",
            parts=FilterKeywords,
        ),
    ]
    chunks: Annotated[
        ChunkSpec | None, _chunk(None, "How documents are cut, as `ChunkSpec(size=128)`.", parts=ChunkKeywords)
    ]


class AnnKeywords(TypedDict, total=False):
    """How the vectors of rows are searched."""

    index_type: Annotated[
        str | None,
        _index(
            "T",
            f"{', '.join(INDEX_TYPES)}, or a factory string: IVF1024,SQ8 ... [default: the index's own, else auto].",
        ),
    ]
    target_recall: Annotated[
        float | None,
        _index("R", "ann_recall@10 to tune an approximate index to [default: the index's own, else 0.95]."),
    ]
    max_memory: Annotated[
        int | str | None,
        _index(
            "SIZE",
            f"Memory limit for a search, such as 2GB; segments of fewer than {MIN_ROWS:,} vectors are always searched "
            "exactly.",
        ),
    ]
    codes_only: Annotated[
        bool | None,
        _index(
            None,
            "Keep no vectors beside the codes of `index_type`: scores are those of decoded vectors [default: the "
            "index's own, else no].",
        ),
    ]


class IndexKeywords(AnnKeywords, total=False):
    """How rows are searched."""

    stemmer: Annotated[
        str | None,
        _index(
            "auto|none|LANG",
            "Words are searched by their stems in this language [default: the index's own, else auto: guessed].",
        ),
    ]
    lexical: Annotated[
        bool | None, _index(None, "Whether chunks can be searched by their words [default: the index's own, else yes].")
    ]


class CreateKeywords(UpgradeKeywords, IndexKeywords, total=False):
    """How an index is made."""


class CorpusKeywords(TypedDict, total=False):
    """Which files are read (globs; one may be a str), and which of their fields."""

    include: Annotated[Sequence[str], _file("GLOB", "Only these files.")]
    exclude: Annotated[Sequence[str], _file("GLOB", "Not these files.")]
    text_field: Annotated[
        str | Sequence[str] | None,
        _file(
            "[GLOB=]F[+F]",
            "Field of structured files that holds the text, such as 'data/*.csv=title+body' or 'messages[].content'; "
            "the first that fits a file counts [default: decided by the values, and kept].",
        ),
    ]
    id_field: Annotated[str | Sequence[str] | None, _file("[GLOB=]F", "Field of structured files that holds the id.")]


class ReadKeywords(RunOptions, CorpusKeywords, total=False):
    """How a corpus is read."""

    records: Annotated[
        str | Sequence[str] | None,
        _file("GLOB=PATH", "Where the records of JSON files are, such as 'policies.json=policies[]'."),
    ]
    fields: Annotated[
        Mapping[str, str | Sequence[str]] | None,
        _file(
            None,
            "More that is said like `text_field`, by name: title, speaker, context, metadata, encoding, html, ocr.",
            parts=FieldKeywords,
        ),
    ]
    workers: Annotated[
        int | str | None,
        _file(
            "N|auto",
            "Processes that read and cut files; auto counts the cores, and uses none for a small corpus of plain text "
            "[default: auto].",
        ),
    ]
    strict: Annotated[bool, _run(None, "Stop with an error, exit status 1, when anything is skipped, lost or cut.")]
    accept: Annotated[
        Sequence[str],
        _run("KIND", "With `strict`: a kind of docs/formats.md that may be lost, such as 'scanned pages'."),
    ]


class PlanKeywords(CreateKeywords, ReadKeywords, total=False):
    """The options of a build of a corpus, and of its plan."""

    language: Annotated[
        bool | None,
        _file(
            None,
            "Name the language of each document in its field `language`; needs the extra `language` [default: no].",
        ),
    ]
    reread: Annotated[
        bool,
        _file(
            None,
            "Open every file again, even if its size and times are unchanged: a write through an open memory mapping "
            "may not change them.",
            once=True,
        ),
    ]
    retry: Annotated[
        bool, _file(None, "Read files again that an earlier build gave up as they took too long.", once=True)
    ]
    restore: Annotated[bool, _run(None, "Take in again what `ragidx delete` removed.", once=True)]
    allow_removal: Annotated[
        bool,
        _index(
            None,
            "Allow a build that removes more than half of a source, all of an empty or lost folder, or documents of a "
            "program that it cannot read.",
            once=True,
        ),
    ]
    rebuild: Annotated[bool, _index(None, "Replace the index, even one made with other options.", once=True)]
    compact: Annotated[
        bool,
        _index(
            None,
            "Drop no dead rows of segments of which a third is dead; `ragidx compact` does later.",
            default=True,
            typed="no-compact",
        ),
    ]


class VectorFileKeywords(TypedDict, total=False):
    """Files of vectors: of documents in place of a corpus, and of the words of questions."""

    vectors: Annotated[
        str | Path | None,
        _file(
            "FILE",
            "Instead of a corpus: precomputed vectors, a parquet, arrow, feather or npy file, a folder of them, or a "
            "table: lancedb:DIR, postgresql://HOST/DATABASE, qdrant:URL, milvus:URL or chroma:DIR, with #NAME. With "
            "`model`, the model that made them, the index answers text questions.",
            once=True,
        ),
    ]
    vector_field: Annotated[str | None, _file("F", "Column of `vectors` that holds the vectors.", once=True)]
    made_by: Annotated[str, _file(None, "What made the vectors, in your words; never looked up.", default="")]
    questions: Annotated[
        str | Path | None,
        _file("FILE", "A table that encodes questions in place of the model, from `ragidx train questions MODEL`."),
    ]


class BuildKeywords(VectorFileKeywords, PlanKeywords, total=False):
    """The options of a build, of a corpus or of precomputed vectors."""
