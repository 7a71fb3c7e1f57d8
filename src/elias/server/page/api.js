// Calls of the service, with the chosen model and, if the service needs one, the token.
import { t } from "./language.js";
import { keepInTab, recallInTab } from "./storage.js";

export const chosen = { model: null, models: [], feedback: false, sample: [] };

export class ApiError extends Error {
  constructor(status, body, retryAfter) {
    super(body?.error?.message ?? t("error.status", { status: String(status) }));
    this.status = status;
    this.field = body?.error?.field ?? null;
    this.retryAfter = retryAfter;
  }
}

let token = recallInTab("token", "");

async function call(path, options = {}) {
  const headers = { ...(options.headers ?? {}) };
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Error(t("error.unreachable"));
  }
  if (answer.status === 401 && (await askForToken())) return call(path, options);
  if (!answer.ok) {
    const body = await answer.json().catch(() => null);
    throw new ApiError(answer.status, body, Number(answer.headers.get("Retry-After") ?? 1));
  }
  return answer.json();
}

let asking = null;
function askForToken() {
  const dialog = document.getElementById("token-dialog");
  asking ??= new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = document.getElementById("token").value.trim();
      if (given) keepInTab("token", (token = given));
      asking = null;
      resolve(Boolean(given));
    }, { once: true });
    document.getElementById("token").value = "";
    dialog.showModal();
  });
  return asking;
}

export function get(path, query = {}, signal = undefined) {
  const given = { ...query };
  if (chosen.model) given.model = chosen.model;
  const search = new URLSearchParams(given).toString();
  return call(search ? `${path}?${search}` : path, { signal });
}

export function post(path, body, signal = undefined) {
  const content = chosen.model ? { model: chosen.model, ...body } : body;
  const options = { method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" }, signal };
  return call(path, options);
}

export const facts = () => chosen.models.find((each) => each.name === chosen.model) ?? chosen.models[0];
