// The page: one state, drawn anew when it changes. The address keeps it, so that a link shows the same lists.
import * as api from "./api.js";
import { $, h, later, titleOf } from "./dom.js";
import * as lists from "./lists.js";
import { search } from "./search.js";

const K = 10;
const state = { model: null, other: null, mode: "history", history: [], user: "", b: {} };
const cards = new Map(), titles = new Map(), drawn = new Map();
let models = [], round = 0, running = null, popular = null;

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
    kept = JSON.parse(decodeURIComponent(location.hash.slice(1) || "{}")) ?? {};
  } catch {
    tell("The address was not understood: beginning anew.");
  }
  const names = models.map((model) => model.name);
  const whole = (id) => typeof id === "string" || Number.isSafeInteger(id);
  state.model = names.includes(kept.model) ? kept.model : (models.find((model) => model.default) ?? models[0])?.name ?? null;
  state.other = names.includes(kept.other) && kept.other !== state.model ? kept.other : null;
  state.mode = kept.mode === "user" ? "user" : "history";
  state.history = Array.isArray(kept.history) ? kept.history.filter(whole) : [];
  state.user = typeof kept.user === "string" ? kept.user : "";
  state.b = typeof kept.b === "object" && kept.b ? Object.fromEntries(Object.entries(kept.b).filter(([, value]) => Number.isFinite(value))) : {};
}

// --- the side that asks ----------------------------------------------------------------------------------------------

function drawWho() {
  const known = state.mode === "user";
  $("by-history").setAttribute("aria-pressed", String(!known));
  $("by-user").setAttribute("aria-pressed", String(known));
  $("user-form").hidden = !known;
  $("search").hidden = known;
  $("user").value = state.user;
  $("clear").hidden = known || state.history.length === 0;
  if (!known) drawHistory(state.history.map((item) => ({ item, columns: titles.get(item) })), true);
  else if (!state.user) drawHistory([], false);
}

function drawHistory(items, removable) {
  $("history").replaceChildren(...items.map((item) => h("li", { class: removable ? null : "still" },
    h("span", { class: "name" }, titleOf(item)),
    removable ? h("button", { type: "button", "aria-label": `Remove ${titleOf(item)}`, onclick: () => remove(item.item) }, "✕") : null)));
  $("history-note").textContent = items.length ? "" : removable ? "Nothing yet." : "";
}

function drawSliders() {
  const wanted = shown().filter((name) => typeof cards.get(name)?.live?.b === "number");
  $("sliders").replaceChildren(...wanted.map((name) => {
    const first = cards.get(name).live.b, value = state.b[name] ?? first;
    const out = h("output", {}, value.toFixed(2));
    const move = (event) => {
      const now = Number(event.target.value);
      out.textContent = now.toFixed(2);
      if (Math.abs(now - first) < 1e-9) delete state.b[name];
      else state.b[name] = now;
      askSoon();
    };
    const most = Math.max(2, Math.ceil(first));
    const label = wanted.length > 1 ? `b of ${name}` : "b";
    return h("div", { class: "slider" },
      h("label", { for: `b-${name}` }, `${label}: the weight of what was seen, against what was held back`),
      h("input", { type: "range", id: `b-${name}`, min: "0", max: String(most), step: "0.05", value: String(value), oninput: move }), out,
      h("p", { class: "note" }, `Fitted with ${first}. The list follows at once: nothing is fitted anew.`));
  }));
}

function drawModels() {
  const option = (name, chosen) => h("option", { value: name, selected: name === chosen }, name === "" ? "none" : name);
  $("model").replaceChildren(...models.map((model) => option(model.name, state.model)));
  $("other").replaceChildren(option("", state.other ?? ""), ...models.filter((model) => model.name !== state.model).map((model) => option(model.name, state.other)));
  $("beside").hidden = models.length < 2;
}

// --- the side that answers -------------------------------------------------------------------------------------------

function question(name) {
  const who = state.mode === "user" ? { users: [state.user] } : { histories: [state.history] };
  const parameters = name in state.b ? { parameters: { b: state.b[name] } } : {};
  return { model: name, ...who, k: K, explain: 100, with_history: true, ...parameters };
}

async function ask() {
  running?.abort();
  running = new AbortController();
  const mine = ++round, { signal } = running;
  remember();
  if (state.mode === "history" && !state.history.length) { await begin(signal, mine); return; }
  if (state.mode === "user" && !state.user) { place([lists.nothing("No user yet", "Give the id of a user in the log the model learned from.")]); return; }
  $("lists").setAttribute("aria-busy", "true");
  if (!$("lists").querySelector(".list")) place(shown().map(lists.waiting));
  else $("lists").classList.add("busy");
  const answers = await Promise.all(shown().map((name) => api.recommend(question(name), signal).catch((error) => error)));
  if (mine !== round) return;
  $("lists").removeAttribute("aria-busy");
  $("lists").classList.remove("busy");
  if (answers.some((one) => one.status === 401)) { unlock(); return; }
  place(shown().map((name, at) => drawList(name, answers[at], answers)));
  const first = answers.find((one) => one.results);
  if (first) tell(`${first.results[0]?.items.length ?? 0} recommendations`);
}

