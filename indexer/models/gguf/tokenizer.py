"""The tokenizer that a GGUF file holds, built for the `tokenizers` library.

The file has the tokens, their scores or merges, and in `tokenizer.ggml.pre` the name of how a text is split before
merging; the split itself is not in it. Here is our table of those names, with the patterns of each model's own
tokenizer.json. A name that is not in it is refused: another split gives other ids, and no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ragidx.corpora.errors import ModelError, RagidxError, first_line, panics_of
from ragidx.indexer.model_files import AGAIN
from ragidx.indexer.models.gguf.header import Gguf

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # types of tokens
_SPECIAL = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
_CHARACTERS = 1024  # of a token, at most; the longest in use have some 200
_FOLDER = "name the folder with the model's safetensors and its tokenizer.json"
_LAST_TOKEN = 3  # of `pooling_type`: the model was trained to be read at the end of the text

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# A text, and what must come out of its tokens again: words, digits, several scripts, spaces and line ends.
_SAMPLE = "Who, in 1984,  signed it?\n\n\tÜber 東京 и мир 🙂 don't x_1=3.14;"


@dataclass(frozen=True)
class Split:
    """How a text is split before merging."""

    pattern: str | None = None  # a regular expression; None: GPT-2's
    digits: bool = False  # each digit is split off first
    composed: bool = False  # the text is composed first (Unicode NFC)
    whole: bool = False  # a word that is a token is taken before any merge; BOS comes first where the file does not say


_GPT2, _DIGITS = Split(), Split(digits=True)
SPLITS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), _DIGITS),
    **dict.fromkeys(("minerva-7b", "mellum2"), _DIGITS),
    "qwen2": Split(_QWEN2, composed=True),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open"), Split(_QWEN2)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2", "pixtral"), Split(_LLAMA3, whole=True)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), Split(_LLAMA3)),
    "tekken": Split(_TEKKEN, whole=True),
}


def read_tokenizer(gguf: Gguf, name: str) -> tuple[Tokenizer, dict[str, int | None]]:
    """The tokenizer of a model, and the ids of its special tokens bos, eos, pad and unk; None: the file names none.

    Raises:
        ModelError: it is of a kind that is not known, is damaged, or does not give back what it reads.
    """
    return _Vocabulary(gguf, name).tokenizer()


class _Vocabulary:
    """What the file says of its tokens."""

    def __init__(self, gguf: Gguf, name: str) -> None:
        self._gguf, self._path, self._name = gguf, str(gguf.path), name
        self._tokens = self._strings("tokens")
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        if len(self._ids) < len(self._tokens):
            twice = next(token for number, token in enumerate(self._tokens) if self._ids[token] != number)
            raise self._fault(f"has the token {twice[:40]!a} twice")
        longest = max(map(len, self._tokens), default=0)
        if longest > _CHARACTERS:  # the merges of a token are its parts, and take the square of its length
            raise self._fault(f"has a token of {longest:,} characters")
        self._types = self._numbers("token_type", _NORMAL)

    def tokenizer(self) -> tuple[Tokenizer, dict[str, int | None]]:
        """As `read_tokenizer`."""
        kind = self._gguf.single("tokenizer.ggml.model")
        if kind not in ("gpt2", "llama"):
            raise self._fault(f"is of the kind {str(kind)[:40]!a}, which is not known", _FOLDER)
        try:
            with panics_of("tokenizers", self._path):
                backend = self._byte_level() if kind == "gpt2" else self._sentencepiece()
                self._add_special(backend)
                special = {short: self._special(name) for short, name in _SPECIAL.items()}
                self._surround(backend, special["bos"], special["eos"], kind)
                self._check(backend)
        except RagidxError:
            raise
        except Exception as fault:  # the library raises this class itself
            raise self._fault(f"cannot be built: {first_line(fault)}") from fault
        return backend, special

    def _byte_level(self) -> Tokenizer:
        split = self._split()
        merges = []
        for merge in self._strings("merges"):
            left, _, right = merge.partition(" ")
            if not left or not right or " " in right:
                raise self._fault(f"has the merge {merge[:40]!a}, which is not of two tokens")
            merges.append((left, right))
        backend = Tokenizer(models.BPE(self._ids, merges, ignore_merges=split.whole))
        steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if split.digits else []
        if split.pattern is not None:
            steps.append(pre_tokenizers.Split(Regex(split.pattern), "isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None))
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
        if split.composed:
            backend.normalizer = normalizers.NFC()
        backend.decoder = decoders.ByteLevel()
        return backend

    def _sentencepiece(self) -> Tokenizer:
        unknown = self._special("unknown")
        merges = self._merges_by_score()
        token = self._tokens[0 if unknown is None else unknown]
        backend = Tokenizer(models.BPE(self._ids, merges, unk_token=token, fuse_unk=True, byte_fallback=True))
        prefixed = self._flag("add_space_prefix", True)
        steps: list[Any] = [normalizers.Prepend("▁")] if prefixed else []
        backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
        back: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if prefixed else back)
        return backend

    def _merges_by_score(self) -> list[tuple[str, str]]:
        """Every pair of tokens that make a third, in the order in which sentencepiece makes it: by the score of it."""
        scores = self._numbers("scores", 0.0)
        ordinary = {token: number for token, number in self._ids.items() if self._types[number] == _NORMAL}
        found = []
        for token, number in ordinary.items():
            score = -float(scores[number])
            for place in range(1, len(token)):
                left, right = token[:place], token[place:]
                if left in ordinary and right in ordinary:
                    found.append((score, number, ordinary[left], left, right))
        found.sort(key=lambda merge: merge[:3])
        return [(left, right) for *_, left, right in found]

    def _split(self) -> Split:
        name = self._gguf.single("tokenizer.ggml.pre")
        if name not in SPLITS:
            known = f"splits texts by {str(name)[:40]!a}, which is not known"
            raise self._fault(
                "does not say how it splits texts (`tokenizer.ggml.pre`)" if name is None else known, _FOLDER
            )
        return SPLITS[name]

    def _add_special(self, backend: Tokenizer) -> None:
        """Tokens that are taken whole wherever they are spelt; those a user defined are no special tokens."""
        kinds = self._types.tolist()
        added = [
            AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
            for token, kind in zip(self._tokens, kinds, strict=True)
            if kind in (_CONTROL, _USER_DEFINED) or (kind == _UNKNOWN and token)
        ]
        backend.add_tokens(added)

    def _surround(self, backend: Tokenizer, bos: int | None, eos: int | None, kind: str) -> None:
        """Put BOS before texts and EOS behind them as the file says, else BOS as llama.cpp does."""
        pooled_at = self._gguf.single(f"{self._gguf.single('general.architecture')}.pooling_type")
        begin = self._flag("add_bos_token", kind == "llama" or self._split().whole)
        end = self._flag("add_eos_token", pooled_at == _LAST_TOKEN)
        for what, wanted, number in (("BOS", begin, bos), ("EOS", end, eos)):
            if wanted and number is None:
                raise self._fault(f"puts {what} around texts and does not say which token that is")
        before = [bos] if begin and bos is not None else []
        after = [eos] if end and eos is not None else []
        if before or after:
            named = [(self._tokens[number], number) for number in dict.fromkeys(before + after)]
            parts = [*(self._tokens[n] for n in before), "$A", *(self._tokens[n] for n in after)]
            backend.post_processor = processors.TemplateProcessing(single=parts, special_tokens=named)

    def _check(self, backend: Tokenizer) -> None:
        """Whether a text comes out as it went in, and special tokens, such as those of a chat, are one token each."""
        ids = backend.encode(_SAMPLE, add_special_tokens=False).ids
        back = backend.decode(ids, skip_special_tokens=False)
        if back != _SAMPLE:
            at = next((n for n, (one, other) in enumerate(zip(_SAMPLE, back, strict=False)) if one != other), len(back))
            raise self._fault(f"reads {_SAMPLE[at : at + 20]!a} and gives back {back[at : at + 20]!a}")
        added = [number for number, kind in enumerate(self._types.tolist()) if kind == _CONTROL]
        texts = [self._tokens[number] for number in added]
        for number, read in zip(added, backend.encode_batch(texts, add_special_tokens=False), strict=True):
            if read.ids != [number]:
                raise self._fault(f"reads its special token {self._tokens[number][:40]!a} as {len(read.ids)} others")

    def _special(self, name: str) -> int | None:
        found = self._get(f"{name}_token_id")
        if found is None:
            return None
        if type(found) is not int or not 0 <= found < len(self._tokens):
            raise self._fault(f"has no token {str(found)[:20]!a}, which it names as {name}")
        return found

    def _flag(self, name: str, default: bool) -> bool:
        found = self._get(name)
        if found is not None and not isinstance(found, bool | int):
            raise self._fault(f"has `{name}`, which is neither true nor false")
        return default if found is None else bool(found)

    def _strings(self, name: str) -> Sequence[str]:
        found = self._get(name)
        if not isinstance(found, list):
            raise self._fault(f"lacks its {name} (`tokenizer.ggml.{name}`)")
        return found

    def _numbers(self, name: str, default: float) -> np.ndarray[Any, Any]:
        found = self._get(name)
        if found is None:
            return np.full(len(self._tokens), default)
        if not isinstance(found, np.ndarray) or len(found) != len(self._tokens):
            raise self._fault(f"does not have one number in `tokenizer.ggml.{name}` for each token")
        return found

    def _get(self, name: str) -> Any:
        return self._gguf.metadata.get(f"tokenizer.ggml.{name}")

    def _fault(self, message: str, hint: str = AGAIN) -> ModelError:
        return ModelError(f"the tokenizer of '{self._name}' {message}", hint, where=self._path)
