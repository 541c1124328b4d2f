// Where do gradients explode or vanish, which weights grow, and of which does an update change too much?
import { Heat, HeatKind } from "../api";
import { h, put } from "../dom";
import { whole } from "../format";
import { HeatMap } from "../heat";
import { Panel, State } from "../state";

class NormMap {
  readonly element: HTMLElement;
  private readonly map: HeatMap;
  private readonly note = h("p", { class: "why" });
  private shown: Heat | null = null;

  constructor(private readonly of: HeatKind, private readonly key: string, title: string, what: string, private readonly dash: string, heading = "") {
    this.map = new HeatMap(title, `${what} Point at a cell, or use the arrow keys, for its number.`);
    this.element = h("div", { "data-map": of }, heading !== "" && h("h3", {}, heading), this.map.element, this.note);
  }

  update(s: State): boolean {
    const heat = s.heats[this.of], any = heat !== undefined && heat.available && heat.steps.length > 0;
    this.element.hidden = !any;
    if (!any || heat === this.shown) return any;
    this.shown = heat;
    const from = heat.steps, to = heat.ends;
    this.map.show({ key: this.key, unit: "", rows: heat.names, values: heat.values, log: true, axis: [`step ${whole(from[0])}`, `step ${whole(to[to.length - 1])}`],
      columns: from.map((step, i) => (to[i] > step ? `steps ${whole(step)} to ${whole(to[i])}` : `step ${whole(step)}`)) });
    const bad = heat.values.flatMap((row, r) => (row.some((x) => x === null) ? [heat.names[r]] : []));
    put(this.note, bad.length > 0 && `${this.dash} at some step (a dash): ${bad.slice(0, 5).join(", ")}${bad.length > 5 ? ` and ${bad.length - 5} more` : ""}.`);
    return true;
  }
  redraw(): void { this.map.redraw(); }
}

function panel_of(id: string, title: string, maps: NormMap[]): Panel {
  return {
    id, title, body: h("div", {}, ...maps.map((m) => m.element)),
    update: (s) => maps.map((m) => m.update(s)).some((any) => any),
    redraw: () => maps.forEach((m) => m.redraw()),
  };
}

const NOT_FINITE = "Not finite, or not recorded,";

export function gradients_panel(): Panel {
  return panel_of("gradients", "Gradients by tensor", [new NormMap("grad_norm", "grad_norms", "Gradient norms", "The greatest norm within a column.", NOT_FINITE)]);
}

export function weights_panel(): Panel {
  return panel_of("weights", "Weights by tensor", [
    new NormMap("update_ratio", "update_ratios", "Update ratios", "How much of a tensor's norm an update changed; about 0.001 is usual. The greatest within a column.", "0 before the update, not finite, or not recorded,", "Update ratios"),
    new NormMap("weight_norm", "weight_norms", "Weight norms", "The norm after an update, the greatest within a column.", NOT_FINITE, "Norms")]);
}
