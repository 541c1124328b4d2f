// What of the curves is looked at: one for the whole page, kept in the address, so that a reload and a link show the same.

export class View {
  from: number | null = null;  // steps; null: from the first, to the newest
  to: number | null = null;
  smoothing = 0;               // weight of what was before, 0 to 0.99
  log_x = false;
  log_y = false;
  cursor: number | null = null;

  private readonly when_changed: (() => void)[] = [];
  private readonly when_moved: (() => void)[] = [];

  constructor() {
    const q = new URLSearchParams(location.hash.slice(1));
    const step = (name: string): number | null => (/^\d+$/.test(q.get(name) ?? "") ? Number(q.get(name)) : null);
    this.from = step("from");
    this.to = step("to");
    if (this.from === null || this.to === null || this.from >= this.to) this.from = this.to = null;
    this.smoothing = Math.max(0, Math.min(0.99, Number(q.get("smooth")) || 0));
    this.log_x = q.get("x") === "log";
    this.log_y = q.get("y") === "log";
  }

  on_changed(f: () => void): void { this.when_changed.push(f); }
  on_cursor(f: () => void): void { this.when_moved.push(f); }

  set_window(from: number | null, to: number | null): void {
    this.from = from;
    this.to = to;
    this.changed();
  }
  set_cursor(step: number | null): void {
    if (step === this.cursor) return;
    this.cursor = step;
    for (const f of this.when_moved) f();
  }
  changed(): void {
    const q = new URLSearchParams();
    if (this.from !== null && this.to !== null) {
      q.set("from", String(this.from));
      q.set("to", String(this.to));
    }
    if (this.smoothing > 0) q.set("smooth", String(this.smoothing));
    if (this.log_x) q.set("x", "log");
    if (this.log_y) q.set("y", "log");
    history.replaceState(null, "", `${location.pathname}${location.search}${q.toString() ? "#" + q.toString() : ""}`);
    for (const f of this.when_changed) f();
  }
}
