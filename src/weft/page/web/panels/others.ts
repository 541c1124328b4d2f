// Everything else that the records have, by name; and the recipe.
import { Name } from "../api";
import { h, Table, value } from "../dom";
import { whole } from "../format";
import { Once, Panel } from "../state";
import { View } from "../view";
import { ChartGrid, some_of, unit_of } from "./curves";
import { LEARNING } from "./learning";
import { SPEED } from "./speed";
import { is_wait } from "./waits";

const CHARTS = 6;  // drawn before anybody asks

export function others_panel(view: View, ask: () => void): Panel {
  const list = new Table("Other metrics", [{ name: "Name" }, { name: "Last", numeric: true }, { name: "At step", numeric: true }, { name: "Curve" }]);
  const grid = new ChartGrid(view), once = new Once();
  let drawn: Set<string> | null = null, of = "";

  const is_other = (n: Name): boolean => n.kind !== "task" && ![...LEARNING, ...SPEED].includes(n.name) && !is_wait(n.name) && n.points > 0;
  // What says something by itself comes first; numbers of single layers are drawn where somebody asks.
  const first_drawn = (names: Name[]): Set<string> => new Set(names.filter((n) => n.kind === "step" && !/\.\d+(\.|$)/.test(n.name) && n.name !== "memory_bytes" && n.last !== 0).slice(0, CHARTS).map((n) => n.name));
  const choose = (name: string, yes: boolean): void => {
    if (yes) drawn!.add(name); else drawn!.delete(name);
    ask();
  };
  return {
    id: "others", title: "Other metrics", body: h("div", {}, grid.element, list.element),
    wants: (names) => names.filter((n) => is_other(n) && drawn?.has(n.name)).map((n) => n.name),
    update(s) {
      const others = s.names.filter(is_other);
      if (others.length === 0) return false;
      if (drawn === null || of !== (s.run?.id ?? "")) {
        drawn = first_drawn(others);
        of = s.run?.id ?? "";
        ask();
      }
      if (once.changed([of, others.map((n) => n.name), [...drawn]])) {
        grid.set(others.filter((n) => drawn!.has(n.name)).map((n) => ({ id: n.name, title: n.name, unit: unit_of(n), log: true, wants: some_of(n.name) })));
        list.rows(others.map((n) => [n.name, value(n.name, n.last, unit_of(n)), h("span", { class: "number" }, whole(n.last_step)),
          h("input", { type: "checkbox", "aria-label": `Draw ${n.name}`, checked: drawn!.has(n.name), change: (e) => choose(n.name, (e.target as HTMLInputElement).checked) })]), [of, others.map((n) => n.name)]);
      }
      for (const n of others) refresh(list.element, n);
      grid.update(s);
      return true;
    },
    redraw: () => grid.redraw(),
  };
}

// The last value alone: the row keeps its box and the focus.
function refresh(list: HTMLElement, n: Name): void {
  const old = list.querySelector<HTMLElement>(`data[data-key="${CSS.escape(n.name)}"]`);
  if (!old || old.dataset.value === String(n.last ?? "")) return;
  old.replaceWith(value(n.name, n.last, unit_of(n)));
}

export function recipe_panel(): Panel {
  const list = new Table("Recipe", [{ name: "Key" }, { name: "Value", wide: true }]);
  return {
    id: "recipe", title: "Recipe", body: h("details", {}, h("summary", {}, "Every key"), list.element),
    update(s) {
      const keys = Object.entries(s.run?.recipe ?? {});
      list.rows(keys.map(([key, v]) => [key, h("code", {}, v)]), keys);
      return keys.length > 0;
    },
  };
}
