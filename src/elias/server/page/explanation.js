// Why a label was suggested: words, similar training texts, and the parts of the score as bars that add up to it.
import { facts } from "./api.js";
import { bar, h, labelLink } from "./dom.js";
import { named, percent, score, signed, t } from "./language.js";
import { sharedWords } from "./words.js";

const NOT_A_PART = new Set(["cluster", "member"]); // numbers of a cluster or a model, not of a score

export function explanation(item, text) {
  const told = item.explanation;
  const words = told ? told.words.map((each) => each.word) : sharedWords(text, `${item.label} ${item.text ?? ""}`);
  const parts = told ? contributions(told, item) : plainParts(item);
  const element = h("div", { class: "why" },
    words.length || told ? part(told ? t("why.words") : t("why.shared"), words.length ? wordChips(words, told) : h("p", { class: "quiet" }, t("why.noWords"))) : null,
    told?.texts.length ? part(t("why.texts"), h("ul", { class: "texts" }, told.texts.map(similarText))) : null,
    parts,
    h("p", { class: "row links" },
      facts().explore ? h("a", { href: `#/how/text/${encodeURIComponent(item.label)}` }, t("why.path")) : null,
      facts().explore ? h("a", { href: labelLink(item.label) }, t("why.label")) : null,
      /^https?:\/\//.test(item.uri ?? "") ? h("a", { href: item.uri, target: "_blank", rel: "noopener noreferrer" }, t("why.uri")) : null));
  return { element, words };
}

const part = (title, ...content) => h("div", { class: "reason" }, h("h3", {}, title), content);

function wordChips(words, told) {
  return h("ul", { class: "chips" }, words.map((word, i) => h("li", { class: "chip", title: told ? signed(told.words[i].weight) : null }, word)));
}

function similarText({ id, text, similarity }) {
  return h("li", {}, h("p", { class: "excerpt" }, text),
    h("p", { class: "quiet" }, [t("why.similarity", { share: percent(similarity) }), id].filter(Boolean).join(" · ")));
}

// Signed bars around a common zero; base first, as it came, then the strongest.
function contributions(told, item) {
  const { base, ...others } = told.contributions;
  const rows = Object.entries(others).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  if (base !== undefined) rows.unshift(["base", base]);
  const most = Math.max(...rows.map(([, value]) => Math.abs(value)), 1e-9);
  const sum = facts().threshold ? t("why.total", { score: signed(told.score), probability: percent(item.score) }) : t("why.totalPlain", { score: signed(told.score) });
  return part(t("why.parts"),
    h("ul", { class: "contributions" }, rows.map(([name, value]) => h("li", {}, h("span", {}, named("part.", name)), signedBar(value / most), h("span", { class: "number" }, signed(value))))),
    h("p", { class: "quiet" }, sum));
}

function signedBar(share) {
  const fill = h("span", { class: share < 0 ? "minus" : "plus" });
  fill.style.width = `${Math.abs(share) * 50}%`;
  return h("span", { class: "signed", "aria-hidden": "true" }, fill);
}

// What a model without explanations tells: the numbers, each between 0 and 1.
function plainParts(item) {
  const rows = facts().parts.filter((name) => !NOT_A_PART.has(name) && typeof item[name] === "number");
  if (!rows.length) return null;
  return part(t("why.parts"), h("ul", { class: "contributions" }, rows.map((name) =>
    h("li", {}, h("span", {}, named("part.", name)), bar(Math.sqrt(Math.max(0, item[name]))), h("span", { class: "number" }, score(item[name]))))));
}
