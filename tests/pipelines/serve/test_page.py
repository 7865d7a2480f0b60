"""The page: without script by its HTML, and in a real browser; hostile documents stay text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import ragidx
from ragidx.pipelines.index import Index
from ragidx.pipelines.serve.facets import facets_of, has_value
from ragidx.pipelines.serve.page import _adding

from .conftest import TEXTS, Running, running, until

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> mill \u202edlrow"
LINK = "javascript:alert(3)"
TAGS = {"html", "head", "meta", "title", "link", "script", "body", "header", "a", "p", "form", "div", "label", "input"}
TAGS |= {"button", "select", "option", "aside", "details", "summary", "section", "h2", "ul", "li", "span", "small"}
TAGS |= {"main", "ol", "mark", "b", "pre", "h1", "dl", "dt", "dd"}


class Page(HTMLParser):
    """What a page has: elements with attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self, name: str = "href") -> list[str]:
        return [own[name] or "" for tag, own in self.elements if tag == "a" and name in own]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of a document that would like to be markup."""
    path = tmp_path_factory.mktemp("hostile") / "index"
    with Index.create(path) as made:
        made.add([ragidx.Document(HOSTILE, HOSTILE, {"<b>": HOSTILE, "link": LINK, "lang": n}) for n in ("en",)])
        made.add([ragidx.Document("other", "Another mill.", {"<b>": "x", "lang": "</span><script>"})])
    with running({"docs": path}) as found:
        yield found


def test_a_question_without_script(served: Running) -> None:
    answer = served.ask("GET", "/?q=who+signed+the+lease%3F")
    page = Page(answer.body)
    assert answer.status == 200
    assert "The lease of the mill was signed by Anna Smith." in page.text
    assert "4 passages by hybrid search" in page.text
    assert "<mark>signed</mark>" in answer.body
    assert ("input", "who signed the lease?") in [(tag, own.get("value")) for tag, own in page.elements]
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert not [own for _, own in page.elements if any(name == "style" or name.startswith("on") for name in own)]


def test_its_states(served: Running) -> None:
    assert "Ask a question." in served.ask("GET", "/").body
    assert "No passage was found. Try other words." in Page(
        served.ask("GET", "/?q=zzz&mode=lexical").body
    ).text.replace("found.Try", "found. Try")
    wrong = served.ask("GET", "/?q=mill&where=yaer+%3E+1")
    assert wrong.status == 422
    assert "unknown field &#x27;yaer&#x27;" in wrong.body
    assert 'role="alert"' in wrong.body
    [field] = [own for tag, own in Page(wrong.body).elements if tag == "input" and own.get("aria-invalid")]
    assert (field["name"], field["aria-describedby"]) == ("where", "fault")
    assert 'id="fault"' in wrong.body
    assert re.search(r"<pre>yaer &gt; 1\n\^.*</pre>", wrong.body, re.DOTALL)
    assert served.ask("GET", f"/?q={'a' * 10_001}").status == 422
    assert served.ask("GET", "/?q=mill&mode=fast").status == 422
    assert served.ask("GET", "/?q=mill&index=other").status == 404


def test_a_chip_becomes_a_condition(served: Running) -> None:
    page = Page(served.ask("GET", "/?q=mill&where=year+%3E+1").body)
    added = {own["data-add"] or "": own["href"] or "" for tag, own in page.elements if "data-add" in own}
    assert 'subject == "law"' in added
    assert parse_qs(urlsplit(added['subject == "law"']).query)["where"] == ['year > 1 and subject == "law"']
    assert 'tags contains "insects" and tags contains "maths"' in added
    for link in added.values():
        assert served.ask("GET", link).status == 200


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('subject == "lawful"', 'subject == "lawful" and subject == "law"'),
        ('year == 1 OR subject == "x"', '(year == 1 or subject == "x") and subject == "law"'),
        ("year = 1", 'subject == "law"'),
        ('year > 1 and subject == "law"', 'year > 1 and subject == "law"'),
    ],
)
def test_a_condition_is_added_once_and_to_all_of_it(before: str, after: str) -> None:
    link = _adding({"q": "mill", "where": before}, ragidx.field("subject") == "law", "law")[1]["href"]
    assert parse_qs(urlsplit(link).query)["where"] == [after]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", 'a "b" \\ c\n\u2028'),
        ("a b", "x"),
        ("in", "x"),
        ("1st", "x"),
        ("caf\u00e9", True),
        ("n", -3),
        ("t", ["a", '"']),
    ],
)
def test_a_condition_of_any_value(tmp_path: Path, field: str, value: Any) -> None:
    with Index.create(tmp_path / "index") as made:
        made.add([ragidx.Document("a", "one", {field: value}), ragidx.Document("b", "two")])
        assert [document.id for document in made.documents(where=has_value(field, value))] == ["a"]


@pytest.fixture(scope="module")
def of_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two folders, with fields that all, some and few documents have, and values of several lines."""
    folder, long = tmp_path_factory.mktemp("files"), "a value that is longer than the column at the side of the page "
    for number in range(44):
        where = folder / ("letters" if number % 2 else "talks") / ("old" if number % 4 == 1 else "")
        where.mkdir(parents=True, exist_ok=True)
        name = f"{number}.{'txt' if number % 8 == 7 else 'md'}"
        about = f"kind: {long + str(number % 3)}\nday: {2001 + number % 4}-05-{1 + number % 28:02}\nn: {number}\n"
        about += "rare: yes\n" if number == 0 else "rare: no\n" if number == 4 else ""
        about += "half: one\n" if number % 4 == 0 else "half: two\n" if number % 4 == 2 else ""
        (where / name).write_text(f"---\n{about}---\nThe mill of number {number}.")
    ragidx.build({"letters": folder / "letters", "talks": folder / "talks"}, folder / "index")
    return folder / "index"


