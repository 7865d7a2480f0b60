"""Which sources of an index a build reads: what was named, beside what the manifest lists.

paths and the index's sources -> the sources as they will be, and the names of those that are read now

A path is a source of the index by where it is. A source that was moved is recognised by what it holds. Any other path
is refused: an index of one folder is not to become that of another by a slip.
"""

from __future__ import annotations

import dataclasses
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ragidx.corpora.errors import CorpusError, SpecError, check_machine, unknown_name
from ragidx.corpora.sources import beir_corpus
from ragidx.indexer.store import Store
from ragidx.indexer.store.generations import committed_or_none
from ragidx.indexer.store.source_list import (
    STANDARD_INPUT,
    SourceEntry,
    free_number,
    source_name,
    sources_of,
    stored_path,
)
from ragidx.pipelines.ingest.corpus import CorpusSelection, Reading, sources_at
from ragidx.pipelines.ingest.options import BuildOptions
from ragidx.pipelines.ingest.removal import file_names
from ragidx.pipelines.ingest.workers.files import document_hash
from ragidx.pipelines.ingest.workers.spread import documents

Corpus: TypeAlias = str | Path | Sequence[str | Path] | Mapping[str, str | Path | Mapping[str, Any]] | None
"""What a build is given: a path, several, several by the names of sources, or None for the sources of the index.

By name it may have globs of its own: `{"path": "papers", "include": [], "exclude": ["drafts/"]}`.
"""

_GLOB_KEYS = ("include", "exclude")
_GLOB = re.compile(r"[*?\[]")
_DRAWN = 64  # documents that are compared, to know a source that was moved
_SHOWN_CHARS = 200  # of a path in a message


def reading_of(corpus: Corpus, index: Path, options: BuildOptions, stored: Store | None) -> Reading:
    """What a build or a plan of a corpus reads; with `rebuild` and no corpus, the index's own sources.

    Args:
        corpus: folders and files, or `-` alone; or by name: those that are no source yet are new ones; None: every
            source of the index.
        index: folder of the index.
        options: options of the build; with `allow_removal` the only source of the index may become another, and one of
            several may be gone.
        stored: the state that is updated, None where there is none or it is replaced.

    Raises:
        SpecError: there is nothing to read, or a path is no source of the index.
    """
    paths = as_paths(corpus)
    notes = {} if stored is None else stored.manifest.notes
    if stored is None and not paths and committed_or_none(index) is not None:
        stored = Store.open(index)
    known = () if stored is None else sources_of(stored.manifest.notes, index)
    if isinstance(corpus, Mapping) and corpus:
        selection = _named(dict(zip(corpus, paths, strict=True)), index, known, _globs_of(corpus))
    elif not paths:
        selection = CorpusSelection(known, tuple(entry.name for entry in known))
    elif not known:
        selection = _beside(paths, index, ())
    else:
        selection = _known(paths, index, known, stored, replaces=options.allow_removal)
    if not selection.names and (paths or stored is None or not stored.manifest.n_documents):
        raise SpecError("there is nothing to build", "name a folder or a file", where=str(index))
    if not paths and any(entry.path == STANDARD_INPUT for entry in known):
        raise SpecError(
            "the index was built from standard input, which cannot be read again", "give - to read it", where=str(index)
        )
    if not paths and len(selection.entries) == 1 and not os.path.lexists(root := selection.entries[0].root(index)):
        hint = "`ragidx build PLACE` names where it is now, which its files confirm; places are relative to the index"
        raise CorpusError("the source is not here any more, or the index alone was moved", hint, where=str(root))
    if len(selection.entries) > 1:
        selection = _without_missing(selection, index, may_miss=options.allow_removal)
    named = ", ".join(map(str, paths)) or "the sources of the index"
    return Reading(named, index, options, _with_globs(selection, options, _globs_of(corpus)), notes)


