// Words of a text as the model reads them (NFKC, lower case; a character is a word in scripts without spaces), and a
// text field that marks some of them.
import { h } from "./dom.js";

const WORD = /[\p{L}\p{M}\p{N}]+/gu;
const SPACELESS = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const LONGEST = 50_000; // characters; marking more would make typing slow
const folded = (word) => word.normalize("NFKC").toLowerCase();

// [start, end, word] of every word.
function* wordsOf(text) {
  for (const { 0: run, index } of text.matchAll(WORD)) {
    if (!SPACELESS.test(run)) { yield [index, index + run.length, folded(run)]; continue; }
    let at = index;
    for (const sign of run) { yield [at, at + sign.length, folded(sign)]; at += sign.length; }
  }
}

export const countWords = (text) => [...wordsOf(text)].length;

// Words that a text and the name of a label share.
export function sharedWords(text, name) {
  const own = new Set([...wordsOf(text)].map(([, , word]) => word));
  return [...new Set([...wordsOf(name)].map(([, , word]) => word))].filter((word) => own.has(word) && (word.length > 2 || SPACELESS.test(word)));
}

// A textarea over a copy of its text: the copy is invisible but for its marks.
export function markedField(area) {
  const copy = h("div", { class: "marks", "aria-hidden": "true" });
  const follow = () => { copy.scrollTop = area.scrollTop; };
  let wanted = new Set();
  function draw() {
    const text = area.value;
    if (!wanted.size || text.length > LONGEST) return copy.replaceChildren();
    const pieces = [];
    let from = 0;
    for (const [start, end, word] of wordsOf(text)) {
      if (!wanted.has(word)) continue;
      pieces.push(text.slice(from, start), h("mark", {}, text.slice(start, end)));
      from = end;
    }
    copy.replaceChildren(...pieces, text.slice(from), "\n");
    return follow();
  }
  area.addEventListener("scroll", follow);
  area.addEventListener("input", draw);
  return {
    element: h("div", { class: "field" }, copy, area),
    mark(words) { wanted = new Set(words.map(folded)); draw(); },
  };
}
