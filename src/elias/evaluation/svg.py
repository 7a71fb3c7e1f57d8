"""Charts as SVG: lines, grouped bars, a histogram, small scatter plots. Nothing is loaded and no program runs in them.

A chart is one <svg> element with a title and a description for screen readers. It is drawn with classes only; `STYLE`
gives them colors, for a light and for a dark background (prefers-color-scheme). `standalone` puts the style into the
element, so that it can be a file. Colors are written out, not as CSS variables, which most programs other than
browsers cannot read. Series differ in lightness, dashes and marks too, not in hue alone.

In: numbers and names. Out: text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple
from unicodedata import east_asian_width

import numpy as np

WIDTH, HEIGHT = 420, 270  # of the area around the plot, without the legend
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 10, 44
LETTER = 6.4  # mean width of a letter at 12 px
LEGEND_LINE = 20
PANEL, PANEL_PLOT, PANEL_TEXT, PANEL_LINE = (
    180,
    150,
    40,
    15,
)  # a small scatter plot: width, plot, names, line of a legend
GAP = 12
MOST_MARKS = 20  # points of a line that all get a mark
# (light, dark). The first three lines are those of the service's page, the others were chosen to differ for
# color-blind readers too: clusters are those of Okabe and Ito.
COLORS = {
    "paper": ("#ffffff", "#1b2124"), "ink": ("#1c2326", "#e6eaeb"), "quiet": ("#566166", "#a2aeb3"),
    "line": ("#e2e1db", "#2e373b"), "border": ("#8b9599", "#6c787d"),
    "s0": ("#0d6170", "#6fc7d5"), "s1": ("#d07a1f", "#f0a35e"), "s2": ("#8458b3", "#c4a1f0"),
    "c0": ("#0072b2", "#56b4e9"), "c1": ("#d98f00", "#e69f00"), "c2": ("#00805d", "#2fc79a"),
    "c3": ("#b8558c", "#dd94bb"), "c4": ("#7b7b7b", "#a6a6a6"),
}  # fmt: skip
DASHES = ("", "7 4", "2 4")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FILLED = ("paper", "s0", "s1", "s2", "c0", "c1", "c2", "c3", "c4")


def _rules(which: int) -> str:
    """The colors of one theme."""
    rules = [f".chart .{name} {{ fill: {COLORS[name][which]}; }}" for name in FILLED]
    rules += [f".chart .line.{name} {{ stroke: {COLORS[name][which]}; fill: none; }}" for name in ("s0", "s1", "s2")]
    ink, quiet, paper = (COLORS[name][which] for name in ("ink", "quiet", "paper"))
    rules += [
        f".chart text {{ fill: {quiet}; }}",
        f".chart .strong {{ fill: {ink}; }}",
        f".chart .grid {{ stroke: {COLORS['line'][which]}; }}",
        f".chart .axis, .chart .frame {{ stroke: {COLORS['border'][which]}; }}",
        f".chart .own {{ fill: {ink}; stroke: {paper}; }}",
    ]
    return "\n".join(rules)


STYLE = f""".chart {{ font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }}
.chart .strong {{ font-weight: 600; }}
.chart .grid, .chart .axis, .chart .frame {{ stroke-width: 1; fill: none; }}
.chart .line {{ stroke-width: 2.2; stroke-linejoin: round; }}
.chart .back {{ opacity: .65; }}
.chart .own {{ stroke-width: .8; }}
{_rules(0)}
@media (prefers-color-scheme: dark) {{
{_rules(1)}
}}"""


@dataclass(frozen=True)
class Text:
    """What a chart is called, and what it says to those who cannot see it."""

    name: str  # of its file; ids in the element start with it
    title: str
    description: str


@dataclass(frozen=True)
class Axis:
    title: str
    low: float
    high: float
    log: bool = False
    ticks: Sequence[float] | None = None  # default: round numbers

    def at(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        if self.log:
            return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        if self.ticks is not None:
            return list(self.ticks)
        return powers_of_ten(self.low, self.high) if self.log else round_ticks(self.low, self.high)


class Series(NamedTuple):
    """Points of a line, or heights of bars; NaN: nothing is drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 0  # s0, s1, s2; also its dashes and mark


