// Do all experts have work?
import { Num } from "../api";
import { h } from "../dom";
import { HeatMap } from "../heat";
import { Panel, State } from "../state";
import { View } from "../view";
import { ChartGrid } from "./curves";

const is_load = (name: string): boolean => /^(mtp_)?expert_load\.\d+\.max_over_mean$/.test(name);

export function experts_panel(view: View): Panel {
  const map = new HeatMap("Load of experts", "Tokens of the last step's global batch. Point at a cell, or use the arrow keys, for its number.");
  const map_part = h("div", {}, h("h3", {}, "Tokens of each expert, last step"), map.element);
  const grid = new ChartGrid(view, [{ id: "expert_load", title: "Fullest expert", unit: "", about: "beside the mean of its layer, of the first six layers", zero: true, alone: true,
    wants: (names) => names.map((n) => n.name).filter(is_load).slice(0, 6), label: (n) => n.replace(/expert_load\.(\d+)\.max_over_mean/, "layer $1").replace("_layer", " layer") }]);
  return {
    id: "experts", title: "Experts", body: h("div", {}, map_part, grid.element),
    wants: (names) => grid.wants(names),
    update(s) {
      const load = load_of(s), any = grid.update(s);
      map_part.hidden = load.length === 0;
      if (load.length > 0) {
        const wide = Math.max(...load.map((l) => l.tokens.length));
        map.show({ key: "expert_load", unit: "count", rows: load.map((l) => l.name), columns: Array.from({ length: wide }, (_, e) => `expert ${e}`),
          values: load.map((l) => Array.from({ length: wide }, (_, e) => l.tokens[e] ?? null)), axis: ["expert 0", `expert ${wide - 1}`] });
      }
      return any || load.length > 0;
    },
    redraw() {
      grid.redraw();
      map.redraw();
    },
  };
}

interface Load { name: string; tokens: Num[] }

// A record is what stands in the file: what is no number there is none here.
function load_of(s: State): Load[] {
  const of = (field: string, what: string): Load[] => {
    const layers: unknown = s.run?.latest?.[field];
    if (!Array.isArray(layers)) return [];
    return layers.map((row: unknown, i): Load => ({ name: `${what} ${i}`, tokens: Array.isArray(row) ? row.map((x: unknown) => (typeof x === "number" ? x : null)) : [] }))
      .filter((l) => l.tokens.some((x) => x !== null));
  };
  return [...of("expert_load", "layer"), ...of("mtp_expert_load", "mtp layer")];
}
