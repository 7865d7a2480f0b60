"""What a page shows, as a tree of plain values: `[tag, attributes, child ...]`, where a child is a tree or text.

The server writes it as HTML, all text escaped; the script builds the same tree with `createElement` and `textContent`.
So there is one description of the page, and no text of a corpus is ever read as markup.
"""

from __future__ import annotations

import html
from typing import Any

from ragidx.retriever.passages import WORD, Stem

Tree = Any  # a text, or [tag, attributes, child ...]
_VOID = {"input", "link", "meta", "br"}


def el(tag: str, *children: Tree | None, **attributes: str | None) -> list[Tree]:
    """An element; children and attributes that are None are not there, `class_` is `class`, `data_add` is `data-add`.

    >>> el("a", "more", None, class_="chip", data_add="x")
    ['a', {'class': 'chip', 'data-add': 'x'}, 'more']
    """
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    return [tag, named, *(child for child in children if child is not None)]


def written(tree: Tree) -> str:
    """A tree as HTML, all text and all attributes escaped.

    >>> written(el("p", "a < b", el("br"), title='"'))
    '<p title="&quot;">a &lt; b<br></p>'
    """
    if isinstance(tree, str):
        return html.escape(tree)
    tag, attributes, *children = tree
    head = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    end = "" if tag in _VOID else f"</{tag}>"
    return f"<{tag}{head}>{''.join(map(written, children))}{end}"


def marked(text: str, wanted: set[str], stem: Stem) -> list[Tree]:
    """A text with the words of the question marked.

    >>> marked("the old mill", {"mill"}, str.lower)
    ['the old ', ['mark', {}, 'mill']]
    """
    parts: list[Tree] = []
    at = 0
    for word in WORD.finditer(text):
        if stem(word[0].lower()) in wanted:
            parts += [text[at : word.start()], el("mark", word[0])]
            at = word.end()
    return [part for part in (*parts, text[at:]) if part != ""]
