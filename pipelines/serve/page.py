"""The page: a form that works without script; `page.js` asks again while a person types.

What it shows is a tree of plain values, `[tag, attributes, child ...]`, where a child is a tree or text. It is written
here as HTML, all text escaped; the script builds the same tree with `createElement` and `textContent`. So there is one
description of the page, and no text of a corpus is ever read as markup.
"""

from __future__ import annotations

import html
import itertools
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ragidx.corpora.errors import QueryError, RagidxError
from ragidx.corpora.readers.records.paths import fields_of
from ragidx.corpora.records import FILE_FIELDS
from ragidx.pipelines.serve import bodies
from ragidx.pipelines.serve.facets import Facet, facets_of, has_value
from ragidx.pipelines.serve.guard import RefusedError
from ragidx.pipelines.serve.served_index import NotReadyError, Served, run
from ragidx.pipelines.serve.service import FoundHits, Service, refused
from ragidx.retriever.contents import rows
from ragidx.retriever.hit import json_values, place_in
from ragidx.retriever.options import MODES
from ragidx.retriever.passages import WORD, Stem, passage, printable_text, stem_of, stems_of
from ragidx.retriever.printing import printable
from ragidx.retriever.where.conditions import Condition
from ragidx.retriever.where.parser import condition

if TYPE_CHECKING:
    from ragidx.indexer.store.rows import Row
    from ragidx.retriever.hit import Hit

Params = Mapping[str, str]
Tree = Any  # a text, or [tag, attributes, child ...]

_VOID = {"input", "link", "meta", "br"}
SIZES = ("10", "25", "50")
_CHIPS, _CHIP_CHARS = 8, 60
_AROUND = 40  # chunks of a document that a page shows, on each side of the one that was found
_FILES = Path(__file__).parent
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)


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


def marked(text: str, wanted: Set[str], stem: Stem) -> list[Tree]:
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


