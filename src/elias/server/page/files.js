// Texts from .txt, .csv, .tsv and .jsonl files, as `elias predict` reads them.
import { t } from "./language.js";

export async function rowsOf(file) {
  const isGzip = file.name.endsWith(".gz");
  const name = isGzip ? file.name.slice(0, -3) : file.name;
  const stream = isGzip ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
  const content = await new Response(stream).arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    throw new Error(t("batch.notUtf8", { name: file.name }));
  }
  if (name.endsWith(".jsonl")) return jsonRows(text, file.name);
  if (name.endsWith(".csv")) return tableRows(text, ",", file.name);
  if (name.endsWith(".tsv")) return tableRows(text, "\t", file.name);
  if (name.endsWith(".txt")) return lines(text).map((line) => ({ id: null, text: line }));
  throw new Error(t("batch.wrongKind", { name: file.name }));
}

function lines(text) {
  const found = text.split("\n").map((line) => line.replace(/\r$/, ""));
  if (found.at(-1) === "") found.pop();
  return found;
}

function jsonRows(text, name) {
  return lines(text).map((line, i) => ({ line, place: `${name}:${i + 1}` })).filter(({ line }) => line.trim()).map(({ line, place }) => {
    let row;
    try {
      row = JSON.parse(line);
    } catch {
      throw new Error(t("batch.notJson", { place }));
    }
    return named(row, place);
  });
}

function named(row, place) {
  const parts = [row?.title, row?.text].filter((part) => part !== null && part !== undefined && part !== "");
  if (row === null || typeof row !== "object" || !("text" in row || "title" in row) || parts.some((part) => typeof part !== "string"))
    throw new Error(t("batch.needsText", { place }));
  return { id: row.id === undefined || row.id === null || row.id === "" ? null : String(row.id), text: parts.join(" ") };
}

function tableRows(text, separator, name) {
  const [head, ...rows] = cellsOf(text, separator);
  const columns = (head ?? []).map((cell) => cell.trim().toLowerCase());
  if (!columns.includes("text") && !columns.includes("title")) throw new Error(t("batch.needsColumn", { name }));
  return rows.map((cells, i) => {
    if (cells.length !== columns.length) throw new Error(t("batch.ragged", { name, row: i + 2, found: cells.length, expected: columns.length }));
    return named(Object.fromEntries(columns.map((column, at) => [column, cells[at]])), `${name}: row ${i + 2}`);
  });
}

// Quotes may hold separators, line breaks and doubled quotes.
export function cellsOf(text, separator) {
  const rows = [];
  let [row, cell, quoted] = [[], "", false];
  const content = text.endsWith("\n") ? text : `${text}\n`;
  for (let at = 0; at < content.length; at += 1) {
    const sign = content[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (content[at + 1] === '"') { cell += '"'; at += 1; } else quoted = false;
    } else if (sign === '"' && cell === "") quoted = true;
    else if (sign === separator) { row.push(cell); cell = ""; }
    else if (sign === "\n") {
      row.push(cell.replace(/\r$/, ""));
      if (row.length > 1 || row[0] !== "") rows.push(row);
      [row, cell] = [[], ""];
    } else cell += sign;
  }
  return rows;
}
