// Renders the lists; the keyboard focus stays on the same control after each rendering.
import { $ } from "./dom.js";

let spot = null;

export const former = (model) => [...$("lists").querySelectorAll(".list")].find((one) => one.dataset.model === model);

function where(held) {
  const row = held.closest(".row");
  return { model: held.closest(".list")?.dataset.model, row: row ? [...row.parentElement.children].indexOf(row) : 0, act: held.dataset.act ?? "Add" };
}

function there({ model, row, act }) {
  const fresh = [...$("lists").querySelectorAll(".list:not(.old)")];
  const mine = fresh.find((one) => one.dataset.model === model) ?? fresh[0];
  const same = mine?.querySelectorAll(`[data-act="${act}"]`) ?? [];
  return same[Math.min(row, same.length - 1)] ?? $("lists").querySelector(".state button");
}

export function place(...children) {
  const lists = $("lists"), held = document.activeElement;
  if (held !== lists && lists.contains(held)) spot = where(held);
  lists.replaceChildren(...children);
  lists.removeAttribute("aria-busy");
  lists.classList.remove("busy");
  if (!spot || ![document.body, lists].includes(document.activeElement)) { spot = null; return; }
  const found = there(spot);
  if (found) { found.focus(); spot = null; } else lists.focus({ preventScroll: true });
}

export function wait(children) {
  if (!$("lists").querySelector("section")) place(...children);
  else $("lists").classList.add("busy");
  $("lists").setAttribute("aria-busy", "true");
}
