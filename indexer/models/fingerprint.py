"""The fingerprint of a model: sha256 over the files that its vectors depend on."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from ragidx.indexer.model_files import keep
from ragidx.indexer.models.gguf.header import Gguf
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.models.lora_config import CONFIG as ADAPTER_CONFIG
from ragidx.indexer.models.lora_config import WEIGHTS as ADAPTER_WEIGHTS

_SETTINGS = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "vocab.json", "vocab.txt", "merges.txt"),
)
_VOCABULARIES = ("vocab.txt", "merges.txt", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
_WORTH_KEEPING = 1 << 28
_BLOB = re.compile(r"sha256-([0-9a-f]{64})")


def weights_fingerprint(files: ModelFiles, stored: str = "") -> str:
    """sha256 (hex) over the files of the model, its adapters and its pooler: what its vectors depend on.

    Hashing a large model takes seconds, so the digest of a large file is kept in the user's cache folder by the file's
    size, time and inode.

    Args:
        files: of the model.
        stored: the fingerprint of an index to compare with. It is returned if it fits these files by the older rule,
            which skipped vocabularies without a tokenizer.json in sentence-transformers models.
    """
    if files.gguf is not None:
        return _fingerprint_of_gguf(files, files.gguf)
    if files.served:  # whether it is still the same model, its vector of the canary says
        return hashlib.sha256(files.name.encode()).hexdigest()
    found = _fingerprint(files, _decisive(files))
    if stored not in ("", found) and files.sentence_transformers:
        before = _fingerprint(files, [path for path in _decisive(files) if path.name not in _VOCABULARIES])
        return stored if before == stored else found
    return found


def _fingerprint(files: ModelFiles, decisive: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in decisive:
        digest.update(f"{path.relative_to(files.folder).as_posix()}\0{_file_digest(path)}\0".encode())
    for number, adapter in enumerate(files.adapters):
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, *_SETTINGS):
            if (adapter / name).is_file():
                digest.update(f"adapter {number}/{name}\0{_file_digest(adapter / name)}\0".encode())
    if files.pooler is not None:
        digest.update(f"pooler\0{_file_digest(files.pooler)}\0".encode())
    return digest.hexdigest()


def _fingerprint_of_gguf(files: ModelFiles, gguf: Gguf) -> str:
    """The sha256 of the file; of several, or with a pooler, over theirs. Ollama's files are named by their sha256."""
    digests = [blob[1] if (blob := _BLOB.fullmatch(path.name)) else _file_digest(path) for path in gguf.parts]
    if files.pooler is not None:
        digests.append(_file_digest(files.pooler))
    return digests[0] if len(digests) == 1 else hashlib.sha256("\0".join(digests).encode()).hexdigest()


def _decisive(files: ModelFiles) -> list[Path]:
    if files.sentence_transformers:  # each module has settings and weights in a folder of its own
        words = (path for name in _VOCABULARIES for path in files.folder.rglob(name))
        settings = [*files.folder.rglob("*.json"), *(p for p in words if not (p.parent / "tokenizer.json").is_file())]
    else:
        settings = [files.folder / name for name in _SETTINGS]
    return sorted({path for path in [*settings, *files.weight_files] if path.is_file()})


def _file_digest(path: Path) -> str:
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ino}".encode()).hexdigest()
    kept = Path.home() / ".cache" / "ragidx" / "digests" / key
    if state.st_size >= _WORTH_KEEPING:
        with contextlib.suppress(OSError, ValueError):  # an entry that cannot be read is written again
            if re.fullmatch("[0-9a-f]{64}", found := kept.read_text("ascii")):
                return found
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if state.st_size >= _WORTH_KEEPING:
        keep(kept, lambda temporary: temporary.write_text(digest, "ascii"))
    return digest
