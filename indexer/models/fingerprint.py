"""The fingerprint of a model: sha256 over the files that its vectors depend on."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from ragidx.indexer.model_files import keep, user_cache
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.models.lora_config import CONFIG as ADAPTER_CONFIG
from ragidx.indexer.models.lora_config import WEIGHTS as ADAPTER_WEIGHTS

_VOCABULARIES = ("vocab.txt", "merges.txt", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
_SETTINGS = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", *_VOCABULARIES),
)
_WORTH_KEEPING = 1 << 28
_BLOB = re.compile(r"sha256-([0-9a-f]{64})")


def weights_fingerprint(files: ModelFiles) -> str:
    """sha256 (hex) over the files of the model, its adapters and its pooler: what its vectors depend on.

    Of one GGUF file it is that of the file.
    """
    if files.served:  # whether it is still the same model, its vector of the canary says
        return hashlib.sha256(files.name.encode()).hexdigest()
    if files.gguf is not None and len(files.gguf.parts) == 1 and files.pooler is None:
        return file_digest(files.gguf.parts[0])
    digest = hashlib.sha256()
    for name, path in _decisive(files):
        digest.update(f"{name}\0{file_digest(path)}\0".encode())
    return digest.hexdigest()


def _decisive(files: ModelFiles) -> Iterator[tuple[str, Path]]:
    """The files that decide a vector, and what each is called in the fingerprint."""
    if files.gguf is not None:
        yield from ((f"part {number}", path) for number, path in enumerate(files.gguf.parts))
    else:
        names = ("*.json", *_VOCABULARIES)  # each module has settings and weights in a folder of its own
        nested = [path for name in names for path in files.folder.rglob(name)] if files.sentence_transformers else []
        settings = nested or [files.folder / name for name in _SETTINGS]
        for path in sorted({path for path in [*settings, *files.weight_files] if path.is_file()}):
            yield path.relative_to(files.folder).as_posix(), path
    for number, adapter in enumerate(files.adapters):
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, *_SETTINGS):
            if (adapter / name).is_file():
                yield f"adapter {number}/{name}", adapter / name
    if files.pooler is not None:
        yield "pooler", files.pooler


def file_digest(path: Path) -> str:
    """The sha256 (hex) of a file. That of a large one, which takes seconds, is kept in the user's cache folder by the
    file's size, time and inode.
    """
    if path.parent.name == "blobs" and (blob := _BLOB.fullmatch(path.name)):  # Ollama names its files by it
        return blob[1]
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ino}".encode()).hexdigest()
    kept = user_cache("digests") if state.st_size >= _WORTH_KEEPING else None
    if kept is not None:
        with contextlib.suppress(OSError, ValueError):  # an entry that cannot be read is written again
            if re.fullmatch("[0-9a-f]{64}", digest := (kept / key).read_text("ascii")):
                return digest
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if kept is not None:
        keep(kept / key, lambda temporary: temporary.write_text(digest, "ascii"))
    return digest
