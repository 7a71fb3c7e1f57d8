"""Charts are XML, their marks stand where the numbers are, and whatever a label is called does no harm."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from elias.evaluation import svg
from elias.evaluation.svg import Axis, Dots, Series, Text

NAMESPACE = "{http://www.w3.org/2000/svg}"
TEXT = Text("name", "A title", "A <description> & more")


def parse(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.standalone(drawing))


def test_ticks_are_round_numbers() -> None:
    assert svg.round_ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert svg.round_ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert svg.round_ticks(0, 13) == [0, 5, 10]
    assert svg.powers_of_ten(0.7, 1000) == [1, 10, 100, 1000]
    assert svg.rounded_up(11.8) == 15
    assert svg.rounded_up(15) == 15
    assert svg.rounded_up(0) == 1
    assert [svg.number_text(n) for n in (0.25, 40, 1000, 20_000, 3e6)] == ["0.25", "40", "1k", "20k", "3M"]


def test_points_of_a_line() -> None:
    x, y = Axis("x", 0, 10), Axis("y", 0, 50)
    root = parse(svg.line_chart(TEXT, x, y, [Series("one", [0, 5, 10], [0, float("nan"), 50])]))
    line = next(one for one in root.iter(f"{NAMESPACE}polyline"))
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    width, height = svg.WIDTH - svg.LEFT - svg.RIGHT, svg.HEIGHT - svg.TOP - svg.BOTTOM
    assert len(points) == 2, "NaN is not drawn"
    assert points[1][0] - points[0][0] == pytest.approx(width, abs=0.02)
    assert points[0][1] - points[1][1] == pytest.approx(height, abs=0.02)


def test_heights_of_bars() -> None:
    series = [Series("one", [1, 2], [3, 6]), Series("two", [1, 2], [1.5, 0], 1)]
    root = parse(svg.bar_chart(TEXT, Axis("x", 0.5, 2.5, ticks=(1, 2)), Axis("y", 0, 6), series))
    heights = [
        float(g[1].attrib["height"]) for g in root.iter(f"{NAMESPACE}g") if g.find(f"{NAMESPACE}title") is not None
    ]
    assert heights == pytest.approx([h * (svg.HEIGHT - svg.TOP - svg.BOTTOM) / 6 for h in (3, 6, 1.5)], abs=0.02)


def test_every_chart_has_a_title_and_a_description() -> None:
    for drawing in (
        svg.histogram(TEXT, Axis("x", 0, 1), Axis("y", 0.7, 10, log=True), [0, 0.5, 1], [0, 7]),
        svg.scatter_panel(
            TEXT, ("a", "b"), [Dots("c", np.array([[0, 1.0]]), "c4"), Dots("d", np.zeros((2, 2)), "own")], 2
        ),
    ):
        root = parse(drawing)
        assert root.findtext(f"{NAMESPACE}title") == TEXT.title
        assert root.findtext(f"{NAMESPACE}desc") == TEXT.description
        assert root.attrib["aria-labelledby"] == "name-title name-desc"


@pytest.mark.parametrize("name", ["</svg><script>", "a\x00b\x1f", "\ud800", "图书馆" * 20, 'quote " & <', ""])
def test_names_that_are_no_xml(name: str) -> None:
    dots = [Dots(name, np.zeros((1, 2)), "c0")]
    panel = svg.scatter_panel(Text("x", name, name), (name, name), dots, 1)
    root = ElementTree.fromstring(svg.standalone(svg.composed(TEXT, [panel, panel])).encode("utf-8"))
    assert not list(root.iter(f"{NAMESPACE}script"))


def test_long_names_are_cut() -> None:
    assert svg.cut("short", 100) == "short"
    assert len(svg.cut("x" * 100, 64)) == 10
    assert len(svg.cut("图" * 100, 64)) == 5, "wide letters count twice"
