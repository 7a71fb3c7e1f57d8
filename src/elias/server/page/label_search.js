// A field that finds labels by words of their names, with the hits in a list below it (the ARIA combobox pattern).
import { get } from "./api.js";
import { h, notice, say } from "./dom.js";
import { t } from "./language.js";
import { nameOf, noteOf } from "./names.js";

const WAIT = 150; // milliseconds after the last key
const HITS = 8;

export function labelSearch({ id, title, pick }) {
  const list = h("ul", { class: "hits", id: `${id}-hits`, role: "listbox", "aria-label": title, hidden: true });
  const empty = h("div", {});
  const input = h("input", {
    type: "text", id, role: "combobox", placeholder: t("search.placeholder"), autocomplete: "off", spellcheck: "false",
    "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list",
  });
  let [timer, asked, found, at] = [0, null, [], -1];

  function show(hits) {
    found = hits;
    list.replaceChildren(...hits.map((hit, i) => h("li", {
      role: "option", id: `${id}-${i}`, class: "hit", "aria-selected": "false", "data-label": hit.label,
      onmousedown: (event) => event.preventDefault(), onclick: () => choose(i), // the field keeps the focus
    }, h("span", { class: "name" }, nameOf(hit)), h("span", { class: "quiet number" }, t("search.texts", { n: hit.training_count })), noteOf(hit) ? h("span", { class: "note" }, noteOf(hit)) : null)));
    list.hidden = !hits.length;
    input.setAttribute("aria-expanded", String(hits.length > 0));
    move(-1);
  }

  function move(to) {
    at = to;
    [...list.children].forEach((each, i) => each.setAttribute("aria-selected", String(i === at)));
    if (at < 0) input.removeAttribute("aria-activedescendant");
    else {
      input.setAttribute("aria-activedescendant", `${id}-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    }
  }

  function choose(i) {
    const hit = found[i];
    close();
    input.value = "";
    pick(hit);
  }

  function close() {
    clearTimeout(timer);
    asked?.abort();
    empty.replaceChildren();
    show([]);
  }

  async function find() {
    asked?.abort();
    empty.replaceChildren();
    if (!input.value.trim()) return show([]);
    asked = new AbortController();
    try {
      const answer = await get("/v1/labels", { search: input.value.slice(0, 200), limit: HITS }, asked.signal);
      show(answer.labels);
      if (!answer.labels.length) empty.replaceChildren(h("p", { class: "quiet" }, t("search.none")));
      say(t("search.found", { n: answer.total }));
    } catch (problem) {
      if (problem.name !== "AbortError") empty.replaceChildren(notice(problem));
    }
    return undefined;
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, WAIT);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (found.length) move((at + (event.key === "ArrowDown" ? 1 : at < 0 ? 0 : -1) + found.length) % found.length);
    } else if (event.key === "Enter" && !event.ctrlKey && found.length) {
      event.preventDefault();
      choose(Math.max(0, at)); // without a choice the best
    } else if (event.key === "Escape") {
      if (input.value) event.stopPropagation(); // the first time it empties the field, the second time it leaves
      input.value = "";
      close();
    }
  });
  return h("div", { class: "search" }, h("label", { for: id }, title), input, list, empty);
}
