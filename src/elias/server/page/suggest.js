// The Suggest tab: a text, its suggestions while it is typed, the decisions about them, and on to the next text.
import { acceptedCard } from "./accepted.js";
import { chosen, facts, post } from "./api.js";
import { clear, draft, next, onDecision, undo, write } from "./decisions.js";
import { button, h, notice, onDrop, say, toast } from "./dom.js";
import { explanation } from "./explanation.js";
import { isStored, send } from "./feedback.js";
import { finished, markSent, put } from "./history.js";
import { t } from "./language.js";
import { nameOf } from "./names.js";
import { help, shortcuts } from "./shortcuts.js";
import { keep, recall } from "./storage.js";
import { shownScore, suggestionList } from "./suggestions.js";
import { countWords, markedField } from "./words.js";

const WAIT = 120; // milliseconds after the last key
const COUNTS = ["5", "10", "20", "50"];

export async function suggest(place) {
  const area = h("textarea", { id: "text", spellcheck: "false", placeholder: t("suggest.placeholder") });
  const field = markedField(area);
  const size = h("select", { id: "k" }, COUNTS.map((k) => h("option", { value: k }, k)));
  size.value = COUNTS.includes(recall("k", "20")) ? recall("k", "20") : "20";
  const slider = h("input", { type: "range", id: "threshold", min: "0", max: "95", step: "1" });
  slider.value = String(recall("threshold", 5));
  const from = h("output", { for: "threshold", class: "number", id: "threshold-value" });
  const counted = h("span", { class: "quiet number" });
  const examples = h("p", { class: "quiet examples", hidden: true });
  const messages = h("div", { id: "messages" });
  const unknown = h("div", {});
  const done = button(t("suggest.done"), finish, { class: "main", id: "done", title: t("suggest.doneHint") });
  let [timer, asked, items, reasons, leaving] = [0, null, [], { key: "" }, false];

  const list = suggestionList({ why, closeWhy: () => field.mark([]), showAll: () => { slider.value = "0"; changeThreshold(); list.focus(); } });
  const basket = acceptedCard({ undo: goBack, find: (label) => items.find((item) => item.label === label) });
  const file = h("input", { type: "file", id: "open", class: "visually-hidden", accept: ".txt,text/plain", onchange: () => file.files.length && read(file.files[0]) });

  place.append(
    h("div", { class: "row spread head" }, h("div", {}, h("h1", {}, t("suggest.title")), h("p", { class: "lead" }, t("suggest.lead", { n: facts().labels }))),
      button(["? ", t("keys.open")], help, { class: "quiet-button", id: "help" })),
    messages,
    h("div", { class: "desk" },
      h("section", { class: "card text-card", "aria-label": t("suggest.text") },
        h("div", { class: "row spread" }, h("label", { for: "text" }, t("suggest.text")), counted), field.element, examples,
        h("div", { class: "row spread" },
          h("div", { class: "row" }, file, h("label", { for: "open", class: "button small" }, t("suggest.open")), button(t("suggest.clear"), startAgain, { class: "small", id: "clear" })), done)),
      h("section", { class: "card suggestions-card", "aria-labelledby": "suggestions-title" },
        h("div", { class: "row spread" }, h("h2", { id: "suggestions-title" }, t("suggest.suggestions")), h("label", { for: "k", class: "inline" }, t("suggest.count"), " ", size)),
        h("div", { class: "slider" }, h("label", { for: "threshold" }, t("suggest.threshold")), slider, from),
        facts().threshold ? null : h("p", { class: "quiet" }, t("suggest.uncalibrated")),
        unknown, list.element),
      basket.element));

  const threshold = () => Number(slider.value) / 100;

  function changeThreshold() {
    from.textContent = shownScore(threshold());
    slider.setAttribute("aria-valuetext", from.textContent);
    keep("threshold", Number(slider.value));
    if (items.length) list.draw(items, threshold());
  }

  function show(text) {
    area.value = text;
    area.dispatchEvent(new Event("input"));
    clearTimeout(timer);
    ask();
  }

  async function ask() {
    asked?.abort();
    const text = area.value;
    const words = countWords(text);
    counted.textContent = words ? t("suggest.words", { n: words }) : "";
    unknown.replaceChildren();
    done.disabled = !text.trim();
    examples.hidden = Boolean(text.trim()) || !examples.childElementCount;
    if (!text.trim()) {
      items = [];
      list.empty(t("suggest.waiting"));
      return;
    }
    asked = new AbortController();
    try {
      const answer = await post("/v1/predict", { texts: [text], k: Number(size.value) }, asked.signal);
      const [result] = answer.results;
      items = result.labels;
      if (result.known_words === 0) unknown.replaceChildren(h("p", { class: "notice", id: "unknown" }, t("suggest.unknown")));
      list.draw(items, threshold());
      say([result.known_words === 0 ? t("suggest.unknown") : "", items.length ? t("suggest.found", { n: list.count, first: nameOf(items[0]), score: shownScore(items[0].score) }) : t("suggest.none")].join(" ").trim());
    } catch (problem) {
      if (problem.name === "AbortError") return;
      items = [];
      list.empty(notice(problem));
    }
  }

  // The reasons of all suggestions are asked for once per text, when the first is wanted: typing stays quick.
  async function why(item) {
    const text = area.value;
    const key = JSON.stringify([chosen.model, text, size.value]);
    if (reasons.key !== key) reasons = { key, answer: post("/v1/predict", { texts: [text], k: Number(size.value), explain: true }) };
    try {
      const [result] = (await reasons.answer).results;
      const told = explanation(result.labels.find((each) => each.label === item.label) ?? item, text);
      if (area.value === text && !leaving) field.mark(told.words);
      return told.element;
    } catch (problem) {
      reasons = { key: "" };
      return notice(problem);
    }
  }

  function startAgain() {
    clear();
    show("");
    area.focus();
  }

  function goBack() {
    const went = undo();
    toast(went ? t("decision.undone") : t("decision.nothing"));
    if (went?.text) show(draft.text);
  }

  async function finish() {
    if (!draft.text.trim()) return;
    const entry = finished();
    const toSend = isStored(entry);
    put(toSend ? { ...entry, sent: false } : entry);
    messages.replaceChildren();
    next();
    show("");
    area.focus();
    toast(t("suggest.stored"));
    if (!toSend) return;
    try {
      await send(entry);
      markSent(entry, true);
    } catch (problem) {
      messages.replaceChildren(notice(t("feedback.failed", { problem: problem.message.replace(/[.!?]?$/, ".") })));
    }
  }

  async function read(given) {
    file.value = "";
    if (!/\.(txt|text|md)$/i.test(given.name) && given.type !== "text/plain") return messages.replaceChildren(notice(t("suggest.notText", { name: given.name })));
    messages.replaceChildren();
    const bytes = await given.arrayBuffer();
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    } catch {
      text = new TextDecoder("windows-1252").decode(bytes); // what older editors on Windows write
    }
    show(text.trim());
    return area.focus();
  }

  function offerExamples() {
    const some = chosen.sample.filter((each) => each.text.length > 12).filter((_, i) => i % 13 === 0).slice(0, 3);
    if (some.length) examples.append(h("span", {}, t("suggest.try")), ...some.map((each) => button(each.text, () => { show(each.text); area.focus(); }, { class: "chip" })));
  }

  area.addEventListener("input", () => {
    write(area.value);
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT);
  });
  slider.addEventListener("input", changeThreshold);
  size.addEventListener("change", () => { keep("k", size.value); ask(); });
  onDrop(area, read);
  onDecision(() => { list.refresh(); basket.refresh(); });
  const silence = shortcuts({
    next: () => list.move(1), previous: () => list.move(-1), accept: () => list.choose("accepted"), reject: () => list.choose("rejected"), why: () => list.toggle(),
    undo: goBack, copy: basket.copy, search: () => document.getElementById("add-label").focus(), text: () => area.focus(), done: finish,
    leave: () => list.focus() || document.activeElement.blur(),
  });
  changeThreshold();
  offerExamples();
  area.value = draft.text;
  ask();
  return () => { leaving = true; clearTimeout(timer); asked?.abort(); silence(); onDecision(() => {}); };
}
