// Walk through the index: a label's clusters, a cluster's labels; or all of it at a glance.
import { facts, get } from "./api.js";
import { bar, clusterLink, h, labelLink, notice, number, say, score, svg } from "./dom.js";

const WAIT = 150;
const FIRST = 12; // clusters shown at once

export async function explore(place, [kind, id]) {
  if (!facts().explore) {
    place.append(h("h1", {}, "Explore"), h("p", {}, "This model has no index to explore."));
    return;
  }
  const content = h("div", { class: "grid" });
  place.append(searchBox(), content);
  if (kind === "label" && id) await showLabel(content, id);
  else if (kind === "cluster" && id) await showCluster(content, id);
  else await showOverview(content);
}

function searchBox() {
  const hits = h("ul", { class: "hits", id: "hits" });
  const input = h("input", { type: "search", id: "search", placeholder: "Part of a name …", autocomplete: "off" });
  let timer = 0;
  let asked = null;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, WAIT);
  });
  async function find() {
    asked?.abort();
    if (!input.value.trim()) return hits.replaceChildren();
    asked = new AbortController();
    try {
      const found = await get("/v1/labels", { search: input.value.slice(0, 200), limit: 8 }, asked.signal);
      hits.replaceChildren(...found.labels.map((each) => h("li", {}, h("a", { href: labelLink(each.label) }, h("b", {}, each.label), ` ${each.text}`, h("span", { class: "quiet" }, `  ${number(each.training_count)} training texts`)))));
      if (!found.labels.length) hits.replaceChildren(h("li", { class: "empty" }, "No label has this in its name."));
      say(`${found.total} labels found`);
    } catch (problem) {
      if (problem.name !== "AbortError") hits.replaceChildren(h("li", {}, notice(problem)));
    }
    return undefined;
  }
  return h("section", { class: "card", "aria-label": "Find a label"}, h("label", { for: "search" }, "Find a label"), input, hits);
}

async function showLabel(place, id) {
  const label = await get(`/v1/labels/${encodeURIComponent(id)}`);
  document.title = `${label.label} · ELIAS`;
  place.append(
    h("div", {}, crumbs(["Index", "#/explore"]), h("h1", {}, label.label), label.text && label.text !== label.label ? h("p", {}, label.text) : null,
      h("p", { class: "quiet" }, `${number(label.training_count)} training texts. `, label.stage1_cluster === null ? "Stage 1 had no cluster for it." : ["Stage 1 had put it into ", h("a", { href: clusterLink(label.stage1_cluster) }, `cluster ${label.stage1_cluster}`), "."])),
    h("div", { class: "grid two" },
      h("section", { class: "card" }, h("h2", {}, `Lives in ${number(label.clusters_total)} clusters`), clusterTable(label.clusters.slice(0, FIRST)),
        label.clusters.length > FIRST ? h("details", {}, h("summary", {}, `The next ${number(label.clusters.length - FIRST)}`), clusterTable(label.clusters.slice(FIRST))) : null),
      h("section", { class: "card" }, h("h2", {}, "Nearest labels"), h("p", { class: "quiet" }, "By the angle between their classifiers, among labels of the same clusters."),
        table(["Label", "Similarity", ""], label.nearest.map((each) => [
          [h("a", { href: labelLink(each.label) }, each.label), h("br"), h("span", { class: "quiet" }, each.text)], score(each.similarity), bar(each.similarity, "", `similarity ${score(each.similarity)}`)])))));
  say(`Label ${label.label}, in ${label.clusters_total} clusters`);
}

function clusterTable(clusters) {
  return table(["Cluster", "Edge", ""], clusters.map((each) => [
    [h("a", { href: clusterLink(each.cluster) }, `${each.cluster}`), " ", each.stage1 ? h("span", { class: "badge" }, "stage 1") : null, h("br"), h("span", { class: "quiet" }, each.words.slice(0, 6).join(" "))],
    score(each.edge_score), bar(each.edge_score, "edge", `edge score ${score(each.edge_score)}`)]));
}

