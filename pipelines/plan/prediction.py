"""A prediction while a build runs: what its first chunks took, and how much text there is, say what all will take.

Made once, after two seconds of encoding or the first window, whichever comes first: a build that is shorter pays
nothing. How much text the corpus holds is read off a sample of its files (`pieces`; nothing is cut).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragidx.corpora.errors import SpecError
from ragidx.corpora.records import Document
from ragidx.indexer.ann.index_types import IndexOptions, footprint_of, padded
from ragidx.indexer.store.rows import Row
from ragidx.pipelines.build.chunks import Item
from ragidx.pipelines.build.corpus import Reading
from ragidx.pipelines.build.report import Prediction
from ragidx.pipelines.plan.footprint import pack, segments
from ragidx.pipelines.plan.index_time import IndexTimer, recipes
from ragidx.pipelines.plan.sample import SAMPLE_BYTES, corpus_of, pieces
from ragidx.pipelines.plan.sampling import Extrapolation, Tally

LONG_SECONDS = 60.0
LONG_CHUNKS = 100_000
AFTER_SECONDS = 2.0  # of encoding

_PACKED_ROWS = 1024


@dataclass
class Foresight:
    """What a build has done so far, in characters and seconds, and what that says of the rest.

    Attributes:
        reading: of the corpus.
        passed_bytes: of files that need not be read; `chars` has none of them.
        documents, chars: read; `new_chars` of them of documents that are new or changed.
        cut_chars: of them, of documents that are cut; `chunks` and `chunk_chars` are what they were cut into.
        known_chars, fresh_chars: of chunks whose vectors were known, and of those that go through the model.
        encoded_chars: that went through it; `encode_seconds` is what that took.
        load_seconds: that are spent once, on loading and tuning the model.
        rows: some of the first.
    """

    reading: Reading
    passed_bytes: int = 0
    documents: int = 0
    chars: int = 0
    new_chars: int = 0
    cut_chars: int = 0
    chunks: int = 0
    chunk_chars: int = 0
    known_chars: int = 0
    fresh_chars: int = 0
    encoded_chars: int = 0
    encode_seconds: float = 0.0
    load_seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    made: bool = False

    def passed(self, n_bytes: int) -> None:
        """A file need not be read."""
        self.passed_bytes += n_bytes

    def read(self, document: Document, *, is_new: bool) -> None:
        """A document was read."""
        self.documents += 1
        self.chars += len(document.text)
        self.new_chars += len(document.text) if is_new else 0

    def cut(self, items: Sequence[Item]) -> None:
        """A document was cut."""
        self.cut_chars += items[-1].row.end if items else 0
        self.chunks += len(items)
        self.chunk_chars += sum(len(item.text) for item in items)
        self.rows += [item.row for item in items[: max(0, _PACKED_ROWS - len(self.rows))]]

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Time what is done once."""
        started = time.perf_counter()
        yield
        self.load_seconds += time.perf_counter() - started

    def encoded(self, n_chars: int, seconds: float) -> bool:
        """So much was encoded in so long; whether that is enough for a prediction."""
        self.encoded_chars += n_chars
        self.encode_seconds += seconds
        return not self.made and self.encode_seconds >= AFTER_SECONDS

    def predict(self, seconds: float, *, dim: int, options: IndexOptions, had_bytes: int) -> Prediction | None:
        """What the whole build will have done; once.

        Args:
            seconds: since its beginning.
            dim: width of the vectors.
            options: which index large segments get.
            had_bytes: of the index that is gone on with.

        Returns:
            None where nobody knows how much there is to read (standard input), nothing was encoded, or it was made.
        """
        if self.made or not (self.encoded_chars and self.cut_chars) or str(self.reading.corpus) == "-":
            return None
        self.made = True
        documents, chars, n_bytes = _corpus_text(self.reading)
        read_chars = self.chars + chars * self.passed_bytes / max(1, n_bytes)
        read_share = read_chars / max(chars, read_chars)
        new_chars = self.new_chars / read_share
        chunks = self.chunks / self.cut_chars * new_chars
        fresh_share = self.fresh_chars / (self.fresh_chars + self.known_chars)
        fresh_chars = fresh_share * new_chars * self.chunk_chars / self.cut_chars
        encoding = fresh_chars * self.encode_seconds / self.encoded_chars
        reading_seconds = max(0.0, seconds - self.load_seconds - self.encode_seconds)
        packed = pack(self.rows, dim)
        mean_text = sum(len(row.text.encode("utf-8", "surrogatepass")) for row in self.rows) / len(self.rows)
        parts = segments(round(chunks), dim, round(mean_text))
        try:
            made = recipes(options, parts, dim)
        except SpecError:
            made = [None for _ in parts]  # nothing fits; the build says so when it has counted
        timer = IndexTimer(dim)
        making = sum(timer.seconds(recipe, part) for recipe, part in zip(made, parts, strict=True))
        widths = (footprint_of(recipe, part, padded(dim)) for recipe, part in zip(made, parts, strict=True))
        vectors = sum(one.disk_bytes + packed.header_bytes for one in widths)
        return Prediction(
            after_seconds=seconds,
            n_documents=round(max(documents, self.documents)),
            n_chunks=round(chunks),
            seconds=self.load_seconds + reading_seconds / read_share + encoding + packed.seconds * chunks + making,
            index_bytes=round(had_bytes + vectors + packed.ratio * mean_text * chunks),
        )


def is_long(prediction: Prediction) -> bool:
    """Whether a user should hear of it while it runs."""
    return prediction.seconds > LONG_SECONDS or prediction.n_chunks > LONG_CHUNKS


def _corpus_text(reading: Reading) -> tuple[float, float, int]:
    """Documents and characters of the whole corpus, estimated, and its bytes."""
    corpus = corpus_of(reading, lambda _: None)
    tallies = []
    for piece in pieces(corpus, SAMPLE_BYTES, SAMPLE_BYTES):
        tally = Tally(piece.ending, piece.n_bytes)
        for document in piece.documents(reading, lambda _: None):
            tally.counts["documents"] += piece.share
            tally.counts["chars"] += len(document.text)
        tallies.append(tally)
    found = Extrapolation(tallies, {} if corpus.cost() <= SAMPLE_BYTES else corpus.strata())
    return found["documents"].value, found["chars"].value, corpus.total_bytes
