// Keys of the Suggest tab. Single keys act outside text fields, and can be switched off in the help.
import { button, h } from "./dom.js";
import { t } from "./language.js";
import { keep, recall } from "./storage.js";

const isField = (element) => element instanceof HTMLElement && (element.matches("textarea, select, input:not([type=checkbox], [type=file])") || element.isContentEditable);
const usesEnter = (element) => element.matches("button, a, summary, [role=button]") && !element.matches("[data-main]");

// `acts` has a function per key or action; returns what stops it.
export function shortcuts(acts) {
  const single = {
    j: acts.next, ArrowDown: acts.next, k: acts.previous, ArrowUp: acts.previous,
    a: acts.accept, r: acts.reject, Delete: acts.reject, u: acts.undo, c: acts.copy,
    "/": acts.search, t: acts.text, "?": help,
  };
  function press(event) {
    if (document.querySelector("dialog[open]") || event.defaultPrevented || event.isComposing) return;
    const at = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return run(acts.done);
    if (event.key === "Escape" && isField(at)) return run(acts.leave);
    if (event.ctrlKey || event.metaKey || event.altKey || isField(at) || !recall("keys", true)) return undefined;
    if (event.key === "Enter") return at === document.body || (at instanceof HTMLElement && !usesEnter(at)) ? run(acts.accept) : undefined;
    if (event.key === " " && at === document.body) return run(acts.why);
    const act = Object.hasOwn(single, event.key) ? single[event.key] : null;
    return act ? run(act) : undefined;

    function run(what) {
      event.preventDefault();
      what();
    }
  }
  document.addEventListener("keydown", press);
  return () => document.removeEventListener("keydown", press);
}

export function help() {
  const keys = [
    [["j", "↓"], ["k", "↑"], "keys.move"], [["a", t("key.enter")], "keys.accept"], [["r", t("key.delete")], "keys.reject"], [[t("key.space")], "keys.why"],
    [["u"], "keys.undo"], [["c"], "keys.copy"], [["/"], "keys.search"], [["t"], "keys.text"], [[t("key.escape")], "keys.leave"],
    [[`${t("key.control")}+${t("key.enter")}`], "keys.done"], [["?"], "keys.help"],
  ];
  const on = h("input", { type: "checkbox", id: "keys-on", onchange: () => keep("keys", on.checked) });
  on.checked = recall("keys", true);
  const dialog = h("dialog", { class: "help", "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, t("keys.title")), h("p", { class: "quiet" }, t("keys.where")),
    h("dl", { class: "keys" }, keys.flatMap((row) => [h("dt", {}, row.slice(0, -1).flat().map((key) => h("kbd", {}, key))), h("dd", {}, t(row.at(-1)))])),
    h("p", { class: "row" }, on, h("label", { for: "keys-on" }, t("keys.on"))),
    button(t("dialog.close"), () => dialog.close(), { class: "main", autofocus: true }));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
