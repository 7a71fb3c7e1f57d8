// What a label is called. Some label sets have words as ids ("evince", "Science fiction"), with a text that describes
// them; others have codes ("D008545", an uri) whose text is the name. Which of the two is decided once per model.
import { get } from "./api.js";

const SAMPLE = 60; // of the most used labels
let haveCodes = false;

function isCode(id) {
  const letters = id.match(/\p{L}/gu)?.length ?? 0;
  const digits = id.match(/\p{N}/gu)?.length ?? 0;
  return id.includes("://") || !/\p{L}{3}/u.test(id) || digits >= letters;
}

// Returns the sample too: its texts are examples to try.
export async function learnNames() {
  try {
    const { labels } = await get("/v1/labels", { limit: SAMPLE });
    const codes = labels.filter((each) => each.text && isCode(each.label)).length;
    haveCodes = 2 * codes > labels.length;
    return labels;
  } catch {
    haveCodes = false;
    return [];
  }
}

export const nameOf = ({ label, text }) => (haveCodes && text ? text : label);

// The other of the two, if there is one to show.
export function noteOf({ label, text }) {
  const other = haveCodes && text ? label : text;
  return other && other !== nameOf({ label, text }) ? other : "";
}
