"""What a user may say about a build, as one value.

keywords -> `build_options` -> `BuildOptions`. The options of the encoder travel as one member; filter and chunks are
values, of which what was named counts. What they mean for an index, and whether the values are possible, is
`ragidx.pipelines.ingest.resolve`'s.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from ragidx.corpora.errors import SpecError, unknown_name
from ragidx.corpora.field_settings import check_fields, check_settings
from ragidx.corpora.left_out import check_kind
from ragidx.corpora.spec import ChunkSpec
from ragidx.indexer.ann.alone import check_decodable
from ragidx.indexer.ann.index_types import IndexOptions, check_index_type, memory_size
from ragidx.indexer.devices import check_devices, check_dtype, check_implementation
from ragidx.indexer.lexical.spec import OFF
from ragidx.indexer.lexical.stemming import AUTO as STEMMER_AUTO
from ragidx.indexer.lexical.stemming import check_stemmer
from ragidx.indexer.options import ENCODER_OPTIONS, EncoderOptions, RunOptions, options_of
from ragidx.indexer.specs import FilterSpec
from ragidx.retriever.keywords import CorpusKeywords, IndexKeywords, PlanKeywords

K = TypeVar("K")

RUN_OPTIONS = tuple(RunOptions.__annotations__)

CORPUS_OPTIONS = tuple(CorpusKeywords.__annotations__)
"""Which files are read, and which of their fields."""

INDEX_OPTIONS = tuple(IndexKeywords.__annotations__)
"""How rows are searched."""

STORE_OPTIONS = (*INDEX_OPTIONS, *CORPUS_OPTIONS, "strict", "accept", "allow_removal", "rebuild", "restore", "compact")
"""What every build takes, of a corpus or of vectors."""

ENCODING_OPTIONS = (*ENCODER_OPTIONS, *RUN_OPTIONS, "chunks", *CORPUS_OPTIONS, "records", "fields")
"""How a corpus is read, cut and encoded, beside the model's name: what is measured takes these."""

QUERY_OPTIONS = (*ENCODER_OPTIONS, *RUN_OPTIONS, "filter")
"""What may be said about the model of questions, beside its name."""

OPTIONS = tuple(PlanKeywords.__annotations__)
"""The names that a build takes."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of `ragidx.build`, checked. None: the index's own, else the preset's, else the default.

    `encoder` has the options of the encoder that were named, None never; of `filter` and `chunks` the fields that were
    named count. Defaults are those of the keywords.
    """

    model: str | None
    encoder: EncoderOptions
    filter: FilterSpec | None
    chunks: ChunkSpec | None
    index_type: str | None
    target_recall: float | None
    max_memory: int | None
    codes_only: bool | None
    stemmer: str | None
    lexical: bool | None
    device: str
    dtype: str
    attn: str
    endpoint: str | None
    include: Sequence[str]
    exclude: Sequence[str]
    text_field: tuple[str, ...] | None
    id_field: tuple[str, ...] | None
    records: tuple[str, ...] | None
    language: bool | None
    fields: Mapping[str, tuple[str, ...]]
    strict: bool
    accept: Sequence[str]
    reread: bool
    retry: bool
    restore: bool
    allow_removal: bool
    rebuild: bool
    compact: bool | None
    workers: int | None

    def __post_init__(self) -> None:
        """Refuse a machine that is not there: a build with nothing to encode never loads what else would do it."""
        check_devices(self.device)
        check_dtype(self.dtype)
        check_implementation(self.attn)


