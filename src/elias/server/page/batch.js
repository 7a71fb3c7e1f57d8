// A file of texts in, a file of suggestions out, a few hundred texts at a time.
import { post } from "./api.js";
import { h, notice, number, say, score } from "./dom.js";
import { asCsv, asJsonl, rowsOf } from "./files.js";

const PIECE = 200;
const CHARACTERS = 2_000_000;
const PREVIEW = 20;

export async function batch(place) {
  const input = h("input", { type: "file", id: "file", accept: ".txt,.csv,.tsv,.jsonl,.gz" });
  const size = h("select", { id: "batch-k" }, ["1", "3", "5", "10", "20"].map((k) => h("option", { value: k }, k)));
  size.value = "5";
  const drop = h("div", { class: "drop", id: "drop" },
    h("p", {}, h("label", { for: "file" }, "Drop a .txt, .csv, .tsv or .jsonl file here, or choose one"), input),
    h("p", { class: "quiet" }, "A .txt has one text per line; a .csv has columns text and optionally title and id; a .jsonl one object per line with the same fields. Any of them may be .gz. Nothing is stored."),
    h("div", { class: "row centered" }, h("label", { for: "batch-k" }, "Labels per text ", size)));
  const work = h("div", { id: "work", class: "grid" });
  place.append(h("h1", {}, "Batch"), h("p", { class: "quiet" }, "Suggestions for a whole file."), h("div", { class: "grid" }, drop, work));
  const state = { work, size, stopped: null };
  input.addEventListener("change", () => input.files.length && run(state, input.files[0]));
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) run(state, event.dataTransfer.files[0]);
  });
  return () => state.stopped?.abort();
}

async function run(state, file) {
  state.stopped?.abort();
  const stopped = (state.stopped = new AbortController());
  const meter = h("progress", { max: 1, value: 0, "aria-label": "Progress" });
  const line = h("p", { class: "number" }, `Reading ${file.name} …`);
  const stop = h("button", { type: "button", onclick: () => stopped.abort() }, "Stop");
  const card = h("section", { class: "card", "aria-label": "Progress and results" }, h("h2", {}, file.name), meter, h("div", { class: "row spread" }, line, stop));
  state.work.replaceChildren(card);
  const results = [];
  try {
    const rows = await rowsOf(file);
    if (!rows.length) throw new Error(`${file.name}: holds no text`);
    const began = performance.now();
    for (let at = 0; at < rows.length;) {
      const piece = pieceFrom(rows, at);
      const answer = await patiently(() => post("/v1/predict", { texts: piece.map((row) => row.text), k: Number(state.size.value) }, stopped.signal), stopped.signal, line);
      answer.results.forEach((result, i) => results.push(piece[i].id === null ? result : { id: piece[i].id, ...result }));
      at += piece.length;
      meter.value = at / rows.length;
      const left = ((performance.now() - began) / at) * (rows.length - at) / 1000;
      line.textContent = `${number(at)} of ${number(rows.length)} texts${at < rows.length ? `, about ${left.toFixed(0)} s left` : `, ${((performance.now() - began) / 1000).toFixed(1)} s`}`;
    }
    say(`Done: ${rows.length} texts`);
    card.append(finished(results, rows, file.name));
  } catch (problem) {
    card.append(problem.name === "AbortError" ? h("p", {}, `Stopped after ${number(results.length)} texts.`) : notice(problem));
    say(problem.name === "AbortError" ? "Stopped" : problem.message);
  } finally {
    stop.remove();
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
async function patiently(ask, signal, line) {
  for (;;) {
    try {
      return await ask();
    } catch (problem) {
      if (problem.status !== 503) throw problem;
      line.textContent = "The service is busy; waiting …";
      await new Promise((resolve) => setTimeout(resolve, 1000 * (problem.retryAfter || 1)));
      signal.throwIfAborted();
    }
  }
}

function finished(results, rows, name) {
  const stem = name.replace(/(\.(txt|csv|tsv|jsonl))?(\.gz)?$/, "");
  return h("div", {},
    h("p", { class: "row" }, download("Download .jsonl", `${stem}.labels.jsonl`, asJsonl(results), "application/jsonl"), download("Download .csv", `${stem}.labels.csv`, asCsv(results), "text/csv")),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "First results" }, h("table", {},
      h("caption", { class: "visually-hidden" }, "First results"),
      h("thead", {}, h("tr", {}, ["Text", "Best labels"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, results.slice(0, PREVIEW).map((result, i) => h("tr", {},
        h("td", {}, result.id === undefined ? "" : h("b", {}, `${result.id} `), rows[i].text.slice(0, 120)),
        h("td", {}, result.labels.map((each) => [each.label, h("span", { class: "quiet number" }, ` ${score(each.score)}`), h("br")]))))))),
    results.length > PREVIEW ? h("p", { class: "quiet" }, `The first ${PREVIEW} of ${number(results.length)}.`) : null);
}

function download(text, name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  return h("a", { class: "button", href: url, download: name }, text);
}
