// Type a text, see the ranked labels while typing; choose one to see the paths that lead to it.
import { facts, get, post } from "./api.js";
import { bar, h, labelLink, notice, number, say, score } from "./dom.js";
import { graph } from "./graph.js";

const WAIT = 120; // milliseconds after the last key
const NAMES = { cluster_score: "cluster", edge_score: "edge", classifier: "classifier" };
const MEANS = {
  cluster: "how well the text fits the cluster",
  edge: "how strongly the cluster leads to the label",
  classifier: "the score of the label's classifier",
};
const kept = { text: "", k: "10", label: null };

// The parts of a score that this model has: every number it explains with, but for the numbers of cluster and member.
const partsOf = () => facts().parts.filter((part) => part !== "cluster" && part !== "member");
const nameOf = (part) => NAMES[part] ?? part.replaceAll("_", " ");
const kindOf = (part) => NAMES[part] ?? (part.startsWith("ranker") ? "ranker" : "other");

export async function suggest(place) {
  const text = h("textarea", { id: "text", spellcheck: "false", placeholder: "Type or paste a text …" });
  text.value = kept.text;
  const size = h("select", { id: "k" }, ["5", "10", "20", "50"].map((k) => h("option", { value: k }, k)));
  size.value = kept.k;
  const took = h("span", { class: "quiet number" });
  const examples = h("p", { class: "quiet", hidden: true });
  const results = h("div", { id: "results" });
  const why = h("section", { class: "card sticky", id: "why", "aria-label": "Paths to the label", hidden: true });
  place.append(
    h("h1", {}, "Suggest labels"),
    h("p", { class: "quiet" }, `One text in, the best of ${number(facts().labels)} labels out. Choose a label to see how it was found.`),
    h("div", { class: "grid side" },
      h("div", { class: "grid" },
        h("section", { class: "card", "aria-label": "Your text" },
          h("label", { for: "text" }, "Text"), text,
          h("div", { class: "row spread" }, h("label", { for: "k" }, "Labels ", size), took), examples),
        h("section", { class: "card", "aria-label": "Suggestions" }, h("h2", {}, "Suggestions"), legend(), results)),
      why),
  );
  const state = { text, size, took, results, why, asked: null, timer: 0 };
  text.addEventListener("input", () => {
    clearTimeout(state.timer);
    state.timer = setTimeout(() => ask(state), WAIT);
  });
  size.addEventListener("change", () => ask(state));
  offerExamples(examples, state);
  await ask(state);
  return () => { clearTimeout(state.timer); state.asked?.abort(); };
}

function legend() {
  const items = partsOf().map((part) =>
    h("li", { title: MEANS[nameOf(part)] ?? null }, h("span", { class: `dot ${kindOf(part)}` }), nameOf(part)));
  return h("ul", { class: "legend", "aria-label": "Parts of a score, 0 to 1" }, items, h("li", {}, "0 to 1, square-root scale"));
}

async function offerExamples(place, state) {
  try {
    const { labels } = await get("/v1/labels", { limit: 60 });
    const some = labels.filter((each) => each.text.length > 12).slice(0, 40).filter((_, i) => i % 13 === 0).slice(0, 3);
    if (!some.length) return;
    place.append("Try:", ...some.flatMap((each, i) => [" ", h("button", {
      type: "button", class: "chip", onclick: () => { state.text.value = each.text; state.text.focus(); ask(state); },
    }, each.text)]));
    place.hidden = false;
  } catch { /* the examples are only a courtesy */ }
}

async function ask(state) {
  state.asked?.abort();
  kept.text = state.text.value;
  kept.k = state.size.value;
  if (!kept.text.trim()) {
    state.results.replaceChildren(h("p", { class: "empty" }, "Suggestions appear here while you type."));
    state.why.hidden = true;
    state.took.textContent = "";
    return;
  }
  const asked = (state.asked = new AbortController());
  const began = performance.now();
  try {
    const answer = await post("/v1/predict", { texts: [kept.text], k: Number(kept.k), explain: true }, asked.signal);
    state.took.textContent = `${(performance.now() - began).toFixed(0)} ms`;
    draw(state, answer.results[0].labels);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    state.results.replaceChildren(notice(problem));
  }
}

