"""Charts of Office: titles, and a row for each category."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from ragidx.corpora.left_out import Tally
from ragidx.corpora.readers.office.charts import chart_lines

from ..markers.office import drawn, nested, part


def points(*texts: str) -> str:
    return "".join(f'<c:pt idx="{at}"><c:v>{text}</c:v></c:pt>' for at, text in enumerate(texts))


def series(name: str, labels: str, values: str) -> str:
    named = nested("c:tx c:strRef c:strCache", points(name))
    return nested("c:ser", f"{named}<c:cat>{labels}</c:cat><c:val>{values}</c:val>")


@pytest.mark.parametrize(
    ("inner", "lines", "kinds"),
    [
        (nested("c:title c:tx c:rich", drawn("Depths") + drawn("in metres")), ["Depths", "in metres"], {}),
        (
            series("deep", points("Como", "Baikal"), points("425.0", "1642"))
            + series("wide", points("Como", "Baikal"), points("4")),
            ["| deep | wide", "Como | 425 | 4", "Baikal | 1642 |"],
            {},
        ),
        (
            series("a", nested("c:lvl", points("May")) + nested("c:lvl", points("2025")), points("1")),
            ["| a", "2025 May | 1"],
            {},
        ),
        (series("cloud", points("one"), points(*["1"] * 2001)), ["| cloud", "one |"], {"numbers of charts": 2001}),
        (nested("c:ser c:bubbleSize c:numRef c:numCache", points("1", "2")), [], {"numbers of charts": 2}),
        (nested("c:ser c:extLst c:ext x:dlblRangeCache", points("a label")), ["a label"], {}),
        (nested("c:ext x:filteredSeries c:tx c:v", "not shown"), [], {"hidden words": 2}),
        ("<x:f>Sheet1!$A$1</x:f><x:new>loose words</x:new>", [], {"words of unknown elements": 2}),
        (
            nested("x:data", "<x:strDim><x:lvl><x:pt>north</x:pt><x:pt idx='1'>south</x:pt></x:lvl></x:strDim>")
            + nested("x:data x:numDim x:lvl x:pt", "7")
            + nested("x:series x:tx x:txData x:v", "sales"),
            ["north | south", "sales"],
            {"numbers of charts": 1},
        ),
    ],
)  # fmt: skip
def test_lines_of_a_chart(inner: str, lines: list[str], kinds: dict[str, int]) -> None:
    left = Tally()

    assert chart_lines(fromstring(part("c:chartSpace", inner)), left) == lines
    assert {kind: count for kind, (count, _) in left.items()} == kinds
