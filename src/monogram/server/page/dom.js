// Builds elements without HTML strings, so that ids are always text.

export const $ = (id) => document.getElementById(id);

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "share") element.style.setProperty("--share", Math.min(1, Math.max(0, value)).toFixed(4));
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const TITLES = ["title", "name", "label"];

// The title of an item where the catalogue has one, else its id.
export function titleOf(item) {
  const columns = item.columns ?? {};
  const known = Object.keys(columns).find((name) => TITLES.includes(name.toLowerCase()) && columns[name]);
  return known ? String(columns[known]) : String(item.item);
}

export function named(item) {
  const title = titleOf(item);
  const id = title === String(item.item) ? null : h("div", { class: "id" }, String(item.item));
  return h("div", {}, h("div", { class: "name" }, title), id);
}

export const number = (value, digits = 3) =>
  Math.abs(value) >= 1e-3 || value === 0 ? value.toLocaleString("en", { maximumSignificantDigits: digits }) : value.toExponential(1);

// Abort signals: each new one aborts the one before it, so that only the newest request is rendered.
export function newestOnly() {
  let running = new AbortController();
  return () => {
    running.abort();
    running = new AbortController();
    return running.signal;
  };
}

export function later(work, milliseconds) {
  let timer = null;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
