"""Token ids of template pieces and of texts, from the model's own tokenizer.

Two readings of one tokenizer: a *text* can never become a special token, however it is spelt; a *piece* of a template
(trusted, it comes with the package or from the user) may name one. Truncation and padding are always off here:
`rendering` cuts texts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from tokenizers import Tokenizer

from ragidx.corpora.errors import ModelError, RagidxError, check_machine, first_line, panics_of
from ragidx.indexer.devices import check_models
from ragidx.indexer.model_files import read_object
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.specs import TOKEN_TABLE
from ragidx.indexer.unknown import UnknownTokens

if TYPE_CHECKING:
    from ragidx.corpora.chunking import Counter

_CHARS_A_TOKEN = 16
_SLACK = 64
_NO_LIMIT = 10**9
_PLAIN_FAMILIES = frozenset({"llama", TOKEN_TABLE})
_PLAIN_CLASSES = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
_PLAIN_SETTINGS = frozenset(
    {
        *("tokenizer_class", "backend", "model_max_length", "padding_side", "clean_up_tokenization_spaces"),
        *("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
    }
)


Span: TypeAlias = tuple[int, int]  # the characters [start, end) that a token spells


class TextTokenizer:
    """A fast tokenizer as this package uses it.

    Args:
        backend: a tokenizer of the `tokenizers` library.
        bos, eos, pad, unk: ids of the special tokens, None where the model has none.
        max_length: the longest input that its configuration names; transformers writes 10^30 for none.
        owned: nobody else uses the backend, so it need not be copied.

    Attributes:
        texts: the backend for texts: special tokens in them are ordinary characters. Chunking counts with it.
        prefix, suffix: what the model's tokenizer puts around every text by itself.
        without_row: ids of tokens that the model has nothing for.
        bos, eos, pad, max_length: the arguments of these names; `max_length` None where the configuration names none.
    """

    def __init__(
        self,
        backend: Tokenizer,
        *,
        bos: int | None,
        eos: int | None,
        pad: int | None,
        unk: int | None,
        max_length: int | None,
        owned: bool = False,
    ) -> None:
        self.texts = _plain(backend if owned else _copy(backend))
        self.texts.encode_special_tokens = True
        self._known: Mapping[str, bytes] = {}
        self._counter: Counter | None = None  # opening one takes some milliseconds, which a query can do without
        added = self.texts.get_added_tokens_decoder().items()
        special = {number: token.content for number, token in added if token.special}
        self._named = re.compile("|".join(map(re.escape, special.values())) or r"(?!)")
        self._unk, self.without_row = unk, frozenset[int]()
        self._special = set(special) - {unk}  # any text may hold an unknown character
        self.bos, self.eos = bos, eos
        self.pad: int = next((i for i in (pad, eos, 0) if i is not None), 0)
        self.prefix, self.suffix = _surroundings(self.texts)
        self.max_length = None if max_length is None or max_length >= _NO_LIMIT else max_length

    @functools.cached_property
    def pieces(self) -> Tokenizer:
        """The backend for pieces of a template; it takes as long to make as the other, and few templates need it."""
        backend = _copy(self.texts)
        backend.encode_special_tokens = False
        return backend

    @classmethod
    def of(cls, tokenizer: Any, *, model: str, owned: bool = False) -> Self:
        """A tokenizer of transformers; `owned` as in the class.

        Raises:
            ModelError: it has no fast version.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                f"the tokenizer of '{model}' has no fast version",
                "save it as tokenizer.json (the `tokenizers` format) beside the weights",
            )
        return cls(
            backend,
            bos=tokenizer.bos_token_id,
            eos=tokenizer.eos_token_id,
            pad=tokenizer.pad_token_id,
            unk=tokenizer.unk_token_id,
            max_length=tokenizer.model_max_length,
            owned=owned,
        )

    def piece(self, text: str) -> list[int]:
        """The ids of a literal of a template, where the name of a special token means that token."""
        return list(self.pieces.encode(text, add_special_tokens=False).ids)

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """The spans of each text's tokens, without the model's special tokens around them."""
        return [list(one.offsets) for one in self.texts.encode_batch(list(texts), add_special_tokens=False)]

    @functools.cached_property
    def unknown(self) -> UnknownTokens:
        """The tokens of texts that mean nothing to its model."""
        return UnknownTokens.of(self.texts, self._unk, self.without_row - self._special)

    def is_unknown(self, text: str, limit: int | None = None) -> bool:
        """Whether more than half of the characters of a text, or of its first tokens, means nothing to the model."""
        text = self.head(text, limit)
        return self.unknown.covers(text, self.ids([text])[0][:limit])

    def counter(self) -> Counter:
        """Counts the tokens of texts. Once it is there, `ids` need not tokenise the words that it has seen."""
        from ragidx.corpora.chunking import Counter  # a question cuts no text

        self._counter = self._counter or Counter(self.texts)
        return self._counter

    def know(self, ids: Mapping[str, bytes]) -> None:
        """Take ids of texts, as `Counter.ids` gives them, that need not be worked out here, until the next call.

        They are those of this tokenizer, worked out elsewhere. Where one is none of its ids, all are worked out here.
        """
        from ragidx.corpora.chunking import ID_DTYPE

        every = np.frombuffer(b"".join(ids.values()), ID_DTYPE)
        size = self.texts.get_vocab_size(with_added_tokens=False)
        self._known = ids if every.max(initial=0) < size else {}

    def spells_special(self, text: str) -> bool:
        """Whether a special token's spelling occurs in it."""
        return self._named.search(text) is not None

    def filled(self, form: str, texts: Sequence[str]) -> list[list[int]]:
        """The ids of a template's string with each text at its `{text}`, tokenised whole.

        A special token in the form is that token. The same spelling in a text, alone or together with the form beside
        it, is plain text: then the text is tokenised apart from the form.
        """
        if not self.spells_special(form):
            return self.ids([form.replace("{text}", text) for text in texts])
        clean = [not self.spells_special(text) for text in texts]
        whole = [form.replace("{text}", text) for text, good in zip(texts, clean, strict=True) if good]
        together = (list(encoded.ids) for encoded in self.pieces.encode_batch_fast(whole, add_special_tokens=False))
        parts = [self.piece(part) for part in form.split("{text}")]
        n_special = sum(map(self._n_special, parts))
        rows = []
        for text, good in zip(texts, clean, strict=True):
            ids = next(together) if good else []
            if not good or self._n_special(ids) != n_special:
                apart = self.ids([text])[0]
                ids = parts[0] + [number for part in parts[1:] for number in (*apart, *part)]
            rows.append(ids)
        return rows

    def placed(self, form: str, text: str) -> tuple[list[int], list[Span]]:
        """As `filled` for one text at one `{text}`; and spans in the text, empty for tokens of the form."""
        ids = self.filled(form, [text])[0]
        before, _, behind = form.partition("{text}")
        backend = self.pieces if self._named.search(form) else self.texts
        whole = backend.encode(form.replace("{text}", text), add_special_tokens=False)
        if whole.ids == ids:
            inside = ((max(0, start - len(before)), min(len(text), end - len(before))) for start, end in whole.offsets)
            return ids, [(start, end) if start < end else (0, 0) for start, end in inside]
        around = ([(0, 0)] * len(self.piece(part)) for part in (before, behind))
        return ids, [*next(around), *self.spans([text])[0], *next(around)]

    def _n_special(self, ids: Sequence[int]) -> int:
        return sum(number in self._special for number in ids)

    def head(self, text: str, limit: int | None) -> str:
        """The text, or as much of its start as surely holds more than `limit` tokens.

        Tokenising takes some hundred bytes a token, so a long text of which the model reads the start is not tokenised
        whole. `_SLACK` tokens more are kept, since the last ones of a text that is cut may be others.
        """
        width = len(text) if limit is None else _CHARS_A_TOKEN * (limit + _SLACK)
        while len(text) > width:
            if len(self.texts.encode(text[:width], add_special_tokens=False)) > (limit or 0) + _SLACK:
                return text[:width]
            width *= 2
        return text

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without the model's special tokens around them."""
        found = [self._known.get(text) for text in texts]
        left = iter(self._ids([text for text, known in zip(texts, found, strict=True) if known is None]))
        return [next(left) if known is None else _listed(known) for known in found]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if self._counter is not None:
            return [_listed(ids) for ids in self._counter.ids(texts)]
        return [list(one.ids) for one in self.texts.encode_batch_fast(list(texts), add_special_tokens=False)]


