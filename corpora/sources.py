"""The safe walk: which files of a folder are the corpus, in an order that is the same on every machine.

    corpus path -> Source(path, name, size), sorted by name within each folder

Only regular files are yielded; no link is followed except the corpus path itself; only `.gitignore` files are opened.
Each skipped file or folder is reported once, a folder for everything in it. The layouts of a BEIR folder and of a
ragidx index, which is never part of a corpus, are the only formats known here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ragidx.corpora.errors import CorpusError, check_machine, lone_surrogate
from ragidx.corpora.evalset_files import ENDINGS, is_file
from ragidx.corpora.ignore import IgnoreRules, is_rule, rules_of
from ragidx.corpora.limits import MIB, shown_bytes
from ragidx.corpora.records import Skip

AN_INDEX = "a ragidx index"
"""The reason for skipping an index inside the corpus."""

SETTINGS = "ragidx.toml"
"""The file of settings (`ragidx.pipelines.cli.config`), which is no document."""

_ITS_SETTINGS = "settings of ragidx"

EMPTY = "empty file"

PICTURE, NO_PICTURE_TEXT = "picture, not read without `ocr`", "picture without text"

BY_RULE = frozenset(
    {
        AN_INDEX,
        _ITS_SETTINGS,
        EMPTY,
        "hidden",
        "folder of a version control system",
        "ignored by .gitignore",
        "not matched by `include`",
        "matched by `exclude`",
        "link to a file of the same corpus",
        "link to a folder of the same corpus",
        "lock file of a package manager",
        "minified code",
        "generated code",
        "encoded data alone",
        NO_PICTURE_TEXT,
    }
)
"""Reasons that are the user's choice, not a fault, or that there is nothing: no text that should be read is lost."""

_BY_NAME = {  # by a name, and whether it is a folder's; other folders of version control are hidden
    (SETTINGS, False): _ITS_SETTINGS,
    ("CVS", True): "folder of a version control system",
    ("_darcs", True): "folder of a version control system",
}
_LOCK_NAMES = """
    package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock deno.lock poetry.lock Pipfile.lock uv.lock
    pdm.lock pixi.lock conda-lock.yml Cargo.lock go.sum composer.lock Gemfile.lock Podfile.lock mix.lock pubspec.lock
    flake.lock gradle.lockfile packages.lock.json Package.resolved Cartfile.resolved .terraform.lock.hcl
"""
_LOCK_FILES = frozenset(_LOCK_NAMES.split())
_MINIFIED = (".min.js", ".min.mjs", ".min.css", ".js.map", ".mjs.map", ".css.map")
_BEIR = ("corpus.jsonl", "docs.jsonl", "docs.tsv")
_BESIDE = ("queries.jsonl", "queries.tsv", "qrels.tsv", "qrels.txt")
_IGNORE_FILE = ".gitignore"
_IGNORE_BYTES = MIB

# The files of an index (docs/store.md). `corpora` may not import their names from `indexer.store.manifest`; the tests
# compare. The folders' entries are checked too: other tools have a manifest.json beside segments/ as well.
_INDEX_FILES = frozenset({"manifest.json", "LOCK"})
_INDEX_FOLDERS = {"segments": re.compile(r"[0-9]{8,16}-[0-9]{4,9}"), "journal": re.compile(r"[A-Za-z0-9]{16}\.bin")}

_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


