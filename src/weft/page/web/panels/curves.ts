// Charts side by side, each of some of a run's curves, for all runs that are shown.
import { Name } from "../api";
import { ChartOptions, Curve, LineChart, Mark } from "../charts";
import { h, put } from "../dom";
import { Unit } from "../format";
import { name_of, State } from "../state";
import { View } from "../view";
import { marks_of } from "./marks";

export interface ChartSpec extends ChartOptions {
  id: string;
  wants(names: Name[]): string[];
  label?(name: string): string;
  alone?: boolean;  // only of the run with the details: its curves differ in what they are of
}

export class ChartGrid {
  readonly element = h("div", { class: "charts" });
  private readonly charts = new Map<string, LineChart>();

  constructor(private readonly view: View, private specs: ChartSpec[] = []) { this.set(specs); }

  set(specs: ChartSpec[]): void {
    this.specs = specs;
    for (const id of [...this.charts.keys()]) if (!specs.some((s) => s.id === id)) {
      this.charts.get(id)!.forget();
      this.charts.delete(id);
    }
    for (const spec of specs) if (!this.charts.has(spec.id)) {
      this.charts.set(spec.id, new LineChart(this.view, spec));
      this.charts.get(spec.id)!.element.dataset.chart = spec.id;
    }
    const elements = specs.map((s) => this.charts.get(s.id)!.element);
    if (elements.length !== this.element.children.length || elements.some((e, i) => this.element.children[i] !== e)) put(this.element, ...elements);
  }

  wants(names: Name[]): string[] { return this.specs.flatMap((s) => s.wants(names)); }

  // Whether any chart has something to show.
  update(s: State): boolean {
    const marks: Mark[] = s.run ? marks_of(s.run) : [];
    let any = false;
    for (const spec of this.specs) {
      const curves = curves_of(spec, s);
      this.charts.get(spec.id)!.draw(curves, marks);
      any ||= curves.some((c) => c.points.length > 0);
    }
    return any;
  }
  redraw(): void { for (const chart of this.charts.values()) chart.redraw(); }
}

function curves_of(spec: ChartSpec, s: State): Curve[] {
  const names = spec.wants(s.names), runs = spec.alone ? s.shown.slice(0, 1) : s.shown, several = runs.length > 1;
  return runs.flatMap((run, r) => names.map((name, n): Curve => {
    const what = spec.label?.(name) ?? name;
    return { key: name, run: String(run), label: !several ? what : names.length > 1 ? `${what}, ${name_of(s, run)}` : name_of(s, run),
      style: several ? r : n, points: s.curves.of(run, name),
      rare: s.names.find((x) => x.name === name)?.kind !== "step" };
  }));
}

export function unit_of(name: Name): Unit {
  const units: Record<string, Unit> = { nats: "nats", s: "s", bytes: "bytes", "tokens/s": "tokens/s", fraction: "share" };
  return units[name.unit] ?? (name.kind === "task" ? "score" : "");
}

export function some_of(...wanted: string[]): (names: Name[]) => string[] {
  return (names) => wanted.filter((w) => names.some((n) => n.name === w));
}