const askSoon = later(ask, 60);

async function begin(signal, mine) {
  try {
    popular = popular?.model === state.model ? popular : await api.items(state.model, "", 8, signal);
    if (mine === round) place([lists.beginning(popular.items, add)]);
  } catch (error) {
    if (error.status === 401) unlock();
    else if (error.name !== "AbortError" && mine === round) place([lists.failed(error.message, ask)]);
  }
}

const place = (children) => $("lists").replaceChildren(...children);

function drawList(name, answer, answers) {
  const card = cards.get(name);
  const title = h("header", {}, h("h2", {}, shown().length > 1 || models.length > 1 ? `${name} ` : "Recommendations ", h("span", { class: "note" }, card?.kind ?? "")), card ? lists.about(card) : null);
  const body = answer instanceof Error ? [lists.failed(answer.message, ask)] : filled(name, answer, answers);
  return h("section", { class: "list", "aria-label": `Recommendations of ${name}` }, title, ...body);
}

function filled(name, answer, answers) {
  if (answer.unknown_users.length) return [lists.nothing("Unknown user", `The model learned from nobody with the id “${state.user}”.`)];
  const [list] = answer.results;
  for (const seen of list.seen ?? []) if (seen.columns) titles.set(seen.item, seen.columns);
  if (state.mode === "user" && name === state.model) drawHistory(list.seen ?? [], false);
  if (state.mode === "history" && name === state.model) drawWho();
  const names = new Map((list.seen ?? []).map((seen) => [seen.item, titleOf(seen)]));
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
  $("similar-list").replaceChildren(lists.waiting());
  if (!$("similar").open) $("similar").showModal();
  try {
    const parameters = model in state.b ? { parameters: { b: state.b[model] } } : {};
    const found = await api.similar({ model, items: [item.item], k: K, ...parameters });
    const rows = found.results[0].items.map((one) => lists.row(one, { acts: [
      ["Similar", `Items similar to ${titleOf(one)}`, () => alike(one, model)],
      ...(state.mode === "history" ? [["Add", `Add ${titleOf(one)} to what was used`, () => { $("similar").close(); add(one); }]] : [])] }));
    $("similar-list").replaceChildren(rows.length ? h("ol", {}, rows) : lists.nothing("Nothing similar", "Nobody used this together with anything else."));
  } catch (error) {
    $("similar-list").replaceChildren(lists.failed(error.message, () => alike(item, model)));
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
  ($("history").querySelector("button") ?? $("query")).focus();
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

function unlock() {
  $("key-wrong").hidden = api.key.get() === null;
  if (!$("locked").open) $("locked").showModal();
}

async function start() {
  place([lists.waiting()]);
  try {
    models = await api.models();
    if (!models.length) { place([lists.nothing("No model", "The service holds no model yet.")]); return; }
    recall();
    await choose();
  } catch (error) {
    if (error.status === 401) unlock();
    else place([lists.failed(error.message, start)]);
  }
}

const guarded = (work) => async (...given) => {
  try {
    await work(...given);
  } catch (error) {
    if (error.status === 401) unlock();
    else place([lists.failed(error.message, start)]);
  }
};

theme(THEMES.includes(localStorage.getItem("monogram-theme")) ? localStorage.getItem("monogram-theme") : "auto");
$("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3]));
$("model").addEventListener("change", guarded(async (event) => { state.model = event.target.value; if (state.other === state.model) state.other = null; await choose(); }));
$("other").addEventListener("change", guarded(async (event) => { state.other = event.target.value || null; await choose(); }));
$("by-history").addEventListener("click", () => mode("history"));
$("by-user").addEventListener("click", () => { mode("user"); $("user").focus(); });
$("user-form").addEventListener("submit", (event) => { event.preventDefault(); state.user = $("user").value.trim(); drawWho(); ask(); });
$("clear").addEventListener("click", () => { state.history = []; drawWho(); $("query").focus(); ask(); });
$("key-form").addEventListener("submit", (event) => { event.preventDefault(); api.key.set($("key").value); $("locked").close(); start(); });
window.addEventListener("hashchange", guarded(async () => { recall(); await choose(); }));
search({ model: () => state.model, taken: () => new Set(state.history), pick: add, tell });
start();
