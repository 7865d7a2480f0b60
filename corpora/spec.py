"""Specs: frozen values that decide what a vector is. They print as text, and convert to JSON and back.

    FilterSpec(name="embedfilter", tau=2)      only what differs from the defaults is printed

`ChunkSpec` is here because `corpora` needs it; the others are in `ragidx.indexer.specs`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Set
from typing import Any, Self, TypeAlias

from ragidx.corpora.errors import SpecError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def later(default: Any) -> Any:
    """The default of a field that came later: at its default, it is not part of the fingerprint."""
    return dataclasses.field(default=default, metadata={"later": True})


class Spec:
    """Base of the frozen dataclasses that describe a choice; subclasses are `@dataclass(frozen=True)`.

    Attributes:
        given: the fields that were named when it was made; the others are at their defaults. Not compared.
    """

    given: Set[str]

    def __new__(cls, *values: object, **named: object) -> Self:
        """Take note of which fields are named."""
        spec = super().__new__(cls)
        object.__setattr__(spec, "given", {*(field.name for field in _fields(cls)[: len(values)]), *named})
        return spec

    def over(self, own: Self) -> Self:
        """`own`, with the fields that were named here."""
        assert dataclasses.is_dataclass(own)
        return dataclasses.replace(own, **{name: getattr(self, name) for name in self.given})

    def __post_init__(self) -> None:
        """Refuse true and false in place of a number: in Python they are numbers.

        Raises:
            SpecError: a field is a boolean that should not be.
        """
        for field in _fields(self):
            if isinstance(getattr(self, field.name), bool) and "bool" not in str(field.type):
                raise SpecError(f"{type(self).__name__}.{field.name} is {getattr(self, field.name)}, not a number")

    def to_json(self) -> dict[str, Json]:
        """All fields, defaults included: what an index stores must not change when a default does."""
        return {field.name: _to_json(getattr(self, field.name)) for field in _fields(self)}

    @classmethod
    def from_json(cls, data: object, *, where: str = "") -> Self:
        """The inverse of `to_json`; missing fields take their defaults.

        Raises:
            SpecError: `data` is not an object, a field is unknown, or a value has the wrong type.
        """
        if not isinstance(data, dict):
            raise SpecError(f"{cls.__name__} is not an object: {data!r}", where=where)
        hints = _hints(cls)  # type: ignore[arg-type]  # a class is hashable
        names = [field.name for field in _fields(cls)]
        unknown = sorted(set(data) - set(names))
        if unknown:
            raise SpecError(f"{cls.__name__} has no field {unknown[0]!r}", f"known: {', '.join(names)}", where=where)
        return cls(**{name: _typed(cls, name, hints[name], value) for name, value in data.items()})

    def __str__(self) -> str:
        """`Name(field=value, ...)`, only the fields that differ from their defaults, values in JSON."""
        shown = [
            f"{field.name}={_show(getattr(self, field.name))}"
            for field in _fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def decisive(self) -> dict[str, Json]:
        """What the fingerprint is of: as `to_json`, less the fields that came later and are at their defaults."""
        found: dict[str, Json] = {}
        for field in _fields(self):
            value = getattr(self, field.name)
            if not (field.metadata.get("later") and value == field.default):
                found[field.name] = value.decisive() if isinstance(value, Spec) else _to_json(value)
        return found

    def fingerprint(self) -> str:
        """sha256 (hex) of the canonical JSON: equal specs, equal fingerprints, on every machine, in every version."""
        canonical = json.dumps(self.decisive(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)  # some 0.1 ms, and a build reads a layout for each file of records


def _fields(spec: object) -> tuple[dataclasses.Field[Any], ...]:
    assert dataclasses.is_dataclass(spec)
    return dataclasses.fields(spec)


def _to_json(value: object) -> Json:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def _typed(cls: type[Spec], name: str, hint: Any, value: object) -> object:
    """`value` from JSON as the field's type; a tuple comes back from its list, a nested spec from its object."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if isinstance(option, type) and issubclass(option, Spec) and isinstance(value, dict):
            return option.from_json(value)
        if typing.get_origin(option) is tuple and isinstance(value, list):
            inner = typing.get_args(option)[0]
            return tuple(_typed(cls, name, inner, item) for item in value)
        if option is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(option, type) and type(value) is option:
            return value
    kinds = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise SpecError(f"{cls.__name__}.{name} is {value!r}, not {kinds}")


def _show(value: object) -> str:
    return str(value) if isinstance(value, Spec) else json.dumps(_to_json(value))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkSpec(Spec):
    """How documents are cut. Of what is asked for, a field that is not named is the index's own, else the default."""

    size: int | None = 256  # tokens of the encoder's own tokenizer; None: whole documents
    overlap: int = 0  # tokens shared by neighbours, at most; best effort at sentence boundaries
    headings: bool = False  # of older indexes: the whole heading path is in front of what is encoded
    titles: bool = later(False)  # the title is in front of chunks that lack it; of a new index the default is True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.size < 1:
            raise SpecError(f"a chunk of {self.size} tokens holds nothing", "give at least 1", where="`chunks.size`")
        is_whole = self.given != {"overlap"}  # the size that it has to fit may be the index's own
        if self.overlap < 0 or (is_whole and self.size is not None and self.overlap >= self.size):
            raise SpecError(
                f"an overlap of {self.overlap} tokens does not fit chunks of {self.size}",
                "give 0 or more, and less than `chunks.size`",
                where="`chunks.overlap`",
            )
