// What do ranks say to each other?
import { Traffic } from "../api";
import { h, put, say, Table, value } from "../dom";
import { HeatMap } from "../heat";
import { whole } from "../format";
import { State } from "../state";

const ALL = "all axes";

// Of the waits panel.
export class TrafficPart {
  private readonly axis = h("select", { "aria-label": "Axis", change: () => this.draw() });
  private readonly head = h("p", { class: "why" });
  private readonly why = h("div");
  private readonly map = new HeatMap("Bytes from rank to rank", "Bytes from the rank of the row to that of the column, in that step. Point at a cell, or use the arrow keys, for its number.");
  private readonly table = new Table("Bytes by axis", [{ name: "Axis" }, { name: "Calls", numeric: true }, { name: "Bytes", numeric: true }, { name: "Bytes/s", numeric: true }, { name: "Most between two ranks", numeric: true }, { name: "" }]);
  private readonly parts = h("div", {}, h("div", { class: "filters" }, h("label", {}, "Axis ", this.axis)), this.map.element, this.table.element, h("p", { class: "why" },
    "Messages as they went. Of a collective of n ranks, what leaves a rank, in equal parts for the n − 1 others: each gives every other one its share itself, there are no rings (a small tensor may go whole)."));
  readonly element = h("div", { id: "traffic" }, h("h3", {}, "What ranks say to each other"), this.why, this.head, this.parts);
  private shown: Traffic | null = null;

  update(s: State): boolean {
    const t = s.traffic, alone = s.plan?.available === true && s.plan.world === 1;
    this.element.hidden = t === null || (alone && !t.available);
    if (t === null || t === this.shown) return t?.available === true;
    this.shown = t;
    this.parts.hidden = this.head.hidden = !t.available;
    put(this.why, !t.available && say(`Nothing here: ${t.reason ?? "the server says no reason"}.`));
    if (!t.available) return false;
    const chosen = this.axis.value, names = [ALL, ...t.axes.map((a) => a.axis)];
    put(this.axis, ...names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    put(this.head, "In step ", value("traffic.step", t.step, "count"), ", which took ", value("traffic.step_time_s", t.step_time_s, "s"), "; the rates are means over it.");
    const rate = (bytes: number): number | null => (t.step_time_s > 0 ? bytes / t.step_time_s : null), key = (axis: string): string => `traffic.${axis}`;
    const all = t.axes.reduce((sum, a) => sum + a.bytes, 0);
    this.table.rows(t.axes.map((a) => [a.axis, value(`${key(a.axis)}.calls`, a.calls, "count"), value(`${key(a.axis)}.bytes`, a.bytes, "bytes"), value(`${key(a.axis)}.rate`, rate(a.bytes), "bytes/s"),
      value(`${key(a.axis)}.most`, a.most_bytes, "bytes"), a.most_bytes > 0 && `from rank ${a.from} to ${a.to}`]), t, undefined,
      ["Together", value("traffic.calls", t.axes.reduce((sum, a) => sum + a.calls, 0), "count"), value("traffic.bytes", all, "bytes"), value("traffic.rate", rate(all), "bytes/s"), "", ""]);
    this.draw();
    return true;
  }
  redraw(): void { this.map.redraw(); }

  private draw(): void {
    const t = this.shown;
    if (!t?.available) return;
    const chosen = t.axes.filter((a) => this.axis.value === ALL || a.axis === this.axis.value), cells = Math.ceil(t.world / t.ranks_per_cell);
    const values = Array.from({ length: cells }, (_, r) => Array.from({ length: cells }, (_, c) => (r === c && t.ranks_per_cell === 1 ? null : chosen.reduce((sum, a) => sum + a.matrix[r][c], 0))));
    const name = (i: number): string => {
      const first = i * t.ranks_per_cell, last = Math.min(t.world, first + t.ranks_per_cell) - 1;
      return last > first ? `ranks ${whole(first)} to ${whole(last)}` : `rank ${whole(first)}`;
    };
    const names = Array.from({ length: cells }, (_, i) => name(i));
    this.map.show({ key: "traffic.cell", unit: "bytes", rows: names, columns: names.map((n) => `to ${n}`), values, log: true, gap: () => "itself", axis: [`to ${names[0]}`, `to ${names[cells - 1]}`] });
  }
}
