"""The figures of a report: for each its numbers as tables, and the chart that is drawn from those tables.

    figure 3       distribution of the edge scores e, share of edges above a threshold
    figure 4       mean score of the true labels by decile: network p, ranker q, model
    figure 5       recall against the length of the list; contribution to R@100 by decile, stage 1 against stage 2
    figure 7a      share of the edges of stage 1 above a threshold
    figure 7b      mean number of clusters per label by decile
    figures 8, 9   t-SNE of the texts of labels with several strong edges, and with one
    reliability    probabilities against the share of right labels

The numbers are the paper's. A decile holds a tenth of the training pairs, the most frequent labels first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..core.metrics import CALIBRATED_LABELS, CalibrationBin, Decile
from ..core.predictions import PAD
from . import svg
from .edge_analysis import ASSIGNED, edge_histogram, share_above
from .label_maps import LabelMap
from .svg import Axis, Dots, Series, Text

HISTOGRAM_BINS = 40
SHARES_ABOVE = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
THRESHOLDS = np.round(np.arange(0.0, 1.0, 0.01), 2)  # scores end at 1, above which there is none
PROBABILITY_BINS = 20
DECILES = Axis("decile of label frequency (1: most frequent labels)", 0.4, 10.6, ticks=range(1, 11))
COLORS = {"stage 1": 1, "stage 2": 0, "network": 0, "network p": 0, "ranker q": 1}  # s0, s1; all others s2

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """A csv file: names of the columns, and rows. NaN is an empty cell."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]

    def column(self, name: str) -> list[float]:
        place = self.columns.index(name)
        return [float(row[place]) for row in self.rows]


@dataclass(frozen=True)
class Drawing:
    """One .svg file. `panels`: what it is composed of, where a page can lay it out by itself."""

    name: str
    svg: str
    panels: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    title: str
    caption: str
    tables: Mapping[str, Table] = field(default_factory=dict)  # by the name of their file, without .csv
    drawings: Sequence[Drawing] = ()
    notes: Sequence[str] = ()  # what a reader must know of these numbers
    missing: str = ""  # why there is no figure, and how to get it


class _Captions:
    EDGES = (
        "Look for most edges near 0 and a few near 1, which says that the index has decided; the paper cut 73.6 % of "
        "its edges by such a threshold and lost nothing of R@100 (Amazon-670K, table 9)."
    )
    SCORES = (
        "Look for a curve that falls towards rare labels: in the paper the ranker scores the true labels of the rare "
        "deciles too low, which its calibration is to correct."
    )
    RECALL = (
        "Look at the distance between stage 1 and stage 2 at long lists, which is what learning the index is worth: in "
        "the paper 7.2 points of R@100 on Amazon-670K and 4.1 on LF-AmazonTitles-131K."
    )
    CONTRIBUTION = (
        "Look at which labels the gain of stage 2 comes from: in the paper it is largest for the two most frequent "
        "deciles."
    )
    SURVIVAL = (
        "Look at the share at 0.25, the labels that stage 2 left in their first cluster: in the paper about 60 %."
    )
    CLUSTERS = "Look for bars that fall: in the paper frequent labels have more clusters."
    SEVERAL = (
        "Look for the texts of one label in several groups, each among the texts of another of its clusters: the paper "
        "shows that labels with several strong edges are of this kind."
    )
    ONE = "Look for the texts of one label in one group: in the paper labels with one strong edge are of this kind."
    RELIABILITY = (
        "Look for points on the diagonal: of the labels that are given 60 %, 60 % should be right; the paper shows no "
        "such figure."
    )


EDGES = "figure-3", "Figure 3: edge scores", _Captions.EDGES
SCORES = "figure-4", "Figure 4: scores of true labels", _Captions.SCORES
RECALL = "figure-5a", "Figure 5, left: recall against list length", _Captions.RECALL
CONTRIBUTION = "figure-5b", "Figure 5, right: contribution to R@100", _Captions.CONTRIBUTION
SURVIVAL = "figure-7a", "Figure 7a: edges of stage 1 that are left", _Captions.SURVIVAL
CLUSTERS = "figure-7b", "Figure 7b: clusters per label", _Captions.CLUSTERS
SEVERAL = "figure-8", "Figure 8: labels with several strong edges", _Captions.SEVERAL
ONE = "figure-9", "Figure 9: labels with one strong edge", _Captions.ONE
RELIABILITY = "reliability", "Reliability of the probabilities", _Captions.RELIABILITY

About = tuple[str, str, str]  # name, title, caption


def missing(about: About, reason: str) -> Figure:
    """A figure that cannot be made."""
    return Figure(name=about[0], title=about[1], caption=about[2], missing=reason)


def _figure(about: About, tables: Mapping[str, Table], drawings: Sequence[Drawing], *notes: str) -> Figure:
    name, title, caption = about
    return Figure(name=name, title=title, caption=caption, tables=tables, drawings=drawings, notes=notes)


# -- the index --------------------------------------------------------------------------------------------------------


