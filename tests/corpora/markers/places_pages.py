"""A PDF, a page of HTML and a book with a word in every place."""

from __future__ import annotations

from typing import Any

import pypdf
from pypdf.generic import NameObject

from ..fuzz.office_files import zipped
from .pdf_pages import entries, form, forms, note, page, shown, stream, written
from .places import Places

_FILLER = "The harbour office opens at nine and keeps a book of all the ships that come in. " * 12


def pdf(at: Places) -> bytes:
    """A PDF of three pages."""
    writer = pypdf.PdfWriter()
    heading, cell = at("line named by the outline"), at("table cell")
    drawn = form(writer, [shown(at("text of a form object"), 50, 500)])
    layer = writer._add_object(entries(Type="/OCG", Name="off"))
    off = entries(OFF=[layer], Order=[layer])
    writer._root_object[NameObject("/OCProperties")] = entries(OCGs=[layer], D=off)
    lines = [
        shown(heading, 50, 800, size=18),
        shown(at("line"), 50, 780),
        shown(at("turned text"), 30, 300, turn=90),
        "/X1 Do",
        "50 700 m 250 700 l S 50 720 m 250 720 l S 50 740 m 250 740 l S 50 700 m 50 740 l S 250 700 m 250 740 l S",
        "150 700 m 150 740 l S",
        *(shown(text, x, y) for text, x, y in (("a", 60, 725), ("b", 160, 725), (cell, 60, 705), ("c", 160, 705))),
        f"3 Tr {shown(at('invisible text'), 50, 660)} 0 Tr",
        f"1 g {shown(at('white text'), 50, 640)} 0 g",
        at("text beside the page", shown("{}", -300, 620)),
        at("layer that is off", f"/OC /L1 BDC {shown('{}', 50, 600)} EMC"),
        f"/Figure <</MCID 0>> BDC {shown('x', 50, 580)} EMC",
    ]
    unnamed = entries(Type="/Encoding", Differences=[1, "/gone1", "/gone2", "/gone3"])
    font = entries(Type="/Font", Subtype="/Type1", BaseFont="/Helvetica", Encoding=unnamed)
    made = page(writer, lines, XObject=entries(X1=drawn), Properties=entries(L1=layer))
    if alt := at("alternative text"):
        root = writer._add_object(entries(Type="/StructTreeRoot"))
        figure = writer._add_object(entries(S="/Figure", Alt=alt, P=root, Pg=made.indirect_reference, K=0))
        root.get_object().update(entries(K=[figure], ParentTree=entries(Nums=[0, [figure]])))
        writer._root_object.update(
            entries(StructTreeRoot=root, MarkInfo=entries(Marked=pypdf.generic.BooleanObject(True)))
        )
        made.update(entries(StructParents=0))
    _notes(at, writer, made)
    if at("page whose font has no Unicode"):
        page(writer, ["BT /F2 11 Tf 50 700 Td (\\001\\002 \\003\\001\\002) Tj ET"], fonts={"F2": font})
    page(writer, [shown(at("line of another page"), 50, 800)])
    if at("words of a picture"):
        image = stream(
            writer, bytes(64), Type="/XObject", Subtype="/Image", Width=8, Height=8, ColorSpace="/DeviceGray",
            BitsPerComponent=8,
        )  # fmt: skip
        page(writer, ["q 595 0 0 842 0 0 cm /I1 Do Q"], XObject=entries(I1=image))
    if heading:
        writer.add_outline_item(title=heading, page_number=0)
    if outline := at("entry of the outline without a line"):
        writer.add_outline_item(title=outline, page_number=1)
    for name in ("Title", "Author", "Subject", "Keywords"):
        if said := at(f"{name.lower()} in the properties"):
            writer.add_metadata({f"/{name}": said})
    if attached := at("attached file"):
        writer.add_attachment("a.txt", attached.encode())
    if script := at("script"):
        action = writer._add_object(entries(S="/JavaScript", JS=f"var a = '{script}'"))
        scripts = entries(JavaScript=entries(Names=["a", action]))
        writer._root_object.setdefault(NameObject("/Names"), scripts).update(scripts)
    return written(writer)


