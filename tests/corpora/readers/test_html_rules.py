"""Which parts of a page are its text."""

from __future__ import annotations

import pytest

from ..conftest import ReadBytes

WORDS = "Pigeons lived in the antenna until they were chased out. " * 20


@pytest.mark.parametrize(
    "part",
    [
        '<div role="navigation">Home</div>',
        '<div role="search">Home</div>',
        '<div style="color: red; display : none">Home</div>',
        '<div class="cookie-banner">Home</div>',
        '<div id="cookies">Home</div>',
        '<ul class="nav nav-pills">Home</ul>',
        '<div class="wide share-buttons">Home</div>',
        '<a class="headerlink" href="#x">Home</a>',
        '<a class="skip-link" href="#main">Home</a>',
        '<span class="sr-only">Home</span>',
    ],
)
def test_navigation_and_notices_are_left_out(part: str, read_bytes: ReadBytes) -> None:
    found = read_bytes("a.html", f"<body><p>{WORDS}</p>{part}<p>End.</p>")

    assert found.texts == [f"{WORDS.strip()}\n\nEnd.\n"]


@pytest.mark.parametrize(
    "part",
    [
        '<h2 class="toc-title">Home</h2>',
        '<h2 id="related">Home</h2>',
        '<section id="menu">Home</section>',
        '<div class="section" id="cookies">Home</div>',
        '<pre><span class="comment">Home</span></pre>',
        '<p><code class="nav">Home</code></p>',
        '<div class="loads address unrelated">Home</div>',
        f'<div class="comments">Home {WORDS * 2}</div>',
        '<div class="sidebar"><article>Home</article></div>',
        '<aside class="caution">Home</aside>',
        '<div role="tabpanel" hidden>Home</div>',
        '<div role="tabpanel" aria-hidden="true">Home</div>',
        '<div role="dialog">Home</div>',
        "<header>Home</header>",
        "<footer>Home</footer>",
        '<div class="informed-consent">Home</div>',
        '<div class="related-work">Home</div>',
        '<table class="share-price"><tr><td>Home</table>',
        '<ul class="menu"><li>Home</ul>',
        '<div id="comments">Home</div>',
        "<math><mi>Home</mi></math>",
        "<svg><text>Home</text></svg>",
        "<textarea>Home</textarea>",
        "<select><option>Home</select>",
        "<button>Home</button>",
    ],
)
def test_what_only_looks_like_them_is_text(part: str, read_bytes: ReadBytes) -> None:
    found = read_bytes("a.html", f"<body><p>{WORDS}</p>{part}<p>End.</p>")

    assert "Home" in found.texts[0]


@pytest.mark.parametrize("main", ["<main>{}</main>", '<div role="main">{}</div>', "<article>{}</article>"])
def test_the_only_main_part_is_the_text(main: str, read_bytes: ReadBytes) -> None:
    page = f"<body><div>Site</div><div>{main.format(f'<h1>Pulsars</h1><p>{WORDS}')}</div><p>All rights reserved."

    assert read_bytes("a.html", page).texts == [f"# Pulsars\n\n{WORDS.strip()}\n"]


@pytest.mark.parametrize("main", ["<main>Few words.</main>", "<article>One.</article><article>Two.</article>"])
def test_a_main_part_that_is_small_or_one_of_several_is_not_all(main: str, read_bytes: ReadBytes) -> None:
    found = read_bytes("a.html", f"<body><p>{WORDS}</p>{main}")

    assert found.texts[0].startswith("Pigeons")
    assert len(found.texts[0].split()) > len(WORDS.split())


def test_the_title_of_a_drawing_is_not_that_of_the_page(read_bytes: ReadBytes) -> None:
    drawing = "<svg><title>Menu</title><g><title>Bar</title></g></svg>"

    bare = read_bytes("a.html", f"{drawing}<p>{WORDS}")
    titled = read_bytes("a.html", f"<body>{drawing}<title>The mill</title><p>{WORDS}")

    assert [found.documents[0].metadata for found in (bare, titled)] == [{}, {"title": "The mill"}]


def test_a_page_that_is_navigation_throughout_is_text(read_bytes: ReadBytes) -> None:
    assert read_bytes("a.html", f'<body><div class="toc">{WORDS}</div>').texts == [f"{WORDS.strip()}\n"]
