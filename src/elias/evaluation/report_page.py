"""A report as files: index.html, which opens without a network, and every chart and table by itself.

report/
    index.html          everything; charts are inside it
    NAME.svg, NAME.csv   each chart, and the numbers that it is drawn from
    metrics.csv          the table of metrics
    report.json          what was reported on, and the metrics; marks the folder as a report
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import InputError, RunError
from ..core.files import replacing, write_json
from ..core.version import __version__
from . import svg
from .figures import Cell, Figure, Table
from .report import Report
from .svg import escaped

FORMAT = 1
MARK = "report.json"
PAGE = "index.html"
MOST_SHOWN = 20  # rows of a table that the page shows too

WIDE = ("reliability", "figure-8", "figure-9")  # of two charts, or of many

# Colors and measures of the service's page.
STYLE = """:root {
  color-scheme: light dark;
  --paper: #f6f6f3; --card: #ffffff; --ink: #1c2326; --quiet: #566166; --line: #e2e1db;
  --accent: #0d6170; --warn: #8f3a10; --warn-soft: #fcece3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #13171a; --card: #1b2124; --ink: #e6eaeb; --quiet: #a2aeb3; --line: #2e373b;
    --accent: #6fc7d5; --warn: #f3a781; --warn-soft: #3a251b;
  }
}
* { box-sizing: border-box; }
html { font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
body { margin: 0; background: var(--paper); color: var(--ink); }
main { max-width: 76rem; margin: 0 auto; padding: 2rem clamp(1rem, 4vw, 2.5rem) 4rem; display: grid; gap: 1.25rem;
  grid-template-columns: minmax(0, 1fr); }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; line-height: 1.35; margin: 0 0 .6rem; overflow-wrap: anywhere; }
