"""A model of a server as an encoder, by the embeddings protocol of OpenAI's API: POST `/v1/embeddings`.

texts -> batches by token budget, longest first -> requests, a few at once -> (n, hidden) float32, as the server gives
them. Ollama, llama.cpp, Text Embeddings Inference, vLLM and Infinity speak the protocol. Which model answers is known
only by what it answers: a fixed text, the canary, is encoded whenever an encoder is made, and compared with the vector
that an index keeps. Requests, retries and keys: `ragidx.indexer.models.endpoint_client`.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Sequence as Both
from tokenizers.pre_tokenizers import Split

from ragidx.corpora.errors import IndexFormatError, ModelError, RagidxError, SpecError, first_line, panics_of
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders.protocol import EncodedRows, Encoder, EndpointUsage, OtherModelError
from ragidx.indexer.filters.anisotropy import unit_sum
from ragidx.indexer.model_files import expanded
from ragidx.indexer.models import address as addresses
from ragidx.indexer.models.address import Address
from ragidx.indexer.models.endpoint_client import Calls, EndpointClient, RefusedTextError
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.prompts.forms import forms_of
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec

if TYPE_CHECKING:
    from ragidx.indexer.filters.filter import Filter

CANARY = "The ferry to the island leaves at seven; whoever misses it waits for the tide."
CANARY_FILE = addresses.CANARY_FILE
SAME = 0.999  # cosine of two vectors of the canary by one model, at least

REQUEST_TOKENS = 8192  # of a request, unless one text has more
REQUEST_TEXTS = 32  # what Text Embeddings Inference takes at most, by default
AT_ONCE = 4  # requests

_MAX_WIDTH = 1 << 16
_NUMBER_BYTES = 32  # of a number in JSON, with what is around it
_ANSWER_BYTES = 1 << 16  # of an answer beside its vectors, and of a refusal
_MAX_TOKENS = 1 << 32  # of one request, that are believed
_LETTERS = 4


class EndpointEncoder(Encoder):
    """A model of a server as an `Encoder`; `canary` is the (1, hidden) raw vector of the fixed text.

    Raises:
        ModelError: the endpoint does not answer, or its answer cannot be used.
        SpecError: its address may not be asked.
    """

    dtype = "float32"

    def __init__(self, files: ModelFiles, spec: EncoderSpec, address: Address) -> None:
        self.files, self.spec, self.address = files, spec, address
        self.device = address.place
        self._client, self._forms = EndpointClient(address), forms_of(spec.template)
        self._counting = threading.Lock()
        self._usage = EndpointUsage(address.url, counted_by="" if spec.tokenizer is None else Path(spec.tokenizer).name)
        self.hidden = 0
        try:
            self.canary, _ = self._ask([CANARY], Calls())
        except RefusedTextError as fault:
            hint = "check the name of the model, and that it makes embeddings"
            raise ModelError(f"it refuses the request: {fault.message}", hint, where=fault.where) from fault
        if not self.canary.any():
            raise ModelError("it gave a vector that is zero", "name a model that makes embeddings", where=address.url)
        self.hidden = self.canary.shape[1]
        self._n_checked = self._client.n_requests

    @property
    def n_unchecked(self) -> int:
        """Requests that were answered since the canary was."""
        return self._client.n_requests - self._n_checked

    def check_again(self) -> None:
        """Ask for the canary once more, and compare."""
        now, _ = self._ask([CANARY], Calls())
        self._n_checked = self._client.n_requests
        if change := difference(self.canary, now):
            hint = "run it again when the server has one model; vectors since the last check are not used"
            message = f"the model '{self.files.name}' changed while it was asked: {change}"
            raise OtherModelError(message, hint, where=self.address.url)

    @property
    def usage(self) -> EndpointUsage:
        """What was asked so far, the canary included."""
        self._usage.n_requests, self._usage.n_retries = self._client.n_requests, self._client.n_retries
        return self._usage

    @functools.cached_property
    def tokenizer(self) -> TextTokenizer:  # type: ignore[override]  # read when documents are counted: no query needs it
        """What counts tokens of documents."""
        return characters() if self.spec.tokenizer is None else read_tokenizer(self.spec.tokenizer)

    def default_instruction(self) -> str:
        """The template's."""
        return self._forms.instruction

    def text_limit(self) -> int | None:
        """The user's `max_length`: what the server's model reads is not known here."""
        return self.spec.max_length

    def rendered(self, texts: Sequence[str], instruction: str | None) -> list[Rendered]:
        """The ids of what is sent, by the tokenizer that counts here."""
        sent = [self._sent(text, instruction) for text in texts]
        ids = self._counter(instruction).ids([text for text, _ in sent])
        return [Rendered(row, ((0, len(row)),), cut) for row, (_, cut) in zip(ids, sent, strict=True)]

    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None, tune: bool = True
    ) -> Iterator[EncodedRows]:
        """Vectors as they come; those that were under way when a request failed come before its error."""
        sent = [self._sent(text, instruction) for text in texts]
        counter = self._counter(instruction)
        lengths = [len(row) for row in counter.ids([text for text, _ in sent])]
        for rows, vectors, n_tokens in self._answers([text for text, _ in sent], groups(lengths)):
            read = [lengths[row] for row in rows]
            n_cut = 0
            if n_tokens is not None and instruction is None and self.spec.tokenizer is not None:
                n_cut = n_cut_texts(read, len(counter.prefix) + len(counter.suffix), n_tokens)
                self._usage.n_cut = (self._usage.n_cut or 0) + n_cut
            yield EncodedRows(
                rows,
                vectors if project is None else project(vectors),
                sum(read) if n_tokens is None else n_tokens,
                n_cut + sum(sent[row][1] for row in rows),
                None if project is None else unit_sum(vectors),
            )

    def _counter(self, instruction: str | None) -> TextTokenizer:
        return self.tokenizer if instruction is None else characters()

    def _sent(self, text: str, instruction: str | None) -> tuple[str, bool]:
        """What is sent for a text, and whether it is cut."""
        limit = self.spec.max_length
        if instruction is None and limit is not None:
            spans = self.tokenizer.spans([self.tokenizer.head(text, limit)])[0]
            if len(spans) > limit:
                return self._forms.filled(text[: spans[limit - 1][1]], instruction), True
        return self._forms.filled(text, instruction), False

    def _answers(
        self, texts: Sequence[str], waiting: Sequence[list[int]]
    ) -> Iterator[tuple[list[int], Floats, int | None]]:
        """Rows, vectors and tokens of each group, a few requests at once."""
        calls, fault = Calls(), None
        if len(waiting) == 1:  # a question: no thread is needed
            yield waiting[0], *self._split([texts[row] for row in waiting[0]], calls)
            return
        left, running = deque(waiting), dict[Future[tuple[Floats, int | None]], list[int]]()
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="ragidx-endpoint")
        try:
            while left or running:
                while left and len(running) < AT_ONCE:
                    rows = left.popleft()
                    running[pool.submit(self._split, [texts[row] for row in rows], calls)] = rows
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    rows = running.pop(done)
                    try:
                        answer = done.result()
                    except RagidxError as error:  # what is under way has been paid for
                        fault = fault or error
                        left.clear()
                        calls.ending.set()
                        continue
                    yield rows, *answer
            if fault is not None:
                raise fault
        finally:
            calls.stop()
            pool.shutdown(cancel_futures=True)

    def _split(self, texts: list[str], calls: Calls) -> tuple[Floats, int | None]:
        """Vectors and tokens; in halves, where the server refuses that many texts at once.

        Raises:
            ModelError: it refuses a text alone; the message shows its beginning.
        """
        try:
            return self._ask(texts, calls)
        except RefusedTextError as fault:
            if len(texts) == 1:
                raise ModelError(
                    f"it refuses a text of {len(texts[0]):,} characters, {texts[0][:60]!r}: {fault.message}",
                    "use a smaller `chunk_size`, or give `max_length`; `tokenizer` counts as the model does",
                    where=fault.where,
                ) from fault
        half = len(texts) // 2
        (first, n_first), (second, n_second) = self._split(texts[:half], calls), self._split(texts[half:], calls)
        return np.concatenate([first, second]), None if n_first is None or n_second is None else n_first + n_second

    def _ask(self, texts: list[str], calls: Calls) -> tuple[Floats, int | None]:
        """(n, hidden) and the tokens that the server counts, by one request."""
        most = _ANSWER_BYTES + len(texts) * _NUMBER_BYTES * (self.hidden or _MAX_WIDTH)
        answer = self._client.post({"model": self.files.served, "input": texts}, most, calls)
        try:
            vectors = vectors_of(answer, len(texts), self.hidden)
        except ValueError as fault:
            said = answer.get("error") if isinstance(answer, dict) else None
            words = f"{fault}: {ascii(self._client.hidden(str(said)))[:200]}" if said else str(fault)
            raise ModelError(words, "look at the server and its model", where=self.address.url) from fault
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            raise ModelError(
                f"it gave a vector that is not finite for the text {texts[int(bad[0])][:60]!r}",
                "look at the server and its model; if it stays, exclude the document",
                where=self.address.url,
            )
        n_tokens = tokens_of(answer)
        if n_tokens is not None:
            with self._counting:
                self._usage.n_tokens = (self._usage.n_tokens or 0) + n_tokens
        return vectors, n_tokens


