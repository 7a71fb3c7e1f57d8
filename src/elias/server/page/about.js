// What is being served: how good the model is, its data and metrics, settings, versions, limits.
import { get } from "./api.js";
import { h } from "./dom.js";
import { fill, fixed, moment, named, number, t } from "./language.js";

function shown(value) {
  if (typeof value === "number") return number(value);
  if (typeof value === "boolean") return t(value ? "about.yes" : "about.no");
  if (value === null || value === undefined || value === "") return t("about.none");
  if (typeof value === "object") return Object.entries(value).map(([name, each]) => (Array.isArray(value) ? shown(each) : `${name} ${shown(each)}`)).join(", ") || t("about.none");
  return String(value);
}
const list = (pairs) => h("dl", {}, Object.entries(pairs).flatMap(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", { class: "number" }, shown(value))]));
const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), ...content);

export async function about(place) {
  const model = await get("/v1/model");
  const settings = Object.entries(model.settings).map(([section, values]) =>
    h("details", {}, h("summary", {}, section), typeof values === "object" && values !== null ? list(values) : shown(values)));
  const parts = model.parts.filter((part) => part !== "cluster").map((part) => named("part.", part)).join(", ");
  place.append(
    h("h1", {}, t("about.title", { name: model.name })),
    h("p", { class: "lead" }, fill("about.lead", { data: model.data, link: h("a", { href: "/docs" }, "/docs") })),
    model.quality ? quality(model.quality) : "",
    h("div", { class: "grid halves" },
      card(t("about.model"), list({
        [t("about.labels")]: model.labels, [t("about.clusters")]: model.clusters, [t("about.edges")]: model.edges, [t("about.rows")]: model.training_rows,
        [t("about.parts")]: parts, [t("about.probabilities")]: model.threshold, [t("about.loaded")]: moment(model.loaded),
      })),
      card(t("about.measured"), Object.keys(model.validation).length ? list(model.validation) : h("p", { class: "quiet" }, t("about.noMetrics"))),
      card(t("about.data"), list(model.dataset)),
      card(t("about.versions"), list(model.versions)),
      card(t("about.settings"), ...(settings.length ? settings : [h("p", { class: "quiet" }, t("about.noSettings"))])),
      card(t("about.limits"), list(model.limits))));
}

// The figures of the model beside those of two baselines on the same rows.
function quality(found) {
  const metrics = Object.keys(found.metrics);
  const line = (name, values, kind) => h("tr", { class: kind }, h("th", { scope: "row" }, name), metrics.map((metric) => h("td", { class: "number" }, typeof values[metric] === "number" ? fixed(values[metric], 1) : "")));
  const rows = found.rows === "test" ? "about.quality.test" : "about.quality.held-out";
  return h("section", { class: "card quality", id: "quality" }, h("h2", {}, t("about.quality")),
    h("p", {}, t(rows, { n: found.n_rows })),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("about.quality") }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("about.quality.system")), metrics.map((metric) => h("th", { scope: "col", class: "number" }, metric)))),
      h("tbody", {}, line(t("about.quality.model"), found.metrics, "own"), Object.entries(found.baselines ?? {}).map(([name, values]) => line(named("about.quality.", name), values, null))))),
    typeof found.calibration_error === "number" ? h("p", {}, t("about.calibration", { points: fixed(100 * found.calibration_error, 1) })) : null,
    h("ul", { class: "quiet plain-list" }, metrics.map((metric) => h("li", {}, named("about.metric.", metric)))));
}
