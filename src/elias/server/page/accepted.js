// What was accepted for the text at hand: the list, labels added by name, copy and download.
import { chosen } from "./api.js";
import { accepted, canUndo, decide, rejected, verdictOn, withdraw } from "./decisions.js";
import { button, h, icon, say, toast } from "./dom.js";
import { copy, download, FORMATS, labelsAs } from "./export.js";
import { t } from "./language.js";
import { labelSearch } from "./label_search.js";
import { nameOf, noteOf } from "./names.js";
import { keep, recall } from "./storage.js";
import { shownScore } from "./suggestions.js";

export function acceptedCard({ undo, find }) {
  const format = h("select", { id: "format", onchange: () => keep("format", format.value) }, FORMATS.map((each) => h("option", { value: each }, t(`accepted.${each}`))));
  format.value = FORMATS.includes(recall("format", "names")) ? recall("format", "names") : "names";
  const list = h("ul", { class: "accepted-list", id: "accepted" });
  const empty = h("p", { class: "quiet" }, t("accepted.empty"));
  const declined = h("details", { hidden: true });
  const count = h("span", { class: "count number", id: "accepted-count" });
  const [copying, saving] = [button(t("accepted.copy"), () => copyAll(), { id: "copy" }), button(t("accepted.download"), () => save(), { id: "download" })];
  const back = button(t("accepted.undo"), undo, { id: "undo", class: "small" });

  function refresh() {
    const items = accepted();
    const open = declined.open;
    list.replaceChildren(...items.map((item) => h("li", { "data-label": item.label },
      h("span", { class: "name" }, nameOf(item)), h("span", { class: "quiet number" }, item.added ? t("accepted.added") : shownScore(item.score)),
      remover(item, "accepted.remove"), noteOf(item) ? h("span", { class: "note" }, noteOf(item)) : null)));
    list.hidden = !items.length;
    empty.hidden = items.length > 0;
    count.textContent = items.length ? String(items.length) : "";
    const no = rejected();
    declined.replaceChildren(h("summary", {}, t("accepted.rejected", { n: no.length })), h("ul", { class: "accepted-list rejected-list" }, no.map((item) => h("li", { "data-label": item.label }, h("span", { class: "name" }, nameOf(item)), remover(item, "accepted.restore")))));
    declined.hidden = !no.length;
    declined.open = open;
    copying.disabled = saving.disabled = !items.length;
    back.disabled = !canUndo();
  }

  const remover = (item, key) => button(icon("cross"), () => {
    const after = document.activeElement?.closest("li")?.nextElementSibling?.dataset.label;
    withdraw(item.label);
    say(t("decision.said.open", { label: nameOf(item) }));
    (list.querySelector(`[data-label="${CSS.escape(after ?? "")}"] button`) ?? back).focus();
  }, { class: "verdict no", "aria-label": t(key, { label: nameOf(item) }), title: t(key, { label: nameOf(item) }) });

  async function copyAll() {
    const items = accepted();
    if (!items.length) return toast(t("accepted.nothing"));
    return toast((await copy(labelsAs(format.value, items))) ? t("accepted.copied", { n: items.length }) : t("accepted.notCopied"));
  }

  const save = () => download(`labels.${format.value === "csv" ? "csv" : "txt"}`, labelsAs(format.value, accepted()));

  const add = (hit) => {
    if (verdictOn(hit.label) === "accepted") return;
    decide(find(hit.label) ?? { ...hit, added: true }, "accepted");
    say(t("decision.said.accepted", { label: nameOf(hit) }));
  };

  refresh();
  return {
    element: h("section", { class: "card accepted-card", "aria-labelledby": "accepted-title" },
      h("div", { class: "row spread" }, h("h2", { id: "accepted-title" }, t("accepted.title"), " ", count), back),
      empty, list, declined,
      labelSearch({ id: "add-label", title: t("accepted.add"), pick: add }),
      h("div", { class: "row" }, h("label", { for: "format" }, t("accepted.format"), " ", format), copying, saving),
      h("p", { class: "quiet promise", id: "feedback" }, chosen.feedback ? t("feedback.server") : t("feedback.local"))),
    refresh,
    copy: copyAll,
  };
}