class LineSpan(NamedTuple):
    """Whole lines of a file of JSON Lines.

    Args:
        start: offset of the first byte.
        stop: the byte after its last.
        n_lines: lines before it.
        n_records: number of lines that are not blank.
    """

    start: int
    stop: int
    n_lines: int
    n_records: int


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the corpus, not yet opened.

    Args:
        path: place of the file; None for standard input.
        name: path below the corpus root with `/`, in Unicode form NFC; a file's own name; `-` for standard input.
        size: bytes; 0 for standard input.
        beir: whether the file is the corpus of a BEIR folder, whose records have bare ids.
        status: status of the file when the walk found it; None for standard input.
        owner: the number of the source of an index that it belongs to.
        span: the part of it that is read; None: all of it.
    """

    path: Path | None
    name: str
    size: int
    beir: bool = False
    status: os.stat_result | None = field(default=None, compare=False, repr=False)
    owner: int = 0
    span: LineSpan | None = None

    @property
    def n_bytes(self) -> int:
        """How much of it is read."""
        return self.size if self.span is None else self.span.stop - self.span.start


def sources(
    corpus: Path | str,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    indexes: Sequence[str] = (),
    beir: bool = False,
    on_skip: Callable[[Skip], None],
) -> Iterator[Source]:
    """The files of a corpus: a folder's, a single file, or standard input for `-`.

    Args:
        corpus: a folder, a file, or `-`.
        include: gitignore-style globs below the root; a file is kept if one matches. Empty: all are.
        exclude: the same; what one matches is skipped, a folder with everything in it.
        indexes: names of folders below the root, in Unicode form NFC, that are skipped as a ragidx index whatever they
            hold: a new one looks like any other folder.
        beir: a BEIR folder (`corpus.jsonl` or, as of ir_datasets, `docs.jsonl` or `docs.tsv` beside `queries` or
            `qrels`) is its corpus file alone; globs do not apply.
        on_skip: called for each skip.

    Raises:
        CorpusError: there is no such file or folder, or it is neither, an index, or a file whose name is not UTF-8.
        SpecError: a glob is not valid.
    """
    if str(corpus) == "-":
        return iter([Source(None, "-", 0)])
    root = Path(corpus)
    try:
        status = root.stat()
    except OSError as fault:
        check_machine(fault, corpus)
        raise CorpusError(
            f"cannot be opened: {fault.strerror}", "give a folder, a file, or - for standard input", where=str(corpus)
        ) from fault
    if stat.S_ISREG(status.st_mode):
        if lone_surrogate(root.name) is not None:
            raise CorpusError("its name is not UTF-8", "rename the file", where=_printable(str(corpus)))
        return iter([Source(root.resolve(), unicodedata.normalize("NFC", root.name), status.st_size, status=status)])
    if not stat.S_ISDIR(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "special file")
        raise CorpusError(f"is a {kind}, not a file or folder", "give - to read standard input", where=str(corpus))
    if beir and (found := beir_corpus(root)) is not None:
        return iter([found])
    folders = frozenset(f"{name}/" for name in indexes)
    included = rules_of(include, "`include`") if include else None
    excluded = rules_of(exclude, "`exclude`") if exclude else None
    return _Walk(root, Path(os.path.realpath(root)), included, excluded, folders, on_skip).files()


def beir_corpus(folder: Path) -> Source | None:
    """The corpus file of a folder in the layout of BEIR or of `ir_datasets export`; None for another folder."""
    for name in (name + ending for name in _BEIR for ending in ENDINGS):
        path = folder / name
        with contextlib.suppress(OSError):  # the walk says what cannot be looked at
            if not ((folder / "qrels").exists() or any(is_file(folder / one) for one in _BESIDE)):
                return None
            status = path.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                return Source(path, name, status.st_size, beir=True, status=status)
    return None


_Rules: TypeAlias = tuple[tuple[str, IgnoreRules], ...]  # (folder of the .gitignore, its rules), the innermost last


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str
    prefix: str  # "" for the root, "a/b/" below it
    rules: _Rules


@dataclass(frozen=True, slots=True)
class _Walk:
    """One pass over a folder. A stack instead of recursion: folders nest deeper than Python calls do."""

    root: Path
    real_root: Path
    include: IgnoreRules | None
    exclude: IgnoreRules | None
    indexes: frozenset[str]  # as folders are shown: "a/b/"
    on_skip: Callable[[Skip], None]

    def files(self) -> Iterator[Source]:
        stack = [self._entries(_Folder(str(self.root), "", ()))]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif isinstance(entry, _Folder):
                stack.append(self._entries(entry))
            else:
                yield entry

    def _entries(self, folder: _Folder) -> Iterator[Source | _Folder]:
        try:
            with os.scandir(folder.path) as listing:
                entries = sorted(listing, key=lambda entry: (_nfc_bytes(entry.name), os.fsencode(entry.name)))
        except OSError as fault:
            check_machine(fault, folder.path)
            self._skip(folder.prefix or "./", f"cannot be opened: {fault.strerror}")
            return
        is_index = _is_index(entries)
        if is_index and not folder.prefix:
            raise CorpusError("is an index, not a corpus", "name a folder of documents", where=str(self.root))
        if is_index or folder.prefix in self.indexes:
            self._skip(folder.prefix, AN_INDEX)
            return
        rules = self._with_ignore_file(folder, entries)
        last = b""
        for entry in entries:
            key = _nfc_bytes(entry.name)
            if key == last:
                self._skip(_printable(folder.prefix + entry.name), "another file has the same name in Unicode form NFC")
                continue
            last = key
            yield from self._entry(entry, key, folder, rules)

    def _entry(self, entry: os.DirEntry[str], key: bytes, folder: _Folder, rules: _Rules) -> Iterator[Source | _Folder]:
        """The file or folder of an entry; nothing if it is skipped."""
        try:
            name = folder.prefix + key.decode()
        except UnicodeDecodeError:
            self._skip(_printable(folder.prefix + entry.name), "its name is not UTF-8")
            return
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as fault:
            check_machine(fault, entry.path)
            self._skip(name, f"cannot be opened: {fault.strerror}")
            return
        is_folder = stat.S_ISDIR(status.st_mode)
        shown = f"{name}/" if is_folder else name
        reason = self._rule_against(entry.name, shown, is_folder, rules) or self._fault_of(entry, status)
        if reason:
            self._skip(shown, reason)
        elif is_folder:
            yield _Folder(entry.path, shown, rules)
        else:
            yield Source(Path(entry.path), name, status.st_size, status=status)

    def _rule_against(self, base: str, shown: str, is_folder: bool, rules: _Rules) -> str:
        """The rule that excludes this; empty if none does."""
        by_name = "hidden" if base.startswith(".") else _BY_NAME.get((base, is_folder), "")
        if by_name:
            return by_name
        if _is_ignored(shown, rules):
            return "ignored by .gitignore"
        if self.exclude is not None and self.exclude.check(shown):
            return "matched by `exclude`"
        if not is_folder and self.include is not None and not self.include.check(shown):
            return "not matched by `include`"
        return "" if is_folder or self.include is not None else _not_written(base)

    def _fault_of(self, entry: os.DirEntry[str], status: os.stat_result) -> str:
        """Why this cannot be read; empty if it can."""
        kind = stat.S_IFMT(status.st_mode)
        if kind in (stat.S_IFDIR, stat.S_IFREG):
            return ""
        if kind != stat.S_IFLNK:
            return f"not a regular file: {_KINDS.get(kind, 'special file')}"
        try:
            target = Path(os.path.realpath(entry.path))
            is_folder = stat.S_ISDIR(target.stat().st_mode)
        except OSError as fault:
            check_machine(fault, entry.path)
            is_broken = fault.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
            return "broken link" if is_broken else f"link that cannot be followed: {fault.strerror}"
        if not target.is_relative_to(self.real_root):
            return "link out of the corpus"
        return f"link to a {'folder' if is_folder else 'file'} of the same corpus"

    def _with_ignore_file(self, folder: _Folder, entries: Sequence[os.DirEntry[str]]) -> _Rules:
        """The rules in `folder`: those from above, then its own `.gitignore`; a linked one is not read, as in git."""
        ignore_file = next((entry for entry in entries if entry.name == _IGNORE_FILE), None)
        if ignore_file is None or not ignore_file.is_file(follow_symlinks=False):
            return folder.rules
        where = folder.prefix + _IGNORE_FILE
        try:
            with Path(ignore_file.path).open("rb") as stream:
                data = stream.read(_IGNORE_BYTES + 1)
        except OSError as fault:
            check_machine(fault, ignore_file.path)
            self._skip(where, f"cannot be opened: {fault.strerror}")
            return folder.rules
        if len(data) > _IGNORE_BYTES:
            self._skip(where, f"rules of more than {shown_bytes(_IGNORE_BYTES)} are not read")
            return folder.rules
        good = []
        for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), start=1):
            try:
                is_rule(line)
            except ValueError:
                self._skip(f"{where}:{number}", "not a valid .gitignore rule")
            else:
                good.append(line.removesuffix("\r"))
        try:
            return (*folder.rules, (folder.prefix, IgnoreRules(good)))
        except ValueError as fault:
            self._skip(where, str(fault))
            return folder.rules

    def _skip(self, where: str, reason: str) -> None:
        self.on_skip(Skip(where, reason))


def _is_index(entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether a folder with these entries is an index. No file is opened; links do not count."""
    has_file = any(entry.name in _INDEX_FILES and entry.is_file(follow_symlinks=False) for entry in entries)
    return has_file and any(_is_index_folder(entry) for entry in entries)


def _is_index_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder of an index: empty, or with a name in it as an index has."""
    names = _INDEX_FOLDERS.get(entry.name)
    if names is None or not entry.is_dir(follow_symlinks=False):
        return False
    try:
        found = [path.name for path in Path(entry.path).iterdir()]
    except OSError as fault:
        check_machine(fault, entry.path)
        return False
    return not found or any(map(names.fullmatch, found))


def _is_ignored(shown: str, rules: _Rules) -> bool:
    """The innermost `.gitignore` with a rule on a path decides."""
    for prefix, own in reversed(rules):
        ignored = own.check(shown.removeprefix(prefix))
        if ignored is not None:
            return ignored
    return False


def _nfc_bytes(name: str) -> bytes:
    return unicodedata.normalize("NFC", name).encode("utf-8", "surrogateescape")


def _not_written(base: str) -> str:
    """Why a file of this name is nothing that a person wrote; empty: it may be. `include` can name one."""
    if base in _LOCK_FILES:
        return "lock file of a package manager"
    return "minified code" if base.lower().endswith(_MINIFIED) else ""


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