def vectors_of(answer: Any, n: int, width: int = 0) -> Floats:
    """(n, width) of an answer's JSON, in the order of the n texts that were sent; width 0: it is not known yet.

    Raises:
        ValueError: it holds anything else; the message says what.

    >>> vectors_of({"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2]}]}, 2).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise ValueError("the answer has no list of vectors, as the protocol of OpenAI's embeddings asks for")
    if len(data) != n:
        raise ValueError(f"it gave {len(data):,} vectors for {n:,} texts")
    places = [entry.get("index") for entry in data]
    if any(place is not None for place in places):
        if any(type(place) is not int for place in places) or sorted(places) != list(range(n)):
            raise ValueError("the indexes of its vectors are not those of the texts")
        data = sorted(data, key=lambda entry: entry["index"])
    rows = [entry.get("embedding") for entry in data]
    if not all(isinstance(row, list) and row and set(map(type, row)) <= {int, float} for row in rows):
        raise ValueError("its vectors are no lists of numbers")
    widths = {len(row) for row in rows}
    if len(widths) > 1 or (width and widths != {width}) or max(widths) > _MAX_WIDTH:
        shown = " and ".join(f"{entry:,}" for entry in sorted(widths))
        raise ValueError(f"it gave vectors of {shown} dimensions" + (f", and of {width:,} before" if width else ""))
    try:
        with np.errstate(over="ignore"):
            vectors: Floats = np.array(rows, np.float64).astype(np.float32)
    except OverflowError as fault:  # an integer of more digits than a float has
        raise ValueError("its vectors are no lists of numbers") from fault
    return vectors


def tokens_of(answer: Any) -> int | None:
    """The tokens that the server read, as it counts; None where it does not say."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = [usage.get(name) for name in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    return next((count for count in counts if type(count) is int and 0 < count < _MAX_TOKENS), None)


