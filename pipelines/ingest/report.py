"""What a build reports: its progress while it runs, and its report at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ragidx.corpora.errors import RagidxError
from ragidx.corpora.field_settings import setting_for
from ragidx.corpora.left_out import LOST, Left, class_of
from ragidx.corpora.records import Skip
from ragidx.corpora.sources import BY_RULE
from ragidx.indexer.ann.index_types import FLAT
from ragidx.indexer.specs import EncoderSpec, FilterSpec, IndexSpec
from ragidx.indexer.store.files import ANN

if TYPE_CHECKING:
    from ragidx.corpora.readers.layouts import Layouts
    from ragidx.indexer.encoders.protocol import EndpointUsage
    from ragidx.indexer.filters.anisotropy import MeanCosines
    from ragidx.indexer.lexical.spec import LexicalSpec
    from ragidx.indexer.store.manifest import Manifest
    from ragidx.indexer.writing.field_bounds import FieldBounds

INDEXING = "indexing"
PLANNING = "planning"
DERIVING = "making the index"

SPENT = ("the reader takes more than", "the reader ended by SIGABRT")
"""How reasons of files begin that were given up for their time or memory; unchanged, they are not read again."""

_SOMETIMES = (
    *("removed_folders", "queries", "input_dim", "over_memory", "endpoint", "mean_cosines"),
    *("fields", "mixed_fields", "n_shared_fields", "n_values_dropped", "unknown"),
)
_EXAMPLES = 5
_REASONS = 5
_TELL_EVERY_S = 0.2
_MEMORY_MARGIN = 1 << 20  # bytes: headers of files, and limits that no index could be seen to exceed
_HEAD = re.compile(
    r"(?:'[^']*'|\([^)]*\)|[^:(']|[:('])*?(?=: |$)", re.DOTALL
)  # colons in quotes and brackets are names


@dataclass(frozen=True)
class QueryModelCheck:
    """How questions are encoded for precomputed vectors, and whether the model made them.

    Attributes:
        encoder: how questions are encoded.
        n_checked: texts that were encoded again; 0: there are none; None: the model was not named, and not looked at.
        median_cosine: median cosine of the model's vectors with those that were given.
        least_cosine: least cosine of the model's vectors with those that were given.
    """

    encoder: EncoderSpec
    n_checked: int | None = None
    median_cosine: float | None = None
    least_cosine: float | None = None


@dataclass(frozen=True)
class OverMemory:
    """A search needs more memory than was allowed: small segments are compared whole, whatever they take.

    Attributes:
        search_bytes: what a search keeps reading, all segments together.
        max_memory: memory that was allowed.
    """

    search_bytes: int
    max_memory: int


OnProgress: TypeAlias = Callable[["Progress"], None]


@dataclass
class Progress:
    """How far a build is; the same object at every call, its numbers grow.

    Args:
        on_progress: called with it a few times a second.
    """

    stage: str = INDEXING  # or PLANNING, that a filter is fitted, or DERIVING and what
    doing: str = ""  # what takes its time beside: the model is loaded, or it is measured what is fastest
    n_bytes: int = 0  # of the corpus, read
    total_bytes: int = 0  # of the corpus; 0 where it is unknown (standard input)
    n_pages: int = 0  # read by text recognition
    n_documents: int = 0
    has_new: bool = False  # whether a document is new or changed, so that there will be chunks
    n_cut: int = 0  # chunks of new and changed documents
    n_chunks: int = 0  # of them done: encoded, or known already
    n_sample: int = 0  # chunks that are encoded to fit a filter; 0: not known yet, or none
    n_encoded: int = 0  # chunks that went through the model, those of the sample first
    n_tokens: int = 0
    seconds: float = 0.0  # of encoding
    n_rows: int = 0  # of a large segment whose index is being made
    n_derived: int = 0  # of them in that index
    last: bool = False
    on_progress: InitVar[OnProgress | None] = None

    def __post_init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress, self._told_at = on_progress, 0.0

    def tell(self, *, at_once: bool = False) -> None:
        """Call `on_progress`, if it is time."""
        now = time.perf_counter()
        if self._on_progress is not None and (at_once or now - self._told_at >= _TELL_EVERY_S):
            self._told_at = now
            self._on_progress(self)

    @contextlib.contextmanager
    def while_doing(self, what: str) -> Iterator[None]:
        """Say what takes its time, before it does."""
        self.doing = what
        self.tell(at_once=True)
        try:
            yield
        finally:
            self.doing = ""

    @property
    def fitting(self) -> bool:
        """Whether a filter is still being fitted: nothing is stored yet."""
        return self.stage not in (INDEXING, PLANNING) and not self.deriving

    @property
    def deriving(self) -> bool:
        """Whether everything is encoded and stored, and the index of a large segment is being made."""
        return self.stage.startswith(DERIVING)

    def add_bytes(self, count: int, n_pages: int = 0) -> None:
        """Note that so many more of the corpus are read, and pages by text recognition."""
        self.n_bytes += count
        self.n_pages += n_pages
        if n_pages:
            self.tell()

    def end(self) -> None:
        """Note that all is done."""
        self.total_bytes = self.total_bytes or self.n_bytes
        self.last = True
        self.tell(at_once=True)

    def derive(self, recipe: str, rows: int, done: int) -> None:
        """Note how far the making of an index is."""
        self.stage, self.n_rows, self.n_derived = f"{DERIVING} {recipe}", rows, done
        self.tell()

    @property
    def share(self) -> float | None:
        """How much of the stage is done, 0 to 1; None where it is unknown.

        Of a fit, the chunks of the sample that are encoded; of a plan, the bytes read; of an index, its rows; else
        chunks and bytes of the corpus.
        """
        if self.fitting:
            return min(1.0, self.n_encoded / self.n_sample) if self.n_sample else None
        if self.deriving:
            return self.n_derived / max(1, self.n_rows)
        if not self.total_bytes:
            return None
        read = min(1.0, self.n_bytes / self.total_bytes)
        if self.stage == PLANNING:
            return read
        has_chunks = (self.has_new or self.n_cut) and not self.last
        return read * self.n_chunks / max(1, self.n_cut) if has_chunks else read


class StrictError(RagidxError):
    """With `strict`, the first thing that is skipped or cut ends the build; nothing is committed."""

    exit_code = 1


@dataclass
class Skips:
    """What was skipped, counted by reason, with the first places of each, and what was left out.

    Attributes:
        strict: whether what is skipped by a fault, or lost of a document, ends the build.
        accepted: kinds that may be lost.
        counts: number of skips by reason.
        places: the first of each.
        lost: the first place of what is lost of documents, by kind.
    """

    strict: bool = False
    accepted: Collection[str] = ()
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def add(self, skip: Skip | Left) -> None:
        """Count one; the part of a reason after a colon is its detail and does not make another reason.

        Raises:
            StrictError: it is a fault or lost, not the user's choice, and `strict` holds.
        """
        if isinstance(skip, Left):
            self._leave(skip)
            return
        if self.strict and skip.reason not in BY_RULE:
            raise StrictError(
                f"skipped: {skip.reason}", "repair or exclude it, or build without `strict=True`", where=skip.where
            )
        reason = _HEAD.match(skip.reason)[0]  # type: ignore[index]  # it matches every text, if only its empty start
        self.counts[reason] += 1
        shown = self.places.setdefault(reason, [])
        if len(shown) < _EXAMPLES:
            detail = skip.reason[len(reason) :].lstrip(": ")
            shown.append(f"{skip.where}: {detail}" if detail else skip.where)

    def _leave(self, left: Left) -> None:
        if class_of(left.kind) != LOST:
            return
        self.lose({left.kind: left.where})
        if self.strict and left.kind not in self.accepted:
            raise StrictError(
                f"lost: {left.count:,} x {left.kind}",
                f"exclude the file, `accept={left.kind!r}`, or build without `strict=True`",
                where=left.where,
            )

    def lose(self, places: Mapping[str, str]) -> None:
        """Note the first place of what is lost of documents, by kind."""
        self.lost = {**places, **self.lost}

    def take(self, reason: str, count: int, places: Sequence[str]) -> None:
        """Count what another build skipped for a reason."""
        self.counts[reason] += count
        self.places[reason] = [*self.places.get(reason, ()), *places][:_EXAMPLES]

    def shown(self) -> str:
        """The commonest reasons, what is lost, and the first place with its detail, in one line."""
        reasons = [f"{n} x {reason}" for reason, n in self.counts.most_common(_REASONS)]
        places = [*(shown[0] for shown in self.places.values()), *self.lost.values()]
        return "; ".join([*reasons, *self.lost, f"first: {places[0]}"])


@dataclass
class BuildReport:
    """What a build did.

    `n_added`, `n_changed`, `n_unchanged`, `n_removed` count documents; `n_encoded` chunks that went through the model
    and `n_chunks_reused` chunks of new or changed documents whose vector was known already. `n_fitted` is how many
    chunks the filter was fitted on, 0 where it was not; they went through the model once, for both. How the index is
    searched: `index_type` was asked for, `segment_types` is what each segment has (flat, or a factory string), and
    `recall` the least ann_recall@10 that was measured, None where every vector is compared.
    """

    index: str
    spec: IndexSpec = field(default=IndexSpec())  # of the index, once it is committed
    dim: int = 0
    generation: int = 0
    committed: bool = False
    n_documents: int = 0
    n_chunks: int = 0
    n_dead: int = 0  # rows of deleted chunks that are stored until `compact`, or a commit that drops them
    n_added: int = 0
    n_changed: int = 0
    n_unchanged: int = 0
    n_files_unopened: int = 0  # files that did not change since they were read
    n_removed: int = 0
    n_unreadable: int = 0  # documents of files that could not be read this time; they are as before
    n_deleted_before: int = 0  # documents that were deleted by hand
    removed: list[str] = field(default_factory=list)  # the first ten
    unreadable: list[str] = field(default_factory=list)  # the first ten
    removed_folders: dict[str, int] = field(default_factory=dict)  # empty or gone now, and what of `n_removed` they had
    n_encoded: int = 0
    n_chunks_reused: int = 0
    n_chunks_unchanged: int = 0  # chunks of documents that are as before
    n_fitted: int = 0
    mean_cosines: MeanCosines | None = None  # of what was encoded, before and after the filter; None: fewer than two
    n_tokens: int = 0
    n_truncated: int = 0
    n_empty: int = 0  # documents without a chunk
    unknown: dict[str, int] = field(default_factory=dict)  # chunks whose words the model does not know, by script
    skipped: dict[str, int] = field(default_factory=dict)
    skipped_places: dict[str, list[str]] = field(default_factory=dict)
    left: dict[str, dict[str, Any]] = field(default_factory=dict)  # by kind of what is not in a text: class, count, ...
    seconds: float = 0.0
    encode_seconds: float = 0.0
    index_bytes: int = 0
    index_type: str = ""
    segment_types: list[str] = field(default_factory=list)
    recall: float | None = None
    code_bytes: float | None = None  # a row, of segments that keep codes alone; None: there are none
    lexical: LexicalSpec | None = None  # how words are searched; None: no lexical part
    lexical_setting: str = ""  # auto, none, a language, or off
    device: str = ""
    dtype: str = ""
    queries: QueryModelCheck | None = None  # of precomputed vectors, where a model encodes questions for them
    input_dim: int | None = None  # dimensions of a vector as it was given, where only the first `dim` are kept
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)  # by file: text, title, new
    mixed_fields: dict[str, dict[str, list[str]]] = field(
        default_factory=dict
    )  # text: of each type the first documents
    n_shared_fields: int = 0  # beyond the 1,000 of an index, in one field as JSON
    n_values_dropped: int = 0  # of them, that had no room there
    endpoint: EndpointUsage | None = None  # what a server was asked, where the model is one of a server
    over_memory: OverMemory | None = None  # where a search needs a MiB more than was allowed, or more

    def to_json(self) -> dict[str, Any]:
        """All fields, and of the spec model, method, encoder and filter; stable, documented in docs/build.md.

        Those of `_SOMETIMES` are there where they say something.
        """
        fields = dataclasses.asdict(self)
        del fields["spec"]
        for name in _SOMETIMES:
            if not fields[name]:
                del fields[name]
        if self.queries is not None:
            fields["queries"]["encoder"] = str(self.queries.encoder)
        made = {"encoder": None if self.spec.precomputed else str(self.encoder), "filter": str(self.filter)}
        return {"index": fields.pop("index"), "model": self.model, "method": self.method} | made | fields

    @property
    def model(self) -> str:
        """The name of the model, or what the user says of what made the vectors."""
        made_by = "" if self.spec.precomputed is None else self.spec.precomputed.made_by
        return made_by or ("" if self.encoder is None else self.encoder.model)

    @property
    def method(self) -> str:
        """The method of the encoder; `vectors` where the index holds precomputed ones."""
        return "vectors" if self.spec.precomputed or self.encoder is None else self.encoder.method

    @property
    def encoder(self) -> EncoderSpec | None:
        """How texts become vectors; None: precomputed ones, and no model for questions."""
        return self.spec.encoder

    @property
    def filter(self) -> FilterSpec:
        """What of them is stored."""
        return self.spec.filter

    def take_fields(
        self,
        layouts: Layouts,
        bounds: FieldBounds,
        mixed: dict[str, dict[str, list[str]]],
        titles: Sequence[str] = (),
    ) -> None:
        """Note how files with records are read, and which fields are not what they seem; `titles`: settings."""
        self.fields = {
            name: one.to_json() | {"title": setting_for(titles, name) or one.title, "new": name in layouts.new}
            for name, one in sorted(layouts.used.items())
            if one.text is not None or one.id is not None
        }
        self.mixed_fields = mixed
        self.n_shared_fields, self.n_values_dropped = len(bounds.shared), bounds.n_left_out

    def take_index(self, manifest: Manifest, unknown: Counter[str] | None = None) -> None:
        """Note how the committed index is searched, and whether that is in the memory that was allowed; `unknown`: new
        chunks that only their words find, by script.
        """
        from ragidx.indexer.writing.merging import memory_bytes  # numpy and pyarrow, which no --help needs

        self.unknown = dict((unknown or Counter()).most_common())
        self.index_type, self.n_dead = manifest.index.index_type, manifest.n_dead
        self.lexical, self.lexical_setting = manifest.lexical, manifest.index.lexical
        self.segment_types, self.recall = made_in(manifest)
        self.code_bytes = code_bytes(manifest)
        needed, allowed = sum(map(memory_bytes, manifest.segments)), manifest.index.max_memory
        if allowed is not None and needed > allowed + _MEMORY_MARGIN:
            self.over_memory = OverMemory(needed, allowed)


def made_in(manifest: Manifest) -> tuple[list[str], float | None]:
    """What each segment has, flat or a factory string; the least ann_recall@10 measured, None where there is none."""
    found = [entry.ann for entry in manifest.segments]
    recalls = [one.recall for one in found if one is not None]
    return [FLAT if one is None else str(one.recipe) for one in found], min(recalls, default=None)


def code_bytes(manifest: Manifest) -> float | None:
    """Bytes a row of what stands for the vectors where segments keep codes alone; None: no segment does."""
    alone = [entry for entry in manifest.segments if not entry.has_vectors]
    n_bytes = sum(entry.files[ANN].bytes for entry in alone)
    return n_bytes / sum(entry.rows for entry in alone) if alone else None


def n_truncated(manifest: Manifest | None) -> int:
    """How many documents of an index were cut, at most."""
    found = 0 if manifest is None else manifest.notes.get("truncated")
    return found if isinstance(found, int) else 0
