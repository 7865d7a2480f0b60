"""Where the spec of an index differs from the requested one, as sentences; and the error that says so."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragidx.corpora.errors import SpecError
from ragidx.corpora.spec import Json
from ragidx.indexer.specs import HEAD, IndexSpec


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which the spec of an index differs from the requested one; prints as a sentence."""

    field: str  # with dots below a member: `encoder.method`
    old: Json
    new: Json
    words: str = ""  # the sentence, where the default one does not fit
    hint: str = ""  # what helps, where no option asked for it

    def __str__(self) -> str:
        return self.words or f"`{self.option}` is {_short(self.old)} in the index, {_short(self.new)} now"

    @property
    def option(self) -> str:
        """The option of a build that sets the field: `method` for `encoder.method`, `chunks.size` for `chunk.size`."""
        member, _, name = self.field.rpartition(".")
        return {"filter": f"filter.{name}", "chunk": f"chunks.{name}"}.get(member, name).removesuffix(".name")


def differences(have: IndexSpec, want: IndexSpec) -> list[Difference]:
    """The fields in which two specs differ, without those that follow from another or do not affect stored vectors."""
    found = list(_differences(have.to_json(), want.to_json(), ""))
    fields = {one.field for one in found}
    skipped = {*_INSTRUCTION, "weight", "questions"}
    if fields & _CHOOSE_FILTER:
        skipped.add("filter.adapted")  # another filter has no map behind it
    if fields & _CHOOSE_TEMPLATE:
        skipped.add("template")  # its content follows from the option
    if have.weights == want.weights:
        skipped |= _NAMES
    elif fields & _NAMES:
        skipped.add("weights")
    return [_named(want, one) for one in found if one.field not in skipped]


def _named(want: IndexSpec, one: Difference) -> Difference:
    """A difference in content, worded with the name of the template or model: a hash means nothing to a user."""
    if one.field == "filter.name" and all(str(name).startswith(HEAD) for name in (one.old, one.new)):
        return dataclasses.replace(one, words="the head of the index's filter is another")
    if want.encoder is None or one.field not in _CONTENTS:
        return one
    template = f"the template '{want.encoder.template}' is different in this version"
    if one.field == "template":
        return dataclasses.replace(one, words=template)
    upgrade = f"take the new files with `ragidx upgrade --model {shlex.quote(want.encoder.model)}`"
    hint = f"name the right folder with `model`, {upgrade}, or "
    return dataclasses.replace(one, words=f"the files of '{want.encoder.model}' have changed", hint=hint)


_INSTRUCTION = {"encoder.instruction"}
_CHOOSE_FILTER = {"filter.name", "filter.tau", "filter.dim", "filter.offset", "filter.center"}
_CHOOSE_TEMPLATE = {"encoder.method", "encoder.template", "encoder.template_query", "encoder.copies"}
_NAMES = {"encoder.model", "encoder.revision", "encoder.adapters", "encoder.pooler", "encoder.tokenizer"}
_CONTENTS = {"template", "weights"}


def _differences(have: dict[str, Json], want: dict[str, Json], prefix: str) -> Iterator[Difference]:
    for name in have | want:
        old, new = have.get(name), want.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            yield Difference(f"{prefix}{name}", old, new)


def _short(value: Json) -> str:
    if value is None or value == []:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = ", ".join(map(repr, value)) if isinstance(value, list) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def mismatch(changes: Sequence[Difference], index_type: str, where: str) -> SpecError:
    """The error for the index at `where`; if only its type differs, the hint is to reindex without encoding."""
    hint = "remove the option to update the index, name another `index`, or replace this one with `rebuild=True`"
    what, fields = "the index was built with other options", [change.field for change in changes]
    if set(fields) <= _CONTENTS:  # no option asked for it
        what, hint = "the index cannot be updated", "replace it with `rebuild=True`"
        hint = f"{changes[0].hint}{hint}"
    elif fields == ["index_type"]:
        reindex = f"ragidx reindex DIR --index {shlex.quote(where)} --index-type {shlex.quote(index_type)}"
        hint += f"; '{reindex}' makes one of that type beside it, and encodes nothing"
    return SpecError(f"{what}: {'; '.join(map(str, changes))}", hint, where=where)