async function showCluster(place, id) {
  const cluster = await get(`/v1/clusters/${encodeURIComponent(id)}`, { limit: 100 });
  document.title = `Cluster ${cluster.cluster} · ELIAS`;
  const rows = cluster.labels.map((each) => [
    [h("a", { href: labelLink(each.label) }, each.label), " ", each.stage1 ? h("span", { class: "badge" }, "stage 1") : null, h("br"), h("span", { class: "quiet" }, each.text)],
    score(each.edge_score), bar(each.edge_score, "edge", `edge score ${score(each.edge_score)}`)]);
  place.append(
    h("div", {}, crumbs(["Index", "#/explore"]), h("h1", {}, `Cluster ${cluster.cluster}`), h("h2", { class: "visually-hidden" }, "Typical words"),
      h("ul", { class: "chips" }, cluster.words.map((word) => h("li", { class: "chip" }, word))),
      h("p", { class: "quiet" }, `${number(cluster.total)} edges; stage 1 had put ${number(cluster.stage1_total)} labels here. The strongest ${number(rows.length)}:`)),
    h("section", { class: "card" }, h("h2", {}, "Labels"), table(["Label", "Edge", ""], rows)));
  say(`Cluster ${cluster.cluster}, ${cluster.total} edges`);
}

async function showOverview(place) {
  const index = await get("/v1/index");
  const deciles = index.clusters_per_label_by_decile;
  place.append(
    h("div", {}, h("h1", {}, "What the index has learned"),
      h("p", { class: "quiet" }, `${number(index.labels)} labels, ${number(index.clusters)} clusters, ${number(index.edges)} edges. A label counts as assigned to a cluster where the edge score is above ${index.assigned}; `
        + `${Math.round(100 * index.stage1_edges_kept)} % of the assignments of stage 1 are still there.`)),
    h("div", { class: "grid halves" },
      h("section", { class: "card" }, h("h2", {}, "Clusters of a label, by popularity"), chart(deciles, deciles.map((_, i) => `${i + 1}`), (v) => v.toFixed(1), "Mean number of clusters of a label; most popular tenth of the training pairs first"),
        h("p", { class: "quiet" }, "Tenths of the training pairs, most popular labels first.")),
      h("section", { class: "card" }, h("h2", {}, "Edge scores"), chart(index.edge_score_histogram.map((n) => Math.log10(n + 1)), index.edge_score_histogram.map((_, i) => (i % 4 ? "" : (i / 20).toFixed(1))), null, "Number of edges by score, logarithmic", index.edge_score_histogram),
        h("p", { class: "quiet" }, "Edges in each twentieth of 0 to 1; heights are logarithmic.")),
      h("section", { class: "card" }, h("h2", {}, "Labels in most clusters"), table(["Label", "Clusters", ""], index.most_shared.map((each) => [
        [h("a", { href: labelLink(each.label) }, each.label), h("br"), h("span", { class: "quiet" }, each.text)], number(each.clusters), bar(each.clusters / index.most_shared[0].clusters)]))),
      h("section", { class: "card" }, h("h2", {}, "Clusters with most labels"), table(["Cluster", "Labels", ""], index.largest_clusters.map((each) => [
        [h("a", { href: clusterLink(each.cluster) }, `${each.cluster}`), h("br"), h("span", { class: "quiet" }, each.words.slice(0, 6).join(" "))], number(each.labels), bar(each.labels / Math.max(1, index.largest_clusters[0].labels))])))));
}

function crumbs(...links) {
  return h("p", { class: "crumbs" }, links.map(([text, href]) => h("a", { href }, text)), h("span", { class: "quiet" }, " ›"));
}

function table(heads, rows) {
  return h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head, i) => (head ? h("th", { scope: "col", class: i === 1 ? "number" : null }, head) : h("td", {}))))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, i) => h("td", { class: ["", "number", "meter"][i] || null }, cell))))));
}

// Bars with their value above and their name below.
function chart(values, names, shown, title, real = values) {
  const [width, height, gap] = [480, 190, values.length > 12 ? 4 : 10];
  const most = Math.max(...values, 1e-9);
  const step = width / values.length;
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${real.map((v) => (shown ? shown(v) : number(v))).join(", ")}` });
  values.forEach((value, i) => {
    const tall = (value / most) * (height - 44);
    drawing.append(svg("rect", { x: i * step + gap / 2, y: height - 20 - tall, width: step - gap, height: Math.max(1, tall), rx: 3 }, svg("title", {}, shown ? shown(real[i]) : number(real[i]))));
    if (shown) drawing.append(svg("text", { x: (i + 0.5) * step, y: height - 25 - tall, "text-anchor": "middle" }, shown(value)));
    drawing.append(svg("text", { x: (i + 0.5) * step, y: height - 5, "text-anchor": "middle" }, names[i]));
  });
  return drawing;
}
