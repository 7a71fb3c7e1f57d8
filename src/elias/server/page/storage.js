// What the browser remembers for this page: settings and history for good, the text at hand until the tab is closed.
// A browser may refuse (private mode, no space): the page goes on without.
const PREFIX = "elias.";

function read(store, name, fallback) {
  try {
    return JSON.parse(store().getItem(PREFIX + name)) ?? fallback;
  } catch {
    return fallback;
  }
}

function write(store, name, value) {
  try {
    store().setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export const recall = (name, fallback) => read(() => localStorage, name, fallback);
export const keep = (name, value) => write(() => localStorage, name, value);
export const recallInTab = (name, fallback) => read(() => sessionStorage, name, fallback);
export const keepInTab = (name, value) => write(() => sessionStorage, name, value);
export const keyOf = (name) => PREFIX + name;
