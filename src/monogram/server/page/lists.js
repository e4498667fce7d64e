// What is rendered for one model: its list with reasons, or a message in its place.
import { h, named, number, titleOf } from "./dom.js";

const REASONS = 3;

const percent = (share) => `${share < 0 ? "−" : ""}${(Math.abs(share) * 100).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)}%`;

function reason(part, score, names) {
  const share = score ? part.share / score : 0;
  const label = part.item === null ? "(independent of the history)" : names.get(part.item) ?? String(part.item);
  const bar = h("div", { class: share < 0 ? "bar less" : "bar", "aria-hidden": "true" }, h("i", { share: Math.abs(share) }));
  return h("li", {}, bar, h("span", { class: "share" }, percent(share)), h("span", { class: "name" }, label));
}

function reasons(item, names) {
  const shares = item.because ?? [];
  if (!shares.length) return null;
  const shown = shares.slice(0, REASONS).filter((part) => Math.abs(part.share) > 0.0005 * Math.abs(item.score));
  const remainder = item.score - shown.reduce((sum, part) => sum + part.share, 0);
  const rows = shown.map((part) => reason(part, item.score, names));
  const sums = item.additive !== false; // else each number is how much the score falls without the one item
  if (sums && Math.abs(remainder) > 0.0005 * Math.abs(item.score)) {
    rows.push(reason({ item: "rest", share: remainder }, item.score, new Map([["rest", "all other items"]])));
  }
  const about = sums ? `Why ${titleOf(item)}` : `How much the score of ${titleOf(item)} falls without each item`;
  const list = h("ul", { class: "reasons", "aria-label": about }, rows);
  return sums ? list : h("div", {}, h("p", { class: "differences" }, "Differences, not shares: how much the score falls without the one item"), list);
}

export function row(item, { names = new Map(), elsewhere = null, acts = [] } = {}) {
  return h("li", { class: "row" },
    h("span", { class: "rank" }, String(item.rank)),
    named(item),
    h("span", { class: "score", title: "Score" }, number(item.score)),
    h("div", { class: "more" },
      elsewhere ? h("span", { class: "both" }, elsewhere) : null,
      reasons(item, names),
      acts.length ? h("div", { class: "acts" }, acts.map(([label, about, work]) =>
        h("button", { type: "button", class: "quiet small", "data-act": label, "aria-label": about, onclick: work }, label))) : null));
}

export const waiting = () => h("div", { "aria-hidden": "true" }, h("div", { class: "list" }, Array.from({ length: 4 }, () => h("div", { class: "ghost" }))));

export const failed = (message, again, level = "h2") =>
  h("div", { class: "state", role: "alert" }, h(level, {}, "The request failed"), h("p", {}, message),
    h("button", { type: "button", onclick: again }, "Try again"));

// The last list before an error, shown until there is a new one.
export function outdated(section) {
  const old = section.cloneNode(true);
  if (old.classList.contains("old")) return old;
  old.classList.add("old");
  old.querySelector("h2").append(h("span", { class: "tag" }, "outdated"));
  old.querySelectorAll(".acts").forEach((buttons) => buttons.remove());
  return old;
}

export const locked = (unlock) =>
  h("div", { class: "state" }, h("h1", {}, "API key required"),
    h("p", { class: "note" }, "This server requires an API key. Ask its operator for one."),
    h("button", { type: "button", class: "main", onclick: unlock }, "Enter the key"));

export function beginning(popular, pick) {
  const some = popular.map((item) => h("li", {}, h("button", { type: "button", class: "small", onclick: () => pick(item) }, titleOf(item))));
  return h("div", { class: "state" }, h("h2", {}, "The history is empty"),
    h("p", { class: "note" }, "Search for an item, or start with a popular one. The list changes with every click."),
    h("ul", { class: "chips", "aria-label": "Popular items" }, some));
}

export const nothing = (title, text, level = "h3") => h("div", { class: "state" }, h(level, {}, title), h("p", { class: "note" }, text));

const FACTS = [
  ["Users", (card) => card.users.toLocaleString("en")],
  ["Items", (card) => card.items.toLocaleString("en")],
  ["Events", (card) => card.events.toLocaleString("en")],
  ["Solver", (card) => [card.report.solver, card.report.dtype].filter(Boolean).join(", ")],
  ["Residual", (card) => card.report.residual == null ? null : number(card.report.residual, 2)],
  ["Error of the weights", (card) => card.report.error == null ? null : `at most about ${number(card.report.error, 1)}`],
  ["Memory of the weights", (card) => size(card.bytes)],
  ["Memory of the fit", (card) => card.report.peak_bytes == null ? null : size(card.report.peak_bytes)],
  ["Pruned", (card) => card.pruning ? Object.entries(card.pruning).map(([name, value]) => `${name} ${value}`).join(", ") : null],
  ["Events applied", (card) => card.updates ? `${card.updates.applied.toLocaleString("en")} of ${card.updates.stored.toLocaleString("en")}` : null],
];

function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  return `${number(bytes / 1000 ** step)} ${units[step]}`;
}

const plain = (value) => (typeof value === "number" ? number(value, 4) : Array.isArray(value) ? value.map(plain).join(", ") : String(value));

export function about(card, open) {
  const lines = [
    ...Object.entries(card.parameters).map(([name, value]) => [name, value === null ? null : plain(value)]),
    ...FACTS.map(([name, of]) => [name, of(card)]),
    ...Object.entries(card.metrics ?? {}).map(([name, value]) => [name, plain(value)]),
  ].filter(([, value]) => value !== null && value !== "");
  return h("details", { open }, h("summary", { "data-act": "about" }, "About this model"),
    h("dl", {}, lines.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}
