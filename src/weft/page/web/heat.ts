// A map of numbers by row and column. The colour is for the eye; pointer and arrow keys read each number.
import { colours, heat } from "./colours";
import { h, put, value } from "./dom";
import { format, Unit } from "./format";

export interface HeatData {
  key: string;
  unit: Unit;
  rows: string[];
  columns: string[];               // each with what it is: "step 12", "expert 3"
  values: (number | null)[][];     // [row][column]
  log?: boolean;                   // of numbers that differ by orders of magnitude; 0 has the least colour
  gap?(row: number, column: number): string;  // what it means that there is no number
  axis: [string, string];          // what stands below the first and the last column
}

// CSS pixels: labels of rows; the height of a row that has one; the widest cell; the height that more rows share.
const LABELS = 150, ROW = 14, WIDEST = 44, HEIGHT = 800;
const LABELLED = 120;  // rows

export class HeatMap {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { role: "img", "aria-label": "nothing yet" });
  private readonly frame: HTMLElement;
  private readonly readout = h("p", { class: "readout", "aria-live": "polite" });
  private readonly scale = h("p", { class: "scale" });
  private readonly axis = h("p", { class: "axis" });
  private data: HeatData | null = null;
  private at: [number, number] | null = null;  // row, column
  private range: [number, number] = [0, 1];
  private signature = "";

  constructor(title: string, private readonly hint: string) {
    this.frame = h("div", { class: "heat", tabindex: 0, role: "group", "aria-label": `${title}: map. Arrow keys read its numbers.` }, this.canvas);
    this.element = h("div", {}, this.scale, this.frame, this.axis, this.readout);
    this.frame.addEventListener("pointermove", (e) => this.read(e));
    this.frame.addEventListener("pointerdown", (e) => this.read(e));
    this.frame.addEventListener("keydown", (e) => this.on_key(e));
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  show(data: HeatData): void {
    const signature = JSON.stringify([data.rows, data.columns, data.values]);
    if (signature === this.signature) return;
    this.signature = signature;
    this.data = data;
    let low = Infinity, high = -Infinity, with_zero = false;
    for (const row of data.values) for (const x of row) {
      if (x === null) continue;
      if (data.log && x <= 0) {
        with_zero = true;
        continue;
      }
      low = Math.min(low, x);
      high = Math.max(high, x);
    }
    this.range = low <= high ? [low, high] : [0, 1];
    this.frame.dataset.rows = String(data.rows.length);
    this.frame.dataset.columns = String(data.columns.length);
    const ramp = h("canvas", { class: "ramp", width: 100, height: 1, "aria-hidden": "true" }), ctx = ramp.getContext("2d")!;
    for (let i = 0; i < 100; ++i) {
      ctx.fillStyle = heat(i / 99);
      ctx.fillRect(i, 0, 1, 1);
    }
    put(this.scale, value(`${data.key}.least`, this.range[0], data.unit), ramp, value(`${data.key}.greatest`, this.range[1], data.unit), data.log && (with_zero ? " logarithmic, 0 as the least" : " logarithmic"));
    put(this.axis, h("span", {}, data.axis[0]), data.columns.length > 1 && h("span", {}, data.axis[1]));
    this.tell();
    this.draw();
  }
  redraw(): void { this.draw(); }

  private share(x: number): number {
    const [low, high] = this.range;
    if (this.data!.log && x <= 0) return 0;
    if (high <= low) return 0.5;
    return this.data!.log ? Math.log(x / low) / Math.log(high / low) : (x - low) / (high - low);
  }

  private row_height(): number {
    return this.data!.rows.length <= LABELLED ? ROW : Math.max(1, Math.floor(HEIGHT / this.data!.rows.length));
  }
  private label_width(): number { return this.row_height() === ROW ? Math.min(LABELS, this.frame.clientWidth / 3) : 0; }
  private cell_width(): number { return Math.min(WIDEST, (this.frame.clientWidth - this.label_width()) / this.data!.columns.length); }

  private draw(): void {
    const data = this.data, width = this.frame.clientWidth;
    if (!data || width === 0) return;
    const dots = window.devicePixelRatio || 1, high = this.row_height(), height = data.rows.length * high, left = this.label_width();
    Object.assign(this.canvas, { width: Math.round(width * dots), height: Math.round(height * dots) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    const ctx = this.canvas.getContext("2d")!, c = colours();
    Object.assign(this.axis.style, { paddingLeft: `${left}px`, width: `${left + data.columns.length * this.cell_width()}px` });
    ctx.scale(dots, dots);
    const cell = this.cell_width(), gap_x = cell >= 14 ? 1 : 0, gap_y = high === ROW ? 1 : 0;
    const edge = (i: number): number => left + Math.round(i * cell * dots) / dots;
    ctx.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textBaseline = "middle";
    data.values.forEach((row, r) => {
      if (left > 0) {
        ctx.fillStyle = c.soft;
        ctx.fillText(shortened(ctx, data.rows[r], left - 8), 0, (r + 0.5) * high);
      }
      row.forEach((x, i) => {
        if (x === null) return this.draw_gap(ctx, edge(i), r * high, cell - gap_x, high - gap_y, c.grid);
        ctx.fillStyle = heat(this.share(x));
        ctx.fillRect(edge(i), r * high, Math.max(0.5, edge(i + 1) - edge(i) - gap_x), high - gap_y);
      });
    });
    if (!this.at) return;
    ctx.strokeStyle = c.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(edge(this.at[1]), this.at[0] * high, Math.max(2, cell - gap_x), high - gap_y);
  }

  // No number: a dash, which no colour of the scale is.
  private draw_gap(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, colour: string): void {
    ctx.fillStyle = colour;
    ctx.fillRect(x + width / 4, y + height / 2 - 0.5, width / 2, 1);
  }

  private read(event: PointerEvent): void {
    if (!this.data) return;
    const box = this.canvas.getBoundingClientRect(), left = this.label_width();
    const row = Math.floor((event.clientY - box.top) / this.row_height());
    const column = Math.floor((event.clientX - box.left - left) / this.cell_width());
    const inside = row >= 0 && row < this.data.rows.length && column >= 0 && column < this.data.columns.length;
    this.go(inside ? [row, column] : null);
  }
  private on_key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e9], End: [0, 1e9] };
    const step = steps[event.key];
    if (!this.data || !step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const clamp = (x: number, n: number): number => Math.max(0, Math.min(n - 1, x));
    this.go(this.at ? [clamp(this.at[0] + step[0], this.data.rows.length), clamp(this.at[1] + step[1], this.data.columns.length)] : [0, 0]);
  }
  private go(at: [number, number] | null): void {
    if (at?.[0] === this.at?.[0] && at?.[1] === this.at?.[1]) return;
    this.at = at;
    this.draw();
    this.tell();
  }

  private tell(): void {
    const data = this.data!;
    if (this.at && (this.at[0] >= data.rows.length || this.at[1] >= data.columns.length)) this.at = null;
    if (!this.at) put(this.readout, this.hint);
    else {
      const [row, column] = this.at, x = data.values[row][column];
      put(this.readout, `${data.rows[row]}, ${data.columns[column]}: `, value(data.key, x, data.unit), x === null && data.gap && ` ${data.gap(row, column)}`);
    }
    this.canvas.setAttribute("aria-label", `${data.rows.length} rows, ${data.columns.length} columns, from ${format(this.range[0], data.unit)} to ${format(this.range[1], data.unit)}`);
  }
}

function shortened(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && ctx.measureText(`…${text.slice(-end)}`).width > width) --end;
  return `…${text.slice(-end)}`;
}
