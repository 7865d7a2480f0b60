"""How Sphinx builds the site: `make docs`. Pages are Markdown (MyST); every warning is an error there.

`index.md` is the navigation: the pages that it links, in that order. A page that it does not link fails the build.
Nothing is fetched: the theme is Sphinx's own.
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "ragidx"
extensions = ["myst_parser"]
exclude_patterns = ["*.py"]
html_theme = "alabaster"
html_theme_options = {"description": "A folder of documents becomes a vector index.", "page_width": "1100px"}
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 4
nitpicky = True


def _navigation(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "index":
        pages = dict.fromkeys(re.findall(r"\]\(([\w-]+)\.md\)", source[0]))
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", "", *pages, "```\n"])


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    assert Path(app.srcdir).joinpath("index.md").exists()
    app.connect("source-read", _navigation)
