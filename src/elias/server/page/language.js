// The language of the page: its texts, and numbers and dates as it writes them.
import { keep, recall } from "./storage.js";
import { texts } from "./texts.js";

const known = (code) => (Object.hasOwn(texts, code) ? code : null);
const preferred = () => (navigator.languages ?? [navigator.language]).map((each) => known(each.split("-")[0])).find(Boolean);
let current = known(recall("language", "")) ?? preferred() ?? "en";

export const language = () => current;
export const languages = () => Object.entries(texts).map(([code, its]) => ({ code, name: its.language }));

export function speak(code) {
  current = known(code) ?? "en";
  keep("language", current);
}

function sentence(key, values) {
  const found = texts[current][key];
  if (found === undefined) throw new Error(`no text "${key}" in ${current}`);
  return typeof found === "string" ? found : found[new Intl.PluralRules(current).select(values.n)] ?? found.other;
}

const written = (value) => (typeof value === "number" ? number(value) : String(value));

// The text of a key, with {names} filled in; numbers are written as the language does.
export const t = (key, values = {}) => sentence(key, values).replace(/\{(\w+)\}/g, (_, name) => written(values[name]));

// The same as a list of strings and elements, for a text with a link in it.
export const fill = (key, values) => sentence(key, values).split(/\{(\w+)\}/).map((piece, i) => (i % 2 ? (values[piece] instanceof Node ? values[piece] : written(values[piece])) : piece));

// A name that comes from the service (a metric, a part of a score) in this language, or as it is.
export const named = (prefix, name) => (Object.hasOwn(texts[current], prefix + name) ? t(prefix + name) : name.replaceAll("_", " "));

export const number = (value, digits = 3) => value.toLocaleString(current, { maximumFractionDigits: digits });
export const fixed = (value, digits) => value.toLocaleString(current, { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const score = (value) => (value >= 0.01 || value === 0 ? fixed(value, 3) : value.toLocaleString(current, { maximumSignificantDigits: 2 }));
export const signed = (value) => value.toLocaleString(current, { minimumFractionDigits: 2, maximumFractionDigits: 2, signDisplay: "always" });
export const percent = (value) => value.toLocaleString(current, { style: "percent", maximumFractionDigits: value > 0 && value < 0.0995 ? 1 : 0 });
export const moment = (value) => new Date(value).toLocaleString(current, { dateStyle: "medium", timeStyle: "short" });

// The fixed texts of index.html: data-t is an element's text, data-t-label and data-t-title its attributes.
export function translateDocument() {
  document.documentElement.lang = current;
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) element.setAttribute("aria-label", t(element.dataset.tLabel));
  for (const element of document.querySelectorAll("[data-t-title]")) element.title = t(element.dataset.tTitle);
}