class Page:
    """The pages of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._facets: dict[str, tuple[int, list[Facet]]] = {}  # of the generation that was last shown

    def routes(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """What is where."""
        return {
            "/": self._in_turn("/", self.home),
            "/results.json": self._in_turn("/results.json", self.results_json),
            "/document": self._in_turn("/document", self.document),
            "/page.css": _file("page.css", "text/css"),
            "/page.js": _file("page.js", "text/javascript"),
            "/icon.svg": _file("icon.svg", "image/svg+xml"),
        }

    def _in_turn(self, path: str, do: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Any]]:
        async def answer(request: Request) -> Any:
            request.scope["state"]["route"] = path
            return await self._service.in_turn(lambda: do(request))

        return answer

    async def home(self, request: Request) -> Response:
        """GET /: the form, and the answers where something is asked."""
        served, params = self._params(request)
        results, status, wrong = await self._results(served, params)
        facets, automatic = await self._offered(served), "automatic"
        if served.state is not None:
            automatic += f" ({served.state.options().mode})"
        example = str(facets[0].values[0][1]) if facets else ""
        names = list(self._service.indexes)
        form = el(
            "form",
            el("div", *_field("q", "Question", params, "What do you want to know?", wrong), _BUTTON, class_="ask"),
            el(
                "div",
                _select("index", "Index", names, served.name) if len(names) > 1 else None,
                _select("mode", "Mode", ("", *MODES), params["mode"], automatic),
                _select("k", "Hits", SIZES, params["k"] or SIZES[0]),
                el("div", *_field("where", "Condition", params, example, wrong), class_="where"),
                class_="options",
            ),
            method="get",
            action="/",
            role="search",
            id="form",
        )
        body = el("body", el("header", _BRAND, _about(served)), form, results)
        return _html(params["q"] or "ragidx", body, status)

    async def results_json(self, request: Request) -> Response:
        """GET /results.json: the answers alone, as the tree that the script builds."""
        served, params = self._params(request)
        tree, *_ = await self._results(served, params)
        generation = 0 if served.state is None else served.state.store.manifest.generation
        return JSONResponse({"tree": tree, "generation": generation})

    def _params(self, request: Request) -> tuple[Served, dict[str, str]]:
        """The index of a page, the first one where none is named, and what is asked."""
        params = {name: request.query_params.get(name, "") for name in ("index", "q", "where", "mode", "k")}
        return self._service.served(params["index"] or next(iter(self._service.indexes))), params

    async def _results(self, served: Served, params: Params) -> tuple[Tree, int, str]:
        """What is below the form, the status of the page, and the field that is at fault."""
        fault_of: Tree | None = None
        field = ""
        status, content = 200, [_message("Ask a question.", "It is text: quotes, + and field:value mean nothing.")]
        if served.state is None:
            told = ("The index cannot be opened.", "The service's log says why.") if served.problem else _OPENING
            status, content = 503, [_message(*told, kind="loading")]
        elif params["q"].strip():
            try:
                content = await self._hits(served, params)
            except (RagidxError, RefusedError, NotReadyError, ValidationError) as fault:
                problem, where, status = _fault(fault, self._service)
                field = "where" if where.startswith("condition") else "q"
                first, _, rest = problem.partition("\n")  # of a condition, the lines behind show the place
                lines = el("p", first), el("pre", rest) if rest else None
                content, fault_of = [], el("div", *lines, id="fault", class_="fault", role="alert", data_field=field)
        main = el("main", *content, id="found", aria_live="polite")
        narrowing = await self._narrowing(served, params)
        return el("div", fault_of, narrowing, main, id="results", class_="results"), status, field

    async def _hits(self, served: Served, params: Params) -> list[Tree]:
        """The hits of a question."""
        options: dict[str, Any] = {"mode": params["mode"] or None, "where": params["where"].strip() or None}
        size = int(params["k"]) if params["k"] in SIZES else int(SIZES[0])
        search = bodies.Search.model_validate({"query": params["q"], "k": size, "per_document": 3, **options})

        def shown(answer: FoundHits) -> list[Tree]:
            [hits] = answer.hits
            notes = (el("p", note, class_="note") for note in hits.notes)
            if not hits:
                other = "another condition, or " * bool(params["where"])
                return [_message("No passage was found.", f"Try {other}other words."), *notes]
            stem = stem_of(answer.state.stemmer)
            wanted = stems_of(params["q"], stem)
            count = f"{len(hits)} passage{'s' * (len(hits) > 1)} by {answer.mode} search"
            items = (_hit(hit, params, served.name, wanted, stem, answer.state.store.words_by) for hit in hits)
            took = f" in {answer.took_ms['total']:.0f} ms"
            return [el("p", count + took, class_="count", role="status"), *notes, el("ol", *items, id="hits")]

        return await self._service.answer(served, [params["q"]], search, shown)

    async def _narrowing(self, served: Served, params: Params) -> Tree | None:
        """Fields that tell passages apart, each value a link that adds a condition."""
        groups = []
        for field, counted in await self._offered(served):
            links = [
                el("li", _adding(params, added, el("span", _short(value)), el("small", f"{count:,}")))
                for value, added, count in counted
            ]
            groups.append(el("section", el("h2", printable(field)), el("ul", *links)))
        if not groups:
            return None
        what = el("p", "Passages of the index, not of the hits, that have each:", class_="of")
        return el("aside", el("details", el("summary", "Narrow down"), what, *groups), aria_label="Conditions")

    async def _offered(self, served: Served) -> list[Facet]:
        """What an answer can be narrowed down by, counted once in a generation."""
        if served.state is None:
            return []
        generation = served.state.store.manifest.generation
        if self._facets.get(served.name, (-1,))[0] != generation:
            found = await run(self._service.pools.reading, facets_of, served.state)
            self._facets[served.name] = generation, found
        return self._facets[served.name][1]

    async def document(self, request: Request) -> Response:
        """GET /document: a document, with the chunk that was found."""
        params = {name: request.query_params.get(name, "") for name in ("index", "id", "chunk", "q")}
        served = self._service.served(params["index"] or next(iter(self._service.indexes)))
        query = urlencode({name: params[name] for name in ("index", "q") if params[name]})
        header = el("header", _BRAND, el("a", "← back to the hits", class_="back", href=f"/?{query}" if query else "/"))
        try:
            state = served.current
            chunks = await run(self._service.pools.reading, lambda: rows(state.store, document=params["id"]))
        except (RagidxError, NotReadyError) as fault:
            problem, _, status = _fault(fault, self._service)
            main = el("main", _message(problem, "", kind="missing"), class_="document")
            return _html("ragidx", el("body", header, main), 404 if status == 422 else status)
        at = next((number for number, row in enumerate(chunks) if row.chunk_id == params["chunk"]), 0)
        first, last = max(0, at - _AROUND), min(len(chunks), at + _AROUND + 1)
        stem = stem_of(state.stemmer)
        wanted = stems_of(params["q"], stem)
        parts, heading = [], ""
        for row in chunks[first:last]:
            text, is_hit = printable_text(row.text), row.chunk_id == params["chunk"]
            new, heading = "" if row.heading == heading else row.heading, row.heading
            shown = el("p", *(marked(text, wanted, stem) if is_hit else [text]))
            attributes = {"class_": "chunk found", "id": "found"} if is_hit else {"class_": "chunk"}
            parts.append(el("section", _heading(new), shown, **attributes))
        is_whole = (first, last) == (0, len(chunks))
        note = None if is_whole else el("p", f"parts {first + 1} to {last} of {len(chunks)}", class_="count")
        title = printable(params["id"])
        main = el("main", el("h1", title), _fields(chunks[0]), note, *parts, class_="document")
        return _html(title, el("body", header, main))


def _hit(hit: Hit, params: Params, index: str, wanted: Set[str], stem: Stem, words: str) -> Tree:
    part = passage(hit, params["q"], stem)
    place = place_in(hit.doc_id, part.line, part.page)
    link = "/document?" + urlencode({"index": index, "id": hit.doc_id, "chunk": hit.chunk_id, "q": params["q"]})
    scores = {"score": hit.score, "cosine": hit.dense, words: hit.bm25}
    shown = [f"{name} {value:.3f}" for name, value in scores.items() if value is not None]
    others = list(dict.fromkeys(printable(span.doc_id) for span in hit.also if span.doc_id != hit.doc_id))
    also = f"also in {', '.join(others[:3])}{' …' * (len(others) > 3)}"
    source = el("a", printable(hit.doc_id) + place, href=link)
    return el(
        "li",
        el("div", source, el("span", "  ".join(shown), class_="scores"), class_="head"),
        _heading(hit.heading),
        el("p", *marked(part.text, wanted, stem), class_="passage"),
        el("p", also, class_="also") if others else None,
        el("p", *_chips(hit, params), el("a", "more", class_="more", href=link), class_="chips"),
    )


def _chips(hit: Hit, params: Params) -> Iterator[Tree]:
    """Metadata of a hit, each a link that adds a condition."""
    own = {name: value for name, value in fields_of(hit.metadata).items() if name not in FILE_FIELDS}
    asks = {
        name: value
        for name, value in own.items()
        if isinstance(value, str | int | list) and len(str(value)) < 200 and value != []
    }
    for name, value in itertools.islice(asks.items(), _CHIPS):
        label = ", ".join(value) if isinstance(value, list) else value
        yield _adding(params, has_value(name, value), el("b", printable(name)), f" {_short(label)}", class_="chip")


def _adding(params: Params, added: Condition, *children: Tree, **own: str) -> Tree:
    """A link to the page with one more condition; one that is wrong goes."""
    before = params["where"].strip()
    try:
        tree = condition(before)
        is_there = set(_parts(added)) <= set(_parts(tree))
        where = before if is_there else str(tree & added)
    except QueryError:
        where = str(added)
    query = urlencode({name: value for name, value in {**params, "where": where}.items() if value})
    return el("a", *children, href=f"/?{query}", data_add=str(added), **own)


def _parts(one: Condition) -> tuple[Condition, ...]:
    return one.parts if one.op == "and" else (one,)


def _fault(fault: Exception, service: Service) -> tuple[str, str, int]:
    """What a person reads of a failure, where it is, and the status."""
    if isinstance(fault, NotReadyError):
        return " ".join(_OPENING), "", 503
    if isinstance(fault, ValidationError):
        message, where, _ = bodies.wrong(fault)
        return f"{message}.", "condition" if where == "where" else "", 422
    seen = refused(fault, service) if isinstance(fault, RagidxError) else fault
    assert isinstance(seen, RefusedError)
    first, _, place = seen.message.partition("\n")
    if place:
        return f"{first}\n{textwrap.dedent(place)}\n{seen.hint}", seen.where, seen.status
    return f"{seen.message}. {seen.hint}".rstrip(". ") + ".", seen.where, seen.status


def _message(text: str, more: str, *, kind: str = "empty") -> Tree:
    return el("div", el("p", text), el("p", more) if more else None, class_=f"message {kind}")


def _about(served: Served) -> Tree:
    if served.state is None:
        return el("p", "opening …", class_="about")
    manifest = served.state.store.manifest
    stale = " · a newer state cannot be shown" * bool(served.problem)
    return el("p", f"{manifest.n_documents:,} documents · {manifest.n_chunks:,} passages{stale}", class_="about")


def _heading(text: str) -> Tree | None:
    return el("p", printable(text), class_="heading") if text else None


def _field(name: str, label: str, params: Params, example: str, wrong: str) -> list[Tree]:
    own = {"type": "search", "required": "required", "autofocus": "autofocus"} if name == "q" else {"type": "text"}
    own |= {"aria_invalid": "true", "aria_describedby": "fault"} if name == wrong else {}
    own |= {"placeholder": example, "autocomplete": "off", "spellcheck": "false"}
    return [el("label", label, for_=name), el("input", id=name, name=name, value=params[name], **own)]


def _select(name: str, label: str, known: Sequence[str], chosen: str, unset: str = "") -> Tree:
    options = [el("option", one or unset, value=one, selected="selected" if one == chosen else None) for one in known]
    return el("div", el("label", label, for_=name), el("select", *options, id=name, name=name))


def _short(value: object) -> str:
    text = printable(", ".join(value) if isinstance(value, list) else str(value))
    return text if len(text) <= _CHIP_CHARS else text[: _CHIP_CHARS - 1] + "…"


def _fields(row: Row) -> Tree:
    shown = {
        name: value
        for name, value in json_values(fields_of(row.metadata)).items()
        if name not in FILE_FIELDS and value is not None
    }
    pairs = (el("div", el("dt", printable(name)), el("dd", _short(value))) for name, value in shown.items())
    return el("dl", *pairs, class_="fields")


_OPENING = ("The index is being opened.", "Ask again in a moment.")
_BRAND = el("a", "ragidx", class_="brand", href="/")
_BUTTON = el("button", "Search", type="submit")


def _html(title: str, body: Tree, status: int = 200) -> Response:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", printable(title)),
        el("link", rel="icon", href="/icon.svg"),
        el("link", rel="stylesheet", href="/page.css"),
        el("script", type="module", src="/page.js"),
    )
    text = "<!doctype html>\n" + written(el("html", head, body, lang="en"))
    return Response(text, status, {"Content-Security-Policy": _POLICY}, "text/html; charset=utf-8")


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    data = (_FILES / name).read_bytes()

    async def answer(request: Request) -> Response:
        request.scope["state"]["route"] = f"/{name}"
        return Response(data, media_type=kind, headers={"Content-Security-Policy": _POLICY})

    return answer