def _listed(ids: bytes) -> list[int]:
    from ragidx.corpora.chunking import ID_DTYPE

    found: list[int] = np.frombuffer(ids, ID_DTYPE).tolist()
    return found


def load_tokenizer(files: ModelFiles) -> TextTokenizer:
    """The tokenizer of a model, or the one that its last adapter brings.

    Raises:
        ModelError: there is none, or none that is fast.
    """
    if files.gguf is not None:
        from ragidx.indexer.models.gguf.tokenizer import read_tokenizer

        backend, special = read_tokenizer(files.gguf, files.name)
        return TextTokenizer(backend, **special, max_length=None, owned=True)
    plain = _read_plain(files.folder, is_bare=files.family == TOKEN_TABLE) if is_plain(files) else None
    if plain is not None:
        return plain
    check_models(f"the tokenizer of '{files.name}'")
    from transformers import AutoTokenizer

    folder = files.tokenizer_folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as fault:  # transformers raises what its files make it
        check_machine(fault, folder)
        raise ModelError(
            f"the tokenizer of '{files.name}' cannot be loaded: {first_line(fault)}",
            "copy its tokenizer.json and tokenizer_config.json into the model's folder",
            where=str(folder),
        ) from fault
    return TextTokenizer.of(tokenizer, model=files.name, owned=True)