class Dots(NamedTuple):
    """Points of one kind in a scatter plot."""

    name: str  # in the legend
    points: np.ndarray  # [n, 2], from 0 to 1
    kind: str  # c0 to c4, or own


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, roughly `about` of them."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def powers_of_ten(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


def rounded_up(value: float) -> float:
    """The end of an axis that holds `value`."""
    if not value > 0:
        return 1.0
    ticks = round_ticks(0.0, value)
    step = ticks[1] - ticks[0]
    return step * math.ceil(value / step - 1e-9)


# -- charts -----------------------------------------------------------------------------------------------------------


def line_chart(text: Text, x: Axis, y: Axis, series: Sequence[Series], *, diagonal: bool = False) -> str:
    """Lines with marks at some of their points; `diagonal`: where y = x."""
    head, top = _legend(series, lines=True) if len(series) > 1 else ([], 0)
    frame = _Frame(x, y, top)
    body = [frame.axes()]
    if diagonal:
        (x0, y0), (x1, y1) = (frame.place(end, end) for end in (max(x.low, y.low), min(x.high, y.high)))
        body.append(f'<path class="axis" stroke-dasharray="3 3" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>')
    for one in series:
        points = [(a, b) for a, b in zip(one.x, one.y, strict=True) if not math.isnan(b)]
        places = [frame.place(a, b) for a, b in points]
        path = " ".join(f"{a:.2f},{b:.2f}" for a, b in places)
        body.append(f'<polyline class="line s{one.color}" {_dashes(one.color)}points="{path}"/>')
        every = 1 if len(points) <= MOST_MARKS else round(len(points) / 10)
        for number in range(0, len(points), every):
            shown = f"{one.name}: {number_text(points[number][0])}, {number_text(points[number][1])}"
            body.append(_titled(mark(one.color, *places[number], 3.6), f"s{one.color}", shown))
    return _svg(text, WIDTH, HEIGHT + top, head + body)


