"""Static models: a text's vector is the mean of its tokens' rows in the input embeddings, or the sum of those of a
token table, and no layer is run.

Layer 0 with mean pooling needs nothing else of a model, so NumPy and one matrix are enough. Torch and transformers take
seconds to load, a query takes milliseconds. The vectors are those of `ragidx.indexer.encoders.decoder`, which encodes
all models for which `asks_for_network` names a reason. Each text is pooled by itself, so its vector never depends on
the others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Tokenizer

from ragidx.corpora.errors import ModelError
from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.encoders.protocol import EncodedRows, Encoder
from ragidx.indexer.filters.anisotropy import unit_sum
from ragidx.indexer.filters.filter import Filter
from ragidx.indexer.models import checkpoint
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.prompts import Prompted
from ragidx.indexer.prompts.rendering import Rendered
from ragidx.indexer.prompts.tokenizer import check_vocabulary, is_plain, load_tokenizer
from ragidx.indexer.specs import TOKEN_TABLE, EncoderSpec
from ragidx.indexer.token_table import TABLE_FILE, TokenTable

_FAMILIES = frozenset({"llama"})  # what they put into layer 0 is the row of the token, neither scaled nor normed
_GROUP = 256  # texts a batch


class StaticEncoder(Prompted, Encoder):
    """The mean of the input embeddings of a text's tokens, or the sum of their rows in a token table, as an `Encoder`.

    On the CPU, in float32.
    """

    device = "cpu"
    dtype = "float32"
    takes_ids = True

    def __init__(self, files: ModelFiles, spec: EncoderSpec) -> None:
        self.files, self.spec = files, spec
        self.tokenizer = load_tokenizer(files)
        self.table = _token_table(files, self.tokenizer.texts) if files.family == TOKEN_TABLE else None
        if self.table is not None:
            self.hidden, self._pooled = self.table.dim, self.table.vectors_of_ids
            lacking = np.ones(self.tokenizer.texts.get_vocab_size(), np.bool_)
            lacking[self.table.tokens[self.table.tokens < len(lacking)]] = False
            self.tokenizer.without_row = frozenset(np.flatnonzero(lacking).tolist())
        else:
            rows = _embeddings(files)
            check_vocabulary(self.tokenizer, len(rows), files.name)
            self.hidden, self._pooled = rows.shape[1], functools.partial(_means, rows)
        self.use_template(files.config.get("max_position_embeddings"))

    def batches(
        self, texts: Sequence[str], *, instruction: str | None = None, project: Filter | None = None, tune: bool = True
    ) -> Iterator[EncodedRows]:
        """Vectors as they come, in the texts' order; the arguments are those of `Encoder.batches`."""
        is_summed = project is not None and instruction is None
        for start in range(0, len(texts), _GROUP):
            part = texts[start : start + _GROUP]
            rows = self.rendered(part, instruction)
            unknown = self._unknown(part, rows)
            raw = vectors = self._pooled([_pooled_ids(row) for row in rows])
            if project is not None:  # row by row: a product of several at once rounds by how many they are
                vectors = np.concatenate([project(vector[None]) for vector in raw])
            yield EncodedRows(
                list(range(start, start + len(rows))),
                vectors,
                sum(row.n_tokens for row in rows),
                sum(row.truncated for row in rows),
                unit_sum(np.delete(raw, unknown, axis=0) if unknown else raw) if is_summed else None,
                unknown,
            )


def _pooled_ids(row: Rendered) -> Ints:
    """(p,) the ids of a text that are pooled."""
    parts = [row.ids[start:end] for start, end in row.pooled]
    return np.array(parts[0] if len(parts) == 1 else list(itertools.chain.from_iterable(parts)), np.int64)


def _means(rows: Floats, ids: Sequence[Ints]) -> Floats:
    """(n, hidden) means of some rows; zero where there is none."""
    means = np.zeros((len(ids), rows.shape[1]), np.float32)
    for number, one in enumerate(ids):
        if len(one):
            rows[one].mean(axis=0, out=means[number])  # not by BLAS, whose threads cost more than they save here
    return means


def asks_for_network(files: ModelFiles, spec: EncoderSpec) -> str | None:
    """What of a model or its spec a `StaticEncoder` cannot do, as a user names it; None where it can do all."""
    asked = {
        "`adapters`": bool(files.adapters),
        f"the model '{files.name}'": files.sentence_transformers or not _is_plain_checkpoint(files),
        f"`method={spec.method}`": spec.method != "classical",
        f"`pooling={spec.pooling}`": spec.pooling != "mean",
        f"`layer={spec.layer}`": spec.layer != 0,
        "`layer_norm`": spec.layer_norm,
    }
    return next((what for what, asks in asked.items() if asks), None)


def _is_plain_checkpoint(files: ModelFiles) -> bool:
    """Whether layer 0 is the stored rows, and the tokenizer its tokenizer.json and nothing else."""
    return files.family == TOKEN_TABLE or (
        files.family in _FAMILIES
        and "quantization_config" not in files.config
        and isinstance(files.config.get("max_position_embeddings"), int)
        and is_plain(files)
    )


def _token_table(files: ModelFiles, tokenizer: Tokenizer) -> TokenTable:
    """The table of a model that is one.

    Raises:
        ModelError: its file cannot be read, or is none of a table.
    """
    path = files.folder / TABLE_FILE
    try:
        return TokenTable.read(path.read_bytes(), tokenizer)
    except (OSError, ValueError) as fault:
        what = f"'{files.name}' is a table of tokens, and its file cannot be read"
        raise ModelError(what, "copy or train it again: `ragidx train mini`", where=str(path)) from fault


def _embeddings(files: ModelFiles) -> Floats:
    """The input embeddings (V, d) float32.

    Raises:
        ModelError: the checkpoint has none, or in another shape than the config says, or quantised.
    """
    tensor = checkpoint.find(files, checkpoint.INPUTS)
    if tensor is None:
        raise ModelError(
            f"the weights of '{files.name}' lack its input embeddings",
            "download or copy the model again",
            where=str(files.folder),
        )
    named = (files.config.get("vocab_size"), files.config.get("hidden_size"))
    if not tensor.holds_floats or tensor.shape != named:
        raise ModelError(
            f"the input embeddings '{tensor.name}' are {tensor.shape} in {tensor.kind}, where the config names {named}",
            "copy the config.json that belongs to the weights, in float16, bfloat16 or float32",
            where=str(tensor.path),
        )
    table = np.empty(tensor.shape, np.float32)
    start = 0
    for rows in checkpoint.blocks(tensor):
        table[start : start + len(rows)] = rows
        start += len(rows)
    return table
