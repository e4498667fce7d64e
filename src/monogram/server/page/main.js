// The page: one state object, rendered again after each change. The URL holds the state, so that a link shows the same lists.
import * as api from "./api.js";
import { $, h, later, number, titleOf, newestOnly } from "./dom.js";
import * as lists from "./lists.js";
import { former, place, wait } from "./place.js";
import { search } from "./search.js";

const K = 10, STEP = 0.01;
const state = { model: null, other: null, mode: "history", history: [], user: "", b: {}, item_power: {}, recency: {} };
const LIVE = { // parameters that need no new fit: description, and range of the slider
  b: { words: "weight of the entries that dropout kept, against those it removed", range: (first) => [0, Math.max(2, Math.ceil(first))] },
  item_power: { words: "above 0 favours popular items, below 0 the others", range: (first) => [Math.min(-1, Math.floor(first)), Math.max(1, Math.ceil(first))] },
  recency: { words: "above 0 the older an event of the history is, the less it counts", range: (first) => [0, Math.max(2, Math.ceil(first))] },
};
const cards = new Map(), titles = new Map();
const newSignal = newestOnly(), newSimilarSignal = newestOnly();
let models = [], popular = null, weights = new Map(), seen = { user: "", items: [] };

const announce = (text) => { $("announcer").textContent = text; };
const shown = () => [state.model, state.other].filter((name) => name !== null);

// --- state in the URL -----------------------------------------------------------------------------------------------------

