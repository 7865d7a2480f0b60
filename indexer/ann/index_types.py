"""Index types: the indexes that a segment may have besides exact search, and their cost in bytes.

A type is a name of `INDEX_TYPES` or a factory string in FAISS's notation. Only combinations that suit unit vectors and
inner products are allowed:

    HNSW16                       a graph with 16 links a node (Malkov and Yashunin 2018)
    SQ8                          all rows, by codes of 8 bits a number; also SQ6, SQ4
    RaBitQ4                      all rows, by codes of 4 bits a number (Gao and Long 2024); RaBitQ is 1 bit
    PQ96x4fs                     all rows, by 96 codes of 4 bits compared in registers, 32 rows at once (André et al.
                                 2015); also RaBitQfs, of 1 bit a number
    IVF1024,SQfp16               1,024 lists of near rows; a query reads some of them; or ,SQ8 ,SQ6 ,SQ4 ,PQ48 ,PQ96x4fs
    RR,IVF1024,RaBitQ            a random rotation of the vectors first

The rows that an index finds are compared again with the float16 vectors. So every score is exact, and only the choice
of rows is approximate. Making and searching an index is in `ragidx.indexer.ann.search`.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass

from ragidx.corpora.errors import SpecError, unknown_name

AUTO, FLAT = "auto", "flat"

INDEX_TYPES = {
    "auto": "flat while that is fast, else what fits into `max_memory` and reaches `target_recall`, fastest first",
    "flat": "exact: every vector is compared",
    "pq4": "every vector, by 4 bits for every 2 dimensions: an eighth of the memory of flat, made and read fast",
    "ivfpq4": "lists of these codes, for millions of rows",
    "hnsw": "a graph of neighbours: fast, 144 bytes a row more",
    "ivf": "lists of near vectors in float16, some of which are read: made fast, vectors twice on the disk",
    "sq8": "every vector, by 8 bits a number: half the memory of flat, nearly as exact",
    "ivfpq": "lists of product codes, a byte for every 4 dimensions: an eighth of the memory of flat",
    "rabitq": "lists of 1 bit a number: a sixteenth of the memory of flat",
}
"""Name -> what it is, in one line."""

MIN_ROWS = 10_000  # a segment with fewer rows has no index of any type: exact search takes under 1 ms
AUTO_FLAT_BYTES = 10_000_000  # auto: up to so many bytes of vectors are searched exactly, about 1 ms a query
AUTO_CODE_BYTES = 32_000_000  # auto: up to so many bytes of codes are all read, about 2 ms a query

DEFAULT_RECALL = 0.95  # ann_recall@10
TUNED_K = 10
LANES = 8

_FACTORY = re.compile(
    r"HNSW(?P<links>[0-9]{1,3})"
    r"|(?P<rotate>RR,)?(?:IVF(?P<lists>[0-9]{1,6}),)?(?P<code>SQfp16|SQ[468]|PQ[0-9]{1,4}(?:x4fs)?|RaBitQ(?:[2-9]|fs)?)"
)
_WRITTEN_OTHERWISE = re.compile(  # codes in registers, as FAISS's other names or other letters have them
    r"(?i)PQ(?P<codes>[0-9]{1,4})(?:x4(?:fsr?)?|fsr?)(?:_[0-9]+)?$|RaBitQ[1-9]?fs[1-9]?(?:_[0-9]+)?$"
)
_LINKS = (4, 128)
_TRAIN_ROWS = 39  # FAISS's own minimum of training rows for each list
BLOCK = 32  # rows whose codes are compared together in registers: each list is filled up to so many
_TRAIN_BYTES = 256 << 20  # of float32 rows that an index is trained on, at most
_NODE_BYTES = 16  # of a graph: level, offset, and the share of the upper levels, beside the links of the lowest


def padded(dim: int) -> int:
    """The width of a vector for FAISS: `dim`, padded with zeros to a multiple of 8.

    FAISS vectorises float16 and 8-bit codes for these widths alone: 255 dimensions take ten times as long as 256.

    >>> padded(255), padded(256)
    (256, 256)
    """
    return -(-dim // LANES) * LANES


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an index is made from a segment's vectors: a graph, or codes with or without lists.

    Attributes:
        links: links of each graph node on the upper levels, twice that on the lowest; None: no graph.
        lists: how many; None: all codes are compared.
        code: code of a vector: SQfp16, SQ8, SQ6, SQ4, PQ{bytes}, RaBitQ{bits}; PQ{codes}x4fs, RaBitQfs.
        rotate: whether a random rotation is applied first.
    """

    links: int | None = None
    lists: int | None = None
    code: str = ""
    rotate: bool = False

    def __str__(self) -> str:
        """The factory string; `Recipe.parse` is its inverse."""
        if self.links is not None:
            return f"HNSW{self.links}"
        lists = "" if self.lists is None else f"IVF{self.lists},"
        return f"{'RR,' * self.rotate}{lists}{self.code}"

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """The recipe of a factory string.

        >>> str(Recipe.parse("IVF64,PQ8")), Recipe.parse("HNSW16").links
        ('IVF64,PQ8', 16)

        Raises:
            SpecError: it is not one of the allowed ones; the message names them.
        """
        match = _FACTORY.fullmatch(text)
        if match is None:
            near = _WRITTEN_OTHERWISE.sub(
                lambda found: f"PQ{found['codes']}x4fs" if found["codes"] else "RaBitQfs", text
            )
            if _FACTORY.fullmatch(near):
                raise _not_a_factory(text, f"did you mean '{near}'?")
            raise _unknown_type(text) if text.isalnum() else _not_a_factory(text)
        links, lists = (None if match[name] is None else int(match[name]) for name in ("links", "lists"))
        if links is not None and not _LINKS[0] <= links <= _LINKS[1]:
            raise _not_a_factory(text, f"HNSW takes {_LINKS[0]} to {_LINKS[1]} links")
        if lists is not None and not lists:
            raise _not_a_factory(text, "IVF takes 1 list or more")
        code = match["code"] or ""
        if code == "SQfp16" and lists is None:
            raise _not_a_factory(text, "all vectors in float16 are the type flat")
        made = cls(links, lists, code, bool(match["rotate"]))
        if made.n_codes == 0:
            raise _not_a_factory(text, "PQ takes 1 code or more")
        if made.n_codes and lists is None and not made.in_registers:
            raise _not_a_factory(text, "product codes of 8 bits need lists: IVF256,PQ48; of 4 bits not: PQ96x4fs")
        return made

    @property
    def n_codes(self) -> int | None:
        """The number of product codes of a vector; None: it has none."""
        return int(self.code[2:].removesuffix("x4fs")) if self.code.startswith("PQ") else None

    @property
    def in_registers(self) -> bool:
        """Whether codes are compared in registers, 32 rows at a time."""
        return self.code.endswith("fs")

    @property
    def takes_selector(self) -> bool:
        """Whether FAISS can skip rows of the index; else it must have the rows that may be found, and no others."""
        return self.lists is not None or not self.in_registers

    @property
    def entries(self) -> int:
        """The entries of each product code's table, 0 without such codes; FAISS trains it on at least so many rows."""
        return 0 if self.n_codes is None else 16 if self.in_registers else 256

    def check(self, dim: int) -> None:
        """Check that the code fits vectors of this width.

        Raises:
            SpecError: the number of product codes does not divide the width.
        """
        if self.n_codes and dim % self.n_codes:
            suffix = "x4fs" * self.in_registers
            raise SpecError(
                f"index type {self}: {self.n_codes} codes do not divide {dim} dimensions",
                f"take one of {', '.join(f'PQ{n}{suffix}' for n in _divisors(dim)[-6:])}, or another type",
                where="`index_type`",
            )

    def code_bytes(self, dim: int) -> int:
        """Bytes a row besides the float16 vector, without the row's number in a list."""
        if self.links is not None:
            return 8 * self.links + _NODE_BYTES
        if self.n_codes:
            return -(-self.n_codes // 2) if self.in_registers else self.n_codes
        if self.code.startswith("RaBitQ"):
            bits = int(self.code[6:].removesuffix("fs") or 1)
            return -(-dim // 8) + 8 if bits == 1 else -(-dim // 8) + 12 + -(-(bits - 1) * dim // 8) + 8
        return {"SQfp16": 2 * dim, "SQ8": dim, "SQ6": -(-6 * dim // 8), "SQ4": -(-dim // 2)}[self.code]


@dataclass(frozen=True, slots=True)
class Effort:
    """The search effort, tuned for ten hits.

    Attributes:
        beam: candidate nodes of a graph search (efSearch); 0: no graph.
        lists: lists that a query reads (nprobe); 0: no lists.
        factor: `factor * k` rows are found by their codes, then compared exactly.
    """

    beam: int = 0
    lists: int = 0
    factor: int = 1

    def at(self, k: float, share: float) -> Effort:
        """The effort for another number of hits; if only a share of the rows is allowed, that for k / share hits.

        >>> Effort(lists=8).at(10, 0.25) == Effort(lists=8).at(40, 1.0) == Effort(lists=16)
        True
        """
        if k <= TUNED_K and share == 1:
            return self
        wider = max(1.0, k / TUNED_K) / share
        return Effort(math.ceil(self.beam * wider), math.ceil(self.lists * math.sqrt(wider)), self.factor)


@dataclass(frozen=True, slots=True)
class TunedIndex:
    """The index of a segment, and what tuning found.

    Attributes:
        recipe: recipe of the index.
        effort: the least that reaches the target recall.
        recall: ann_recall@10 at this effort.
        sample: how many sample queries.
        repeats: rows that it does not have, since an earlier one has their vector.
    """

    recipe: Recipe
    effort: Effort
    recall: float
    sample: int
    repeats: int = 0


MAX_MEMORY = 1 << 53  # bytes: the largest whole number that JSON is sure to keep
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base ** (power + 1)
    for power, letter in enumerate("kmgt")
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
}


def memory_size(size: int | str) -> int:
    """Bytes of a memory limit: a number, or text with a unit.

    Raises:
        SpecError: the text is not a size.

    >>> memory_size("2GB"), memory_size("1.5 GiB"), memory_size(4096)
    (2000000000, 1610612736, 4096)
    """
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)", size.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise SpecError(f"'{size}' is not a size", "write 500MB, 2GB or 1.5GiB", where="`max_memory`")
    n_bytes = float(match[1]) * _UNITS[match[2].lower()]
    if not 1 <= n_bytes <= MAX_MEMORY:
        raise SpecError(f"'{size}' is less than a byte or more than 8 PiB", "write 2GB", where="`max_memory`")
    return int(n_bytes)


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The user's options for the index. The manifest stores them, and every later segment uses them.

    Attributes:
        index_type: a name in `INDEX_TYPES`, or a factory string.
        target_recall: ann_recall@10 against exact search; the search effort is tuned to it.
        max_memory: bytes that all indexes may take in memory together; None: no limit.
        lexical: the stemmer of the lexical part: auto, none or a language; off: no lexical part.
        codes_only: whether segments with codes keep no vectors.
    """

    index_type: str = AUTO
    target_recall: float = DEFAULT_RECALL
    max_memory: int | None = None
    lexical: str = AUTO
    codes_only: bool = False

    def __post_init__(self) -> None:
        check_index_type(self.index_type)
        if isinstance(self.target_recall, bool):
            raise SpecError(f"the recall is {self.target_recall}, not a number", where="`target_recall`")
        if not 0 < self.target_recall <= 1:
            raise SpecError(
                f"a recall of {self.target_recall:g} is out of range",
                "give more than 0, at most 1",
                where="`target_recall`",
            )
        if self.max_memory is not None and self.max_memory < 1:
            raise SpecError(
                f"{self.max_memory} bytes of memory hold nothing", "give a size such as 2GB", where="`max_memory`"
            )


@dataclass(frozen=True, slots=True)
class VectorFootprint:
    """The estimated bytes of an index, without texts and metadata.

    Attributes:
        disk_bytes: the files of the vectors and of the index.
        memory_bytes: what a search reads, and should stay in memory.
        build_bytes: extra memory while the index is made.
    """

    disk_bytes: int
    memory_bytes: int
    build_bytes: int


def footprint_of(recipe: Recipe | None, rows: int, dim: int) -> VectorFootprint:
    """The footprint of `rows` vectors of `dim` with a recipe; None: flat."""
    vectors = 2 * dim * rows
    if recipe is None:
        return VectorFootprint(vectors, vectors, 0)
    lists = recipe.lists or 0
    tables = 4 * dim * (lists + dim * recipe.rotate + recipe.entries)
    filled = BLOCK // 2 * max(1, lists) * recipe.in_registers  # rows: half a block for each list
    beside = (rows + filled) * recipe.code_bytes(dim) + 8 * rows * bool(lists) + tables
    if recipe.links is not None:
        return VectorFootprint(vectors + beside, vectors + beside, vectors + beside)
    return VectorFootprint(vectors + beside, beside, beside + 4 * dim * train_rows(recipe, rows, dim))


def check_index_type(text: str, dim: int | None = None) -> None:
    """Check that this is a name or an allowed factory string, and fits vectors of this width.

    Raises:
        SpecError: it is not.
    """
    if text not in INDEX_TYPES:
        recipe = Recipe.parse(text)
        if dim is not None:
            recipe.check(padded(dim))


def candidates(index_type: str, rows: int, dim: int) -> list[Recipe | None]:
    """The possible recipes of a segment with an index type, the first choice first; None: exact search.

    Only `auto` has more than one: the fastest first, then what takes less memory, last what reaches any recall.
    """
    if index_type == FLAT or rows < MIN_ROWS:
        return [None]
    named: dict[str, Recipe] = {
        "pq4": Recipe(code=f"PQ{product_codes(dim, 2)}x4fs"),
        "ivfpq4": Recipe(lists=_lists(rows), code=f"PQ{product_codes(dim, 2)}x4fs"),
        "hnsw": Recipe(links=16),
        "ivf": Recipe(lists=_lists(rows), code="SQfp16"),
        "sq8": Recipe(code="SQ8"),
        "ivfpq": Recipe(lists=_lists(rows), code=f"PQ{product_codes(dim)}"),
        "rabitq": Recipe(lists=_lists(rows), code="RaBitQ", rotate=True),
    }
    if index_type == AUTO:
        codes = named["pq4"]
        read = [None] * (2 * dim * rows <= AUTO_FLAT_BYTES)
        lists = [named["ivfpq4"]] * (rows * codes.code_bytes(dim) > AUTO_CODE_BYTES)
        return [*read, *lists, codes, Recipe(lists=_lists(rows), code="SQ8")]
    if index_type in named:
        return [named[index_type]]
    recipe = Recipe.parse(index_type)
    recipe.check(dim)
    return [with_lists(recipe, rows)]


def with_lists(recipe: Recipe, rows: int) -> Recipe:
    """The recipe, with fewer lists where it has too many for so many rows."""
    if recipe.lists is None or rows >= recipe.lists * _TRAIN_ROWS:
        return recipe
    return dataclasses.replace(recipe, lists=_lists(rows))


def train_rows(recipe: Recipe, rows: int, dim: int) -> int:
    """How many rows an index is trained on: enough for its lists and codes, in bounded memory."""
    codes = (256 if recipe.in_registers else 64) * recipe.entries or 8192
    wanted = max(64 * (recipe.lists or 0), codes)
    return max(1, min(rows, wanted, _TRAIN_BYTES // (4 * dim)))


def product_codes(dim: int, each: int = 4) -> int:
    """The number of product codes: a divisor of `dim`, so that each is of about `each` numbers.

    >>> product_codes(384), product_codes(384, 2), product_codes(7)
    (96, 192, 1)
    """
    return min(_divisors(dim), key=lambda number: (abs(math.log(each * number / dim)), number))


def _lists(rows: int) -> int:
    """A power of two near 4 sqrt(rows), with enough rows a list to train on."""
    wanted = min(4 * math.sqrt(rows), rows / _TRAIN_ROWS)
    return int(2 ** max(0, math.floor(math.log2(max(1.0, wanted)))))


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _unknown_type(text: str) -> SpecError:
    fault = unknown_name("index type", text, INDEX_TYPES)
    return SpecError(fault.message, f"{fault.hint}, or a factory string such as IVF1024,SQ8", where="`index_type`")


def _not_a_factory(text: str, reason: str = "it is not in the list of those that are known to be right") -> SpecError:
    return SpecError(
        f"index type '{text[:60]}': {reason}",
        f"give a name ({', '.join(INDEX_TYPES)}), or a factory string: HNSW16; SQ8, SQ6, SQ4, RaBitQ4, PQ96x4fs or "
        "RaBitQfs; these, SQfp16 or PQ48 with IVF1024, in front; RR, in front of it turns the vectors",
        where="`index_type`",
    )


DEFAULT_OPTIONS = IndexOptions()
