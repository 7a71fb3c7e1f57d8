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

export const number = (value) => value.toLocaleString("en");
export const score = (value) => (value >= 0.01 || value === 0 ? value.toFixed(3) : value.toPrecision(2));
export const labelLink = (id) => `#/explore/label/${encodeURIComponent(id)}`;
export const clusterLink = (id) => `#/explore/cluster/${id}`;

export function bar(share, kind = "", text = "") {
  const fill = h("span");
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: `bar ${kind}`, title: text || null }, fill);
}

// What a screen reader is told when something changes.
export function say(text) {
  document.getElementById("status").textContent = text;
}

export function notice(problem) {
  return h("p", { class: "notice", role: "alert" }, problem.message ?? String(problem));
}