def n_cut_texts(lengths: Sequence[int], around: int, n_read: int) -> int:
    """How many texts the server has cut, of those of one request.

    It reads min(length + around, limit) of each, and its limit is the one number with which that comes to `n_read`.

    Args:
        lengths: lengths of the texts, in tokens.
        around: special tokens that the model's tokenizer puts around a text.
        n_read: tokens that the server read.

    >>> n_cut_texts([700, 600, 90], 2, 512 + 512 + 92), n_cut_texts([700, 600, 90], 2, 1396)
    (2, 0)
    """
    if n_read >= sum(lengths):
        return 0
    whole = sorted((length + around for length in lengths), reverse=True)
    rest = sum(whole)
    for n_cut, longest in enumerate(whole, start=1):
        rest -= longest
        limit = (n_read - rest) / n_cut
        if n_cut == len(whole) or limit >= whole[n_cut]:
            return n_cut
    return 0


def groups(lengths: Sequence[int]) -> list[list[int]]:
    """Texts of one request each, by number, the longest first: bounded in tokens and in texts.

    >>> groups([5, REQUEST_TOKENS, 7, 6])
    [[1], [2, 3, 0]]
    """
    requests: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not requests or len(requests[-1]) == REQUEST_TEXTS or lengths[row] > room:
            requests.append([])
            room = REQUEST_TOKENS
        requests[-1].append(row)
        room -= lengths[row]
    return requests


