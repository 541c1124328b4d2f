// Rows of slices on an axis of time, to zoom in and move along.
import { Slice, Trace } from "./api";
import { colours } from "./colours";
import { h, put, value } from "./dom";
import { duration } from "./format";

const LABELS = 64, ROW = 13, GAP = 6, AXIS = 18, LEAST_US = 0.5;

// Which of the page's six line colours; the rest are grey.
const COLOURS: Record<string, number> = { forward: 0, backward: 1, dgrad: 1, wgrad: 2, send: 3, receive: 3, wait_sent: 3, wait_buffer: 3, fetch: 4, prefetch: 4, release: 4, open_gradients: 4, reduce_gradients: 4, finish_gradients: 4, update: 5 };

export class Timeline {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { role: "img", "aria-label": "nothing yet" });
  private readonly frame: HTMLElement;
  private readonly readout = h("p", { class: "readout", "aria-live": "polite" });
  private trace: Trace | null = null;
  private from = 0;
  private to = 1;
  private at: [number, number] | null = null;  // row, slice
  private drag: { x: number; from: number; to: number } | null = null;

  // `zoomed`: another part is looked at, of which there may be more to know.
  constructor(private readonly zoomed: (from: number, to: number) => void) {
    this.frame = h("div", { class: "timeline", tabindex: 0, role: "group", "aria-label": "Timeline of a step. Arrow keys go from slice to slice and row to row; plus, minus and 0 zoom." }, this.canvas);
    const button = (text: string, label: string, f: () => void): HTMLElement => h("button", { type: "button", "aria-label": label, title: label, click: f }, text);
    const buttons = h("div", { class: "filters" }, button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)), button("◀", "Earlier", () => this.move(-0.4)), button("▶", "Later", () => this.move(0.4)),
      button("Slice", "Zoom to the slice", () => this.zoom_to_slice()), button("All", "The whole step", () => this.show_all()));
    this.element = h("div", {}, buttons, this.frame, this.readout);
    this.frame.addEventListener("pointermove", (e) => this.on_move(e));
    this.frame.addEventListener("pointerdown", (e) => { this.read(e); this.drag = { x: e.clientX, from: this.from, to: this.to }; });
    for (const end of ["pointerup", "pointerleave", "pointercancel"]) this.frame.addEventListener(end, () => { this.drag = null; });
    this.frame.addEventListener("dblclick", () => this.zoom_to_slice());
    this.frame.addEventListener("wheel", (e) => this.on_wheel(e), { passive: false });
    this.frame.addEventListener("keydown", (e) => this.on_key(e));
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  show(trace: Trace, anew: boolean): void {
    const was = this.slice(), row = this.trace?.rows[this.at?.[0] ?? -1];
    this.trace = trace;
    if (anew) [this.from, this.to] = [trace.from_us, trace.to_us];
    const r = trace.rows.findIndex((x) => x.rank === row?.rank && x.track === row?.track), i = r < 0 ? -1 : trace.rows[r].slices.findIndex((s) => s[0] === was?.[0] && s[1] === was?.[1]);
    this.at = !anew && i >= 0 ? [r, i] : null;
    this.draw();
    this.tell();
  }
  redraw(): void { this.draw(); }

  private slice(): Slice | null { return this.at === null ? null : this.trace?.rows[this.at[0]]?.slices[this.at[1]] ?? null; }
  private width(): number { return Math.max(1, this.frame.clientWidth - LABELS); }
  private x(us: number): number { return LABELS + ((us - this.from) / (this.to - this.from)) * this.width(); }
  private us(x: number): number { return this.from + ((x - LABELS) / this.width()) * (this.to - this.from); }
  private top(row: number): number {
    let top = AXIS;
    for (let r = 1; r <= row; ++r) top += ROW + (this.trace!.rows[r]?.rank !== this.trace!.rows[r - 1].rank ? GAP : 0);
    return top;
  }

  private look(from: number, to: number): void {
    if (!this.trace) return;
    const end = this.trace.end_us, wide = Math.min(end, Math.max(LEAST_US, to - from)), begin = Math.max(0, Math.min(end - wide, from));
    if (begin === this.from && begin + wide === this.to) return;
    [this.from, this.to] = [begin, begin + wide];
    this.draw();
    this.zoomed(this.from, this.to);
  }
  private zoom(by: number, around = this.middle()): void { this.look(around - (around - this.from) * by, around + (this.to - around) * by); }
  private middle(): number {
    const s = this.slice(), middle = s ? s[0] + s[1] / 2 : (this.from + this.to) / 2;
    return middle >= this.from && middle <= this.to ? middle : (this.from + this.to) / 2;
  }
  private move(by: number): void { this.look(this.from + by * (this.to - this.from), this.to + by * (this.to - this.from)); }
  private show_all(): void { if (this.trace) this.look(0, this.trace.end_us); }
  private zoom_to_slice(): void {
    const s = this.slice();
    if (s) this.look(s[0] - s[1] / 8, s[0] + s[1] * 1.125);
  }

  // Without Ctrl the wheel moves the page, unless the timeline has the focus.
  private on_wheel(e: WheelEvent): void {
    if (!this.trace || !(e.ctrlKey || e.metaKey || document.activeElement === this.frame)) return;
    e.preventDefault();
    this.zoom(e.deltaY < 0 ? 0.8 : 1.25, this.us(e.clientX - this.frame.getBoundingClientRect().left));
  }
  private on_move(e: PointerEvent): void {
    if (!this.drag) return this.read(e);
    const us = ((this.drag.x - e.clientX) / this.width()) * (this.drag.to - this.drag.from);
    this.look(this.drag.from + us, this.drag.to + us);
  }
  private on_key(e: KeyboardEvent): void {
    if (!this.trace || e.ctrlKey || e.metaKey || e.altKey) return;
    const [r, i] = this.at ?? [0, -1], rows = this.trace.rows, row = (n: number): number => Math.max(0, Math.min(rows.length - 1, n));
    const keys: Record<string, () => void> = {
      "+": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.show_all(), Enter: () => this.zoom_to_slice(),
      ArrowRight: () => this.go([r, Math.min(rows[r].slices.length - 1, i + 1)]), ArrowLeft: () => this.go([r, Math.max(0, i - 1)]),
      ArrowDown: () => this.go([row(r + 1), this.nearest(row(r + 1))]), ArrowUp: () => this.go([row(r - 1), this.nearest(row(r - 1))]),
    };
    if (!keys[e.key]) return;
    e.preventDefault();
    keys[e.key]();
  }
  // Of another row, the slice that begins where this one does or later.
  private nearest(row: number): number {
    const slices = this.trace!.rows[row].slices, at = this.slice()?.[0] ?? this.from, found = slices.findIndex((s) => s[0] >= at);
    return found < 0 ? slices.length - 1 : found;
  }
  private read(e: PointerEvent): void {
    if (!this.trace) return;
    const box = this.canvas.getBoundingClientRect(), y = e.clientY - box.top, us = this.us(e.clientX - box.left), near = 2 * (this.to - this.from) / this.width();
    const row = this.trace.rows.findIndex((_, r) => y >= this.top(r) && y < this.top(r) + ROW);
    if (row < 0) return this.go(null);
    let best = -1;  // the innermost
    this.trace.rows[row].slices.forEach((s, i) => { if (us >= s[0] - near && us <= s[0] + s[1] + near) best = i; });
    this.go(best < 0 ? null : [row, best]);
  }
  private go(at: [number, number] | null): void {
    if (at?.[0] === this.at?.[0] && at?.[1] === this.at?.[1]) return;
    this.at = at !== null && at[1] >= 0 ? at : null;
    this.draw();
    this.tell();
  }

  private tell(): void {
    const s = this.slice(), t = this.trace!;
    if (!s) return put(this.readout, "Point at a slice, or use the arrow keys. Ctrl and the wheel zoom, dragging moves, a double click shows the slice.");
    const name = s[2] < 0 ? `${s[5]} short ones` : t.names[s[2]];
    put(this.readout, `Rank ${t.rows[this.at![0]].rank}: `, h("strong", {}, name), ` ${t.kinds[s[3]] ?? ""}, `, s[4] >= 0 && "micro-batch ", s[4] >= 0 && value("timeline.micro_batch", s[4], "count"), s[4] >= 0 && ", ",
      value("timeline.lasted", s[1] * 1e-6, "s"), " from ", value("timeline.began", s[0] * 1e-6, "s"), " on");
  }

  private draw(): void {
    const t = this.trace, width = this.frame.clientWidth;
    if (!t || width === 0) return;
    const dots = window.devicePixelRatio || 1, height = this.top(t.rows.length - 1) + ROW + 2, c = colours();
    Object.assign(this.canvas, { width: Math.round(width * dots), height: Math.round(height * dots) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const ctx = this.canvas.getContext("2d")!;
    ctx.scale(dots, dots);
    ctx.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textBaseline = "middle";
    ctx.fillStyle = c.soft;
    const ticks = Math.max(1, Math.floor(this.width() / 120));
    for (let i = 0; i <= ticks; ++i) {
      const us = this.from + (i * (this.to - this.from)) / ticks;
      ctx.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center";
      ctx.fillText(duration(us * 1e-6), this.x(us), AXIS / 2);
    }
    ctx.textAlign = "left";
    t.rows.forEach((row, r) => {
      const top = this.top(r);
      ctx.fillStyle = c.soft;
      if (r === 0 || t.rows[r - 1].rank !== row.rank) ctx.fillText(`rank ${row.rank}`, 0, top + ROW / 2);
      row.slices.forEach((s, i) => this.draw_slice(ctx, s, top, this.at?.[0] === r && this.at[1] === i, c.lines, c.ink, c.grid, c.ground));
    });
    this.canvas.setAttribute("aria-label", `${t.ranks.length} ranks, step ${t.step}, from ${duration(this.from * 1e-6)} to ${duration(this.to * 1e-6)}`);
    Object.assign(this.frame.dataset, { rows: String(t.rows.length), from: String(this.from), to: String(this.to) });
  }
  private draw_slice(ctx: CanvasRenderingContext2D, s: Slice, top: number, chosen: boolean, lines: string[], ink: string, grid: string, ground: string): void {
    const left = Math.max(LABELS, this.x(s[0])), right = Math.min(LABELS + this.width(), this.x(s[0] + s[1]));
    if (right < LABELS || left > LABELS + this.width()) return;
    const wide = Math.max(1, right - left), colour = COLOURS[this.trace!.kinds[s[3]]];
    ctx.fillStyle = colour === undefined ? grid : lines[colour];
    ctx.fillRect(left, top, Math.max(1, wide - 0.5), ROW - 1);
    if (s[2] >= 0 && wide > 26) {
      const name = this.trace!.names[s[2]], fits = Math.floor((wide - 4) / 6);
      ctx.fillStyle = colour === undefined ? ink : ground;
      if (fits > 1) ctx.fillText(name.length > fits ? `${name.slice(0, fits - 1)}…` : name, left + 2, top + ROW / 2);
    }
    if (!chosen) return;
    ctx.strokeStyle = ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(left, top, wide, ROW - 1);
  }
}
