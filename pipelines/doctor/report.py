"""What the doctor reports: findings about the machine, checks of a model, and the report that holds both."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from ragidx import __version__
from ragidx.indexer.specs import EncoderSpec


@dataclass(frozen=True)
class Finding:
    """A line about the machine.

    Attributes:
        name: name of what was looked at.
        value: state in which it was found.
        status: ok; `absent`: an optional package is missing; warning.
        hint: what to do; empty where nothing is to be done.
    """

    name: str
    value: str
    status: Literal["ok", "absent", "warning"] = "ok"
    hint: str = ""


@dataclass(frozen=True)
class Check:
    """A line about a model: something was tried, and the worst difference it made is compared with a limit.

    Attributes:
        name: name of what was tried.
        dtype: the number format it was tried in.
        difference: the worst; None where nothing was measured, or the model gave no number.
        limit: the largest allowed difference; None where nothing was measured.
        status: `not applicable` says why in the hint.
        hint: what to do, or why it was not tried; empty where all is well.
    """

    name: str
    dtype: str
    difference: float | None = None
    limit: float | None = None
    status: Literal["ok", "failed", "not applicable"] = "ok"
    hint: str = ""


def measured(name: str, dtype: str, difference: float, limit: float, *, hint: str) -> Check:
    """The check of a difference; the hint is kept where it fails. A difference that is not a number fails.

    >>> measured("alone and in a batch", "float32", 2e-5, 1e-5, hint="report it").status
    'failed'
    """
    if difference <= limit:
        return Check(name, dtype, difference, limit)
    return Check(name, dtype, difference if math.isfinite(difference) else None, limit, "failed", hint)


@dataclass(frozen=True)
class UnknownScript:
    """Chunks whose letters are mostly of one script.

    Attributes:
        script: name of the script; `symbols`: there is no letter.
        n_chunks: chunks that were examined.
        n_unknown: those of them of which more than half is unknown to the index's model.
        known_by: models on this machine whose tokenizers know those, as `--model` takes them.
    """

    script: str
    n_chunks: int
    n_unknown: int
    known_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnknownChunks:
    """What the model of an index does not know of its chunks.

    Attributes:
        index: folder of the index.
        model: its model; empty where it has none.
        n_examined: chunks that were examined: all, or a sample; 0: the model is one of a server, which tells nothing,
            or did not make the vectors.
        n_chunks: chunks of the index.
        n_zeros: chunks that are stored without a vector; fewer than are unknown where the index is older.
        scripts: by script, the commonest first.
    """

    index: str
    model: str
    n_examined: int = 0
    n_chunks: int = 0
    n_zeros: int = 0
    scripts: tuple[UnknownScript, ...] = ()

    @property
    def n_unknown(self) -> int:
        """Chunks that were examined and are unknown."""
        return sum(one.n_unknown for one in self.scripts)


@dataclass(frozen=True)
class DoctorReport:
    """What the doctor found.

    Attributes:
        findings: lines about the machine.
        model: the model that was examined, as the user wrote it; None where none was named. What follows is empty then.
        encoder: spec of its encoder.
        device: device that it ran on; empty where it cannot run here.
        dtype: the number format in which a build here would compute; empty where it cannot.
        checks: lines about the model.
        chunks: what the model of an index does not know of it; None where none was named.
    """

    findings: tuple[Finding, ...]
    model: str | None = None
    encoder: EncoderSpec | None = None
    device: str = ""
    dtype: str = ""
    checks: tuple[Check, ...] = ()
    chunks: UnknownChunks | None = None

    @property
    def n_failed(self) -> int:
        """How many checks failed."""
        return sum(check.status == "failed" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON types."""
        fields = dataclasses.asdict(self) | {"encoder": "" if self.encoder is None else str(self.encoder)}
        if self.chunks is None:
            del fields["chunks"]
        return {"ragidx": __version__, **fields, "n_failed": self.n_failed}