def test_what_an_answer_is_narrowed_down_by(of_files: Path) -> None:
    with Index(of_files) as opened:
        facets = facets_of(opened.searcher)
        assert [facet.field for facet in facets] == ["file.source", "file.ext", "file.folder", "day", "kind", "half"]
        for facet in facets:
            for _, added, count in facet.values:
                assert len(opened.searcher.search(["mill"], k=1000, where=added, fold=False)[0]) == count
    of = {facet.field: [(shown, count) for shown, _, count in facet.values] for facet in facets}
    assert of["file.source"] == [("letters", 22), ("talks", 22)]
    assert of["file.ext"] == [(".md", 39), (".txt", 5)]
    assert of["file.folder"] == [("talks", 22), ("(top)", 11), ("old", 11)]
    assert of["day"] == [("2004", 6), ("2003", 11), ("2002", 11), ("2001", 11)]
    assert of["half"] == [("one", 11), ("two", 11)]


def test_the_page_says_what_its_words_and_counts_are(served: Running, of_files: Path, tmp_path: Path) -> None:
    with running({"files": of_files}) as other:
        for service in (served, other):
            page = Page(service.ask("GET", "/?q=mill").body)
            [example] = [own["placeholder"] or "" for _, own in page.elements if own.get("id") == "where"]
            assert service.ask("GET", f"/?{urlencode({'q': 'mill', 'where': example})}").status == 200
            assert "automatic (hybrid)" in page.text
            assert "Passages of the index, not of the hits, that have each:" in page.text
    assert example == 'file.source == "letters"'
    with Index.create(tmp_path / "plain") as made:
        made.add([ragidx.Document("a", "one mill")])
    with running({"plain": tmp_path / "plain"}) as plain:
        page = Page(plain.ask("GET", "/?q=mill").body)
    assert [own["placeholder"] for _, own in page.elements if own.get("id") == "where"] == [""]
    assert "Narrow down" not in page.text


def test_more_opens_the_document_at_the_passage(served: Running) -> None:
    page = Page(served.ask("GET", "/?q=wheel+of+the+mill").body)
    [first, *_] = [link for link in page.links() if link.startswith("/document")]
    opened = served.ask("GET", first)
    assert opened.status == 200
    assert 'class="chunk found"' in opened.body
    assert "Its " in Page(opened.body).text
    assert served.ask("GET", "/document?id=nothing").status == 404
    assert served.ask("GET", "/document").status == 404


@pytest.mark.parametrize("place", ["/?q=mill", "/document?id=other", "/"])
def test_hostile_documents_stay_text(hostile: Running, place: str) -> None:
    page = Page(hostile.ask("GET", place).body)
    assert {tag for tag, _ in page.elements} <= TAGS
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 1
    assert all(link.startswith("/") for link in page.links())
    assert "\u202e" not in page.text


def test_a_tree_for_the_script(hostile: Running) -> None:
    answer = hostile.ask("GET", "/results.json?q=mill")
    source = (Path(ragidx.__file__).parent / "pipelines" / "serve" / "page.js").read_text()
    tags = set(re.findall(r'"([a-z0-9]+)"', source.split("const TAGS")[1].split("]);")[0]))
    attributes = set(re.findall(r'"([a-z-]+)"', source.split("const ATTRIBUTES")[1].split("]);")[0]))

    def walk(tree: Any) -> None:
        if isinstance(tree, str):
            return
        tag, own, *children = tree
        assert tag in tags
        assert own.keys() <= attributes
        for child in children:
            walk(child)

    walk(answer.body["tree"])
    for word in ("innerHTML", "insertAdjacentHTML", "outerHTML", "eval", "document.write", "DOMParser"):
        assert word not in source


