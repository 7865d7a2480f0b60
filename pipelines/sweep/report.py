"""What a sweep found: one row for each width and index type, as JSON, as CSV, and in one recommendation.

Bytes are bytes, times of a search milliseconds, everything else seconds. The reference is the full width in
float32, compared exactly: the raw vectors, or where an index keeps no raw ones, its vectors as they are stored.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from dataclasses import dataclass
from typing import Any

import ragidx
from ragidx.indexer.ann.index_types import Effort
from ragidx.indexer.specs import EncoderSpec
from ragidx.pipelines.evaluate.cells import Times
from ragidx.pipelines.evaluate.significance import RESAMPLES, Interval, MeanDifference

MAX_LOSS = 0.01
"""Of nDCG@10: a width is recommended only where the 95 % interval of its difference lies above minus this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One width under one index type.

    Attributes:
        filter: what the width is taken from.
        dim: numbers a vector.
        tau: hidden width / dim.
        requested: the index type that was asked for.
        index_type: the factory that was made; flat where all vectors are compared.
        effort: how hard it is searched, as it was tuned.
        bytes_per_vector: of the stored vector, without what an index adds.
        disk_bytes: of the vectors' file and the index's.
        build_seconds: to write both, tuning included; encoding is not.
        recall: ann_recall@10 against exact search at the same width.
        overlap: the share of the ten that are among the reference's ten.
        single: one query at a time, one thread.
        batch: `batch` of the report's queries at a time, all threads.
        queries_per_s: in such batches.
        ndcg: nDCG@10 of documents with its interval; None without qrels.
        against_full: its difference from the reference; None without qrels.
    """

    filter: str
    dim: int
    tau: float
    requested: str
    index_type: str
    effort: Effort
    bytes_per_vector: int
    disk_bytes: int
    build_seconds: float
    recall: float
    overlap: float
    single: Times
    batch: Times
    queries_per_s: float
    ndcg: Interval | None = None
    against_full: MeanDifference | None = None

    def flat(self) -> dict[str, Any]:
        """All fields without nesting: `single_p50_ms`, `against_full_p` ..."""
        found: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, dict):
                found |= {f"{name}_{inner}": one for inner, one in value.items()}
            else:
                found[name] = value
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRow:
    """Search by words, alone or together with the vectors of one width, all of them compared.

    Attributes:
        mode: lexical or hybrid.
        filter, dim: of the vectors; empty and 0 without.
        bytes_per_chunk: of postings and vectors.
        disk_bytes: likewise, of all chunks.
        build_seconds: to write the postings; None in hybrid rows, whose postings are the same.
        single: one query at a time, one thread, without encoding it.
        ndcg: nDCG@10 of documents with its interval.
        against_lexical: the difference from words alone; None in their own row.
        against_best: the difference from the best row of hybrid search, of any filter; None likewise.
    """

    mode: str
    filter: str = ""
    dim: int = 0
    bytes_per_chunk: float
    disk_bytes: int
    build_seconds: float | None = None
    single: Times
    ndcg: Interval
    against_lexical: MeanDifference | None = None
    against_best: MeanDifference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep found.

    Attributes:
        source: the corpus or the index.
        model: its name; empty for precomputed vectors.
        encoder: how it encodes queries; None: precomputed vectors, and nothing does.
        hidden: width that tau divides.
        reference: what the rows are compared with, for people.
        reference_dim: its width.
        reference_ndcg: its nDCG@10; None without qrels.
        n_documents: of the source.
        n_chunks: that are searched.
        n_queries: that are asked.
        queries: where they are from, for people.
        threads: of a batch.
        batch: queries in it.
        rows: in the order of the sweep.
        words: search by words, alone and with the vectors; empty without texts, or without judged text questions.
        notes: what was skipped and why, for people.
    """

    source: str
    model: str
    encoder: EncoderSpec | None
    hidden: int
    reference: str
    reference_dim: int
    reference_ndcg: Interval | None
    n_documents: int
    n_chunks: int
    n_queries: int
    queries: str
    threads: int
    batch: int
    rows: tuple[SweepRow, ...]
    words: tuple[WordRow, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def recommended(self) -> SweepRow | None:
        """The row with the fewest dimensions that loses less than `MAX_LOSS` of nDCG@10, with 97.5 % confidence.

        Of equally wide ones the best; None without qrels, or where no row is that sure.
        """
        if self.reference_ndcg is None:
            return None
        good = [row for row in self.rows if row.against_full is not None and row.against_full.low > -MAX_LOSS]
        return min(good, key=lambda row: (row.dim, -(row.ndcg.mean if row.ndcg else 0.0)), default=None)

    def recommendation(self) -> str:
        """One line that answers which dimension to take."""
        if self.reference_ndcg is None:
            return (
                "Without qrels the overlap tells how near a width stays to the full one, not whether it is good enough:"
                " give `queries` and `qrels`."
            )
        row = self.recommended
        if row is None:
            return self._undecided()
        assert row.ndcg is not None
        assert row.against_full is not None
        if row.dim == self.reference_dim:
            return f"Keep all {row.dim:,} dimensions. {self._undecided()}"
        share = row.dim / self.reference_dim
        saved = f", with {100 * share:.0f} % of its bytes" if share < 0.9 else ""
        how = f", {row.filter}" + ("" if row.index_type == "flat" else f", {row.index_type}")
        lost = f"; at most {-row.against_full.low:.3f} is lost" if row.against_full.low < 0 else ""
        return (
            f"Take {row.dim:,} dimension{'s' * (row.dim > 1)}{how}: the smallest width that loses less than {MAX_LOSS}"
            f" of nDCG@10 to the full one{saved} ({row.ndcg.mean:.3f} against {self.reference_ndcg.mean:.3f}"
            f"{lost}, {self.n_queries:,} queries)."
        )

    @property
    def recommended_hybrid(self) -> WordRow | None:
        """The row of hybrid search with the fewest dimensions that loses less than `MAX_LOSS` to the best one."""
        good = [row for row in self.words if row.against_best is not None and row.against_best.low > -MAX_LOSS]
        return min(good, key=lambda row: (row.dim, -row.ndcg.mean), default=None)

    def hybrid_recommendation(self) -> str:
        """One line that answers which dimension to take for hybrid search; empty without such rows."""
        row = self.recommended_hybrid
        lexical = next((one for one in self.words if one.mode == "lexical"), None)
        if row is None or lexical is None or row.against_lexical is None:
            return ""
        better = {"better": "better than", "worse": "worse than"}.get(
            row.against_lexical.verdict, "not measurably different from"
        )
        return (
            f"In hybrid search take {row.dim:,} dimension{'s' * (row.dim > 1)}, {row.filter}: the smallest width that "
            f"loses less than {MAX_LOSS} of nDCG@10 to the best ({row.ndcg.mean:.3f}); that is {better} words alone "
            f"({lexical.ndcg.mean:.3f})."
        )

    def _undecided(self) -> str:
        """Why no smaller width is recommended: what the narrower ones lose, or may lose."""
        smaller = [row for row in self.rows if row.against_full is not None and row.dim < self.reference_dim]
        if not smaller:
            return "No smaller width was measured."
        row = max(smaller, key=lambda row: row.against_full.low if row.against_full else 0.0)
        assert row.against_full is not None
        dim = f"{row.dim:,} dimensions ({row.filter})"
        if row.against_full.verdict == "worse":
            return f"Every smaller width loses nDCG@10: {dim} loses {-row.against_full.mean:.3f}."
        return (
            f"The {self.n_queries:,} queries cannot decide on a smaller width: {dim} may lose up to"
            f" {-row.against_full.low:.3f} of nDCG@10, more than {MAX_LOSS}. Give more queries."
        )

    def to_json(self) -> dict[str, Any]:
        """All fields, and how the numbers were made."""
        best = self.recommended
        return dataclasses.asdict(self) | {
            "encoder": None if self.encoder is None else str(self.encoder),
            "recommended": None
            if best is None
            else {"filter": best.filter, "dim": best.dim, "requested": best.requested},
            "recommendation": self.recommendation(),
            "hybrid_recommendation": self.hybrid_recommendation(),
            "resamples": RESAMPLES,
            "ragidx": ragidx.__version__,
        }

    def to_csv(self) -> str:
        """One line for each row; what is not known is empty."""
        flat = [row.flat() for row in self.rows]
        file = io.StringIO()
        widest = max(flat, key=len, default={})
        names = [name for name in widest if widest[name] is not None]
        writer = csv.DictWriter(file, names, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        return file.getvalue()