function saveToUrl() {
  const stored = Object.fromEntries(Object.entries(state).filter(([, value]) => value !== null && value !== ""));
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(stored))}`);
}

function readFromUrl() {
  let stored = {};
  try {
    stored = api.read(decodeURIComponent(location.hash.slice(1) || "{}")) ?? {};
  } catch {
    announce("The link could not be read; starting with an empty history.");
  }
  const names = models.map((model) => model.name);
  const whole = (id) => typeof id === "string" || Number.isSafeInteger(id);
  state.model = names.includes(stored.model) ? stored.model : (models.find((model) => model.default) ?? models[0])?.name ?? null;
  state.other = names.includes(stored.other) && stored.other !== state.model ? stored.other : null;
  state.mode = stored.mode === "user" ? "user" : "history";
  state.history = Array.isArray(stored.history) ? stored.history.filter(whole) : [];
  state.user = whole(stored.user) ? String(stored.user) : "";
  for (const parameter in LIVE) {
    const values = typeof stored[parameter] === "object" && stored[parameter] ? stored[parameter] : {};
    state[parameter] = Object.fromEntries(Object.entries(values).filter(([, value]) => Number.isFinite(value)));
  }
}

// --- the request ----------------------------------------------------------------------------------------------

function drawWho() {
  const known = state.mode === "user";
  $("by-history").setAttribute("aria-pressed", String(!known));
  $("by-user").setAttribute("aria-pressed", String(known));
  $("user-form").hidden = !known;
  $("search").hidden = known;
  $("user").value = state.user;
  $("clear").hidden = known;
  if (known) drawHistory(seen.items, false);
  else drawHistory(state.history.map((item) => ({ item, columns: titles.get(item), weight: weights.get(item) })), true);
}

// The weights of the events, where they differ: next to each the factor with which it counts.
const weighted = (items) => new Set(items.map((item) => item.weight).filter((weight) => weight !== undefined)).size > 1;

function drawHistory(items, removable) {
  const buttons = () => [...$("history").querySelectorAll("button")];
  const focused = buttons().indexOf(document.activeElement);
  const differ = weighted(items);
  $("history").replaceChildren(...items.map((item) => h("li", { class: removable ? null : "still" },
    h("span", { class: "name" }, titleOf(item)),
    differ && item.weight !== undefined ? h("span", { class: "weight", title: "Weight of this event" }, `×${number(item.weight, 2)}`) : null,
    removable ? h("button", { type: "button", "aria-label": `Remove ${titleOf(item)}`, onclick: () => remove(item.item) }, "✕") : null)));
  $("history").removeAttribute("tabindex");
  if (!removable) $("history").tabIndex = 0; // the list may scroll and has no control that takes the focus
  $("used").hidden = items.length === 0;
  $("history-order").hidden = !removable && !("recency" in (cards.get(state.model)?.live ?? {})); // no order is known
  if (focused >= 0) (buttons()[Math.min(focused, items.length - 1)] ?? $("query")).focus();
}

const liveParameters = (name) => Object.keys(LIVE).filter((parameter) => parameter in (cards.get(name)?.live ?? {}));

function drawSliders() {
  const wanted = shown().filter((name) => liveParameters(name).length);
  $("sliders").replaceChildren(...wanted.flatMap((name) => liveParameters(name).map((parameter) => slider(name, parameter, wanted.length > 1))));
}

function fitted(name, parameter) {
  const { [parameter]: own, half_life: halfLife } = cards.get(name).live;
  if (parameter === "recency" && halfLife != null) return `Fitted with a half-life of ${halfLife}, which it replaces.`;
  return `Fitted ${own === null ? "without it" : `with ${own}`}.`;
}

function slider(name, parameter, several) {
  const own = cards.get(name).live[parameter], first = own ?? 0, value = state[parameter][name] ?? first, id = `${parameter}-${name}`;
  const [least, most] = LIVE[parameter].range(first);
  const out = h("output", {}, value.toFixed(2));
  const move = (event) => {
    const now = Number(event.target.value);
    out.textContent = now.toFixed(2);
    if (Math.abs(now - first) < STEP / 2) delete state[parameter][name];
    else state[parameter][name] = now;
    askSoon();
  };
  return h("div", { class: "slider" },
    h("label", { for: id }, `${several ? `${parameter} of ${name}` : parameter}: ${LIVE[parameter].words}`),
    h("input", { type: "range", id, min: String(least), max: String(most), step: String(STEP), value: String(value), oninput: move }), out,
    h("p", { class: "note" }, `${fitted(name, parameter)} The list changes at once, without a new fit.`));
}

function drawModels() {
  const option = (name, chosen) => h("option", { value: name, selected: name === chosen }, name === "" ? "none" : name);
  $("model").replaceChildren(...models.map((model) => option(model.name, state.model)));
  $("other").replaceChildren(option("", state.other ?? ""), ...models.filter((model) => model.name !== state.model).map((model) => option(model.name, state.other)));
  $("beside").hidden = models.length < 2;
  $("models").hidden = $("who").hidden = false;
}

// --- the lists -------------------------------------------------------------------------------------------

function changed(name) {
  const moved = liveParameters(name).filter((parameter) => name in state[parameter]).map((parameter) => [parameter, state[parameter][name]]);
  return moved.length ? { parameters: Object.fromEntries(moved) } : {};
}

// The one moment of the clicks of this page where the model measures the age of events in time; undefined where it counts
// events. A log whose times have a known unit takes a date, and a duration needs one; a number serves a log without a unit.
function momentOfClicks(name) {
  const card = cards.get(name), { half_life: halfLife, recency_unit: unit } = card?.parameters ?? {};
  const span = name in state.recency ? unit : halfLife ?? unit;
  if (span === undefined || span.endsWith("event") || span.endsWith("events")) return undefined;
  return card.time_unit != null || /[a-z]$/.test(span) ? "2000-01-01" : 0;
}

function requestFor(name) {
  const time = momentOfClicks(name);
  const clicked = time === undefined ? state.history : state.history.map((item) => ({ item, time }));
  const subject = state.mode === "user" ? { users: [state.user] } : { histories: [clicked] };
  return { model: name, ...subject, k: K, explain: 100, with_history: true, ...changed(name) };
}

async function ask() {
  const signal = newSignal();
  saveToUrl();
  if (state.mode === "history" && !state.history.length) { await showPopular(signal); return; }
  if (state.mode === "user" && !state.user) {
    learn([]);
    place(lists.nothing("No user chosen", "Enter the id of a user of the training log.", "h2"));
    return;
  }
  wait(shown().map(lists.waiting));
  const answers = await Promise.all(shown().map((name) => api.recommend(requestFor(name), signal).catch((error) => error)));
  if (signal.aborted) return;
  const refused = answers.find((answer) => answer.status === 401);
  if (refused) { lock(refused); return; }
  learn(answers);
  const failed = shown().filter((name, at) => answers[at] instanceof Error);
  const messages = shown().flatMap((name, at) => (failed.includes(name) ? `${failed.length < answers.length ? `${name}: ` : ""}${answers[at].message}` : []));
  place(...(failed.length ? [lists.failed([...new Set(messages)].join(" "), ask)] : []),
    ...shown().flatMap((name, at) => (failed.includes(name) ? outdatedList(name) : drawList(name, answers[at], answers))));
  const first = answers.find((answer) => answer.results);
  if (first) announce(`${first.results[0]?.items.length ?? 0} recommendations`);
}

const askSoon = later(ask, 60);

async function showPopular(signal) {
  try {
    popular = popular?.model === state.model ? popular : await api.items(state.model, "", 8, signal);
    if (!signal.aborted) place(lists.beginning(popular.items, add));
  } catch (error) {
    if (!signal.aborted) fail(error, ask);
  }
}

const outdatedList = (name) => (former(name) ? [lists.outdated(former(name))] : []);

function fail(error, again) {
  if (error.status === 401) lock(error);
  else place(lists.failed(error.message, again), ...models.flatMap((model) => outdatedList(model.name)));
}

// Takes titles from the answers, and the whole history of a known user.
function learn(answers) {
  const list = answers.find((answer) => answer.results?.length)?.results[0];
  for (const item of list?.seen ?? []) if (item.columns) titles.set(item.item, item.columns);
  if (list) weights = new Map((list.seen ?? []).map((item) => [item.item, item.weight]));
  const same = seen.user === state.user && answers.some((answer) => answer instanceof Error);
  if (state.mode === "user" && (list || !same)) seen = { user: state.user, items: list?.seen ?? [] };
  drawWho();
}

function drawList(name, answer, answers) {
  const card = cards.get(name), open = former(name)?.querySelector("details")?.open;
  const title = h("header", {}, h("h2", {}, shown().length > 1 || models.length > 1 ? `${name} ` : "Recommendations ", h("span", { class: "note" }, card?.kind ?? "")), card ? lists.about(card, open) : null);
  return h("section", { class: "list", "data-model": name, "aria-label": `Recommendations of ${name}` }, title, ...filled(name, answer, answers));
}

function filled(name, answer, answers) {
  if (answer.unknown_users.length) return [lists.nothing("Unknown user", `The training log has no user with the id “${state.user}”.`)];
  const [list] = answer.results;
  const names = new Map((list.seen ?? []).map((item) => [item.item, titleOf(item)]));
  const other = answers.find((candidate) => candidate !== answer && candidate.results)?.results[0];
  const ranks = new Map((other?.items ?? []).map((item) => [item.item, item.rank]));
  const notes = [];
  if (answer.unknown_items.length) notes.push(h("p", { class: "notice" }, `Unknown to this model, left out: ${answer.unknown_items.join(", ")}.`));
  if (answer.empty.length) notes.push(h("p", { class: "notice" }, "The model knows no item of this history: the list holds little information."));
  if (!list.items.length) return [...notes, lists.nothing("Nothing left to recommend", "Every item of the catalogue is in the history.")];
  const rows = list.items.map((item) => lists.row(item, { names,
    elsewhere: other ? (ranks.has(item.item) ? `no. ${ranks.get(item.item)} in the other list` : "not in the other list") : null,
    acts: [["Similar", `Items similar to ${titleOf(item)}`, () => showSimilar(item, name)],
      ...(state.mode === "history" ? [["Add", `Add ${titleOf(item)} to the history`, () => add(item)]] : [])] }));
  return [...notes, h("ol", {}, rows)];
}

async function showSimilar(item, model) {
  $("similar-title").textContent = `Similar to ${titleOf(item)}`;
  const signal = newSimilarSignal();
  if ($("similar").open) $("similar-title").focus();
  else $("similar").showModal();
  $("similar-list").replaceChildren(lists.waiting());
  try {
    const answer = await api.similar({ model, items: [item.item], k: K, ...changed(model) }, signal);
    if (signal.aborted) return;
    const rows = answer.results[0].items.map((similar) => lists.row(similar, { acts: [
      ["Similar", `Items similar to ${titleOf(similar)}`, () => showSimilar(similar, model)],
      ...(state.mode === "history" ? [["Add", `Add ${titleOf(similar)} to the history`, () => { $("similar").close(); add(similar); }]] : [])] }));
    $("similar-list").replaceChildren(rows.length ? h("ol", {}, rows) : lists.nothing("Nothing similar", "No user used this item together with another one."));
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) { $("similar").close(); lock(error); return; }
    $("similar-list").replaceChildren(lists.failed(error.message, () => showSimilar(item, model), "h3"));
  }
}

// --- changes ---------------------------------------------------------------------------------------------------------

function add(item) {
  if (item.columns) titles.set(item.item, item.columns);
  if (!state.history.includes(item.item)) state.history.push(item.item);
  announce(`${titleOf(item)} added`);
  drawWho();
  ask();
}

function remove(id) {
  state.history = state.history.filter((item) => item !== id);
  drawWho();
  ask();
}

function mode(name) {
  state.mode = name;
  drawWho();
  ask();
}

async function choose() {
  await Promise.all(shown().filter((name) => !cards.has(name)).map(async (name) => cards.set(name, await api.card(name))));
  drawModels();
  drawSliders();
  drawWho();
  await ask();
}

// --- theme, key, start -----------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("monogram-theme", name);
  $("theme").textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[name];
  $("theme").setAttribute("aria-label", `Colours: ${name}. Change`);
}

function lock(error) {
  newSignal();
  $("models").hidden = $("who").hidden = true;
  place(lists.locked(() => unlock("")));
  unlock(error.message);
}

function unlock(wrong) {
  $("key-wrong").textContent = wrong;
  $("key-wrong").hidden = !wrong;
  if (!$("locked").open) $("locked").showModal();
  $("key").focus();
}

function useKey(event) {
  event.preventDefault();
  const apiKey = $("key").value.trim();
  if (!api.key.fits(apiKey)) { unlock("This key cannot be sent: expected unaccented letters, digits and punctuation only."); return; }
  $("key").value = "";
  api.key.set(apiKey);
  $("locked").close();
  start();
}

const withErrors = (work) => async (...values) => {
  try {
    await work(...values);
  } catch (error) {
    fail(error, () => withErrors(work)(...values));
  }
};

const start = withErrors(async () => {
  wait([lists.waiting()]);
  models = await api.models();
  if (!models.length) { place(lists.nothing("No model", "The server has no model yet.", "h2")); return; }
  readFromUrl();
  await choose();
});

theme(THEMES.includes(localStorage.getItem("monogram-theme")) ? localStorage.getItem("monogram-theme") : "auto");
$("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3]));
$("model").addEventListener("change", withErrors(async (event) => { state.model = event.target.value; if (state.other === state.model) state.other = null; await choose(); }));
$("other").addEventListener("change", withErrors(async (event) => { state.other = event.target.value || null; await choose(); }));
$("by-history").addEventListener("click", () => mode("history"));
$("by-user").addEventListener("click", () => { mode("user"); $("user").focus(); });
$("user-form").addEventListener("submit", (event) => { event.preventDefault(); state.user = $("user").value.trim(); drawWho(); ask(); });
$("clear").addEventListener("click", () => { state.history = []; drawWho(); $("query").focus(); ask(); });
$("key-form").addEventListener("submit", useKey);
$("locked").addEventListener("close", () => { if (api.key.get() === null) $("lists").querySelector("button")?.focus(); });
$("similar").addEventListener("close", newSimilarSignal);
$("skip").addEventListener("click", (event) => { event.preventDefault(); $("lists").focus(); });
window.addEventListener("hashchange", withErrors(async () => { if (models.length) { readFromUrl(); await choose(); } }));
search({ model: () => state.model, taken: () => new Set(state.history), pick: add, announce, lock });
start();