def edge_scores(scores: np.ndarray) -> Figure:
    """Figure 3, from the scores of all edges."""
    counts, edges = edge_histogram(scores, HISTOGRAM_BINS), np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    bars = [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]
    table = Table(("from", "to", "edges"), bars)
    above = share_above(scores, np.array(SHARES_ABOVE))
    shares = Table(
        ("edge score above", "edges", "percent of edges"),
        [(t, round(s * len(scores)), 100 * float(s)) for t, s in zip(SHARES_ABOVE, above.tolist(), strict=True)],
    )
    top = 10.0 ** math.ceil(math.log10(max(10, int(counts.max(initial=1)))))
    assigned = 100 * float(share_above(scores, np.array([ASSIGNED]))[0])
    text = Text(EDGES[0], "Distribution of edge scores", f"{assigned:.1f} % of {len(scores):,} edges are above 0.25.")
    x, y = Axis("edge score e", 0.0, 1.0), Axis("edges (log scale)", 0.7, top, log=True)
    drawn = svg.histogram(text, x, y, edges.tolist(), table.column("edges"))
    note = f"{text.description} A label counts as assigned to a cluster above 0.25."
    return _figure(EDGES, {EDGES[0]: table, f"{EDGES[0]}-shares": shares}, [Drawing(EDGES[0], drawn)], note)


def stage1_edges(scores: np.ndarray) -> Figure:
    """Figure 7a, from the score of each label's edge of stage 1, 0 where it is gone."""
    shares = 100 * share_above(scores, THRESHOLDS)
    table = Table(
        ("edge score above", "percent of stage-1 edges"), list(zip(THRESHOLDS.tolist(), shares.tolist(), strict=True))
    )
    left = 100 * float(share_above(scores, np.array([ASSIGNED]))[0])
    said = f"{left:.1f} % of {len(scores):,} edges of stage 1 are left above 0.25."
    text = Text(SURVIVAL[0], "Edges of stage 1 that are left", said)
    x, y = Axis("threshold of the edge score", 0.0, 1.0), Axis("edges of stage 1 above it (%)", 0.0, 100.0)
    series = Series("edges of stage 1", table.column(table.columns[0]), table.column(table.columns[1]))
    return _figure(SURVIVAL, {SURVIVAL[0]: table}, [Drawing(SURVIVAL[0], svg.line_chart(text, x, y, [series]))], said)


def clusters_by_decile(labels: np.ndarray, means: np.ndarray) -> Figure:
    """Figure 7b, from the number of labels of each decile and their mean number of clusters."""
    rows = zip(range(1, 11), labels.tolist(), means.tolist(), strict=True)
    table = Table(("decile", "labels", "mean clusters per label"), list(rows))
    first, last = means[0], means[-1]
    said = f"{first:.2f} clusters per label in the most frequent decile, {last:.2f} in the rarest."
    text = Text(CLUSTERS[0], "Clusters per label by decile", said)
    y = Axis("clusters per label (e > 0.25)", 0.0, svg.rounded_up(float(np.nanmax(means, initial=0.0))))
    series = Series("clusters per label", table.column("decile"), table.column(table.columns[2]))
    drawn = svg.bar_chart(text, DECILES, y, [series])
    return _figure(CLUSTERS, {CLUSTERS[0]: table}, [Drawing(CLUSTERS[0], drawn)], said)


# -- predictions ------------------------------------------------------------------------------------------------------


def true_label_scores(pairs: np.ndarray, means: Mapping[str, np.ndarray], note: str) -> Figure:
    """Figure 4, from the test pairs of each decile and the mean scores of their labels."""
    rows = [(d + 1, int(pairs[d]), *(float(values[d]) for values in means.values())) for d in range(len(pairs))]
    table = Table(("decile", "test pairs", *means), rows)
    said = "; ".join(f"{name} {v[0]:.3f} in the first decile, {v[-1]:.3f} in the last" for name, v in means.items())
    text = Text(SCORES[0], "Mean score of the true labels by decile", f"{said}.")
    series = [Series(name, table.column("decile"), table.column(name), _color(name)) for name in means]
    y = Axis("mean score of true labels", 0.0, svg.rounded_up(max(float(np.nanmax(v)) for v in means.values())))
    return _figure(SCORES, {SCORES[0]: table}, [Drawing(SCORES[0], svg.line_chart(text, DECILES, y, series))], note)


def recall(curves: Mapping[str, np.ndarray], note: str) -> Figure:
    """Figure 5, left: R@1 to R@100 of each."""
    longest = len(next(iter(curves.values())))
    lengths = range(1, longest + 1)
    rows = [(k, *(float(curve[k - 1]) for curve in curves.values())) for k in lengths]
    table = Table(("labels in the list", *curves), rows)
    said = "; ".join(f"{name} R@{longest} {curve[-1]:.2f}" for name, curve in curves.items())
    text = Text(RECALL[0], "Recall against the length of the list", f"{said}.")
    high = svg.rounded_up(max(float(curve[-1]) for curve in curves.values()))
    x = Axis("labels in the list", 0.0, float(longest))
    series = [Series(name, list(lengths), table.column(name), _color(name)) for name in curves]
    drawn = svg.line_chart(text, x, Axis("recall (%)", 0.0, high), series)
    return _figure(RECALL, {RECALL[0]: table}, [Drawing(RECALL[0], drawn)], *([note] if note else []))