def build_options(door: str = "build", /, **given: Any) -> BuildOptions:
    """The value made of keywords; `door` is the function that took them, for messages.

    Raises:
        SpecError: a name that no build takes, a device or number format that there is not, or text that is not a size.
    """
    check_names(door, given, OPTIONS)
    defaults = {name: option.default for name, (_, option) in options_of(PlanKeywords).items()}
    members = {name: value for name, value in (defaults | given).items() if name not in ENCODER_OPTIONS}
    members["encoder"] = {name: given[name] for name in ENCODER_OPTIONS if given.get(name) is not None}
    if isinstance(members["filter"], str):
        members["filter"] = FilterSpec(members["filter"])
    for name, kind in (("filter", FilterSpec), ("chunks", ChunkSpec)):
        if not isinstance(members[name], kind | None):
            raise SpecError(
                f"{members[name]!r} is no {kind.__name__}", f"give ragidx.{kind.__name__}(...)", where=f"`{name}`"
            )
    for name in ("include", "exclude", "accept"):
        if isinstance(members[name], str):
            members[name] = (members[name],)
    for kind in members["accept"] or ():
        check_kind(kind)
    for name in ("text_field", "id_field", "records"):
        members[name] = check_settings(members[name], name, glob=name == "records")
    members["fields"] = check_fields(members["fields"])
    for setting in members["fields"].get("ocr", ()):
        from ragidx.corpora.readers.ocr.engines import check_engine  # not where it is not asked for

        check_engine(setting.rpartition("=")[2])
    if members["max_memory"] is not None:
        members["max_memory"] = memory_size(members["max_memory"])
    members["workers"] = check_workers(members["workers"])
    return BuildOptions(**members)


def check_workers(asked: object) -> int | None:
    """A number of workers; None: as many as pay.

    Raises:
        SpecError: it is neither a number from 1 on nor `auto`.
    """
    if asked is None or asked == "auto":
        return None
    text = str(asked)
    if isinstance(asked, bool) or not (text.isascii() and text.isdigit() and len(text) < 9 and int(text)):
        raise SpecError(
            f"'{text[:20]}' is no number of workers", "give a number from 1 on, or `auto`", where="`workers`"
        )
    return int(text)


def index_options(
    own: IndexOptions, dim: int | None, *, stemmer: str | None = None, lexical: bool | None = None, **named: Any
) -> IndexOptions:
    """Which indexes segments get: what was asked for, else the index's own; `dim` None: the width is not checked.

    Raises:
        SpecError: a value is unknown, out of range, or does not suit the width.
    """
    changed = {name: value for name, value in named.items() if value is not None}
    if "max_memory" in changed:
        changed["max_memory"] = memory_size(changed["max_memory"])
    options = dataclasses.replace(own, **changed, lexical=_lexical(own.lexical, stemmer, lexical))
    check_index_type(options.index_type, dim)  # also where no segment is large enough for it yet
    if options.codes_only:
        check_decodable(options.index_type)
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


def check_names(door: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Whether a function takes all options that it was given: Python leaves names of `**options` to it.

    Raises:
        SpecError: it does not; with the near miss.
    """
    for name in given:
        if name not in known:
            fault = unknown_name("option", name, known)
            raise SpecError(fault.message.replace("unknown option", f"{door} takes no such option:"), fault.hint)


def checked(door: str, keywords: type[K], given: Mapping[str, Any]) -> K:
    """The values of all keywords of a TypedDict: those that were given, and the defaults of the others.

    Raises:
        SpecError: a name that the function `door` does not take, a word that is none of an option's, or a number out of
            its bounds.
        TypeError: one is missing.
    """
    listed = options_of(keywords)
    check_names(door, given, listed)
    values = {name: given.get(name, option.default) for name, (_, option) in listed.items()}
    for name, (kind, option) in listed.items():
        value, least, most = values[name], option.least, option.most
        if value is inspect.Parameter.empty:
            raise TypeError(f"{door} needs `{name}`")
        words = [word for one in (kind, *get_args(kind)) if get_origin(one) is Literal for word in get_args(one)]
        if words and value not in words and not (value is None and NoneType in get_args(kind)):
            raise unknown_name(name, value, words)
        if least is not None and value is not None and not least <= value <= (math.inf if most is None else most):
            hint = f"give {least:g} or more" if most is None else f"give from {least:g} to {most:g}"
            raise SpecError(f"{name}={value:,} is out of range", hint, where=f"`{name}`")
    return cast(K, values)


def encoding_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a function's options that say how a model encodes and where it runs, None never."""
    names = (*ENCODER_OPTIONS, *RUN_OPTIONS)
    return {name: values[name] for name in names if values.get(name) is not None}
