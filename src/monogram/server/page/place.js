// Renders the lists; the keyboard focus stays on the same control after each rendering.
import { $ } from "./dom.js";

let spot = null;

export const former = (model) => [...$("lists").querySelectorAll(".list")].find((list) => list.dataset.model === model);

function where(focused) {
  const row = focused.closest(".row");
  return { model: focused.closest(".list")?.dataset.model, row: row ? [...row.parentElement.children].indexOf(row) : 0, act: focused.dataset.act ?? "Add" };
}

function there({ model, row, act }) {
  const fresh = [...$("lists").querySelectorAll(".list:not(.old)")];
  const mine = fresh.find((list) => list.dataset.model === model) ?? fresh[0];
  const same = mine?.querySelectorAll(`[data-act="${act}"]`) ?? [];
  return same[Math.min(row, same.length - 1)] ?? $("lists").querySelector(".state button");
}

export function place(...children) {
  const lists = $("lists"), focused = document.activeElement;
  if (focused !== lists && lists.contains(focused)) spot = where(focused);
  lists.replaceChildren(...children);
  lists.removeAttribute("aria-busy");
  lists.classList.remove("busy");
  if (!spot || ![document.body, lists].includes(document.activeElement)) { spot = null; return; }
  const control = there(spot);
  if (control) { control.focus(); spot = null; } else lists.focus({ preventScroll: true });
}

export function wait(children) {
  if (!$("lists").querySelector("section")) place(...children);
  else $("lists").classList.add("busy");
  $("lists").setAttribute("aria-busy", "true");
}
