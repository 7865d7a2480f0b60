r"""Rich Text Format by striprtf: the words of a .rtf, its title and its author.

    path -> Converted, as plain text

striprtf leaves out pictures, headers and footers; footnotes stay where they are referred to.
"""

from __future__ import annotations

import re
from pathlib import Path

from striprtf.striprtf import rtf_to_text

from ragidx.corpora.limits import Limits, UnreadableError
from ragidx.corpora.readers.office.converter import Converted

_CODE_PAGE = re.compile(r"\\ansicpg\d{1,5}")
_PARAGRAPH = re.compile(r"(?<!\\)\\(?:par|sect|page)(?![a-z])")
_FOOTNOTE = re.compile(r"(?<!\\)\\footnote(?![a-z]) ?")  # to striprtf, the text of one is none
_BLANK = re.compile(r"\n{3,}")


def convert(path: Path, ending: str, limits: Limits) -> Converted:
    """The text of a .rtf."""
    source = path.read_bytes().decode("latin-1")  # bytes that are not ASCII are of the code page, mostly in hex
    if not source.lstrip().startswith("{\\rtf"):
        raise UnreadableError("not an RTF file")
    lines = _words(_PARAGRAPH.sub(r"\\line\\line", _FOOTNOTE.sub("", source))).split("\n")
    text = _BLANK.sub("\n\n", "\n".join(line.strip() for line in lines)).strip()
    return Converted(text=text, markdown=False, title=_property(source, "title"), author=_property(source, "author"))


def _words(source: str) -> str:
    text: str = rtf_to_text(source, errors="ignore").replace("\0", "")  # type: ignore[no-untyped-call]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a pair may be two control words


def _property(source: str, name: str) -> str:
    """What the group `info` says."""
    found = re.search(rf"\{{\\{name} ([^{{}}]{{1,1000}})\}}", source)
    code_page = _CODE_PAGE.search(source)
    return "" if found is None else " ".join(_words(f"{{{code_page[0] if code_page else ''} {found[1]}}}").split())