# -- a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
        )
        yield found
        found.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A page whose console is empty at the end."""
    context = browser.new_context()
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda fault: said.append(str(fault)))
    page.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
    yield page
    context.close()
    assert [line for line in said if "status of 422" not in line] == []


@pytest.mark.slow
def test_it_answers_while_a_person_types(tab: Any, served: Running) -> None:
    tab.goto(served.url)
    tab.get_by_role("searchbox", name="Question").press_sequentially("signed the lease")
    tab.locator("#hits li").first.wait_for()
    tab.get_by_text("Anna Smith").first.wait_for()
    until(lambda: tab.evaluate("location.search") == "?q=signed+the+lease")
    tab.get_by_label("Condition").first.fill("yaer == 1")
    tab.get_by_role("alert").wait_for()
    assert tab.locator("#where").get_attribute("aria-describedby") == "fault"
    tab.locator("#where").fill("")
    tab.locator("#hits a.chip", has_text="law").first.click()
    until(lambda: tab.locator("#where").input_value() == 'subject == "law"')
    until(lambda: tab.locator("#hits li").count() == 1)
    tab.go_back()
    until(lambda: tab.locator("#where").input_value() == "")
    tab.locator("a.more").first.click()
    tab.locator(".chunk.found").wait_for()
    tab.get_by_text("back to the hits").click()
    tab.locator("#hits li").first.wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 360])
def test_counts_beside_values_of_several_lines_are_one_line(tab: Any, of_files: Path, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    with running({"files": of_files}) as served:
        tab.goto(f"{served.url}/?q=mill")
        tab.locator("#hits li").first.wait_for()
        tab.evaluate("document.querySelector('aside details').open = true")
        lines = "one => { const all = document.createRange(); all.selectNodeContents(one); "
        lines += "return all.getClientRects().length }"
        counts, values = (
            tab.evaluate(f"[...document.querySelectorAll('aside {what}')].map({lines})")
            for what in ("small", "li span")
        )
        assert set(counts) == {1}
        assert max(values) > 1
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_by_the_keyboard_alone(tab: Any, served: Running) -> None:
    tab.goto(f"{served.url}/?q=mill")
    tab.locator("body").click(position={"x": 1, "y": 1})
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "q"
    tab.keyboard.press("Control+A")
    tab.keyboard.type("bees")
    tab.keyboard.press("Enter")
    tab.get_by_text(TEXTS["bees"][0][-10:]).first.wait_for()
    assert tab.evaluate("[...document.querySelectorAll('input,select')].every(field => field.labels.length === 1)")


@pytest.mark.slow
def test_hostile_documents_in_a_browser(tab: Any, hostile: Running) -> None:
    tab.goto(hostile.url)
    tab.get_by_role("searchbox", name="Question").fill("<img src=x onerror=alert(1)> mill")
    tab.get_by_role("button", name="Search").click()
    tab.locator("#hits li").first.wait_for()
    assert tab.locator("#results img, #results script, #results [onerror]").count() == 0
    assert "<script>alert(1)</script>" in tab.locator("#results").inner_text()
    tab.locator("a.more").first.click()
    tab.locator(".chunk.found").wait_for()
    assert tab.locator("main img, main script").count() == 0


@pytest.mark.slow
def test_another_site_in_the_browser_reaches_nothing(browser: Any, served: Running) -> None:
    page = browser.new_page()
    answer = page.goto(f"http://evil.example:{served.port}/")
    assert answer.status == 421
    page.goto("data:text/html,<p>x")
    sent = "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}"
    asked = f"fetch('{served.url}/v1/search', {sent})"
    assert page.evaluate(f"{asked}.then(() => 'reached', () => 'refused')") == "refused"
    page.close()


@pytest.mark.slow
def test_a_new_state_and_an_end_are_said(browser: Any, own_index: Path) -> None:
    page = browser.new_page()
    with running({"own": own_index}) as served:
        page.goto(f"{served.url}/?q=mill")
        page.get_by_role("searchbox", name="Question").fill("mill and")
        until(lambda: page.evaluate("location.search").endswith("mill+and"))
        page.locator("#hits li").first.wait_for()
        with Index(own_index) as opened:
            opened.add([ragidx.Document("comet", "A comet over the mill.")])
            generation = opened.generation
        until(lambda: served.search("mill").body["generation"] == generation)
        page.get_by_role("searchbox", name="Question").fill("mill and comet")
        page.get_by_text("The index was updated").wait_for()
    page.get_by_role("searchbox", name="Question").fill("mill again")
    page.get_by_text("The service does not answer.").wait_for()
    page.close()
