// Small helpers to make elements. Text is always set as text, never as markup.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.flat());
  return element;
}

const SHAPES = {
  check: "M3.5 8.5 6.5 11.5 12.5 4.5",
  cross: "M4 4 12 12M12 4 4 12",
  caret: "M6 3.5 10.5 8 6 12.5",
};
export const icon = (name) => svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: SHAPES[name] }));

export const button = (text, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, text);
export const labelLink = (id) => `#/how/label/${encodeURIComponent(id)}`;
export const clusterLink = (id) => `#/how/cluster/${id}`;

export function bar(share, kind = "", text = "") {
  const fill = h("span");
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: `bar ${kind}`.trim(), title: text || null }, fill);
}

// What a screen reader is told when something changes.
export function say(text) {
  document.getElementById("status").textContent = text;
}

// The same, seen by everyone for a moment.
let fading = 0;
export function toast(text) {
  say(text);
  const place = document.getElementById("toast");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { place.hidden = true; }, 4000);
}

export function notice(problem) {
  return h("p", { class: "notice", role: "alert" }, problem.message ?? String(problem));
}

// Files dropped on an element.
export function onDrop(element, take) {
  for (const name of ["dragenter", "dragover"]) element.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return; // text that is dragged stays the browser's business
    event.preventDefault();
    element.classList.add("over");
  });
  for (const name of ["dragleave", "drop"]) element.addEventListener(name, () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
}