def lost(name: str, what: str) -> SpecError:
    """The refusal of a source whose documents are all gone."""
    return SpecError(
        f"the source '{name}' {what}",
        f"`ragidx remove-source {name}` takes it out; `allow_removal=True` removes its documents, and keeps it",
        where=name,
    )


def _with_globs(
    selection: CorpusSelection, options: BuildOptions, own: Mapping[str, Mapping[str, Any]] | None = None
) -> CorpusSelection:
    """The selection; globs that are named replace those of the sources that are read; `own`: those of single ones."""
    named: dict[str, Sequence[str]] = {"include": options.include, "exclude": options.exclude}
    entries = []
    for entry in selection.entries:
        said = {**named, **(own or {}).get(entry.name, {})} if entry.name in selection.names else {}
        globs: dict[str, Any] = {name: tuple(value) for name, value in said.items() if value}
        entries.append(dataclasses.replace(entry, **globs))
    return dataclasses.replace(selection, entries=tuple(entries))


def _globs_of(corpus: Corpus) -> dict[str, Mapping[str, Any]]:
    """The globs that sources have of their own, by name."""
    if not isinstance(corpus, Mapping):
        return {}
    tables = {unicodedata.normalize("NFC", name): one for name, one in corpus.items() if isinstance(one, Mapping)}
    return {
        name: {key: (one[key],) if isinstance(one[key], str) else tuple(one[key]) for key in _GLOB_KEYS if key in one}
        for name, one in tables.items()
    }


def _path_of(one: str | Path | Mapping[str, Any]) -> str | Path:
    """The path of a source that is given by name."""
    if not isinstance(one, Mapping):
        return one
    for key in one:
        if key not in ("path", *_GLOB_KEYS):
            raise unknown_name("key", key, ("path", *_GLOB_KEYS))
    if "path" not in one:
        raise SpecError("a source has no path", 'give {"path": "docs", "exclude": ["drafts/"]}')
    path: str | Path = one["path"]
    return path


def as_paths(corpus: Corpus) -> list[str | Path]:
    """One path, several, or none, as a list.

    Raises:
        CorpusError: the system takes one for no path: a link to itself, say, or a name that is too long.
    """
    if corpus is None:
        return []
    if isinstance(corpus, Mapping):
        paths = [_path_of(one) for one in corpus.values()]
    else:
        paths = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    for path in paths:
        try:
            if not Path(path).resolve().exists() and _GLOB.search(str(path)):
                raise _glob(str(path))
        except (OSError, RuntimeError, ValueError) as fault:
            check_machine(fault, str(path))
            why = "a link to itself" if isinstance(fault, RuntimeError) else getattr(fault, "strerror", None) or fault
            raise CorpusError(
                f"cannot be opened: {str(why).lower()}", "name a folder or a file", where=str(path)[:_SHOWN_CHARS]
            ) from fault
    return paths


def _glob(path: str) -> CorpusError:
    """The refusal of a glob that nobody has expanded."""
    start = path.rfind("/", 0, _GLOB.search(path).start()) + 1  # type: ignore[union-attr]  # it has one
    folder = path[:start].rstrip("/") or ("/" if start else ".")
    return CorpusError(
        "there is no such file or folder, and a glob is no path",
        f"name the folder, and choose of it: `ragidx build {folder} --include '{path[start:]}'`",
        where=path[:_SHOWN_CHARS],
    )


def added(
    paths: str | Path | Sequence[str | Path], index: Path, options: BuildOptions, stored: Store, name: str | None = None
) -> Reading:
    """What a build reads that puts new sources beside those of an index.

    Raises:
        SpecError: a path is a source already or cannot be beside others, or a name is taken or cannot be one.
    """
    roots = as_paths(paths)
    if name is not None and len(roots) > 1:
        raise SpecError("one name is for one source", "add them one after the other", where="`name`")
    known = sources_of(stored.manifest.notes, index)
    selection = _beside(roots, index, known, name, all_files=not options.exclude)
    return Reading(", ".join(map(str, roots)), index, options, _with_globs(selection, options), stored.manifest.notes)