def _notes(at: Places, writer: Any, made: Any) -> None:
    fields = []

    def field(kind: str, **values: Any) -> None:
        fields.append(note(writer, made, "Widget", FT=f"/{kind}", DA="/F1 11 Tf 0 g", **values))

    field("Tx", T="typed", V=at("typed into a form"))
    if name := at("name of a filled field"):
        field("Tx", T=name, V="x")
    if tip := at("tooltip of a field"):
        field("Tx", T="tip", TU=tip)
    if password := at("password in a form"):
        field("Tx", T="password", V=password, Ff=1 << 13)
    options = ["a", *([chosen] if (chosen := at("chosen in a list")) else [])]
    field("Ch", T="list", V=options[-1], Opt=options)
    if other := at("other choice of a list"):
        field("Ch", T="other", V="a", Opt=["a", other])
    forms(writer, fields)
    for place, kind in (("note", "Text"), ("typed note", "FreeText"), ("note at a mark", "Highlight")):
        note(writer, made, kind, Contents=at(place))
    note(writer, made, "Text", Contents="x", T=at("author of a note"))
    if hidden := at("hidden note"):
        note(writer, made, "Text", Contents=hidden, F=2)
    if link := at("address of a link", "https://example.org/{}"):
        note(writer, made, "Link", A=entries(S="/URI", URI=link))
    if stamp := at("stamp"):
        note(writer, made, "Stamp", AP=entries(N=form(writer, [shown(stamp, 2, 4)])))
    if attached := at("file attached to a note"):
        file = entries(Type="/Filespec", F="a.txt", EF=entries(F=stream(writer, attached.encode())))
        note(writer, made, "FileAttachment", FS=file)


_TITLE, _ALT, _HREF = ' title="{}"', ' alt="{}"', ' href="https://{}.example.org"'
_CAPTION, _ANNOTATION = "<figcaption>{}</figcaption>", "<annotation>{}</annotation>"


def html(at: Places) -> bytes:
    """A page with a main part."""
    main = [
        at("heading", "<h1>{}</h1>"),
        f"<p>{at('paragraph')}</p><p>{_FILLER}</p>",
        at("list item", "<ul><li>{}</li></ul>"),
        at("term of a list", "<dl><dt>{}</dt><dd>x</dd></dl>"),
        at("caption of a table", "<table><caption>{}</caption><tr><td>x</td></tr></table>"),
        at("table cell", "<table><tr><td>{}</td><td>x</td></tr></table>"),
        at("code", "<pre><code>{}</code></pre>"),
        at("quotation", "<blockquote>{}</blockquote>"),
        at("call-out", "<aside><p>{}</p></aside>"),
        at("folded details", "<details><summary>x</summary><p>{}</p></details>"),
        at("hidden tab panel", '<div role="tabpanel" hidden><p>{}</p></div>'),
        at("dialog", "<dialog><p>{}</p></dialog>"),
        f"<p><a{at('address of a link', _HREF)}{at('tooltip', _TITLE)}>{at('text of a link')}</a></p>",
        f"<p><ruby>{at('ruby base')}{at('ruby reading', '<rt>{}</rt>')}</ruby></p>",
        f"<p><math><mi>{at('formula')}</mi>{at('formula in another notation', _ANNOTATION)}</math></p>",
        f"<svg>{at('tooltip of a drawing', '<title>{}</title>')}{at('text of a drawing', '<text>{}</text>')}</svg>",
        f"<figure><img src='x.png'{at('alternative text', _ALT)}>{at('caption of a figure', _CAPTION)}</figure>",
        at("label of a form", "<form><label>{}</label></form>"),
        at("button", "<form><button>{}</button></form>"),
        at("choice of a form", "<form><select><option>{}</option></select></form>"),
        at("text typed into a form", "<form><textarea>{}</textarea></form>"),
        at("value of a form", '<form><input type="text" value="{}"></form>'),
        at("placeholder of a form", '<form><input type="text" placeholder="{}"></form>'),
        at("unknown element", "<my-card>{}</my-card>"),
        at("navigation in the text", "<nav>{}</nav>"),
        at("notice", '<div class="cookie-banner">{}</div>'),
        at("not displayed", '<div style="display:none">{}</div>'),
        at("page in a frame", '<iframe srcdoc="&lt;p&gt;{}&lt;/p&gt;"></iframe>'),
        at("fallback of a video", "<video>{}</video>"),
        at("text without scripts", "<noscript>{}</noscript>"),
        at("template", "<template><p>{}</p></template>"),
        at("script", "<script>var a = '{}';</script>"),
        at("style", "<style>.{} {}</style>".replace(" {}", " {;}")),
    ]  # fmt: skip
    head = (
        at("title", "<title>{}</title>")
        + at("description in the head", '<meta name="description" content="{}">')
        + at("author in the head", '<meta name="author" content="{}">')
        + at("data for programs", '<script type="application/ld+json">{"headline": "{}"}</script>')
    )
    around = at("navigation around the main part", "<nav>{}</nav>") + at("header of the page", "<header>{}</header>")
    foot = at("footer of the page", "<footer>{}</footer>")
    body = f"{around}<main>{''.join(main)}</main>{foot}"
    return f"<!doctype html><html><head>{head}</head><body>{body}</body></html>".encode()


