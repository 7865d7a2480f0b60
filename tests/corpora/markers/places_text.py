"""Mail, RTF, a notebook, a table of text and Markdown with a word in every place."""

from __future__ import annotations

import json
from typing import Any

from ..fuzz.msg_files import msg
from .places import Places


def _multi(kind: str, mark: str, *parts: str) -> str:
    inner = "".join(f"--{mark}\n{part}\n" for part in parts if part)
    return f'Content-Type: multipart/{kind}; boundary="{mark}"\n\n{inner}--{mark}--\n'


def _part(kind: str, body: str, *more: str) -> str:
    return "\n".join([f"Content-Type: {kind}; charset=utf-8", *more, "", body])


def _attached(name: str) -> str:
    return f'Content-Disposition: attachment; filename="{name}"'


def eml(at: Places) -> bytes:
    """A mail."""
    head = "".join(
        at(f"field {name}", f"{name}: {before}{{}}{after}\n")
        for name, before, after in (
            ("Subject", "", ""),
            ("From", "", " <a@example.org>"),
            ("To", "", " <b@example.org>"),
            ("Cc", "", " <c@example.org>"),
            ("Keywords", "", ""),
            ("Message-ID", "<", "@example.org>"),
            ("Bcc", "", " <d@example.org>"),
            ("Reply-To", "", " <e@example.org>"),
            ("Comments", "", ""),
            ("List-Id", "", " <list.example.org>"),
        )
    )
    plain = at("plain text beside a page", _part("text/plain", "{} says when the ships come in"))
    page = at("page", _part("text/html", "<p>{} is the ship</p>"))
    event = "BEGIN:VCALENDAR\nBEGIN:VEVENT\n{}END:VEVENT\nEND:VCALENDAR\n"
    said = "".join(
        at(f"{name} of an event", f"{key}:{before}{{}}\n")
        for name, key, before in (
            ("summary", "SUMMARY", ""),
            ("place", "LOCATION", ""),
            ("description", "DESCRIPTION", ""),
            ("organizer", "ORGANIZER;CN=", ""),
            ("note", "COMMENT", ""),
        )
    ).replace("ORGANIZER;CN=:", "ORGANIZER;CN=")
    said = said.replace("organizerofaneventheron", "organizerofaneventheron:mailto:a@example.org")
    inner = "From: a@example.org\n" + at("subject of a mail inside", "Subject: {}\n") + _part(
        "text/plain", at("text of a mail inside")
    )  # fmt: skip
    parts = [
        _multi("alternative", "b2", plain, page, _part("text/calendar", event.replace("{}", said))),
        at("text below", _part("text/plain", "{}")),
        at("page below", _part("text/html", "<p>{}</p>")),
        at("attached text", _part("text/plain", "{}", _attached("a.txt"))),
        at("attached page", _part("text/html", "<p>{}</p>", _attached("b.html"))),
        at("name of an attached file", _part("text/plain", "x", _attached("{}.txt"))),
        at("attached file of an unknown kind", _part("application/x-unknown", "\0\1\2{}", _attached("c.bin"))),
        at("picture", _part("image/png", "\0{}", _attached("d.png"))),
        at("delivery report", _part("message/delivery-status", "Reporting-MTA: dns; {}\n")),
        at("signature", _part("application/pgp-signature", "{}", _attached("e.asc"))),
        "Content-Type: message/rfc822\n\n" + inner,
    ]  # fmt: skip
    return (head + "Date: Mon, 5 Jan 2026 12:00:00 +0100\nMIME-Version: 1.0\n" + _multi("mixed", "b1", *parts)).encode()


def outlook(at: Places) -> bytes:
    """A mail of Outlook."""
    head = {
        0x0037: at("subject"),
        0x0C1A: at("sender"),
        0x0C1F: at("address of the sender", "{}@example.org"),
        0x0E04: at("receivers"),
        0x0E03: at("receivers of copies"),
        0x0E02: at("receivers of hidden copies"),
        0x1035: at("id of the message", "<{}@example.org>"),
        0x1000: at("plain text beside a page", "{} says when the ships come in"),
        0x1013: at("page", "<p>{} is the ship</p>").encode(),
        0x007D: at("head of the transport", "X-Note: {}"),
    }
    attached = [
        *([("a.txt", text.encode())] if (text := at("attached text")) else []),
        *([("b.bin", b"\0\1\2\3")] if at("attached file of an unknown kind") else []),
        *([("c.png", b"\x89PNG\0\1")] if at("picture") else []),
        *([(f"{name}.txt", b"x")] if (name := at("name of an attached file")) else []),
    ]
    return msg({number: value for number, value in head.items() if value}, *attached)


