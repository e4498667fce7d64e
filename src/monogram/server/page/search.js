// Search as you type: a combobox with a list of items, for mouse and keyboard.
import * as api from "./api.js";
import { $, h, later, named, newestOnly } from "./dom.js";

const MOST = 12;

export function search({ model, taken, pick, announce, lock }) {
  const field = $("query"), list = $("options"), newSignal = newestOnly();
  let matches = [], active = -1;

  const close = () => {
    newSignal();
    list.hidden = true;
    active = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };

  const mark = (next) => {
    active = matches.length ? (next + matches.length) % matches.length : -1;
    list.querySelectorAll("[role=option]").forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    if (active < 0) return;
    field.setAttribute("aria-activedescendant", `option-${active}`);
    list.children[active].scrollIntoView({ block: "nearest" });
  };

  const choose = (item) => {
    field.value = "";
    close();
    pick(item);
    field.focus();
  };

  const open = (children) => {
    list.replaceChildren(...children);
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
  };

  const look = async () => {
    const signal = newSignal();
    const query = field.value.trim();
    try {
      const page = await api.items(model(), query, Math.min(1000, MOST + taken().size), signal);
      if (signal.aborted || document.activeElement !== field) return;
      const free = page.items.filter((item) => !taken().has(item.item));
      const total = page.total - page.items.length + free.length;
      matches = free.slice(0, MOST);
      const options = matches.map((item, at) =>
        h("li", { role: "option", id: `option-${at}`, "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); choose(item); } }, named(item)));
      const note = total === 0 ? (query ? `No item matches “${query}”.` : "Every item is in the history already.")
        : total > matches.length ? `${matches.length} of ${total.toLocaleString("en")}: keep typing to see others` : `${total} found`;
      open([...options, h("li", { role: "presentation", class: "note" }, note)]);
      announce(note);
      active = -1;
      if (query && matches.length) mark(0);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) { close(); lock(error); return; }
      matches = [];
      open([h("li", { role: "presentation", class: "wrong" }, error.message)]);
      announce(error.message);
    }
  };

  const soon = later(look, 110);
  field.addEventListener("input", soon);
  field.addEventListener("focus", () => { if (list.hidden) look(); });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { close(); return; }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) look();
      else mark(active + (event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1));
    }
    if (event.key === "Enter" && !list.hidden && active >= 0) {
      event.preventDefault();
      choose(matches[active]);
    }
  });
}
