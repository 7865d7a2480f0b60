"""What a user may say about a build: typed keywords at the public functions, and the one value made of them.

keywords -> `build_options` -> `BuildOptions`. The fields of a spec are not written again here: those of the encoder and
of the filter come with `EncoderOptions` and `FilterOptions`, and travel as one member each. What they mean for an
index, and whether the values are possible, is `ragidx.pipelines.ingest.resolve`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.field_settings import check_fields, check_settings
from ragidx.indexer.ann.index_types import IndexOptions, check_index_type, memory_size
from ragidx.indexer.devices import RunOptions, check_devices, check_dtype, check_implementation
from ragidx.indexer.encoders.methods import ENCODER_OPTIONS, FILTER_OPTIONS, EncoderOptions, FilterFields, FilterOptions
from ragidx.indexer.lexical.spec import OFF
from ragidx.indexer.lexical.stemming import AUTO as STEMMER_AUTO
from ragidx.indexer.lexical.stemming import check_stemmer


class ChunkOptions(TypedDict, total=False):
    """How documents are cut."""

    chunk_size: int | Literal["none"] | None
    chunk_overlap: int | None
    headings: bool | None


class AnnOptions(TypedDict, total=False):
    """How near vectors are found: the type of the index, what it must reach, and the bytes it may take in memory."""

    index_type: str | None
    target_recall: float | None
    max_memory: int | str | None  # bytes, or text such as 2GB


class LexicalOptions(TypedDict, total=False):
    """The lexical part: which chunks have which words."""

    stemmer: str | None  # auto (by the language of the texts), none, or a language
    lexical: bool | None  # False: no lexical part


class CorpusOptions(TypedDict, total=False):
    """Which files of a folder are read (globs; one may be a str), and which of their fields: `[GLOB=]FIELD`."""

    include: Sequence[str]
    exclude: Sequence[str]
    text_field: str | Sequence[str] | None
    id_field: str | Sequence[str] | None


class QueryKeywords(EncoderOptions, RunOptions, total=False):
    """How the model named beside precomputed vectors encodes questions; its filter is not fitted."""

    filter: str | None
    tau: float | None
    dim: int | None
    filter_offset: int | None
    filter_seed: int | None


class StoreKeywords(AnnOptions, LexicalOptions, CorpusOptions, total=False):
    """What every build takes, of a corpus or of vectors."""

    strict: bool  # end at the first thing skipped or cut
    allow_removal: bool  # go on also if most of the index is gone from the corpus or the file
    rebuild: bool  # replace the index, whatever it was made with
    restore: bool  # take in again what was deleted by hand


class BuildKeywords(EncoderOptions, FilterOptions, RunOptions, ChunkOptions, StoreKeywords, total=False):
    """The options of `build` and `plan`, by name."""

    model: str | None
    records: str | Sequence[str] | None  # where the records of JSON files are: `GLOB=PATH`
    language: bool | None  # name the language of each document in its metadata
    fields: Mapping[str, str | Sequence[str]] | None  # `[GLOB=]FIELD` by title, speaker, context or metadata
    reread: bool  # open every file again
    workers: int | str | None  # processes that read and cut files: a number, or auto


class SweepKeywords(EncoderOptions, FilterFields, RunOptions, ChunkOptions, CorpusOptions, total=False):
    """Those of a build that `sweep` takes, too; widths, filters and index types are arguments of its own."""

    model: str | None
    records: str | Sequence[str] | None
    fields: Mapping[str, str | Sequence[str]] | None


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What was said about a build; None: the index's own, else the preset's, else the default.

    Args:
        model: mini, a folder, a hub id, or `openai:NAME`.
        encoder, filter, chunk: the options of each that were given, None never.
        index_type, target_recall, max_memory: as in `AnnOptions`; the last in bytes.
        stemmer, lexical: as in `LexicalOptions`.
        device, dtype, attn, endpoint: as in `RunOptions`.
        include, exclude, text_field, id_field: as in `CorpusOptions`.
        records, language, fields: as in `BuildKeywords`.
        strict, reread, restore, allow_removal, rebuild: as in `BuildKeywords`.
        workers: how many processes read and cut files; None: as many as pay here.
    """

    model: str | None = None
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    filter: FilterOptions = field(default_factory=FilterOptions)
    chunk: ChunkOptions = field(default_factory=ChunkOptions)
    index_type: str | None = None
    target_recall: float | None = None
    max_memory: int | None = None
    stemmer: str | None = None
    lexical: bool | None = None
    device: str = "auto"
    dtype: str = "auto"
    attn: str = "auto"
    endpoint: str | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    text_field: tuple[str, ...] | None = None
    id_field: tuple[str, ...] | None = None
    records: tuple[str, ...] | None = None
    language: bool | None = None
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strict: bool = False
    reread: bool = False
    restore: bool = False
    allow_removal: bool = False
    rebuild: bool = False
    workers: int | None = None

    def __post_init__(self) -> None:
        """Refuse a machine that is not there: a build with nothing to encode never loads what else would do it."""
        check_devices(self.device)
        check_dtype(self.dtype)
        check_implementation(self.attn)


