"""The unembedding matrix `W_U` (V, d) of a model, read from its checkpoint without loading the model, and its spectrum.

Tied models keep no head in the file: theirs is the input embedding matrix, and the config decides, never the file
alone (some tied checkpoints carry a stale head). The right singular vectors V (d, d) and squared singular values are
the eigenvectors and eigenvalues of the Gram matrix W_U^T W_U, summed over blocks of rows in float64: d x d numbers,
never V x d. Rows that pad a vocabulary beyond the tokenizer belong to the matrix, as in the EmbedFilter authors' code.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from ragidx.corpora.errors import ModelError
from ragidx.indexer.devices import check_models
from ragidx.indexer.model_files import keep, user_cache
from ragidx.indexer.models import checkpoint
from ragidx.indexer.models.checkpoint import StoredTensor
from ragidx.indexer.models.fingerprint import file_digest
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.specs import TOKEN_TABLE

_DECODERS = frozenset({"llama"})  # known to be none, so transformers, which takes seconds to load, is not asked
_HEADS = (".lm_head.weight", ".embed_out.weight", ".output.weight")
_CACHED_FROM = 1024  # below this width the decomposition takes less than a second
_NO_HEAD = "use `filter=none`, or one that reads no head: truncation, random, whitening, pca"


@dataclass(frozen=True)
class Spectrum:
    """Right singular vectors of `W_U` as columns, by falling singular value."""

    directions: NDArray[np.float64]  # (d, d), orthonormal columns; the entry of largest size in each is positive
    values: NDArray[np.float64]  # (d,) singular values


def find_unembedding(files: ModelFiles) -> StoredTensor:
    """The head of a model, or for a tied model its input embeddings.

    Raises:
        ModelError: the model has no head, or it is stored in a quantised dtype.
    """
    if files.served:
        raise ModelError(f"this needs the weights of '{files.name}', and a server has them", _NO_HEAD, where="`filter`")
    if files.family == TOKEN_TABLE:
        hint = f"{_NO_HEAD}; `model=mini-decoder` has one"
        raise ModelError(f"'{files.name}' is a table of tokens: it has no unembedding matrix", hint, where="`filter`")
    configs = (files.config.get("text_config") or files.config, files.config)
    said = next((one["tie_word_embeddings"] for one in configs if "tie_word_embeddings" in one), None)
    tensor = None
    if not _is_encoder(files):
        # One that is stored is the model's own, unless they are said to be tied.
        tensor = None if said else checkpoint.find(files, _HEADS)
        if tensor is None and (said or (said is None and _tied_by_default(files))):
            tensor = checkpoint.find(files, checkpoint.INPUTS)
    if tensor is None:
        raise ModelError(
            f"'{files.name}' has no unembedding matrix, so it has no spectrum",
            _NO_HEAD,
            where=str(files.folder),
        )
    if not tensor.holds_floats or len(tensor.shape) != 2:
        raise ModelError(
            f"the unembedding matrix '{tensor.name}' is stored as {tensor.kind}, which has no spectrum",
            f"use a checkpoint with the head in float16, bfloat16 or float32; or {_NO_HEAD}",
            where=str(tensor.path),
        )
    return tensor


def spectrum_of(files: ModelFiles) -> Spectrum:
    """The spectrum of a model's unembedding matrix; kept in the user's cache folder where it takes long.

    Raises:
        ModelError: the model has no head, or it cannot be decomposed.
    """
    head = find_unembedding(files)
    if head.shape[1] < _CACHED_FROM:
        return decompose(_gram(head))
    content = hashlib.sha256(f"{file_digest(head.path)}\0{head.name}".encode()).hexdigest()
    kept = user_cache("spectrum")
    cached = None if kept is None else kept / f"{content}.safetensors"
    spectrum = None if cached is None else _cached(cached, head.shape[1])
    if spectrum is not None:
        return spectrum
    spectrum = decompose(_gram(head))
    if cached is not None:
        with contextlib.suppress(SafetensorError):
            tensors = {"directions": spectrum.directions, "values": spectrum.values}
            keep(cached, lambda path: save_file(tensors, path))
    return spectrum


def decompose(gram: NDArray[np.float64]) -> Spectrum:
    """Directions and singular values of a matrix X from X^T X (d, d)."""
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    # The sign of a singular vector is free; fixing it makes one matrix give one filter.
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return Spectrum(np.ascontiguousarray(vectors * signs), np.sqrt(np.clip(values, 0, None)))


def _gram(head: StoredTensor) -> NDArray[np.float64]:
    gram = np.zeros((head.shape[1], head.shape[1]))
    for block in checkpoint.blocks(head):
        rows = block.astype(np.float64)
        gram += rows.T @ rows  # NumPy sees one buffer twice and computes half of the products (BLAS syrk)
    if not np.isfinite(gram).all():
        raise ModelError(
            f"the unembedding matrix '{head.name}' holds numbers that are not finite",
            "download or copy the model again",
            where=str(head.path),
        )
    return gram


def _cached(path: Path, hidden: int) -> Spectrum | None:
    """The spectrum in the cache; None where there is none, or not a whole one."""
    try:
        stored = load_file(path)
        spectrum = Spectrum(stored["directions"], stored["values"])
    except (OSError, SafetensorError, KeyError):
        return None
    return spectrum if (spectrum.directions.shape, spectrum.values.shape) == ((hidden, hidden), (hidden,)) else None


def _is_encoder(files: ModelFiles) -> bool:
    """Whether the family fills masks: no vector of it was trained against its input embeddings."""
    if files.family in _DECODERS:
        return False
    check_models(f"the unembedding matrix of '{files.name}'")
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return files.family in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _tied_by_default(files: ModelFiles) -> bool:
    """The default of the architecture, if the config does not say."""
    check_models(f"the unembedding matrix of '{files.name}'")
    from transformers import CONFIG_MAPPING

    known = files.family in CONFIG_MAPPING
    return bool(CONFIG_MAPPING[files.family]().tie_word_embeddings) if known else True
