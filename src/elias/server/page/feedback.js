// Decisions sent to the server, where it stores them (elias serve --feedback). Otherwise nothing is sent.
import { chosen, post } from "./api.js";

export const isStored = (entry) => chosen.feedback && entry.accepted.length + entry.rejected.length > 0;

export const send = (entry) => post("/v1/feedback", {
  model: entry.model, id: entry.id, text: entry.text,
  accepted: entry.accepted.map((each) => each.label), rejected: entry.rejected.map((each) => each.label),
});
