"""What all pictures share: their formats, the style, and a file that is the same whenever its content is.

Needs the extra `plot`; matplotlib is imported when a picture is drawn.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ragidx.corpora.errors import RagidxError, missing_extra, unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")

_DPI = 160
_STYLE = {
    "font.family": "DejaVu Sans",
    "axes.linewidth": 0.6,
    "path.simplify": False,
    "svg.hashsalt": "ragidx",
}


def check_plot(format: str) -> None:
    """Whether a picture of this format can be drawn here; cheap, to be asked before anything is computed.

    Raises:
        SpecError: the format is none of `FORMATS`.
        RagidxError: matplotlib is not installed.
    """
    if format not in FORMATS:
        raise unknown_name("format of a picture", format, FORMATS)
    if importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("pictures need", ["matplotlib"], "plot")


@contextlib.contextmanager
def style(**more: Any) -> Iterator[None]:
    """Draw in the style of all pictures; `more` are settings of matplotlib's `rcParams`, with `_` for the dots.

    matplotlib is imported inside it, and not before.

    Raises:
        RagidxError: matplotlib finds no folder for its own files.
    """
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)  # without a home that can be written it makes a temporary folder, and says so at length
    try:
        import matplotlib.figure
    except OSError as fault:
        raise RagidxError(
            f"no picture can be drawn: {fault}", "set MPLCONFIGDIR to a folder that can be written"
        ) from fault
    finally:
        log.setLevel(level)

    settings: dict[Any, Any] = {**_STYLE, **{name.replace("_", "."): value for name, value in more.items()}}
    with matplotlib.rc_context(settings):
        yield


def saved(figure: Figure, format: str) -> bytes:
    """The file of a figure. The same figure gives the same bytes: no date is written."""
    file = io.BytesIO()
    figure.savefig(file, format=format, dpi=_DPI, metadata={"Date": None} if format == "svg" else None)
    return file.getvalue()