def _beside(
    paths: Sequence[str | Path],
    index: Path,
    known: Sequence[SourceEntry],
    name: str | None = None,
    *,
    all_files: bool = True,
) -> CorpusSelection:
    """New sources beside those that are known, with names of their own if none is given; the first has bare ids."""
    entries = list(known)
    for path in paths:
        named = source_name(path) if name is None else name
        if len(known) + len(paths) > 1:
            for root in (path, *(entry.root(index) for entry in entries)):
                _check_joins(root)
        if len(known) + len(paths) > 1 or name is not None:
            later = f"build without it, then `ragidx add-source {path} --name NAME`"
            named = _checked_name(named, entries, "choose another `name`" if known else later)
        _check_place(path, index, entries, all_files=all_files)
        place, prefix = stored_path(path, index), f"{named}/" if entries else ""
        entries.append(SourceEntry(number=free_number(entries), name=named, path=place, prefix=prefix))
    names = tuple(entry.name for entry in entries[len(known) :])
    return CorpusSelection(tuple(entries), names, dict(zip(names, paths, strict=True)))


def _named(
    paths: Mapping[str, str | Path],
    index: Path,
    known: Sequence[SourceEntry],
    globs: Mapping[str, Mapping[str, Any]],
) -> CorpusSelection:
    """The sources of these names at their present places; the others are put beside."""
    entries = {entry.name: entry for entry in known}
    named = {unicodedata.normalize("NFC", name): path for name, path in paths.items()}
    for name, path in named.items():
        if name in entries:
            entries[name] = dataclasses.replace(entries[name], path=stored_path(path, index))
        else:
            _check_renamed(name, path, index, [one for one in known if one.name not in named])
            all_files = not globs.get(name, {}).get("exclude")
            entries[name] = _beside([path], index, tuple(entries.values()), name, all_files=all_files).entries[-1]
        entries[name] = dataclasses.replace(entries[name], **globs.get(name, {}))
    return CorpusSelection(tuple(entries.values()), tuple(named), named)


def _check_renamed(name: str, path: str | Path, index: Path, others: Iterable[SourceEntry]) -> None:
    """Whether a new name is not that of a source that the index has under another."""
    was = next((one.name for one in others if one.root(index) == Path(path).resolve()), None)
    if was is not None:
        raise SpecError(
            f"it is the source '{was}' of the index, and '{name}' is another name",
            f"call it '{was}', as ids begin with it, or `ragidx remove-source {was}` and build: ids will be new",
            where=str(path),
        )


def _check_place(path: str | Path, index: Path, entries: Iterable[SourceEntry], *, all_files: bool) -> None:
    """Whether a path is no source yet, nor in one, nor around one; with `all_files`, that no glob parts from it."""
    at = Path(path).resolve()
    for one in entries:
        root = one.root(index)
        if root == at:
            hint = f"`ragidx build {path}` brings it up to date"
            raise SpecError(f"it is a source of the index already: '{one.name}'", hint, where=str(path))
        if all_files and not (one.include or one.exclude) and (at.is_relative_to(root) or root.is_relative_to(at)):
            is_in = at.is_relative_to(root)
            fault = f"it is in the source '{one.name}' already" if is_in else f"the source '{one.name}' is in it"
            hint = f"`ragidx build {root}` brings that up to date" if is_in else "leave it out with `exclude`"
            raise SpecError(f"{fault}: its files would be in the index twice", hint, where=str(path))


