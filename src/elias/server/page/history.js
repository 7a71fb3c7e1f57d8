// Finished texts with their labels, in this browser only: kept, shown, opened again, exported.
import { chosen } from "./api.js";
import { accepted, draft, rejected, reopen } from "./decisions.js";
import { button, h, notice, toast } from "./dom.js";
import { copy, csvOf, download, jsonlOf, labelsAs, listCell } from "./export.js";
import { send } from "./feedback.js";
import { moment, t } from "./language.js";
import { nameOf } from "./names.js";
import { keep, keyOf, recall } from "./storage.js";

const MOST = 500; // entries; the oldest go first
let unsaved = null; // the history of a browser that stores nothing

export const entries = () => unsaved ?? recall("history", []);

function store(list) {
  let kept = list.slice(0, MOST);
  // Browsers give a page about 5 MB: long texts may leave room for fewer.
  while (!keep("history", kept) && kept.length > 1) kept = kept.slice(0, Math.ceil(kept.length / 2));
  unsaved = keep("history", kept) ? null : list.slice(0, MOST);
}

// The text at hand as an entry; one that was opened from the history takes the place of its old version.
export function finished() {
  const id = draft.entry ?? `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
  const plain = ({ label, text, uri, score, added }) => ({ label, text, uri, score, added });
  return { id, time: new Date().toISOString(), model: chosen.model, text: draft.text, accepted: accepted().map(plain), rejected: rejected().map(plain) };
}

export const put = (entry) => store([entry, ...entries().filter((each) => each.id !== entry.id)]);
const change = (entry, values) => store(entries().map((each) => (each.id === entry.id ? { ...each, ...values } : each)));
const remove = (entry) => store(entries().filter((each) => each.id !== entry.id));
export const markSent = (entry, sent) => change(entry, { sent });

// As `elias fit` reads it.
const asJsonl = (list) => jsonlOf(list.filter((entry) => entry.accepted.length).map((entry) => ({ text: entry.text, labels: entry.accepted.map((each) => each.label) })));

function asCsv(list) {
  const ids = (items) => items.map((each) => each.label);
  const [labels, names, no] = [listCell(list.map((entry) => ids(entry.accepted))), listCell(list.map((entry) => entry.accepted.map(nameOf))), listCell(list.map((entry) => ids(entry.rejected)))];
  return csvOf(["id", "text", "labels", "names", "rejected", "model", "time"],
    list.map((entry) => [entry.id, entry.text, labels(ids(entry.accepted)), names(entry.accepted.map(nameOf)), no(ids(entry.rejected)), entry.model, entry.time]));
}

export async function history(place) {
  const list = h("ol", { class: "entries" });
  const count = h("p", { class: "number quiet", id: "history-count" });
  const filter = h("input", { type: "search", id: "history-filter", autocomplete: "off" });
  const tools = h("div", { class: "row" },
    button(t("history.jsonl"), () => download("elias-history.jsonl", asJsonl(entries()))),
    button(t("history.csv"), () => download("elias-history.csv", asCsv(entries()))),
    button(t("history.clear"), () => askToClear(draw), { class: "danger", id: "history-clear" }));
  const full = h("section", { class: "card" },
    h("div", { class: "row spread history-tools" }, h("div", { class: "grow" }, h("label", { for: "history-filter" }, t("history.filter")), filter), tools),
    h("p", { class: "quiet" }, t("history.note")), count, list);
  const empty = h("p", { class: "card empty" }, t("history.empty"));
  place.append(h("h1", {}, t("history.title")), h("p", { class: "lead" }, t("history.lead", { n: MOST })), full, empty);
  function draw() {
    const all = entries();
    full.hidden = !all.length;
    empty.hidden = all.length > 0;
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((entry) => {
      const content = [entry.text, ...entry.accepted.map((each) => `${each.label} ${each.text ?? ""}`)].join(" ").toLowerCase();
      return wanted.every((word) => content.includes(word));
    });
    count.textContent = found.length ? t("history.count", { n: found.length }) : t("history.none");
    list.replaceChildren(...found.map((entry) => row(entry, draw)));
    if (unsaved) place.append(notice(t("error.storage")));
  }
  filter.addEventListener("input", draw);
  const elsewhere = (event) => event.key === keyOf("history") && draw(); // another tab has changed it
  window.addEventListener("storage", elsewhere);
  draw();
  return () => window.removeEventListener("storage", elsewhere);
}

function row(entry, draw) {
  const start = entry.text.length > 240 ? `${entry.text.slice(0, 240)}…` : entry.text;
  const act = (key, run) => button(t(key), run, { class: "small", "aria-label": t("history.about", { action: t(key), text: entry.text.slice(0, 60) }) });
  const again = async () => {
    try {
      await send(entry);
      markSent(entry, true);
      toast(t("history.sent"));
      draw();
    } catch (problem) {
      toast(problem.message);
    }
  };
  return h("li", { class: "entry", "data-entry": entry.id },
    h("p", { class: "quiet row" }, h("time", { datetime: entry.time }, moment(entry.time)), chosen.models.length > 1 ? h("span", {}, entry.model) : null,
      entry.rejected.length ? h("span", {}, t("history.rejected", { n: entry.rejected.length })) : null, entry.sent === false ? h("span", { class: "badge" }, t("history.unsent")) : null),
    h("p", { class: "excerpt" }, start),
    entry.accepted.length ? h("ul", { class: "chips" }, entry.accepted.map((each) => h("li", { class: "chip", title: each.label }, nameOf(each)))) : h("p", { class: "quiet" }, t("history.noLabels")),
    h("div", { class: "row" },
      act("history.open", () => { reopen(entry); location.hash = "#/suggest"; }),
      entry.accepted.length ? act("history.copy", async () => toast((await copy(labelsAs("names", entry.accepted))) ? t("accepted.copied", { n: entry.accepted.length }) : t("accepted.notCopied"))) : null,
      entry.sent === false && chosen.feedback ? act("history.send", again) : null,
      act("history.delete", () => { remove(entry); toast(t("history.deleted")); draw(); document.getElementById("history-filter").focus(); })));
}

function askToClear(draw) {
  const dialog = h("dialog", { "aria-labelledby": "sure" },
    h("h2", { id: "sure" }, t("history.sure")),
    h("form", { method: "dialog", class: "row" }, h("button", { value: "keep" }, t("history.keep")), h("button", { value: "clear", class: "main" }, t("history.clear"))));
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "clear") { store([]); draw(); toast(t("history.deleted")); }
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
}
