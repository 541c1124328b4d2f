// Where do gradients explode or vanish?
import { Heat } from "../api";
import { h, put } from "../dom";
import { whole } from "../format";
import { HeatMap } from "../heat";
import { Panel } from "../state";

export function gradients_panel(): Panel {
  const map = new HeatMap("Gradient norms", "The greatest norm within a column. Point at a cell, or use the arrow keys, for its number."), note = h("p", { class: "why" });
  let shown: Heat | null = null;
  return {
    id: "gradients", title: "Gradients by tensor", body: h("div", {}, map.element, note),
    update(s) {
      const heat = s.heat;
      if (!heat?.available || heat.steps.length === 0) return false;
      if (heat === shown) return true;
      shown = heat;
      const end = (i: number): number => (i + 1 < heat.steps.length ? heat.steps[i + 1] - 1 : heat.end);
      map.show({ key: "grad_norms", unit: "", rows: heat.names, values: heat.values, log: true, axis: [`step ${whole(heat.steps[0])}`, `step ${whole(heat.end)}`],
        columns: heat.steps.map((from, i) => (end(i) > from ? `steps ${whole(from)} to ${whole(end(i))}` : `step ${whole(from)}`)) });
      const bad = heat.values.flatMap((row, r) => (row.some((x) => x === null) ? [heat.names[r]] : []));
      put(note, bad.length > 0 && `Not finite, or not recorded, at some step (a dash): ${bad.slice(0, 5).join(", ")}${bad.length > 5 ? ` and ${bad.length - 5} more` : ""}.`);
      return true;
    },
    redraw: () => map.redraw(),
  };
}
