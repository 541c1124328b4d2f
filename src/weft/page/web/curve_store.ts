// The curves that the page shows: fetched for a window, then as they grow; thrown away where the run went back.
import * as api from "./api";
import { Point } from "./charts";

const MOST = 2000;  // points of a curve that are asked for; it may grow to twice as many before it is thinned anew

interface Kept { generation: number; window: string; names: Set<string>; last: number; points: Map<string, Point[]> }

export class CurveStore {
  private readonly kept = new Map<number, Kept>();

  of(run: number, name: string): Point[] {
    return this.kept.get(run)?.points.get(name) ?? [];
  }
  last_step(run: number): number { return this.kept.get(run)?.last ?? 0; }
  generation(run: number): number | null { return this.kept.get(run)?.generation ?? null; }
  forget(run: number): void { this.kept.delete(run); }
  forget_all(): void { this.kept.clear(); }

  // Brings a run's curves up to date. `from` and `to`: null for all.
  async update(run: number, names: string[], from: number | null, to: number | null, generation: number): Promise<void> {
    // Records that are gone are not shown even where the new ones do not come.
    if (this.kept.get(run)?.generation !== generation) this.forget(run);
    const old = this.kept.get(run), window = `${from}-${to}`;
    const whole = !old || old.window !== window || names.some((n) => !old.names.has(n));
    const big = old && Math.max(0, ...[...old.points.values()].map((p) => p.length)) > 2 * MOST;
    if (whole || big) return this.fetch_all(run, names, from, to);
    if (to !== null && old.last >= to) return;
    // The newest step again: its evaluation comes after its record.
    const more = await api.curves(run, names, old.last, to, MOST);
    if (more.generation !== old.generation) {
      this.forget(run);
      return this.fetch_all(run, names, from, to);
    }
    for (const curve of more.curves) {
      const points = old.points.get(curve.name) ?? [];
      const end = points.length > 0 ? points[points.length - 1].x : -1;
      points.push(...points_of(curve).filter((p) => p.x > end));
      old.points.set(curve.name, points);
    }
    old.last = Math.max(old.last, Math.min(more.last_step, to ?? Infinity));
  }

  private async fetch_all(run: number, names: string[], from: number | null, to: number | null): Promise<void> {
    const all = await api.curves(run, names, from, to, MOST);
    this.kept.set(run, { generation: all.generation, window: `${from}-${to}`, names: new Set(names), last: Math.min(all.last_step, to ?? Infinity),
      points: new Map(all.curves.map((c) => [c.name, points_of(c)])) });
  }
}

function points_of(curve: api.RawCurve): Point[] {
  return curve.steps.map((x, i) => ({ x, y: curve.values[i] ?? NaN }));
}
