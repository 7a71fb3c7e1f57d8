// Figure 2 of the paper for one text: text -> clusters in the beam -> labels. Thickness is weight; what loses is faint.
import { h, svg } from "./dom.js";
import { score, t } from "./language.js";

const ROW = 26;
const cut = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text);

export function graph(paths, chosen, width, choose) {
  const own = paths.edges.filter((edge) => edge.label === chosen);
  const winner = own.find((edge) => edge.wins);
  const clusters = shownClusters(paths, chosen, width < 640 ? 9 : 14);
  const rows = Math.max(clusters.length, paths.labels.length);
  const height = rows * ROW + 40;
  const narrow = width < 640;
  const inner = Math.max(300, width - 4);
  const x = narrow ? [12, inner * 0.3, inner * 0.64] : [12, inner * 0.2, inner * 0.75];
  const letters = (pixels) => Math.floor(pixels / 6.9);
  const middle = (count, i) => 34 + (rows * ROW - count * ROW) / 2 + (i + 0.5) * ROW;
  const clusterY = new Map(clusters.map((each, i) => [each.cluster, middle(clusters.length, i)]));
  const labelY = new Map(paths.labels.map((each, i) => [each.label, middle(paths.labels.length, i)]));
  const textY = 34 + (rows * ROW) / 2;

  const drawing = svg("svg", {
    class: "graph", viewBox: `0 0 ${inner} ${height}`, role: "group", "aria-label": summary(chosen, own, winner),
  });
  const lines = svg("g", { "aria-hidden": "true" });
  for (const each of clusters) {
    const on = winner?.cluster === each.cluster;
    lines.append(line(x[0], textY, x[1], clusterY.get(each.cluster), each.score, on ? "chosen wins" : "", 7));
  }
  const order = [...paths.edges].sort((a, b) => (a.label === chosen) - (b.label === chosen) || a.wins - b.wins);
  const start = narrow ? x[1] + 44 : Math.min(inner * 0.5, x[1] + 260); // where the name of a cluster ends
  for (const edge of order) {
    if (!clusterY.has(edge.cluster) || edge.weight < 0.002) continue;
    const kind = [edge.label === chosen ? "chosen" : "", edge.wins ? "wins" : ""].join(" ").trim();
    lines.append(line(start, clusterY.get(edge.cluster), x[2], labelY.get(edge.label), edge.weight, kind, 9));
  }
  drawing.append(lines, svg("text", { class: "head", x: 0, y: 14 }, t("graph.text")),
    svg("text", { class: "head", x: x[1] - 4, y: 14 }, narrow ? t("how.clusters") : t("graph.beam")), svg("text", { class: "head", x: x[2] - 4, y: 14 }, t("how.labels")),
    svg("g", { class: "on" }, svg("circle", { cx: x[0], cy: textY, r: 7 })));
  const room = letters(start - x[1] - 14);
  for (const each of clusters) {
    const words = narrow ? String(each.cluster) : cut(`${each.cluster} ${each.words.slice(0, 3).join(" ")}`, room);
    const go = () => { location.hash = `#/how/cluster/${each.cluster}`; };
    drawing.append(node(x[1], clusterY.get(each.cluster), 3 + 4 * each.score, words, winner?.cluster === each.cluster, go,
      t("graph.cluster", { score: score(each.score), words: each.words.slice(0, 5).join(" ") }), "link"));
  }
  for (const each of paths.labels)
    drawing.append(node(x[2], labelY.get(each.label), 5, cut(each.label, letters(inner - x[2] - 14)), each.label === chosen,
      () => choose(each.label), t("graph.label", { label: each.label, score: score(each.score) }), "button"));
  return h("figure", {}, drawing, h("figcaption", {}, summary(chosen, own, winner)));
}

// The clusters that matter: those with a path to the chosen label or a winning path, then the best of the beam.
function shownClusters(paths, chosen, most) {
  const wins = new Set(paths.edges.filter((edge) => edge.wins).map((edge) => edge.cluster));
  const own = new Set(paths.edges.filter((edge) => edge.label === chosen && edge.weight > 0.01).map((edge) => edge.cluster));
  const rank = (each) => (wins.has(each.cluster) ? 2 : 0) + (own.has(each.cluster) ? 1 : 0);
  const kept = new Set([...paths.clusters].sort((a, b) => rank(b) - rank(a) || b.score - a.score).slice(0, most).map((each) => each.cluster));
  return paths.clusters.filter((each) => kept.has(each.cluster));
}

function line(x1, y1, x2, y2, weight, kind, widest) {
  const bend = (x2 - x1) / 2;
  return svg("path", {
    d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    class: kind || null, "stroke-width": (0.6 + widest * Math.sqrt(Math.min(1, weight))).toFixed(2),
  });
}

function node(x, y, r, text, on, act, about, role) {
  const spoken = `${text}: ${about}`; // what is seen comes first in what is heard
  const onkey = (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
  };
  return svg("g", { class: on ? "node on" : "node", tabindex: 0, role, "aria-label": spoken, onclick: act, onkeydown: onkey },
    svg("title", {}, spoken), svg("circle", { cx: x, cy: y, r }), svg("text", { x: x + r + 5, y: y + 4 }, text));
}

function summary(chosen, own, winner) {
  if (!winner) return t("graph.noPath", { label: chosen });
  const best = t("graph.best", { label: chosen, cluster: String(winner.cluster), weight: score(winner.weight) });
  return own.length > 1 ? `${best} ${t("graph.others", { n: own.length - 1 })}` : best;
}
