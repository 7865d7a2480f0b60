"""Trained heads: a linear map over pooled embeddings, in one file that `ragidx train head` writes.

FILE -> `Head`: a matrix (d, k), a shift (k,), and what it was trained on -> the filter `head:FILE` of an index, which
keeps the numbers; its spec has their hash in place of the file's name. A head means nothing to vectors of another model
or method than those that it was trained on, so these are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from ragidx.corpora.errors import SpecError, check_machine
from ragidx.corpora.spec import Json
from ragidx.indexer.arrays import Floats
from ragidx.indexer.specs import HEAD, FilterSpec, IndexSpec

_SIZE = 8  # bytes of a safetensors file that hold the length of its header
_HINT = "name a file that `ragidx train head` wrote"


@dataclass(frozen=True, eq=False)
class Head:
    """A trained map: `e @ matrix - shift`.

    Attributes:
        matrix: (d, k) float32.
        shift: (k,) float32, subtracted after the product.
        made: how the map was made, JSON values by name; `encoder` has the fields of its `EncoderSpec`, `vectors` the
            fingerprint of what decides its vectors.
    """

    matrix: Floats
    shift: Floats
    made: Mapping[str, Json]

    def to_bytes(self) -> bytes:
        """The head as a safetensors file."""
        made = json.dumps(self.made, ensure_ascii=False, sort_keys=True)
        return save_tensors({"matrix": self.matrix, "shift": self.shift}, {"ragidx head": made})

    def named(self, asked: FilterSpec) -> FilterSpec:
        """The filter's spec in an index: by the content of the head, with the width that is kept.

        Raises:
            SpecError: it is wider than the head.
        """
        hidden, most = self.matrix.shape
        dim = most if (asked.tau, asked.dim) == (None, None) else asked.width(hidden)
        if dim > most:
            raise SpecError(f"the head has {most:,} dimensions, not {dim:,}", f"give at most {most:,}", where="`dim`")
        content = hashlib.sha256(self.matrix.tobytes() + self.shift.tobytes()).hexdigest()
        return replace(asked, name=f"{HEAD}{content[:16]}", tau=None, dim=dim)

    def check(self, spec: IndexSpec, where: str) -> None:
        """Whether it was trained on such vectors.

        Raises:
            SpecError: it was not.
        """
        encoder, trained_on = spec.encoder, self.made.get("encoder")
        if encoder is None or self.made.get("vectors") == spec.encoder_fingerprint():
            return
        here = encoder.to_json()
        there = trained_on if isinstance(trained_on, dict) else {}
        apart = [
            f"`{name}` is {there[name]!r} there, {here[name]!r} here"
            for name in sorted(here, key=lambda name: name == "model")  # the model's name may differ, the others not
            if name in there and there[name] != here[name]
        ]
        raise SpecError(
            f"the head was trained on other vectors: {apart[0] if apart else 'the files of the model differ'}",
            "train one on these, with `ragidx train head`",
            where=where,
        )


def load_head(file: Path) -> Head:
    """A head from its file.

    Raises:
        SpecError: there is no such file, or it is no head.
    """
    where = str(file)
    try:
        data = file.read_bytes()
    except OSError as fault:
        check_machine(fault, file)
        raise SpecError("the file of the head cannot be read", f"{_HINT}: head:FILE", where=where) from fault
    try:
        header = json.loads(data[_SIZE : _SIZE + int.from_bytes(data[:_SIZE], "little")])
        made = json.loads(header["__metadata__"]["ragidx head"])
        tensors = load_tensors(data)
        head = Head(tensors["matrix"], tensors["shift"], made)
        hidden, dim = head.matrix.shape
        is_sound = head.shift.shape == (dim,) and hidden >= dim > 0
        is_sound &= all(part.dtype == np.float32 and bool(np.isfinite(part).all()) for part in tensors.values())
    except (SafetensorError, ValueError, KeyError, TypeError) as fault:
        raise SpecError("the file is no head", _HINT, where=where) from fault
    if not is_sound or not isinstance(made, dict):
        raise SpecError("the head in the file is damaged", _HINT, where=where)
    return head
