// What the page knows at a moment, and what a panel makes of it.
import * as api from "./api";
import { CurveStore } from "./curve_store";
import { View } from "./view";

export interface State {
  view: View;
  now: number;                // the server's clock
  lines: api.RunLine[];       // all runs
  shown: number[];            // those whose curves are drawn, the one with the details first
  run: api.Run | null;        // the one with the details
  names: api.Name[];          // of it
  curves: CurveStore;
  plan: api.Plan | null;
  heats: Partial<Record<api.HeatKind, api.Heat>>;
  traffic: api.Traffic | null;
  machine: api.Machine | null;
}

export interface Panel {
  readonly id: string;
  readonly title: string;
  readonly body: HTMLElement;
  wants?(names: api.Name[]): string[];  // curves that it draws
  update(s: State): boolean;            // false: there is nothing to show, the panel is left out
  redraw?(): void;                      // in other colours
}

export function name_of(s: State, run: number): string {
  return s.lines.find((l) => l.run === run)?.name ?? `run ${run}`;
}

// Calls `build` only where what it shows is another: a table keeps its place and the focus while nothing changes.
export class Once {
  private last: string | null = null;
  changed(what: unknown): boolean {
    const now = JSON.stringify(what);
    if (now === this.last) return false;
    this.last = now;
    return true;
  }
}
