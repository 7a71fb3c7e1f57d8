// Parts of the index: a label with its clusters, a cluster with its labels, all of it at a glance.
import { get } from "./api.js";
import { bar, clusterLink, h, labelLink, say, svg } from "./dom.js";
import { fill, fixed, number, percent, score, t } from "./language.js";
import { nameOf, noteOf } from "./names.js";

const FIRST = 12; // clusters shown at once
const stage1 = () => h("span", { class: "badge" }, t("how.stage1"));
const labelCell = (each, ...more) => [h("a", { href: labelLink(each.label) }, nameOf(each)), " ", more, h("br"), h("span", { class: "quiet" }, noteOf(each))];

export async function showLabel(place, id) {
  const label = await get(`/v1/labels/${encodeURIComponent(id)}`);
  document.title = `${nameOf(label)} · ELIAS`;
  const home = label.stage1_cluster === null ? t("how.noStage1")
    : fill("how.hadStage1", { cluster: h("a", { href: clusterLink(label.stage1_cluster) }, t("how.clusterN", { id: String(label.stage1_cluster) })) });
  place.append(
    h("div", {}, crumbs(), h("h1", {}, nameOf(label)), noteOf(label) ? h("p", {}, noteOf(label)) : null,
      h("p", { class: "quiet" }, t("search.texts", { n: label.training_count }), ". ", home)),
    h("div", { class: "grid halves" },
      h("section", { class: "card" }, h("h2", {}, t("how.lives", { n: label.clusters_total })), clusterTable(label.clusters.slice(0, FIRST)),
        label.clusters.length > FIRST ? h("details", {}, h("summary", {}, t("how.next", { n: label.clusters.length - FIRST })), clusterTable(label.clusters.slice(FIRST))) : null),
      h("section", { class: "card" }, h("h2", {}, t("how.nearest")), h("p", { class: "quiet" }, t("how.nearest.note")),
        table([t("how.label"), t("how.similarity"), ""], label.nearest.map((each) => [labelCell(each), score(each.similarity), bar(each.similarity)])))));
  say(t("how.said.label", { label: nameOf(label), n: label.clusters_total }));
}

function clusterTable(clusters) {
  return table([t("how.cluster"), t("how.edge"), ""], clusters.map((each) => [
    [h("a", { href: clusterLink(each.cluster) }, `${each.cluster}`), " ", each.stage1 ? stage1() : null, h("br"), h("span", { class: "quiet" }, each.words.slice(0, 6).join(" "))],
    score(each.edge_score), bar(each.edge_score)]));
}

export async function showCluster(place, id) {
  const cluster = await get(`/v1/clusters/${encodeURIComponent(id)}`, { limit: 100 });
  const title = t("how.clusterN", { id: String(cluster.cluster) });
  document.title = `${title} · ELIAS`;
  const rows = cluster.labels.map((each) => [labelCell(each, each.stage1 ? stage1() : null), score(each.edge_score), bar(each.edge_score)]);
  place.append(
    h("div", {}, crumbs(), h("h1", {}, title), h("h2", { class: "visually-hidden" }, t("how.words")),
      h("ul", { class: "chips" }, cluster.words.map((word) => h("li", { class: "chip" }, word))),
      h("p", { class: "quiet" }, t("how.edges", { n: cluster.total, stage1: cluster.stage1_total, shown: rows.length }))),
    h("section", { class: "card" }, h("h2", {}, t("how.labels")), table([t("how.label"), t("how.edge"), ""], rows)));
  say(t("how.said.cluster", { id: String(cluster.cluster), n: cluster.total }));
}

export async function showOverview(place) {
  const index = await get("/v1/index");
  const deciles = index.clusters_per_label_by_decile;
  const histogram = index.edge_score_histogram;
  const widest = Math.max(1, index.largest_clusters[0]?.labels ?? 1);
  place.append(
    h("div", {}, h("h2", { class: "large" }, t("how.learned")),
      h("p", { class: "quiet" }, t("how.learned.note", { labels: index.labels, clusters: index.clusters, edges: index.edges, assigned: index.assigned, share: percent(index.stage1_edges_kept) }))),
    h("div", { class: "grid halves" },
      h("section", { class: "card" }, h("h3", {}, t("how.deciles")), chart({ values: deciles, names: deciles.map((_, i) => `${i + 1}`), title: t("how.deciles.title"), shown: (value) => fixed(value, 1), above: true }),
        h("p", { class: "quiet" }, t("how.deciles.note"))),
      h("section", { class: "card" }, h("h3", {}, t("how.histogram")), chart({ values: histogram, height: (n) => Math.log10(n + 1), names: histogram.map((_, i) => (i % 4 ? "" : fixed(i / 20, 1))), title: t("how.histogram.title"), shown: number }),
        h("p", { class: "quiet" }, t("how.histogram.note"))),
      h("section", { class: "card" }, h("h3", {}, t("how.shared")), table([t("how.label"), t("how.clusters"), ""], index.most_shared.map((each) => [labelCell(each), number(each.clusters), bar(each.clusters / index.most_shared[0].clusters)]))),
      h("section", { class: "card" }, h("h3", {}, t("how.largest")), table([t("how.cluster"), t("how.labels"), ""], index.largest_clusters.map((each) => [
        [h("a", { href: clusterLink(each.cluster) }, `${each.cluster}`), h("br"), h("span", { class: "quiet" }, each.words.slice(0, 6).join(" "))], number(each.labels), bar(each.labels / widest)])))));
}

const crumbs = () => h("p", { class: "crumbs" }, h("a", { href: "#/how" }, t("how.index")), h("span", { class: "quiet", "aria-hidden": "true" }, " ›"));

function table(heads, rows) {
  return h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head, i) => (head ? h("th", { scope: "col", class: i === 1 ? "number" : null }, head) : h("td", {}))))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => h("td", { class: ["", "number", "meter"][i] || null }, cell))))));
}

// Bars with their name below and, if `above`, their value above.
function chart({ values, names, title, shown, height = (value) => value, above = false }) {
  const [wide, tall, gap] = [480, 190, values.length > 12 ? 4 : 10];
  const most = Math.max(...values.map(height), 1e-9);
  const step = wide / values.length;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `${title}: ${values.map((value) => shown(value)).join("; ")}` });
  values.forEach((value, i) => {
    const up = (height(value) / most) * (tall - 44);
    drawing.append(svg("rect", { x: i * step + gap / 2, y: tall - 20 - up, width: step - gap, height: Math.max(1, up), rx: 3 }, svg("title", {}, shown(value))));
    if (above) drawing.append(svg("text", { x: (i + 0.5) * step, y: tall - 25 - up, "text-anchor": "middle" }, shown(value)));
    drawing.append(svg("text", { x: (i + 0.5) * step, y: tall - 5, "text-anchor": "middle" }, names[i]));
  });
  return drawing;
}