p { margin: .5rem 0 0; max-width: 75ch; }
a { color: var(--accent); text-underline-offset: .18em; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
section, figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 14px;
  padding: 1.3rem 1.4rem; min-width: 0; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .3rem 1.2rem; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
figcaption p { font-size: .92rem; overflow-wrap: anywhere; }
.quiet, .files { color: var(--quiet); font-size: .88rem; }
.notice { background: var(--warn-soft); color: var(--warn); border-radius: 9px; padding: .65rem 1rem; max-width: none;
  overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
details { margin-top: .6rem; font-size: .92rem; }
summary { cursor: pointer; color: var(--quiet); width: max-content; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1rem 2.5rem; }
.charts svg { display: block; width: 100%; max-width: 520px; height: auto; margin: 0 auto; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(138px, 1fr)); gap: 1rem; }
.panels svg { width: 100%; height: auto; display: block; max-width: 240px; }
footer { color: var(--quiet); font-size: .88rem; }
@media (min-width: 62rem) {
  main { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: stretch; }
  .wide { grid-column: 1 / -1; }
}
@media print { section, figure { break-inside: avoid; } }"""


def check_output(output: Path, *, force: bool) -> None:
    """Refuse a place where no report can go, before anything is computed."""
    if output.name in ("", ".."):
        raise InputError(f'"{output}" is not a name for a report; write -o FOLDER')
    if not output.exists():
        return
    if not force:
        raise RunError(f"{output} exists; choose another -o, or pass --force to replace it")
    if not (output / MARK).is_file():
        raise RunError(f"{output} exists and is not a report, so --force does not replace it; choose another -o")


def write_report(report: Report, output: Path, *, force: bool = False) -> None:
    """The folder of a report; it appears whole, or not at all."""
    check_output(output, force=force)
    with replacing(output) as part:
        part.mkdir()
        _write(part / PAGE, page(report))
        write_table(part / "metrics.csv", report.metrics)
        for figure in report.figures:
            for name, table in figure.tables.items():
                write_table(part / f"{name}.csv", table)
            for drawing in figure.drawings:
                _write(part / f"{drawing.name}.svg", svg.standalone(drawing.svg))
        metrics = {
            str(row[0]): dict(zip(report.metrics.columns[1:], row[1:], strict=True)) for row in report.metrics.rows
        }
        missing = {figure.name: figure.missing for figure in report.figures if figure.missing}
        about = {"format": FORMAT, "elias": __version__, "facts": dict(report.facts), "notes": report.notes}
        write_json(part / MARK, {**about, "metrics": metrics, "missing": missing})


def _write(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8", errors="backslashreplace")


def write_table(path: Path, table: Table) -> None:
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows([_cell(cell) for cell in row] for row in table.rows)


def _cell(cell: Cell) -> str:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.6g}"
    return str(cell)


# -- the page ---------------------------------------------------------------------------------------------------------


def page(report: Report) -> str:
    """The whole page."""
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(report.title)}</title>\n<style>\n{STYLE}\n{svg.STYLE}\n</style>\n</head>\n"
    )
    facts = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in report.facts)
    notes = "".join(f'<p class="notice">{escaped(note)}</p>' for note in report.notes)
    body = [
        f'<h1 class="wide">{escaped(report.title)}</h1>',
        f"<section><h2>The model</h2><dl>{facts}</dl>{notes}</section>",
        f"<section><h2>Metrics in percent</h2>{''.join(_metrics(report.metrics))}"
        f'<p class="files">{_link("metrics.csv")}</p></section>',
        *(_figure(figure) for figure in report.figures),
        f'<footer class="wide">Made by elias {escaped(__version__)}. Numbers of the figures are those of the paper: '
        "Gupta et al., ELIAS: End-to-End Learning to Index and Search in Large Output Spaces, NeurIPS 2022.</footer>",
    ]
    joined = "\n".join(body)
    return f"{head}<body>\n<main>\n{joined}\n</main>\n</body>\n</html>\n"


def _metrics(table: Table) -> Iterator[str]:
    """The metrics with a line each, so that they fit beside the facts and on a phone."""
    head = "".join(f'<th scope="col">{escaped(str(row[0]))}</th>' for row in table.rows)
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="Metrics"><table><tr><td></td>{head}</tr>'
    for place, name in enumerate(table.columns[1:], start=1):
        cells = "".join(f"<td>{row[place]:.2f}</td>" for row in table.rows)
        yield f'<tr><th scope="row">{name}</th>{cells}</tr>'
    yield "</table></div>"


def _figure(figure: Figure) -> str:
    panels = [panel for drawing in figure.drawings for panel in drawing.panels]
    drawn = f'<div class="charts">{"".join(drawing.svg for drawing in figure.drawings)}</div>'
    if panels:
        drawn = f'<div class="panels">{"".join(panels)}</div>'
    if figure.missing:
        drawn = f'<p class="notice">{escaped(figure.missing)}</p>'
    notes = "".join(f'<p class="quiet">{escaped(note)}</p>' for note in figure.notes)
    tables = "".join(_table(name, table) for name, table in figure.tables.items() if len(table.rows) <= MOST_SHOWN)
    files = [*(f"{one.name}.svg" for one in figure.drawings), *(f"{name}.csv" for name in figure.tables)]
    links = f'<p class="files">{" · ".join(map(_link, files))}</p>' if files else ""
    wide = ' class="wide"' if figure.name in WIDE else ""
    caption = f"<figcaption><p>{escaped(figure.caption)}</p>{notes}{tables}{links}</figcaption>"
    return f'<figure{wide} id="{figure.name}"><h2>{escaped(figure.title)}</h2>\n{drawn}\n{caption}</figure>'


def _link(file: str) -> str:
    return f'<a href="{file}">{file}</a>'


def _table(name: str, table: Table) -> str:
    """A small table behind a click: the same numbers for those who do not see the chart."""
    head = "".join(f'<th scope="col">{escaped(column)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escaped(_short(cell))}</td>' for cell in row)}</tr>" for row in table.rows)
    inside = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><tr>{head}</tr>{rows}</table></div>'
    )
    return f"<details><summary>Numbers: {name}</summary>{inside}</details>"


def _short(cell: Cell) -> str:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
