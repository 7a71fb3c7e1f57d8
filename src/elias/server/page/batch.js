// A file of texts in, a file of suggestions out, a few hundred texts at a time. It goes on while another tab is shown.
import { chosen, facts, post } from "./api.js";
import { button, h, notice, onDrop, say } from "./dom.js";
import { csvOf, download, jsonlOf } from "./export.js";
import { rowsOf } from "./files.js";
import { fixed, number, percent, t } from "./language.js";
import { nameOf } from "./names.js";
import { keep, recall } from "./storage.js";
import { shownScore } from "./suggestions.js";

const PIECE = 200;
const CHARACTERS = 2_000_000;
const PREVIEW = 20;
const COUNTS = ["1", "3", "5", "10", "20"];
const DOWNLOADS = ["csv", "jsonl"];

// The file at work: { name, settings, rows, results, line, problem, stopped, running }.
let job = null;
let draw = () => {};

export async function batch(place) {
  const input = h("input", { type: "file", id: "file", accept: ".txt,.csv,.tsv,.jsonl,.gz" });
  const size = choice("batch-k", COUNTS, "5");
  const format = choice("batch-format", DOWNLOADS, "csv");
  const least = h("input", { type: "number", id: "batch-threshold", min: "0", max: "100", step: "1", onchange: () => keep("batch-threshold", share()) });
  least.value = String(Math.round(100 * recall("batch-threshold", 0)));
  const share = () => Math.max(0, Math.min(100, Number(least.value) || 0)) / 100;
  const work = h("div", { id: "work" });
  const drop = h("div", { class: "drop", id: "drop" },
    h("p", {}, h("label", { for: "file" }, t("batch.choose")), input),
    h("p", { class: "quiet" }, t("batch.formats")),
    h("div", { class: "row centered" }, h("label", { for: "batch-k" }, t("batch.count"), " ", size),
      facts().threshold ? h("label", { for: "batch-threshold" }, t("batch.threshold"), " ", least, " %") : null,
      h("label", { for: "batch-format" }, t("batch.format"), " ", format)));
  place.append(h("h1", {}, t("batch.title")), h("p", { class: "lead" }, t("batch.lead")), h("div", { class: "grid" }, drop, work));
  const begin = (file) => run(file, { model: chosen.model, k: Number(size.value), threshold: facts().threshold ? share() : null });
  input.addEventListener("change", () => input.files.length && begin(input.files[0]));
  onDrop(drop, begin);
  format.addEventListener("change", () => draw());
  draw = () => work.replaceChildren(job ? card(job, format.value) : "");
  draw();
  return () => { draw = () => {}; };
}

function choice(id, values, usual) {
  const select = h("select", { id, onchange: () => keep(id, select.value) }, values.map((each) => h("option", { value: each }, each)));
  select.value = values.includes(recall(id, usual)) ? recall(id, usual) : usual;
  return select;
}

async function run(file, settings) {
  job?.stopped.abort();
  const mine = (job = { name: file.name, settings, rows: [], results: [], line: t("batch.reading", { name: file.name }), problem: null, stopped: new AbortController(), running: true });
  draw();
  try {
    mine.rows = await rowsOf(file);
    if (!mine.rows.length) throw new Error(t("batch.noText", { name: file.name }));
    const { k, model, threshold } = settings;
    const began = performance.now();
    while (mine.results.length < mine.rows.length) {
      const piece = pieceFrom(mine.rows, mine.results.length);
      const asked = { model, texts: piece.map((row) => row.text), k, ...(threshold ? { threshold } : {}) };
      const answer = await patiently(mine, () => post("/v1/predict", asked, mine.stopped.signal));
      mine.results.push(...answer.results);
      const [done, n, spent] = [mine.results.length, mine.rows.length, (performance.now() - began) / 1000];
      mine.line = done < n ? t("batch.left", { done, n, seconds: fixed((spent / done) * (n - done), 0) }) : t("batch.all", { done, n, seconds: fixed(spent, 1) });
      draw();
    }
    say(t("batch.done", { n: mine.rows.length }));
  } catch (problem) {
    if (mine !== job) return; // another file took its place
    mine.problem = problem.name === "AbortError" ? null : problem;
    mine.line = t("batch.stopped", { n: mine.results.length });
    say(problem.name === "AbortError" ? mine.line : problem.message);
  } finally {
    mine.running = false;
    if (mine === job) draw();
  }
}

