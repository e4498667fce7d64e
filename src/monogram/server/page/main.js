// The page: one state, drawn anew when it changes. The address keeps it, so that a link shows the same lists.
import * as api from "./api.js";
import { $, h, later, titleOf, turns } from "./dom.js";
import * as lists from "./lists.js";
import { former, place, wait } from "./place.js";
import { search } from "./search.js";

const K = 10, STEP = 0.01;
const state = { model: null, other: null, mode: "history", history: [], user: "", b: {}, item_power: {} };
const KNOBS = { // what costs no fit: words, and the ends of its slider
  b: { words: "the weight of what was seen, against what was held back", ends: (first) => [0, Math.max(2, Math.ceil(first))] },
  item_power: { words: "above 0 towards popular items, below 0 away from them", ends: (first) => [Math.min(-1, Math.floor(first)), Math.max(1, Math.ceil(first))] },
};
const cards = new Map(), titles = new Map();
const turn = turns(), similarTurn = turns();
let models = [], popular = null, seen = { user: "", items: [] };

const tell = (text) => { $("told").textContent = text; };
const shown = () => [state.model, state.other].filter((name) => name !== null);

// --- the address -----------------------------------------------------------------------------------------------------

function remember() {
  const kept = Object.fromEntries(Object.entries(state).filter(([, value]) => value !== null && value !== ""));
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(kept))}`);
}

function recall() {
  let kept = {};
  try {
    kept = api.read(decodeURIComponent(location.hash.slice(1) || "{}")) ?? {};
  } catch {
    tell("The address was not understood: beginning anew.");
  }
  const names = models.map((model) => model.name);
  const whole = (id) => typeof id === "string" || Number.isSafeInteger(id);
  state.model = names.includes(kept.model) ? kept.model : (models.find((model) => model.default) ?? models[0])?.name ?? null;
  state.other = names.includes(kept.other) && kept.other !== state.model ? kept.other : null;
  state.mode = kept.mode === "user" ? "user" : "history";
  state.history = Array.isArray(kept.history) ? kept.history.filter(whole) : [];
  state.user = whole(kept.user) ? String(kept.user) : "";
  for (const knob in KNOBS) {
    const held = typeof kept[knob] === "object" && kept[knob] ? kept[knob] : {};
    state[knob] = Object.fromEntries(Object.entries(held).filter(([, value]) => Number.isFinite(value)));
  }
}

// --- the side that asks ----------------------------------------------------------------------------------------------

function drawWho() {
  const known = state.mode === "user";
  $("by-history").setAttribute("aria-pressed", String(!known));
  $("by-user").setAttribute("aria-pressed", String(known));
  $("user-form").hidden = !known;
  $("search").hidden = known;
  $("user").value = state.user;
  $("clear").hidden = known;
  if (known) drawHistory(seen.items, false);
  else drawHistory(state.history.map((item) => ({ item, columns: titles.get(item) })), true);
}

function drawHistory(items, removable) {
  const buttons = () => [...$("history").querySelectorAll("button")];
  const held = buttons().indexOf(document.activeElement);
  $("history").replaceChildren(...items.map((item) => h("li", { class: removable ? null : "still" },
    h("span", { class: "name" }, titleOf(item)),
    removable ? h("button", { type: "button", "aria-label": `Remove ${titleOf(item)}`, onclick: () => remove(item.item) }, "✕") : null)));
  $("history").removeAttribute("tabindex");
  if (!removable) $("history").tabIndex = 0; // nothing in it takes the focus, and it may scroll
  $("used").hidden = items.length === 0;
  if (held >= 0) (buttons()[Math.min(held, items.length - 1)] ?? $("query")).focus();
}

const lively = (name) => Object.keys(KNOBS).filter((knob) => knob in (cards.get(name)?.live ?? {}));

function drawSliders() {
  const wanted = shown().filter((name) => lively(name).length);
  $("sliders").replaceChildren(...wanted.flatMap((name) => lively(name).map((knob) => slider(name, knob, wanted.length > 1))));
}

function slider(name, knob, several) {
  const own = cards.get(name).live[knob], first = own ?? 0, value = state[knob][name] ?? first, id = `${knob}-${name}`;
  const [least, most] = KNOBS[knob].ends(first);
  const out = h("output", {}, value.toFixed(2));
  const move = (event) => {
    const now = Number(event.target.value);
    out.textContent = now.toFixed(2);
    if (Math.abs(now - first) < STEP / 2) delete state[knob][name];
    else state[knob][name] = now;
    askSoon();
  };
  return h("div", { class: "slider" },
    h("label", { for: id }, `${several ? `${knob} of ${name}` : knob}: ${KNOBS[knob].words}`),
    h("input", { type: "range", id, min: String(least), max: String(most), step: String(STEP), value: String(value), oninput: move }), out,
    h("p", { class: "note" }, `Fitted ${own === null ? "without it" : `with ${own}`}. The list follows at once: nothing is fitted anew.`));
}

function drawModels() {
  const option = (name, chosen) => h("option", { value: name, selected: name === chosen }, name === "" ? "none" : name);
  $("model").replaceChildren(...models.map((model) => option(model.name, state.model)));
  $("other").replaceChildren(option("", state.other ?? ""), ...models.filter((model) => model.name !== state.model).map((model) => option(model.name, state.other)));
  $("beside").hidden = models.length < 2;
  $("models").hidden = $("who").hidden = false;
}

// --- the side that answers -------------------------------------------------------------------------------------------

function changed(name) {
  const moved = lively(name).filter((knob) => name in state[knob]).map((knob) => [knob, state[knob][name]]);
  return moved.length ? { parameters: Object.fromEntries(moved) } : {};
}

function question(name) {
  const who = state.mode === "user" ? { users: [state.user] } : { histories: [state.history] };
  return { model: name, ...who, k: K, explain: 100, with_history: true, ...changed(name) };
}

async function ask() {
  const signal = turn();
  remember();
  if (state.mode === "history" && !state.history.length) { await begin(signal); return; }
  if (state.mode === "user" && !state.user) {
    learn([]);
    place(lists.nothing("No user yet", "Give the id of a user in the log the model learned from.", "h2"));
    return;
  }
  wait(shown().map(lists.waiting));
  const answers = await Promise.all(shown().map((name) => api.recommend(question(name), signal).catch((error) => error)));
  if (signal.aborted) return;
  const refused = answers.find((one) => one.status === 401);
  if (refused) { lock(refused); return; }
  learn(answers);
  const failed = shown().filter((name, at) => answers[at] instanceof Error);
  const told = shown().flatMap((name, at) => (failed.includes(name) ? `${failed.length < answers.length ? `${name}: ` : ""}${answers[at].message}` : []));
  place(...(failed.length ? [lists.failed([...new Set(told)].join(" "), ask)] : []),
    ...shown().flatMap((name, at) => (failed.includes(name) ? kept(name) : drawList(name, answers[at], answers))));
  const first = answers.find((one) => one.results);
  if (first) tell(`${first.results[0]?.items.length ?? 0} recommendations`);
}

const askSoon = later(ask, 60);

async function begin(signal) {
  try {
    popular = popular?.model === state.model ? popular : await api.items(state.model, "", 8, signal);
    if (!signal.aborted) place(lists.beginning(popular.items, add));
  } catch (error) {
    if (!signal.aborted) fail(error, ask);
  }
}

const kept = (name) => (former(name) ? [lists.outdated(former(name))] : []);

function fail(error, again) {
  if (error.status === 401) lock(error);
  else place(lists.failed(error.message, again), ...models.flatMap((model) => kept(model.name)));
}

// What the answers say of the history: its titles, and all of it where it is a user's.
function learn(answers) {
  const list = answers.find((one) => one.results?.length)?.results[0];
  for (const one of list?.seen ?? []) if (one.columns) titles.set(one.item, one.columns);
  const same = seen.user === state.user && answers.some((one) => one instanceof Error);
  if (state.mode === "user" && (list || !same)) seen = { user: state.user, items: list?.seen ?? [] };
  drawWho();
}

function drawList(name, answer, answers) {
  const card = cards.get(name), open = former(name)?.querySelector("details")?.open;
  const title = h("header", {}, h("h2", {}, shown().length > 1 || models.length > 1 ? `${name} ` : "Recommendations ", h("span", { class: "note" }, card?.kind ?? "")), card ? lists.about(card, open) : null);
  return h("section", { class: "list", "data-model": name, "aria-label": `Recommendations of ${name}` }, title, ...filled(name, answer, answers));
}

function filled(name, answer, answers) {
  if (answer.unknown_users.length) return [lists.nothing("Unknown user", `The model learned from nobody with the id “${state.user}”.`)];
  const [list] = answer.results;
  const names = new Map((list.seen ?? []).map((one) => [one.item, titleOf(one)]));
  const other = answers.find((one) => one !== answer && one.results)?.results[0];
  const ranks = new Map((other?.items ?? []).map((item) => [item.item, item.rank]));
  const notes = [];
  if (answer.unknown_items.length) notes.push(h("p", { class: "notice" }, `Not in this model, and left out: ${answer.unknown_items.join(", ")}.`));
  if (answer.empty.length) notes.push(h("p", { class: "notice" }, "Nothing in this history is known to the model: the list says little."));
  if (!list.items.length) return [...notes, lists.nothing("Nothing left to recommend", "Everything in the catalogue was used already.")];
  const rows = list.items.map((item) => lists.row(item, { names,
    elsewhere: other ? (ranks.has(item.item) ? `no. ${ranks.get(item.item)} beside` : "only here") : null,
    acts: [["Similar", `Items similar to ${titleOf(item)}`, () => alike(item, name)],
      ...(state.mode === "history" ? [["Add", `Add ${titleOf(item)} to what was used`, () => add(item)]] : [])] }));
  return [...notes, h("ol", {}, rows)];
}

async function alike(item, model) {
  $("similar-title").textContent = `Similar to ${titleOf(item)}`;
  const signal = similarTurn();
  if ($("similar").open) $("similar-title").focus();
  else $("similar").showModal();
  $("similar-list").replaceChildren(lists.waiting());
  try {
    const found = await api.similar({ model, items: [item.item], k: K, ...changed(model) }, signal);
    if (signal.aborted) return;
    const rows = found.results[0].items.map((one) => lists.row(one, { acts: [
      ["Similar", `Items similar to ${titleOf(one)}`, () => alike(one, model)],
      ...(state.mode === "history" ? [["Add", `Add ${titleOf(one)} to what was used`, () => { $("similar").close(); add(one); }]] : [])] }));
    $("similar-list").replaceChildren(rows.length ? h("ol", {}, rows) : lists.nothing("Nothing similar", "Nobody used this together with anything else."));
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) { $("similar").close(); lock(error); return; }
    $("similar-list").replaceChildren(lists.failed(error.message, () => alike(item, model), "h3"));
  }
}

// --- changes ---------------------------------------------------------------------------------------------------------

function add(item) {
  if (item.columns) titles.set(item.item, item.columns);
  if (!state.history.includes(item.item)) state.history.push(item.item);
  tell(`${titleOf(item)} added`);
  drawWho();
  ask();
}

function remove(id) {
  state.history = state.history.filter((one) => one !== id);
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
  turn();
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
  const given = $("key").value.trim();
  if (!api.key.fits(given)) { unlock("This key cannot be sent: a key has only unaccented letters, digits and signs."); return; }
  $("key").value = "";
  api.key.set(given);
  $("locked").close();
  start();
}

const guarded = (work) => async (...given) => {
  try {
    await work(...given);
  } catch (error) {
    fail(error, () => guarded(work)(...given));
  }
};

const start = guarded(async () => {
  wait([lists.waiting()]);
  models = await api.models();
  if (!models.length) { place(lists.nothing("No model", "The service holds no model yet.", "h2")); return; }
  recall();
  await choose();
});

theme(THEMES.includes(localStorage.getItem("monogram-theme")) ? localStorage.getItem("monogram-theme") : "auto");
$("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3]));
$("model").addEventListener("change", guarded(async (event) => { state.model = event.target.value; if (state.other === state.model) state.other = null; await choose(); }));
$("other").addEventListener("change", guarded(async (event) => { state.other = event.target.value || null; await choose(); }));
$("by-history").addEventListener("click", () => mode("history"));
$("by-user").addEventListener("click", () => { mode("user"); $("user").focus(); });
$("user-form").addEventListener("submit", (event) => { event.preventDefault(); state.user = $("user").value.trim(); drawWho(); ask(); });
$("clear").addEventListener("click", () => { state.history = []; drawWho(); $("query").focus(); ask(); });
$("key-form").addEventListener("submit", useKey);
$("locked").addEventListener("close", () => { if (api.key.get() === null) $("lists").querySelector("button")?.focus(); });
$("similar").addEventListener("close", similarTurn);
$("skip").addEventListener("click", (event) => { event.preventDefault(); $("lists").focus(); });
window.addEventListener("hashchange", guarded(async () => { if (models.length) { recall(); await choose(); } }));
search({ model: () => state.model, taken: () => new Set(state.history), pick: add, tell, lock });
start();