@functools.cache
def characters() -> TextTokenizer:
    """Counts in place of a tokenizer that is not here: up to four letters, digits or marks of a word for a token, and
    each character of another script. It counts more tokens than most models do.

    >>> len(characters().ids(["An endpoint, 東京"])[0])
    6
    """
    backend = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
    parts = Regex(rf"[\x{{21}}-\x{{24F}}]{{1,{_LETTERS}}}|\S")
    backend.pre_tokenizer = Both([Split(Regex(r"\s+"), "removed"), Split(parts, "isolated")])
    return TextTokenizer(backend, bos=None, eos=None, pad=None, unk=0, max_length=None)


def read_tokenizer(path: str) -> TextTokenizer:
    """The tokenizer of a file.

    Raises:
        SpecError: there is no such file, or it is no tokenizer.json.
    """
    file = expanded(path)
    if not file.is_file():
        raise SpecError("there is no such file", "name the model's tokenizer.json", where=f"`tokenizer={path}`")
    try:
        with panics_of("tokenizers", file):
            backend = Tokenizer.from_file(str(file))
    except RagidxError:
        raise
    except Exception as fault:  # the library raises this class itself
        raise SpecError(
            f"it is no tokenizer: {first_line(fault)}", "name the model's tokenizer.json", where=str(file)
        ) from fault
    return TextTokenizer(backend, bos=None, eos=None, pad=None, unk=None, max_length=None)


def difference(old: Floats, new: Floats) -> str:
    """How two vectors of the canary, (1, n) each, differ, as text; empty where they are of one model."""
    if old.shape != new.shape:
        return f"its vectors have {new.shape[1]:,} dimensions now, and had {old.shape[1]:,}"
    cosine = float(l2_normalize(old).vectors[0] @ l2_normalize(new).vectors[0])
    words = f"a fixed text has a vector with a cosine of {cosine:.4f} to the kept one, below {SAME}"
    return "" if cosine >= SAME else words


def canary_bytes(encoder: EndpointEncoder) -> bytes:
    """What an index keeps of the canary's vector."""
    return l2_normalize(encoder.canary).vectors.astype("<f4").tobytes()


def check_canary(encoder: EndpointEncoder, kept: bytes, where: str) -> None:
    """Whether the endpoint's model is still the one that made the index at `where`, which keeps this canary.

    Raises:
        OtherModelError: it is not: a question and the index would have nothing to do with each other.
        IndexFormatError: what is kept is no vector.
    """
    old = np.frombuffer(kept, "<f4") if len(kept) % 4 == 0 else np.empty(0, "<f4")
    if not old.size or not np.isfinite(old).all() or not old.any():
        raise IndexFormatError(
            f"{CANARY_FILE} holds no vector", "build the index again with `rebuild=True`", where=where
        )
    if change := difference(old[None], encoder.canary):
        raise OtherModelError(
            f"the model '{encoder.files.name}' of {encoder.address.url} is not the one this index was made with: "
            f"{change}",
            "name the right server with `endpoint`, or build the index again with `rebuild=True`",
            where=where,
        )
