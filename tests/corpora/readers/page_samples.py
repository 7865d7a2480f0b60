"""Eight small pages of common kinds: words of their content begin with `k`, those of their frame with `z`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = "The mill at the weir was built in oak and turned by the river until the flood took its wheel away. "
_MENU = "<ul><li><a href='/'>zhome</a><li><a href='/a'>zabout</a><li><a href='/c'>zcontact</a></ul>"


@dataclass(frozen=True)
class Sample:
    """A page, and how many words of its frame may come in."""

    name: str
    html: str
    allowed: int = 0

    def lost(self, text: str) -> list[str]:
        """Words of the content that are not in a text."""
        return sorted(set(re.findall(r"\bk\w+", self.html)) - set(re.findall(r"\bk\w+", text)))

    def let_in(self, text: str) -> list[str]:
        """Words of the frame that are in a text."""
        return sorted(set(re.findall(r"\bz\w+", self.html)) & set(re.findall(r"\bz\w+", text)))


_MAIN = f"""<body><a class="skip-link" href="#m">zskip</a><header><nav>{_MENU}</nav></header><aside>zteaser</aside>
<main id="m"><h1>ktitle</h1><p>klead {_TEXT * 3}</p><aside class="note"><p>kcaution</p></aside>
<table><tr><th>kname<th>kdepth<tr><td>kbaikal<td>k1642</table><pre><code>kcode = 1</code></pre>
<div class="share-buttons">zshare</div></main><footer>zimprint</footer>"""

_SOUP = f"""<body><div id="top" class="navbar">{_MENU}</div><div class="breadcrumbs">zcrumb</div>
<div id="page"><h1>ktitle</h1><p>klead {_TEXT * 4}</p><p>kbody {_TEXT * 2}</p>
<div class="informed-consent">kconsent</div><div class="related-posts">zrelated</div></div>
<div class="sidebar"><h3>zlatest</h3><ul><li>zpost</ul></div><div class="cookie-banner">zcookies zaccept</div>
<div class="footer">zrights</div>"""

_SPHINX = f"""<body><div class="related" role="navigation">zprevious znext</div><div class="document"><div role="main">
<section id="install"><h1>kinstall<a class="headerlink" href="#i">zpilcrow</a></h1><p>kuse {_TEXT * 2}</p>
<div class="highlight"><pre><span class="w">kimport</span> kmill</pre></div>
<div class="admonition warning"><p class="admonition-title">kwarning</p><p>keel</p></div></section></div>
<div class="sphinxsidebar" role="navigation">zcontents</div></div><div class="footer" role="contentinfo">zbuilt</div>"""

_BOOK = f"""<body><div id="sidebar" class="sidebar"><ol class="chapter"><li>zone<li>ztwo</ol></div>
<div id="menu-bar" class="menu-bar"><h1 class="menu-title">zbook</h1></div><div id="content"><main><h1>kchapter</h1>
<p>kword {_TEXT * 3}</p><table><tr><td>kleft<td>kright</table></main><nav class="nav-wrapper">znext</nav></div>"""

_NOTE = f"""<html><head><title>x</title></head><body><h1>knote</h1><p>kfirst {_TEXT}</p><ul><li>kitem<li>kother</ul>
<header><p>klead</p></header><footer><address>kaddress</address></footer>"""

_FORUM = f"""<body><nav>{_MENU}</nav><h1>kquestion</h1><div id="comments"><article><p>kfirst {_TEXT * 2}</p></article>
<article><p>ksecond {_TEXT}</p></article></div><ul class="pagination"><li>zpage</ul>
<div class="newsletter">zletter</div><footer>zabuse zterms</footer>"""

_TABLE = f"""<body><div class="nav">{_MENU}</div><h1>kprices</h1><table class="share-price"><caption>kcaption</caption>
<tr><th>kday<th>kprice<tr><td><p>kmonday</p><td><p>k12</p><tr><td>ktuesday<td>k13</table><p>{_TEXT}</p>
<div class="menu"><p>ksoup</p></div>"""

_LANDING = f"""<body><div class="cc-window">zconsent</div><header><nav>{_MENU}</nav></header><section><h1>koffer</h1>
<p>kclaim {_TEXT}</p></section><section><h2>kplans</h2><div class="card"><h3>ksmall</h3><p>keuro</p></div>
<div class="card"><h3>klarge</h3><p>kprice</p></div></section><div role="tabpanel" hidden><p>kpanel</p></div>
<form><label>kmail</label><button>ksend</button></form><footer>
<ul class="social-links"><li>zsocial</ul>zlegal</footer>"""

PAGES = (
    Sample("main", _MAIN),
    Sample("soup", _SOUP, 1),
    Sample("sphinx", _SPHINX),
    Sample("book", _BOOK),
    Sample("note", _NOTE),
    Sample("forum", _FORUM, 2),
    Sample("table", _TABLE),
    Sample("landing", _LANDING, 1),
)