def build_options(door: str = "build", /, **given: Unpack[BuildKeywords]) -> BuildOptions:
    """The value made of keywords; `door` is the function that took them, for messages.

    Raises:
        SpecError: a name that no build takes, a device or number format that there is not, or text that is not a size.
    """
    check_names(door, given, BuildKeywords.__annotations__)
    groups = {"encoder": ENCODER_OPTIONS, "filter": FILTER_OPTIONS, "chunk": tuple(ChunkOptions.__annotations__)}
    grouped = {name for names in groups.values() for name in names}
    members: dict[str, Any] = {name: value for name, value in given.items() if name not in grouped}
    for member, names in groups.items():
        members[member] = {name: given[name] for name in names if given.get(name) is not None}  # type: ignore[literal-required]  # names of the groups
    for name in ("include", "exclude"):
        if isinstance(members.get(name), str):
            members[name] = (members[name],)
    for name in ("text_field", "id_field", "records"):
        if name in members:
            members[name] = check_settings(members[name], name, glob=name == "records")
    members["fields"] = check_fields(members.get("fields"))
    if members.get("max_memory") is not None:
        members["max_memory"] = memory_size(members["max_memory"])
    members["workers"] = check_workers(members.get("workers"))
    return BuildOptions(**members)


def check_workers(asked: object) -> int | None:
    """A number of workers; None: as many as pay.

    Raises:
        SpecError: it is neither a number from 1 on nor `auto`.
    """
    if asked is None or asked == "auto":
        return None
    if isinstance(asked, bool) or not str(asked).isascii() or not str(asked).isdigit() or int(str(asked)) < 1:
        raise SpecError(f"'{asked}' is no number of workers", "give a number from 1 on, or `auto`", where="`workers`")
    return int(str(asked))


def index_options(
    own: IndexOptions,
    index_type: str | None,
    target_recall: float | None,
    max_memory: int | str | None,
    dim: int | None,
    *,
    stemmer: str | None = None,
    lexical: bool | None = None,
) -> IndexOptions:
    """Which indexes segments get: what was asked for, else the index's own; `dim` None: the width is not checked.

    Raises:
        SpecError: a value is unknown, out of range, or does not suit the width.
    """
    options = IndexOptions(
        own.index_type if index_type is None else index_type,
        own.target_recall if target_recall is None else target_recall,
        own.max_memory if max_memory is None else memory_size(max_memory),
        _lexical(own.lexical, stemmer, lexical),
    )
    check_index_type(options.index_type, dim)  # also where no segment is large enough for it yet
    return options


def _lexical(own: str, stemmer: str | None, lexical: bool | None) -> str:
    """What `IndexOptions.lexical` becomes."""
    if stemmer is not None:
        check_stemmer(stemmer)
        if lexical is False:
            raise SpecError("a stemmer is for the lexical part", "remove it, or `lexical=False`", where="`stemmer`")
        return stemmer
    if lexical is None:
        return own
    return OFF if not lexical else STEMMER_AUTO if own == OFF else own


QUERY_OPTIONS = tuple(QueryKeywords.__annotations__)
"""What may be said about the model of questions, beside its name."""


def check_names(door: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Whether a function takes all options that it was given: Python leaves names of `**options` to it.

    Raises:
        SpecError: it does not; with the near miss.
    """
    for name in given:
        if name not in known:
            fault = unknown_name("option", name, known)
            raise SpecError(fault.message.replace("unknown option", f"{door} takes no such option:"), fault.hint)