function pieceFrom(rows, at) {
  let [stop, characters] = [at, 0];
  while (stop < rows.length && stop - at < PIECE && (characters === 0 || characters + rows[stop].text.length < CHARACTERS)) {
    characters += rows[stop].text.length;
    stop += 1;
  }
  return rows.slice(at, stop);
}

// Retry when the service is busy, after the seconds in its Retry-After header.
async function patiently(mine, ask) {
  for (;;) {
    try {
      return await ask();
    } catch (problem) {
      if (problem.status !== 503) throw problem;
      mine.line = t("batch.busy");
      draw();
      await new Promise((resolve) => setTimeout(resolve, 1000 * (problem.retryAfter || 1)));
      mine.stopped.signal.throwIfAborted();
    }
  }
}

// Every line of a download says what it was made from: the text, the model and the settings.
function content({ rows, results, settings }, format) {
  const { model, k, threshold } = settings;
  const about = { model, k, ...(threshold === null ? {} : { threshold }) };
  if (format === "jsonl") return jsonlOf(results.map((result, i) => ({ ...(rows[i].id === null ? {} : { id: rows[i].id }), text: rows[i].text, ...result, ...about })));
  const cells = (i, each) => [i + 1, rows[i].id, rows[i].text, each?.label, each ? nameOf(each) : "", each?.uri, each?.score ?? "", model, k, threshold ?? ""];
  // A text without a label keeps a line, so that none is lost.
  return csvOf(["row", "id", "text", "label", "name", "uri", "score", "model", "k", "threshold"], results.flatMap((result, i) => (result.labels.length ? result.labels : [null]).map((each) => cells(i, each))));
}

function card(mine, format) {
  const { rows, results, settings } = mine;
  const shown = { model: settings.model, k: settings.k, threshold: settings.threshold === null ? "" : percent(settings.threshold) };
  const stem = mine.name.replace(/(\.(txt|csv|tsv|jsonl))?(\.gz)?$/, "");
  return h("section", { class: "card", "aria-label": t("batch.progress") },
    h("h2", {}, mine.name),
    h("p", { class: "quiet" }, t(settings.threshold ? "batch.settingsFrom" : "batch.settings", shown)),
    h("progress", { max: 1, value: rows.length ? results.length / rows.length : 0, "aria-label": t("batch.meter") }),
    h("div", { class: "row spread" }, h("p", { class: "number" }, mine.problem && !results.length ? "" : mine.line), mine.running ? button(t("batch.stop"), () => mine.stopped.abort()) : null),
    mine.problem ? notice(mine.problem) : null,
    !mine.running && results.length ? finished(mine, format, stem) : null);
}

function finished(mine, format, stem) {
  const { rows, results } = mine;
  return h("div", {},
    h("p", {}, button(t("batch.download", { format }), () => download(`${stem}.labels.${format}`, content(mine, format)), { class: "main", id: "batch-download" })),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("batch.first") }, h("table", {},
      h("caption", { class: "visually-hidden" }, t("batch.first")),
      h("thead", {}, h("tr", {}, [t("batch.text"), t("batch.labels")].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, results.slice(0, PREVIEW).map((result, i) => h("tr", {},
        h("td", {}, rows[i].id === null ? "" : h("b", {}, `${rows[i].id} `), rows[i].text.slice(0, 120)),
        h("td", {}, result.labels.map((each) => [nameOf(each), h("span", { class: "quiet number" }, ` ${shownScore(each.score)}`), h("br")]))))))),
    results.length > PREVIEW ? h("p", { class: "quiet" }, t("batch.firstOf", { shown: PREVIEW, n: number(results.length) })) : null);
}
