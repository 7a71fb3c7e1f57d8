// The list of suggestions: a row per label with its probability, accept and reject, and on demand the reasons.
import { facts } from "./api.js";
import { decide, verdictOn } from "./decisions.js";
import { bar, button, h, icon, say } from "./dom.js";
import { percent, score, t } from "./language.js";
import { nameOf, noteOf } from "./names.js";

// Probabilities are percentages; the scores of a model that was not calibrated are plain numbers.
export const shownScore = (value) => (facts().threshold ? percent(value) : score(value));

export function suggestionList({ why, closeWhy, showAll }) {
  const place = h("div", { id: "results" });
  let [items, threshold, rows, opened, current] = [[], 0, new Map(), null, null];

  const isShown = (item) => item.score >= threshold || verdictOn(item.label) !== null;
  const labels = () => [...rows.keys()];
  const main = (label) => rows.get(label)?.main;

  function draw(found, from) {
    [items, threshold] = [found, from];
    const focused = place.contains(document.activeElement) ? document.activeElement.closest("[data-label]")?.dataset.label : null;
    const shown = items.filter(isShown);
    const hidden = items.length - shown.length;
    rows = new Map(shown.map((item) => [item.label, row(item)]));
    if (!rows.has(current)) current = null;
    place.replaceChildren(
      shown.length ? h("ol", { class: "suggestions" }, [...rows.values()].map((each) => each.element)) : h("p", { class: "empty" }, items.length ? "" : t("suggest.none")),
      hidden ? h("p", { class: "quiet row", id: "hidden" }, t("suggest.hidden", { n: hidden, threshold: shownScore(threshold) }), button(t("suggest.showAll"), showAll, { class: "small" })) : "");
    refresh();
    if (opened && rows.has(opened)) open(opened);
    else shut();
    if (focused) main(focused)?.focus();
  }

  function empty(text) {
    [items, rows] = [[], new Map()];
    shut();
    place.replaceChildren(typeof text === "string" ? h("p", { class: "empty" }, text) : text);
  }

  function row(item) {
    const name = nameOf(item);
    const verdict = h("span", { class: "visually-hidden" });
    const details = h("div", { class: "details", hidden: true });
    const mark = h("button", {
      type: "button", class: "pick", "data-main": true, "aria-expanded": "false", onclick: () => toggle(item.label), onfocus: () => { current = item.label; },
    }, icon("caret"), h("span", { class: "name" }, name), h("span", { class: "score number" }, shownScore(item.score)), noteOf(item) ? h("span", { class: "note" }, noteOf(item)) : null,
      bar(facts().threshold ? item.score : Math.sqrt(Math.max(0, item.score))), verdict);
    const yes = button(icon("check"), () => choose(item.label, "accepted"), { class: "verdict yes", "aria-label": t("suggest.accept", { label: name }), title: t("suggest.accept", { label: name }) });
    const no = button(icon("cross"), () => choose(item.label, "rejected"), { class: "verdict no", "aria-label": t("suggest.reject", { label: name }), title: t("suggest.reject", { label: name }) });
    const element = h("li", { class: "suggestion", "data-label": item.label }, h("div", { class: "line" }, mark, yes, no), details);
    return { item, element, main: mark, yes, no, details, verdict };
  }

  // After a decision only marks change: the rows, and with them the focus, stay where they are.
  function refresh() {
    for (const [label, each] of rows) {
      const verdict = verdictOn(label);
      each.element.classList.toggle("accepted", verdict === "accepted");
      each.element.classList.toggle("rejected", verdict === "rejected");
      each.yes.setAttribute("aria-pressed", String(verdict === "accepted"));
      each.no.setAttribute("aria-pressed", String(verdict === "rejected"));
      each.verdict.textContent = verdict ? `, ${t(`decision.${verdict}`)}` : "";
    }
  }

  function choose(label, verdict) {
    const { item } = rows.get(label);
    decide(item, verdict);
    say(t(`decision.said.${verdictOn(label) ?? "open"}`, { label: nameOf(item) }));
  }

  function shut() {
    const old = rows.get(opened);
    if (old) { old.details.hidden = true; old.main.setAttribute("aria-expanded", "false"); }
    opened = null;
    closeWhy();
  }

  async function open(label) {
    shut();
    opened = label;
    const { details, main: mark, item } = rows.get(label);
    mark.setAttribute("aria-expanded", "true");
    details.replaceChildren(h("p", { class: "quiet" }, t("why.loading")));
    details.hidden = false;
    const content = await why(item);
    if (opened === label && content) details.replaceChildren(content);
  }

  const toggle = (label) => (opened === label ? shut() : open(label));

  return {
    element: place,
    draw,
    empty,
    refresh,
    get count() { return rows.size; },
    get current() { return current; },
    focus(label = current ?? labels()[0]) {
      main(label)?.focus();
      return rows.has(label);
    },
    move(step) {
      const at = labels().indexOf(current);
      const to = at < 0 ? 0 : Math.max(0, Math.min(rows.size - 1, at + step));
      main(labels()[to])?.focus();
    },
    // By keyboard: decide, then on to the next row that is open.
    choose(verdict) {
      const label = current ?? labels()[0];
      if (!rows.has(label)) return;
      choose(label, verdict);
      const after = labels().slice(labels().indexOf(label) + 1);
      main(after.find((each) => verdictOn(each) === null) ?? label)?.focus();
    },
    toggle() {
      const label = current ?? labels()[0];
      if (rows.has(label)) toggle(label);
    },
  };
}
