// What leaves the page: csv and jsonl, as a download or on the clipboard.
import { h } from "./dom.js";
import { nameOf } from "./names.js";

// A spreadsheet takes a cell that begins with = + - @ for a formula; an apostrophe makes it a text again.
const defused = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const cell = (value) => (typeof value === "number" ? String(value) : quoted(defused(String(value ?? ""))));

export const csvOf = (head, rows) => [head, ...rows].map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
export const jsonlOf = (rows) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

// Accepted labels in one of three formats.
export const FORMATS = ["names", "ids", "csv"];
export function labelsAs(format, items) {
  if (format === "csv")
    return csvOf(["id", "name", "uri", "score", "origin"], items.map((item) => [item.label, nameOf(item), item.uri, item.score ?? "", item.added ? "added" : "suggested"]));
  return items.map((item) => `${format === "names" ? nameOf(item) : item.label}\n`).join("");
}

// A list in one cell: joined by a sign that no label has, or else as JSON. `elias fit` finds out which.
export function listCell(rows) {
  const sign = [";", "|"].find((each) => !rows.some((labels) => labels.some((label) => label.includes(each))));
  return (labels) => (sign ? labels.join(sign) : JSON.stringify(labels));
}

const TYPES = { csv: "text/csv", jsonl: "application/jsonl", txt: "text/plain" };
export function download(name, content) {
  // A byte order mark, so that spreadsheets read a csv as UTF-8.
  const mark = name.endsWith(".csv") ? "\ufeff" : "";
  const url = URL.createObjectURL(new Blob([mark, content], { type: `${TYPES[name.split(".").at(-1)]};charset=utf-8` }));
  const link = h("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// True if it worked. Over plain HTTP a browser has no clipboard interface; the old command still copies a selection.
export async function copy(content) {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    const field = h("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
    field.value = content;
    const focused = document.activeElement;
    document.body.append(field);
    field.select();
    const worked = document.execCommand("copy");
    field.remove();
    focused?.focus?.();
    return worked;
  }
}