def bar_chart(text: Text, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Bars around whole numbers of the x axis, those of several series side by side."""
    head, top = _legend(series, lines=False) if len(series) > 1 else ([], 0)
    frame = _Frame(x, y, top)
    body = [frame.axes()]
    unit = frame.width / (x.high - x.low)
    width = min(0.8 * unit / len(series), 26)
    for number, one in enumerate(series):
        shift = (number - len(series) / 2) * width
        for a, b in zip(one.x, one.y, strict=True):
            if not math.isnan(b) and b > 0:
                left, y_at = frame.place(a, b)
                bar = _bar(left + shift, y_at, width - 1, frame.bottom)
                body.append(_titled(bar, f"s{one.color}", f"{one.name}, {number_text(a)}: {number_text(b)}"))
    return _svg(text, WIDTH, HEIGHT + top, head + body)


def histogram(text: Text, x: Axis, y: Axis, edges: Sequence[float], counts: Sequence[float]) -> str:
    """One bar from edges[i] to edges[i + 1], counts[i] high; the y axis is logarithmic."""
    frame = _Frame(x, y, 0)
    body = [frame.axes()]
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count > 0:
            (left, top), (right, _) = frame.place(low, count), frame.place(high, count)
            shown = f"{number_text(low)} to {number_text(high)}: {count:,.0f}"
            body.append(_titled(_bar(left, top, right - left - 1, frame.bottom), "s0", shown))
    return _svg(text, WIDTH, HEIGHT, body)


def scatter_panel(text: Text, names: tuple[str, str], dots: Sequence[Dots], legend_lines: int) -> str:
    """A small scatter plot without axes, with two lines of names above and a legend of so many lines below."""
    height = PANEL_TEXT + PANEL_PLOT + GAP + PANEL_LINE * legend_lines + 4
    body = [
        f'<text class="strong" x="1" y="14">{escaped(cut(names[0], PANEL))}</text>',
        f'<text x="1" y="30">{escaped(cut(names[1], PANEL))}</text>',
        f'<rect class="frame" x=".5" y="{PANEL_TEXT}" width="{PANEL - 1}" height="{PANEL_PLOT}" rx="6"/>',
    ]
    inside = 8
    for kind in dots:
        own, shape = kind.kind == "own", 0 if kind.kind == "own" else int(kind.kind[1:])
        marks = []
        for a, b in kind.points.tolist():
            x = inside + a * (PANEL - 2 * inside)
            y = PANEL_TEXT + inside + (1 - b) * (PANEL_PLOT - 2 * inside)
            marks.append(mark(shape, x, y, 3.2 if own else 2.9))
        body.append(f'<g class="{kind.kind}{"" if own else " back"}">{"".join(marks)}</g>')
    for number, kind in enumerate(dots):
        y = PANEL_TEXT + PANEL_PLOT + GAP + PANEL_LINE * number + 2
        shape = 0 if kind.kind == "own" else int(kind.kind[1:])
        body.append(f'<g class="{kind.kind}">{mark(shape, 6, y, 3.6)}</g>')
        body.append(f'<text x="15" y="{y + 4}">{escaped(cut(kind.name, PANEL - 15))}</text>')
    return _svg(text, PANEL, height, body)


def composed(text: Text, drawings: Sequence[str], columns: int = 3) -> str:
    """Several charts of one size as one."""
    sizes = [_size(drawing) for drawing in drawings]
    width, height = max(w for w, _ in sizes), max(h for _, h in sizes)
    columns = min(columns, len(drawings))
    body = []
    for number, drawing in enumerate(drawings):
        x, y = GAP + number % columns * (width + 2 * GAP), GAP + number // columns * (height + GAP)
        own = sizes[number]
        body.append(drawing.replace("<svg ", f'<svg x="{x}" y="{y}" width="{own[0]}" height="{own[1]}" ', 1))
    rows = math.ceil(len(drawings) / columns)
    return _svg(text, columns * (width + 2 * GAP), rows * (height + GAP) + GAP, body)


def standalone(drawing: str) -> str:
    """A chart as the content of a file."""
    width, height = _size(drawing)
    sized = drawing.replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)
    start = sized.index(">") + 1
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{sized[:start]}<style>{STYLE}</style>{sized[start:]}\n'


# -- parts ------------------------------------------------------------------------------------------------------------


class _Frame:
    """The plot inside a chart, and its axes."""

    def __init__(self, x: Axis, y: Axis, top: float) -> None:
        self.x, self.y, self.top = x, y, TOP + top
        self.width, self.height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        self.bottom = self.top + self.height

    def place(self, x: float, y: float) -> tuple[float, float]:
        return LEFT + self.x.at(x) * self.width, self.bottom - self.y.at(y) * self.height

    def axes(self) -> str:
        right, middle = LEFT + self.width, self.top + self.height / 2
        parts = []
        for tick in self.y.marks():
            at = self.bottom - self.y.at(tick) * self.height
            parts.append(f'<path class="grid" d="M{LEFT} {at:.2f}H{right}"/>')
            parts.append(f'<text class="y-tick" x="{LEFT - 7}" y="{at + 4:.2f}" {_END}>{number_text(tick)}</text>')
        for tick in self.x.marks():
            at = LEFT + self.x.at(tick) * self.width
            parts.append(
                f'<text class="x-tick" x="{at:.2f}" y="{self.bottom + 17}" {_MIDDLE}>{number_text(tick)}</text>'
            )
        parts.append(f'<path class="axis" d="M{LEFT} {self.bottom}H{right}"/>')
        below = self.bottom + BOTTOM - 8
        parts.append(f'<text x="{LEFT + self.width / 2}" y="{below}" {_MIDDLE}>{escaped(self.x.title)}</text>')
        turned = f'transform="rotate(-90 12 {middle})"'
        parts.append(f'<text x="12" y="{middle + 4}" {turned} {_MIDDLE}>{escaped(self.y.title)}</text>')
        return "".join(parts)


_END, _MIDDLE = 'text-anchor="end"', 'text-anchor="middle"'


def mark(shape: int, x: float, y: float, r: float) -> str:
    """A circle, square, triangle, diamond or cross around a point."""
    if shape == 0:
        return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{r}"/>'
    if shape == 1:
        return f'<rect x="{x - r:.2f}" y="{y - r:.2f}" width="{2 * r}" height="{2 * r}"/>'
    if shape == 2:
        return f'<path d="M{x:.2f} {y - 1.2 * r:.2f}l{1.1 * r:.2f} {2 * r:.2f}h{-2.2 * r:.2f}z"/>'
    if shape == 3:
        d = f"{1.3 * r:.2f}"
        return f'<path d="M{x:.2f} {y - 1.3 * r:.2f}l{d} {d} -{d} {d} -{d} -{d}z"/>'
    arm = f"{0.8 * r:.2f}"
    corners = f"h{arm}v{arm}h{arm}v{arm}h-{arm}v{arm}h-{arm}v-{arm}h-{arm}v-{arm}h{arm}z"
    return f'<path d="M{x - 0.4 * r:.2f} {y - 1.2 * r:.2f}{corners}"/>'


def _bar(left: float, top: float, width: float, bottom: float) -> str:
    return f'<rect x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" height="{max(0.0, bottom - top):.2f}"/>'


def _titled(shape: str, kind: str, title: str) -> str:
    """A shape with its value, which browsers show under the pointer."""
    return f'<g class="{kind}"><title>{escaped(title)}</title>{shape}</g>'


def _dashes(color: int) -> str:
    return f'stroke-dasharray="{DASHES[color]}" ' if DASHES[color] else ""


def _legend(series: Sequence[Series], *, lines: bool) -> tuple[list[str], int]:
    """(its elements, its height): entries side by side, in as many lines as they need."""
    parts, x, y = [], LEFT, 12.0
    for one in series:
        width = 34 + LETTER * len(one.name) + 12
        if x > LEFT and x + width > WIDTH:
            x, y = LEFT, y + LEGEND_LINE
        if lines:
            path = f'<path class="line s{one.color}" {_dashes(one.color)}d="M{x} {y}h24"/>'
            parts.append(path + f'<g class="s{one.color}">{mark(one.color, x + 12, y, 3.6)}</g>')
        else:
            parts.append(f'<g class="s{one.color}"><rect x="{x + 6}" y="{y - 6}" width="14" height="12"/></g>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{escaped(one.name)}</text>')
        x += int(width)
    return parts, int(y) + 10


def _svg(text: Text, width: float, height: float, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{text.name}-title {text.name}-desc">'
        f'<title id="{text.name}-title">{escaped(text.title)}</title>'
        f'<desc id="{text.name}-desc">{escaped(text.description)}</desc>'
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>'
    )
    return f"{head}{''.join(body)}</svg>"


def _size(drawing: str) -> tuple[float, float]:
    _, _, width, height = drawing.split('viewBox="', 1)[1].split('"', 1)[0].split()
    return float(width), float(height)


def cut(text: str, width: float) -> str:
    """A text that fits a width, with an ellipsis where it is cut."""
    widths = [2 if east_asian_width(letter) in "WF" else 1 for letter in text]
    if sum(widths) * LETTER <= width:
        return text
    fits = np.searchsorted(np.cumsum(widths), width / LETTER - 1, side="right")
    return text[: int(fits)].rstrip() + "…"


def escaped(text: str) -> str:
    """A text inside HTML or XML, with a question mark in a diamond for what XML cannot hold."""
    return escape(NOT_XML.sub("\ufffd", text))


def number_text(value: float) -> str:
    """A number as an axis shows it: 0.25, 40, 1k, 10k."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    if abs(value) >= 1e3:
        return f"{value / 1e3:.3g}k"
    return f"{value:.4g}"
