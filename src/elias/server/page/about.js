// What is being served: the model, its data and metrics, settings, versions, limits.
import { get } from "./api.js";
import { h, number } from "./dom.js";

const shown = (value) => (typeof value === "number" ? number(value) : typeof value === "boolean" ? (value ? "yes" : "no") : value === null || value === "" ? "none" : String(value));
const list = (pairs) => h("dl", {}, Object.entries(pairs).flatMap(([name, value]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", { class: "number" }, shown(value))]));
const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), ...content);

export async function about(place) {
  const model = await get("/v1/model");
  const settings = Object.entries(model.settings).map(([section, values]) =>
    h("details", {}, h("summary", {}, section), typeof values === "object" && values !== null ? list(values) : shown(values)));
  place.append(
    h("h1", {}, `Model ${model.name}`),
    h("p", { class: "quiet" }, `Trained on ${model.data}. The interface for programs is described at `, h("a", { href: "/docs" }, "/docs"), "."),
    h("div", { class: "grid halves" },
      card("Model", list({ labels: model.labels, clusters: model.clusters, edges: model.edges, "training rows": model.training_rows, "parts of a score": model.parts.filter((part) => part !== "cluster").join(", ").replaceAll("_", " "), "scores are probabilities": model.threshold, loaded: new Date(model.loaded).toLocaleString() })),
      card("Measured when it was trained", Object.keys(model.validation).length ? list(model.validation) : h("p", { class: "quiet" }, "No metrics are stored with this model.")),
      card("Data", list(model.dataset)),
      card("Versions", list(model.versions)),
      card("Settings", ...(settings.length ? settings : [h("p", { class: "quiet" }, "None are stored with this model.")])),
      card("Limits of the service", list(model.limits))));
}