def contribution(deciles: Mapping[str, Sequence[Decile]]) -> Figure:
    """Figure 5, right: what each decile adds to R@100, by stage."""
    first = next(iter(deciles.values()))
    rows = [
        (d + 1, first[d].labels, first[d].test_pairs, *(float(found[d].contribution) for found in deciles.values()))
        for d in range(len(first))
    ]
    table = Table(("decile", "labels", "test pairs", *deciles), rows)
    totals = "; ".join(f"{name} {sum(one.contribution for one in found):.2f}" for name, found in deciles.items())
    text = Text(CONTRIBUTION[0], "Contribution to R@100 by decile", f"In all: {totals}.")
    series = [Series(name, table.column("decile"), table.column(name), _color(name)) for name in deciles]
    y = Axis("points of R@100", 0.0, svg.rounded_up(max(max(one.y) for one in series)))
    drawn = svg.bar_chart(text, DECILES, y, series)
    return _figure(CONTRIBUTION, {CONTRIBUTION[0]: table}, [Drawing(CONTRIBUTION[0], drawn)])


def reliability(bins: Sequence[CalibrationBin], error: float, probabilities: np.ndarray) -> Figure:
    """Mean probability against the share of right labels, and how many labels have which probability."""
    table = Table(("mean probability", "share right", "labels"), [(b.probability, b.right, b.pairs) for b in bins])
    counts, edges = edge_histogram(probabilities, PROBABILITY_BINS), np.linspace(0.0, 1.0, PROBABILITY_BINS + 1)
    spread = Table(
        ("from", "to", "labels"),
        [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)],
    )
    each = f"{min(b.pairs for b in bins):,}" if bins else "0"
    said = (
        f"Calibration error {error:.4f}: {len(probabilities):,} probabilities, the first {CALIBRATED_LABELS} labels of "
        f"each row, in {len(bins)} bins of {each} each."
    )
    name, unit = RELIABILITY[0], (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    x, y = Axis("mean probability", 0.0, 1.0, ticks=unit), Axis("share of right labels", 0.0, 1.0, ticks=unit)
    series = Series("model", table.column("mean probability"), table.column("share right"))
    drawn = svg.line_chart(Text(name, "Reliability diagram", said), x, y, [series], diagonal=True)
    top = 10.0 ** math.ceil(math.log10(max(10, int(counts.max(initial=1)))))
    below = svg.histogram(
        Text(f"{name}-counts", "Probabilities", f"How many of {len(probabilities):,} labels have which probability."),
        Axis("probability", 0.0, 1.0, ticks=unit), Axis("labels (log scale)", 0.7, top, log=True),
        edges.tolist(), spread.column("labels"),
    )  # fmt: skip
    drawings = [Drawing(name, drawn), Drawing(f"{name}-counts", below)]
    return _figure(RELIABILITY, {name: table, f"{name}-counts": spread}, drawings, said)


def _color(name: str) -> int:
    return COLORS.get(name, 2)


# -- maps of labels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelNames:
    """What labels and clusters are called."""

    ids: Sequence[str]
    texts: Sequence[str]  # empty where a label has none
    cluster_words: Sequence[Sequence[str]]

    def cluster(self, number: int) -> str:
        return " ".join([f"{number}", *self.cluster_words[number][:3]])


def label_maps(about: About, maps: Sequence[LabelMap], names: LabelNames, notes: Sequence[str]) -> Figure:
    """Figure 8 or 9: one small map per label."""
    rows: list[tuple[Cell, ...]] = []
    panels = []
    most = max(len(one.clusters) for one in maps) + 1
    for number, one in enumerate(maps, start=1):
        for (x, y), place in zip(one.points.tolist(), one.places.tolist(), strict=True):
            belongs: tuple[Cell, Cell] = ("label", "") if place == PAD else ("cluster", int(one.clusters[place]))
            rows.append((names.ids[one.label], *belongs, round(x, 4), round(y, 4)))
        own = one.points[one.places == PAD]
        dots = [
            Dots(names.cluster(int(cluster)), one.points[one.places == place], f"c{place}")
            for place, cluster in enumerate(one.clusters)
        ]
        dots.append(Dots(f"{len(own)} texts of the label", own, "own"))
        name = names.ids[one.label]
        said = f"{len(own)} texts of the label, {len(one.points) - len(own)} texts of {len(one.clusters)} clusters."
        text = Text(f"{about[0]}-{number}", f"t-SNE of the texts of {name}", said)
        panels.append(svg.scatter_panel(text, (name, names.texts[one.label]), dots, most))
    table = Table(("label", "text of", "cluster", "x", "y"), rows)
    whole = svg.composed(Text(about[0], about[1], f"Maps of {len(maps)} labels."), panels)
    return _figure(about, {about[0]: table}, [Drawing(about[0], whole, panels)], *notes)