function draw(state, labels) {
  if (!labels.some((item) => item.label === kept.label)) kept.label = labels[0]?.label ?? null;
  const items = labels.map((item, place) => h("li", {}, suggestion(state, item, place)));
  const focused = document.activeElement?.dataset?.label;
  state.results.replaceChildren(labels.length
    ? h("ol", { class: "suggestions" }, items)
    : h("p", { class: "empty" }, "No label was found for this text."));
  if (focused) state.results.querySelector(`[data-label="${CSS.escape(focused)}"]`)?.focus();
  say(labels.length ? `${labels.length} suggestions, first ${labels[0].label}` : "No suggestions");
  if (kept.label && facts().explore) drawWhy(state);
  else state.why.hidden = true;
}

function suggestion(state, item, place) {
  const parts = partsOf().filter((part) => typeof item[part] === "number");
  const spoken = parts.map((part) => `${nameOf(part)} ${score(item[part])}`).join(", ");
  return h("button", {
    type: "button", class: "suggestion", "data-label": item.label, "aria-pressed": String(item.label === kept.label),
    onclick: () => choose(state, item.label),
  },
    h("span", { class: "name" }, h("span", { class: "quiet number" }, `${place + 1}  `), item.label),
    h("span", { class: "score" }, score(item.score)),
    item.text ? h("span", { class: "text" }, item.text) : null,
    h("span", { class: "bars" }, parts.map((part) => bar(Math.sqrt(Math.max(0, item[part])), kindOf(part), `${nameOf(part)} ${score(item[part])}`))),
    h("span", { class: "visually-hidden" }, ` (${spoken})`));
}

function choose(state, label) {
  kept.label = label;
  for (const button of state.results.querySelectorAll(".suggestion"))
    button.setAttribute("aria-pressed", String(button.dataset.label === label));
  drawWhy(state);
}

async function drawWhy(state) {
  const label = kept.label;
  try {
    const paths = await post("/v1/paths", { text: kept.text, k: 8, label }, state.asked?.signal);
    if (label !== kept.label) return;
    const item = paths.labels.find((each) => each.label === label);
    const figure = h("div");
    state.why.replaceChildren(
      h("div", { class: "row spread" }, h("h2", {}, `How the text leads to ${label}`), h("a", { href: labelLink(label) }, "Explore this label")),
      figure, arithmetic(item), pathTable(paths, label));
    state.why.hidden = false; // before it is measured
    figure.replaceChildren(graph(paths, label, figure.clientWidth, (chosen) => choose(state, chosen)));
  } catch (problem) {
    if (problem.name !== "AbortError") { state.why.replaceChildren(notice(problem)); state.why.hidden = false; }
  }
}

function arithmetic(item) {
  const parts = partsOf().filter((part) => typeof item[part] === "number");
  return h("p", { class: "row number" },
    parts.map((part) => h("span", {}, h("span", { class: `dot ${kindOf(part)}` }), `${nameOf(part)} ${score(item[part])}`)),
    h("strong", {}, `score ${score(item.score)}`));
}

function pathTable(paths, label) {
  const own = paths.edges.filter((edge) => edge.label === label).sort((a, b) => b.weight - a.weight);
  const scores = new Map(paths.clusters.map((each) => [each.cluster, each]));
  return h("details", {}, h("summary", {}, `All ${own.length} paths to ${label} as a table`),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", {}, "Cluster"), h("th", { class: "number" }, "Cluster score"), h("th", { class: "number" }, "Edge score"), h("th", { class: "number" }, "Path"), h("th", {}, ""))),
      h("tbody", {}, own.map((edge) => h("tr", {},
        h("td", {}, h("a", { href: `#/explore/cluster/${edge.cluster}` }, `${edge.cluster}`), ` ${scores.get(edge.cluster).words.slice(0, 4).join(" ")}`),
        h("td", { class: "number" }, score(scores.get(edge.cluster).score)), h("td", { class: "number" }, score(edge.edge_score)),
        h("td", { class: "number" }, score(edge.weight)), h("td", {}, edge.wins ? h("span", { class: "badge" }, "wins") : "")))))));
}