def is_plain(files: ModelFiles) -> bool:
    """Whether a model's tokenizer is its tokenizer.json, unchanged, or in its GGUF file.

    Then it is read without transformers, which take seconds to load. False if there is a setting by
    which they could change it, or for a family whose tokenizer they may build differently.
    """
    if files.gguf is not None:
        return True
    if files.family not in _PLAIN_FAMILIES or files.adapters or not (files.folder / "tokenizer.json").is_file():
        return False
    settings = _settings(files.folder)
    special = (value for name, value in settings.items() if name.endswith("_token"))
    return (
        settings.get("tokenizer_class") in _PLAIN_CLASSES
        and settings.keys() <= _PLAIN_SETTINGS
        and isinstance(settings.get("model_max_length"), int)
        and all(isinstance(value, str) for value in special)
    )


def _settings(folder: Path) -> dict[str, Any]:
    """The folder's tokenizer_config.json; empty where it cannot be read: transformers then say what is wrong."""
    try:
        return read_object(folder / "tokenizer_config.json")
    except ModelError:
        return {}


def _read_plain(folder: Path, *, is_bare: bool = False) -> TextTokenizer | None:
    """The tokenizer of a folder whose settings are plain; None where transformers would change what the file holds.

    `is_bare`: it may put nothing around a text, which transformers would for a decoder.
    """
    try:
        with panics_of("tokenizers", folder / "tokenizer.json"):
            backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except RagidxError:
        raise
    except Exception:  # noqa: BLE001 - the library raises this class itself; transformers then say what is wrong
        return None
    settings = _settings(folder)
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    named = {name: settings.get(f"{name}_token") for name in ("bos", "eos", "pad", "unk", "cls", "sep", "mask")}
    changed = backend.truncation or backend.padding or (backend.post_processor is None and not is_bare)
    if changed or any(token is not None and token not in special for token in named.values()):
        return None
    used = {name: named[name] for name in ("bos", "eos", "pad", "unk")}
    numbers = {name: None if token is None else backend.token_to_id(token) for name, token in used.items()}
    return TextTokenizer(backend, **numbers, max_length=settings["model_max_length"], owned=True)


def check_vocabulary(tokenizer: TextTokenizer, n_tokens: int, name: str) -> None:
    """Every id that the tokenizer can give has a row among the model's embeddings; a padding id needs none.

    Raises:
        ModelError: it has more tokens than the model.
    """
    own = [number for number in (tokenizer.bos, tokenizer.eos) if number is not None]
    size = max(tokenizer.texts.get_vocab_size(with_added_tokens=False), *(number + 1 for number in own), 0)
    if size > n_tokens:
        raise ModelError(
            f"the tokenizer of '{name}' has {size} tokens, the model has embeddings for {n_tokens}",
            "put the tokenizer that belongs to the weights beside them",
        )
    if tokenizer.pad >= n_tokens:  # an adapter's tokenizer often brings a padding token that its base does not know
        tokenizer.pad = 0


def _plain(backend: Tokenizer) -> Tokenizer:
    """Without truncation and padding, which a tokenizer.json may switch on."""
    backend.no_truncation()
    backend.no_padding()
    return backend


def _copy(backend: Tokenizer) -> Tokenizer:
    return Tokenizer.from_str(backend.to_str())


def _surroundings(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special ids that the tokenizer puts before and after a text by itself."""
    inner = list(tokenizer.encode("a", add_special_tokens=False).ids)
    outer = list(tokenizer.encode("a", add_special_tokens=True).ids)
    for start in range(len(outer) - len(inner) + 1):
        if outer[start : start + len(inner)] == inner:
            return outer[:start], outer[start + len(inner) :]
    return [], []
