// Which view is shown: #/suggest, #/history, #/batch, #/how/label/ID, #/about; and the header: model, language, theme.
import { about } from "./about.js";
import { chosen, get } from "./api.js";
import { batch } from "./batch.js";
import { h, notice } from "./dom.js";
import { history } from "./history.js";
import { how } from "./how.js";
import { language, languages, speak, t, translateDocument } from "./language.js";
import { learnNames } from "./names.js";
import { suggest } from "./suggest.js";

const views = { suggest, history, batch, how, about };
const main = document.getElementById("main");
let leave = null;
let first = true;
let showing = 0;

async function show() {
  const [, name = "suggest", ...rest] = location.hash.split("/");
  const known = Object.hasOwn(views, name) ? name : "suggest";
  const mine = (showing += 1);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${known}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${t(`nav.${known}`)} · ELIAS`;
  leave?.();
  leave = null;
  const place = h("div", { "data-view": known });
  main.replaceChildren(place);
  if (!first) main.focus({ preventScroll: true });
  first = false;
  window.scrollTo(0, 0);
  try {
    const left = (await views[known](place, rest.map(decodeURIComponent))) ?? null;
    if (mine === showing) leave = left;
    else left?.(); // another view was opened meanwhile
  } catch (problem) {
    place.replaceChildren(notice(problem));
  }
}

async function start() {
  translateDocument();
  document.title = "ELIAS";
  try {
    const answer = await get("/v1/models");
    Object.assign(chosen, { models: answer.models, feedback: answer.feedback === true });
  } catch (problem) {
    main.replaceChildren(notice(problem));
    if (problem.status === 503) setTimeout(start, 1000 * problem.retryAfter);
    return;
  }
  chosen.model = chosen.models.find((each) => each.default).name;
  chosen.sample = await learnNames();
  if (chosen.models.length > 1) offerModels();
  window.addEventListener("hashchange", show);
  await show();
}

function offerModels() {
  const select = document.getElementById("model");
  select.replaceChildren(...chosen.models.map((each) => h("option", { value: each.name }, each.name)));
  select.value = chosen.model;
  document.getElementById("picker").hidden = false;
  select.addEventListener("change", async () => {
    chosen.model = select.value;
    chosen.sample = await learnNames();
    show();
  });
}

function offerLanguages() {
  const select = document.getElementById("language");
  select.replaceChildren(...languages().map(({ code, name }) => h("option", { value: code, lang: code }, name)));
  select.value = language();
  select.addEventListener("change", () => {
    speak(select.value);
    translateDocument();
    first = true; // the focus stays on the switch
    show();
  });
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch { /* a browser that stores nothing */ }
}

document.getElementById("theme").addEventListener("click", switchTheme);
offerLanguages();
start();