def rtf(at: Places) -> bytes:
    """A document in RTF."""
    head = "".join(
        at(f"{name} in the properties", f"{{\\{word} {{}}}}")
        for name, word in (
            ("title", "title"),
            ("author", "author"),
            ("subject", "subject"),
            ("keywords", "keywords"),
            ("comments", "doccomm"),
            ("category", "category"),
            ("company", "company"),
        )
    )
    custom = at("custom property", r"{\*\userprops{\propname Client}\proptype30{\staticval {}}}")
    body = [
        at("header", r"{\header \pard {}\par}"),
        at("footer", r"{\footer \pard {}\par}"),
        at("header of the first page", r"{\headerf \pard {}\par}"),
        at("heading", r"\pard\outlinelevel0 {}\par"),
        at("paragraph", r"\pard {}\par"),
        at("list item", r"{\listtext\tab 1.}{}\par"),
        at("label of a list", r"{\listtext {}\tab}x\par"),
        at("inserted", r"{\revised {}}\par"),
        at("deleted", r"{\deleted {}}"),
        at("hidden", r"{\v {}}"),
        at("footnote", r"x{\footnote\pard {}\par}\par"),
        at("comment", r"x{\*\annotation\pard {}\par}\par"),
        at("author of a comment", r"x{\*\atnauthor {}}\par"),
        at("field code", r"{\field{\*\fldinst {}}{\fldrslt x}}\par"),
        at("field result", r"{\field{\*\fldinst}{\fldrslt {}}}\par"),
        at("table cell", r"\trowd\cellx2000\cellx4000\intbl {}\cell x\cell\row\pard "),
        at("text box", r"{\shp{\*\shpinst{\shptxt\pard {}\par}}}\par"),
        at("alternative text", r"{\shp{\*\shpinst{\sp{\sn wzDescription}{\sv {}}}}}\par"),
        at("shown by an object", r"{\object{\result\pard {}\par}}\par"),
        at("embedded file", r"{\object\objemb{\*\objdata 00ff}}\par"),
        at("picture", r"{\pict\pngblip 89504e47}\par"),
        at("unknown part", r"{\*\neverheardof {}}\par"),
    ]
    return (r"{\rtf1\ansi{\info" + head + "}" + custom + "\n".join(body) + "}").encode()


def notebook(at: Places) -> bytes:
    """A notebook."""

    def result(**data: Any) -> dict[str, Any]:
        return {"output_type": "execute_result", "data": {name.replace("_", "/"): text for name, text in data.items()}}

    def code(source: str, *outputs: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        return {"cell_type": "code", "source": source, "outputs": list(outputs), "metadata": metadata}

    bare = "<pandas.io.formats.style.Styler at 0x7f0>"
    error = {"output_type": "error", "ename": at("name of an error"), "evalue": at("message of an error")}
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": f"# {at('heading')}\n\n{at('cell of Markdown')}"},
        {"cell_type": "raw", "source": at("raw cell")},
        code(at("code"), {"output_type": "stream", "name": "stdout", "text": at("printed")}),
        code("1", {"output_type": "stream", "name": "stderr", "text": at("printed as an error")}),
        code("2", result(text_plain=at("result as text"))),
        code("3", result(text_html=at("result as a page", "<p>{}</p>"), text_plain=bare)),
        code("4", result(text_markdown=at("result as Markdown"), text_plain=bare)),
        code("5", result(text_latex=at("result as LaTeX", "${}$"), text_plain=bare)),
        code("6", result(application_json={"a": at("result as JSON")}, text_plain=bare)),
        code("7", error | ({"traceback": [trace]} if (trace := at("traceback of an error")) else {})),
        code("8", {"output_type": "stream", "text": "x" * 2000 + at("end of a long result", " {}")}),
    ]
    if tag := at("tag of a cell"):
        cells.append(code("9", tags=[tag]))
    if drawing := at("drawing"):
        cells.append(code("10", {"output_type": "display_data", "data": {"image/svg+xml": drawing}}))
    if script := at("script"):
        cells.append(code("11", {"output_type": "display_data", "data": {"application/javascript": script}}))
    about: dict[str, Any] = {"authors": [{"name": at("author")}], "title": at("title")}
    if value := at("value of a widget"):
        state = {"state": {"m": {"model_name": "HTMLModel", "state": {"value": value}}}}
        about["widgets"] = {"application/vnd.jupyter.widget-state+json": state}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": about, "cells": cells}).encode()


def csv(at: Places) -> bytes:
    """A table of text."""
    above = at("line above the header", "{}\n\n")
    longer = at("cell beyond the header", "3,x,y,{}\n")
    rows = f"id,text,note {at('name of a column')}\n1,x {at('text')},{at('other cell')}\n2,x,y\n"
    return (above + rows + longer).encode()


def markdown(at: Places) -> bytes:
    """A text in Markdown."""
    front = "".join(f"{name}: {at(f'{name} of the front matter')}\n" for name in ("title", "author", "client"))
    body = [
        at("heading", "# {}"),
        at("paragraph"),
        at("list item", "- {}"),
        at("table cell", "| {} | x |\n| --- | --- |"),
        at("text of a link", "[{}](https://example.org)"),
        at("address of a link", "[x](https://example.org/{})"),
        at("tooltip of a link", '[x](https://example.org "{}")'),
        at("alternative text", "![{}](x.png)"),
        at("footnote", "x[^1]\n\n[^1]: {}"),
        at("code", "```python\n{}\n```"),
        at("formula", "$$ {} $$"),
        at("HTML", "<div>{}</div>"),
        at("comment of the source", "<!-- {} -->"),
    ]
    return ("---\n" + front + "---\n\n" + "\n\n".join(body) + "\n").encode()