def _known(
    paths: Sequence[str | Path], index: Path, known: Sequence[SourceEntry], stored: Store | None, *, replaces: bool
) -> CorpusSelection:
    """The sources that the paths are; one that was moved gets its new path."""
    entries, names = {entry.name: entry for entry in known}, dict[str, str | Path]()
    for path in paths:
        at = Path(path) if str(path) == STANDARD_INPUT else Path(path).resolve()
        source = next((entry for entry in known if entry.root(index) == at), None)
        if source is None:
            if not replaces and str(path) != STANDARD_INPUT:
                # the others may have moved here
                there = [entry for entry in known if os.path.lexists(entry.root(index))]
                _check_place(path, index, there, all_files=True)
            source = _moved(path, index, known, stored)
            alone = len(known) == len(paths) == 1
            if source is None and alone and (replaces or STANDARD_INPUT in (str(path), known[0].path)):
                source = known[0]
            if source is None:
                raise _unknown(path, index, known)
            entries[source.name] = dataclasses.replace(source, path=stored_path(path, index))
        names[source.name] = path
    return CorpusSelection(tuple(entries.values()), tuple(names), names)


def _without_missing(selection: CorpusSelection, index: Path, *, may_miss: bool) -> CorpusSelection:
    """The selection; a source that is gone counts as read and empty, where that may be."""
    paths = dict(selection.paths)
    for entry in selection.selected:
        if entry.name in paths or os.path.lexists(entry.root(index)):
            continue
        if not may_miss:
            raise lost(entry.name, f"is not at {entry.root(index)} any more")
        paths[entry.name] = ""
    return dataclasses.replace(selection, paths=paths)


def _moved(path: str | Path, index: Path, known: Sequence[SourceEntry], stored: Store | None) -> SourceEntry | None:
    """The source that is at this path now: half of some of its documents are there as they are in the index."""
    if stored is None or str(path) == STANDARD_INPUT:
        return None
    hashes = _hashes(stored)
    for entry in known:
        own = hashes[entry.number]
        drawn = set(list(own)[:: 1 + len(own) // _DRAWN])
        files = {name for doc_id in drawn for name in file_names(doc_id)}
        found = sources_at(path, entry, index, lambda skip, owner: None)
        same = 0
        for document in documents((one for one in found if one.name in files), lambda _: None):
            same += document.id in drawn and own[document.id] == document_hash(document)
            if 2 * same >= len(drawn):
                return entry
    return None


def _hashes(stored: Store) -> defaultdict[int, dict[str, bytes]]:
    """The hashes of an index's documents, by the numbers of their sources, and their ids."""
    found = defaultdict[int, dict[str, bytes]](dict)
    for _, batch in stored.batches(["owner", "doc_id", "doc_hash"]):
        for owner, doc_id, doc_hash in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found[owner][doc_id] = doc_hash
    return found


def _unknown(path: str | Path, index: Path, known: Sequence[SourceEntry]) -> SpecError:
    held = ", ".join(
        f"{entry.root(index)} ({entry.n_documents:,} document{'s' * (entry.n_documents != 1)})" for entry in known
    )
    return SpecError(
        f"the index holds {held}, and not this",
        f"`ragidx add-source {path}` puts it beside, another `index` keeps it apart, `rebuild=True` replaces the index",
        where=str(path),
    )


def _check_joins(path: str | Path) -> None:
    """Standard input and BEIR folders stay alone: they cannot be read again, or have bare ids."""
    if str(path) == STANDARD_INPUT:
        raise SpecError("standard input cannot be one of several sources", "write it to a file", where="-")
    if beir_corpus(Path(path)) is not None:
        raise SpecError(
            "a BEIR folder cannot be one of several sources", "give it an index of its own", where=str(path)
        )


def _checked_name(name: str, known: Sequence[SourceEntry], hint: str) -> str:
    """A name in Unicode form NFC that can be the first part of ids."""
    name = unicodedata.normalize("NFC", name)
    if not name or name in (".", "..") or set(name) & set("/\\#\0") or not name.isprintable():
        raise SpecError(f"{name!r} cannot be the name of a source", "use a word; ids begin with it", where="`name`")
    if any(entry.name == name for entry in known):
        raise SpecError(f"the index has a source '{name}' already", hint, where="`name`")
    return name
