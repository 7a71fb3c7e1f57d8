// The text at hand and what was decided about its labels: accept, reject, undo. No drawing here.
import { keepInTab, recallInTab } from "./storage.js";

const STEPS = 100; // that can be undone
const stored = recallInTab("draft", {});
export const draft = {
  text: stored.text ?? "",
  entry: stored.entry ?? null, // of the history, if it was opened from there
  decisions: new Map(stored.decisions ?? []), // label -> { label, text, uri, score, added, verdict }
};
let past = []; // what undo goes back to
let changed = () => {};

export function onDecision(act) {
  changed = act;
}

function save() {
  keepInTab("draft", { text: draft.text, entry: draft.entry, decisions: [...draft.decisions] });
}

function remember(withText) {
  past.push({ decisions: new Map(draft.decisions), text: withText ? draft.text : null, entry: draft.entry });
  past = past.slice(-STEPS);
}

export const verdictOn = (label) => draft.decisions.get(label)?.verdict ?? null;
const those = (verdict) => [...draft.decisions.values()].filter((each) => each.verdict === verdict);
export const accepted = () => those("accepted");
export const rejected = () => those("rejected");

export function write(text) {
  draft.text = text;
  save();
}

// The same verdict twice takes it back.
export function decide(item, verdict) {
  remember(false);
  const { label, text, uri, score, added } = item;
  const again = verdictOn(label) === verdict;
  draft.decisions.delete(label); // so that the latest comes last
  if (!again) draft.decisions.set(label, { label, text, uri, score, added, verdict });
  save();
  changed(label);
}

export function withdraw(label) {
  remember(false);
  draft.decisions.delete(label);
  save();
  changed(label);
}

// null if there is nothing to undo; otherwise whether the text went back too.
export function undo() {
  const before = past.pop();
  if (!before) return null;
  draft.decisions = before.decisions;
  draft.entry = before.entry;
  if (before.text !== null) draft.text = before.text;
  save();
  changed(null);
  return { text: before.text !== null };
}

export const canUndo = () => past.length > 0;

function replace(text, decisions, entry) {
  Object.assign(draft, { text, decisions, entry });
  save();
  changed(null);
}

export function clear() {
  remember(true);
  replace("", new Map(), null);
}

// After a text is finished there is no way back but through the history.
export function next() {
  past = [];
  replace("", new Map(), null);
}

export function reopen(entry) {
  past = [];
  const items = [...entry.accepted.map((each) => ({ ...each, verdict: "accepted" })), ...entry.rejected.map((each) => ({ ...each, verdict: "rejected" }))];
  replace(entry.text, new Map(items.map((each) => [each.label, each])), entry.id);
}
