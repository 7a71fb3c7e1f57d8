// How it works: the three steps in words, the way of a text through the index, and the index itself.
import { facts, post } from "./api.js";
import { draft } from "./decisions.js";
import { h, labelLink, notice } from "./dom.js";
import { labelSearch } from "./label_search.js";
import { showCluster, showLabel, showOverview } from "./explore.js";
import { graph } from "./graph.js";
import { named, score, t } from "./language.js";

const WAIT = 200; // milliseconds after the last key
const NOT_A_PART = new Set(["cluster", "member"]);
const kept = { text: "", label: null };

export async function how(place, [kind, id]) {
  const content = h("div", { class: "grid" });
  place.append(content);
  if (!facts().explore) {
    content.append(h("div", {}, h("h1", {}, t("how.title")), steps(), h("p", { class: "card" }, t("how.noIndex"))));
    return undefined;
  }
  if (kind === "label" && id) return showLabel(content, id);
  if (kind === "cluster" && id) return showCluster(content, id);
  if (draft.text.trim()) kept.text = draft.text;
  if (kind === "text") kept.label = id ?? null;
  const find = h("section", { class: "card" }, labelSearch({ id: "search", title: t("how.find"), pick: (hit) => { location.hash = labelLink(hit.label); } }));
  const overview = h("div", { class: "grid" });
  const way = paths();
  content.append(h("div", {}, h("h1", {}, t("how.title")), steps()), way.element, find, overview);
  way.begin();
  await showOverview(overview);
  return way.leave;
}

function steps() {
  const step = (key, text) => h("li", {}, h("h2", {}, t(key)), h("p", {}, text));
  const clusters = facts().clusters;
  return h("ol", { class: "steps" },
    step("how.step1", clusters ? t("how.step1.text", { n: clusters }) : t("how.step1.plain")),
    step("how.step2", t("how.step2.text")), step("how.step3", t(facts().parts.includes("words") ? "how.step3.text" : "how.step3.plain")));
}

// The way of one text: its beam, the labels found, and every path to the chosen one.
function paths() {
  const area = h("textarea", { id: "path-text", rows: "2", spellcheck: "false", placeholder: t("how.placeholder") });
  area.value = kept.text;
  const result = h("div", { id: "why" });
  let [timer, asked] = [0, null];

  async function ask() {
    asked?.abort();
    kept.text = area.value;
    if (!kept.text.trim()) return result.replaceChildren(h("p", { class: "empty" }, t("how.noText")));
    asked = new AbortController();
    try {
      const found = await post("/v1/paths", { text: kept.text, k: 8, ...(kept.label ? { label: kept.label } : {}) }, asked.signal);
      return draw(found);
    } catch (problem) {
      if (problem.status === 422 && problem.field === "label") { kept.label = null; return ask(); } // of another model
      return problem.name === "AbortError" ? undefined : result.replaceChildren(notice(problem));
    }
  }

  function draw(found) {
    const item = found.labels.find((each) => each.label === kept.label) ?? found.labels[0];
    if (!item) return result.replaceChildren(h("p", { class: "empty" }, t("suggest.none")));
    const figure = h("div");
    result.replaceChildren(
      h("div", { class: "row spread" }, h("h3", {}, t("how.leads", { label: item.label })), h("a", { href: labelLink(item.label) }, t("how.about"))),
      figure, arithmetic(item), pathTable(found, item.label));
    // Drawn in its place, because the drawing depends on the width.
    return figure.replaceChildren(graph(found, item.label, figure.clientWidth, (label) => {
      kept.label = label;
      draw(found);
      result.querySelector(".graph .node.on[role=button]")?.focus();
    }));
  }

  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { kept.label = null; ask(); }, WAIT);
  });
  return {
    element: h("section", { class: "card", "aria-label": t("how.paths") }, h("h2", {}, t("how.paths")), h("label", { for: "path-text" }, t("how.text")), area, result),
    begin: ask,
    leave: () => { clearTimeout(timer); asked?.abort(); },
  };
}

function arithmetic(item) {
  const parts = facts().parts.filter((part) => !NOT_A_PART.has(part) && typeof item[part] === "number");
  return h("p", { class: "row number quiet" }, parts.map((part) => h("span", {}, `${named("part.", part)} ${score(item[part])}`)), h("strong", {}, t("how.score", { score: score(item.score) })));
}

function pathTable(found, label) {
  const own = found.edges.filter((edge) => edge.label === label).sort((a, b) => b.weight - a.weight);
  if (!own.length) return null;
  const clusters = new Map(found.clusters.map((each) => [each.cluster, each]));
  const heads = [t("how.cluster"), t("how.clusterScore"), t("how.edgeScore"), t("how.weight")];
  return h("details", {}, h("summary", {}, t("how.table", { n: own.length, label })),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: i ? "number" : null }, head)), h("td", {}))),
      h("tbody", {}, own.map((edge) => h("tr", {},
        h("td", {}, h("a", { href: `#/how/cluster/${edge.cluster}` }, `${edge.cluster}`), ` ${clusters.get(edge.cluster).words.slice(0, 4).join(" ")}`),
        h("td", { class: "number" }, score(clusters.get(edge.cluster).score)), h("td", { class: "number" }, score(edge.edge_score)),
        h("td", { class: "number" }, score(edge.weight)), h("td", {}, edge.wins ? h("span", { class: "badge" }, t("how.wins")) : "")))))));
}
