// Which view is shown: #/suggest, #/explore/label/ID, #/batch, #/about.
import { chosen, get } from "./api.js";
import { h, notice } from "./dom.js";
import { about } from "./about.js";
import { batch } from "./batch.js";
import { explore } from "./explore.js";
import { suggest } from "./suggest.js";

const views = { suggest, explore, batch, about };
const titles = { suggest: "Suggest", explore: "Explore", batch: "Batch", about: "About" };
const main = document.getElementById("main");
let leave = null;
let first = true;

async function show() {
  const [, name = "suggest", ...rest] = location.hash.split("/");
  const view = views[name] ?? suggest;
  const known = views[name] ? name : "suggest";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${known}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${titles[known]} · ELIAS`;
  leave?.();
  leave = null;
  const place = h("div", { "data-view": known });
  main.replaceChildren(place);
  if (!first) main.focus({ preventScroll: true });
  first = false;
  window.scrollTo(0, 0);
  try {
    leave = (await view(place, rest.map(decodeURIComponent))) ?? null;
  } catch (problem) {
    place.replaceChildren(notice(problem));
  }
}

async function start() {
  document.getElementById("theme").addEventListener("click", switchTheme);
  try {
    chosen.models = (await get("/v1/models")).models;
  } catch (problem) {
    main.replaceChildren(notice(problem));
    if (problem.status === 503) setTimeout(start, 1000 * problem.retryAfter);
    return;
  }
  chosen.model = chosen.models.find((each) => each.default).name;
  if (chosen.models.length > 1) offerModels();
  window.addEventListener("hashchange", show);
  await show();
}

function offerModels() {
  const select = document.getElementById("model");
  select.replaceChildren(...chosen.models.map((each) => h("option", { value: each.name }, each.name)));
  select.value = chosen.model;
  document.getElementById("picker").hidden = false;
  select.addEventListener("change", () => {
    chosen.model = select.value;
    show();
  });
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

start();