def epub(at: Places) -> bytes:
    """A book of two chapters."""
    dc = "http://purl.org/dc/elements/1.1/"

    def chapter(body: str, title: str = "") -> str:
        return (
            f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{title}</title></head><body>{body}</body></html>'
        )

    about = "".join(
        at(f"{name} of the book", f"<dc:{name}>{{}}</dc:{name}>")
        for name in ("title", "creator", "subject", "description", "contributor", "publisher", "rights")
    )
    one = (
        at("heading", "<h1>{}</h1>")
        + at("paragraph", "<p>{}</p>")
        + at("footnote", "<aside><p>{}</p></aside>")
        + at("table cell", "<table><tr><td>{}</td></tr></table>")
        + at("alternative text", '<p>x<img src="p.png" alt="{}"/></p>')
        + at("caption of a figure", "<figure><figcaption>{}</figcaption></figure>")
        + at("navigation in a chapter", '<nav hidden="hidden"><p>{}</p></nav>')
    )
    files = {
        "one.xhtml": chapter(one, at("title of a chapter")),
        "two.xhtml": chapter(at("chapter beside the order", "<p>{}</p>")),
        "plate.svg": f'<svg xmlns="http://www.w3.org/2000/svg"><text>{at("drawing as a chapter")}</text></svg>',
        "nav.xhtml": chapter(at("list of contents", "<nav><ol><li>{}</li></ol></nav>")),
        "toc.ncx": f"<ncx><navMap>{at('list of contents for old programs', '<text>{}</text>')}</navMap></ncx>",
        "loose.xhtml": chapter(at("file out of the order", "<p>{}</p>")),
    }
    order = ("one.xhtml", "two.xhtml", "plate.svg")
    items = "".join(f'<item id="i{n}" href="{name}"/>' for n, name in enumerate(order))
    refs = "".join(f'<itemref idref="i{n}" linear="{"no" if n == 1 else "yes"}"/>' for n in range(len(order)))
    opf = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="{dc}">{about}</metadata><manifest>{items}'
        f'<item id="nav" href="nav.xhtml" properties="nav"/></manifest><spine>{refs}</spine></package>'
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf"/></rootfiles></container>'
    )
    return zipped({"META-INF/container.xml": container, "book.opf": opf, **files})
