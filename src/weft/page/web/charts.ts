// Curves over steps, as small multiples: all charts of the page show the same window of steps and the same cursor.
import { Chart, ChartDataset, LinearScale, LineController, LineElement, LogarithmicScale, Plugin, PointElement } from "chart.js";
import { colours, DASHES } from "./colours";
import { h, put, value } from "./dom";
import { count, format, tick, Unit, whole } from "./format";
import { View } from "./view";

Chart.register(LineController, LineElement, PointElement, LinearScale, LogarithmicScale);

export interface Point { x: number; y: number }  // y is NaN where the record says null: a gap
export interface Curve {
  key: string;      // the record's name of it
  run: string;      // id
  label: string;    // for the legend
  style: number;    // its colour and dashes
  points: Point[];  // in the order of steps
  rare?: boolean;   // an evaluation every so often: points are drawn and never smoothed
}
export interface Mark { step: number; symbol: string; bad: boolean; quiet: boolean }

export interface ChartOptions { title: string; unit: Unit; about?: string; log?: boolean; zero?: boolean }

type Chart2 = Chart<"line", Point[]>;

export class LineChart {
  readonly element: HTMLElement;
  private readonly legend = h("ul", { class: "legend" });
  private readonly canvas = h("canvas", { role: "img", "aria-label": "nothing yet" });
  private readonly cursor = h("div", { class: "cursor", hidden: true });
  private readonly selection = h("div", { class: "selection", hidden: true });
  private readonly frame: HTMLElement;
  private chart: Chart2 | null = null;
  private curves: Curve[] = [];
  private marks: Mark[] = [];
  private drawn = "";  // what stands on the canvas

  constructor(private readonly view: View, private readonly options: ChartOptions) {
    this.frame = h("div", { class: "plot", tabindex: 0, role: "group", "aria-label": `${options.title}: curve. Arrow keys read values, plus and minus zoom, 0 shows all.` },
      this.canvas, this.cursor, this.selection);
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("h3", {}, options.title), options.about && h("p", {}, options.about)), this.legend, this.frame);
    this.listen_to_pointer();
    this.frame.addEventListener("keydown", (event) => this.on_key(event));
    view.on_cursor(() => this.show_cursor());
  }

  draw(curves: Curve[], marks: Mark[]): void {
    this.curves = curves.filter((c) => c.points.length > 0);
    this.marks = marks;
    this.element.hidden = this.curves.length === 0;
    if (this.element.hidden || !this.element.isConnected) return;
    const { from, to, smoothing, log_x } = this.view;
    const what = JSON.stringify([from, to, smoothing, log_x, this.view.log_y, marks, this.curves.map((c) => [c.key, c.run, c.label, c.style, id_of(c.points), c.points.length])]);
    if (this.chart && what === this.drawn) return;
    this.drawn = what;
    const log_y = this.view.log_y && this.options.log === true;
    // Chart.js keeps a scale's kind for life.
    if (this.chart && (this.scale_kind("x") !== (this.view.log_x ? "logarithmic" : "linear") || this.scale_kind("y") !== (log_y ? "logarithmic" : "linear"))) this.forget();
    this.chart ??= this.make(log_y);
    this.chart.data.datasets = this.curves.flatMap((c) => this.datasets_of(c, log_y));
    const x = this.chart.options.scales!.x!;
    x.min = this.view.from ?? Math.min(...this.curves.map((c) => c.points[0].x));
    x.max = this.view.to ?? Math.max(...this.curves.map((c) => c.points[c.points.length - 1].x), Number(x.min) + 1);
    this.chart.update("none");
    this.element.dataset.points = String(Math.max(...this.curves.map((c) => c.points.length)));
    this.show_cursor();
  }

  // Ready to be drawn anew, in other colours.
  forget(): void {
    this.chart?.destroy();
    this.chart = null;
  }
  redraw(): void {
    this.forget();
    this.draw(this.curves, this.marks);
  }

  private scale_kind(axis: "x" | "y"): string { return (this.chart!.options.scales![axis] as { type: string }).type; }

  private make(log_y: boolean): Chart2 {
    const c = colours(), unit = this.options.unit;
    const axis = { grid: { color: c.grid, drawTicks: false, borderColor: c.grid }, border: { display: false } };
    const font = { size: 11, family: getComputedStyle(document.body).fontFamily };
    return new Chart<"line", Point[]>(this.canvas, {
      type: "line",
      data: { datasets: [] },
      plugins: [this.draw_marks()],
      options: {
        animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false, events: [],
        layout: { padding: { top: 12 } },
        elements: { point: { radius: 0 }, line: { tension: 0, borderJoinStyle: "round" } },
        scales: {
          x: { type: this.view.log_x ? "logarithmic" : "linear", ...axis,
            ticks: { color: c.soft, font, padding: 6, maxTicksLimit: 6, maxRotation: 0, callback: (x) => thinned(Number(x), this.view.log_x, count) } },
          y: { type: log_y ? "logarithmic" : "linear", ...axis, beginAtZero: this.options.zero,
            afterFit: (scale) => { scale.width = 56; },  // charts below each other share their steps
            ticks: { color: c.soft, font, padding: 6, maxTicksLimit: 6, callback: (y) => thinned(Number(y), log_y, (v) => tick(v, unit)) } },
        },
      },
    });
  }

  private datasets_of(curve: Curve, log_y: boolean): ChartDataset<"line", Point[]>[] {
    const c = colours(), colour = c.lines[curve.style % c.lines.length];
    const seen = log_y || this.view.log_x ? curve.points.filter((p) => (!log_y || p.y > 0) && (!this.view.log_x || p.x > 0)) : curve.points;
    const line = { borderColor: colour, borderDash: DASHES[curve.style % DASHES.length], borderWidth: 1.6 };
    if (curve.rare) return [{ ...line, data: seen, pointRadius: seen.length > 60 ? 0 : 3, pointBackgroundColor: c.ground, pointBorderColor: colour, pointBorderWidth: 1.6 }];
    if (this.view.smoothing === 0) return [{ ...line, data: seen, pointRadius: seen.length === 1 ? 3 : 0 }];
    return [{ ...line, data: smooth(seen, this.view.smoothing) }, { ...line, data: seen, borderWidth: 1, borderColor: `${colour}44`, borderDash: [] }];
  }

  // What happened, above the curves; what may have changed them is a line through them. More checkpoints than fit stay in
  // the list alone.
  private draw_marks(): Plugin<"line"> {
    return {
      id: "marks",
      beforeDatasetsDraw: (chart) => {
        const { ctx, chartArea: area } = chart, x = chart.scales.x, c = colours();
        const seen = this.marks.filter((m) => m.step >= x.min && m.step <= x.max);
        ctx.save();
        ctx.font = "10px sans-serif";
        ctx.textAlign = "center";
        for (const mark of seen) {
          if (mark.quiet && seen.length > 40) continue;
          const at = Math.round(x.getPixelForValue(mark.step)) + 0.5;
          ctx.strokeStyle = ctx.fillStyle = mark.bad ? c.bad : c.soft;
          ctx.fillText(mark.symbol, at, area.top - 3);
          if (mark.quiet) continue;
          ctx.setLineDash(mark.bad ? [] : [2, 3]);
          ctx.beginPath();
          ctx.moveTo(at, area.top);
          ctx.lineTo(at, area.bottom);
          ctx.stroke();
        }
        ctx.restore();
      },
    };
  }

  // --- the cursor, which all charts share, and zoom ---

  private show_cursor(): void {
    const step = this.view.cursor;
    put(this.legend, ...this.curves.map((curve) => {
      const p = step === null ? last_of(curve.points) : nearest(curve.points, step);
      const exact = value(curve.key, p && !Number.isNaN(p.y) ? p.y : null, this.options.unit);
      exact.dataset.run = curve.run;
      exact.dataset.step = p ? String(p.x) : "";
      return h("li", {}, this.curves.length > 1 && swatch(curve.style, curve.rare), this.curves.length > 1 && h("span", { class: "name" }, curve.label), exact,
        p && step !== null && h("small", {}, `step ${whole(p.x)}`));
    }));
    const longest = this.curves.length > 0 ? this.curves.map((c) => `${c.label} ${format(last_of(c.points)?.y, this.options.unit)}`).join(", ") : "";
    this.canvas.setAttribute("aria-label", `${this.options.title}, last: ${longest}`);
    const x = this.chart?.scales.x;
    this.cursor.hidden = step === null || !x || step < x.min || step > x.max;
    if (!this.cursor.hidden) this.cursor.style.left = `${x!.getPixelForValue(step!)}px`;
  }

  private step_at(event: PointerEvent): number {
    const x = this.chart!.scales.x, left = this.frame.getBoundingClientRect().left;
    return Math.max(x.min, Math.min(x.max, x.getValueForPixel(event.clientX - left) ?? x.min));
  }

  private listen_to_pointer(): void {
    let begin: { step: number; at: number } | null = null;
    const stretch = (event: PointerEvent): void => {
      const left = this.frame.getBoundingClientRect().left, at = event.clientX - left;
      this.selection.hidden = Math.abs(at - begin!.at) < 6;
      this.selection.style.left = `${Math.min(at, begin!.at)}px`;
      this.selection.style.width = `${Math.abs(at - begin!.at)}px`;
    };
    this.frame.addEventListener("pointerdown", (event) => {
      if (!this.chart || event.button !== 0) return;
      begin = { step: this.step_at(event), at: event.clientX - this.frame.getBoundingClientRect().left };
      this.frame.setPointerCapture(event.pointerId);
    });
    this.frame.addEventListener("pointermove", (event) => {
      if (!this.chart) return;
      this.view.set_cursor(Math.round(this.step_at(event)));
      if (begin) stretch(event);
    });
    this.frame.addEventListener("pointerup", (event) => {
      if (!this.chart || !begin) return;
      const ends = [begin.step, this.step_at(event)].map(Math.round).sort((a, b) => a - b);
      if (!this.selection.hidden && ends[1] > ends[0]) this.view.set_window(ends[0], ends[1]);
      begin = null;
      this.selection.hidden = true;
    });
    const leave = (): void => { begin = null; this.selection.hidden = true; this.view.set_cursor(null); };
    this.frame.addEventListener("pointercancel", leave);
    this.frame.addEventListener("pointerleave", leave);
    this.frame.addEventListener("blur", leave);
    this.frame.addEventListener("dblclick", () => this.view.set_window(null, null));
  }

  private on_key(event: KeyboardEvent): void {
    const x = this.chart?.scales.x, longest = this.curves.reduce<Curve | null>((a, b) => (!a || b.points.length > a.points.length ? b : a), null);
    if (!x || !longest || event.ctrlKey || event.metaKey || event.altKey) return;
    const points = longest.points, now = this.view.cursor ?? points[points.length - 1].x;
    const move = (by: number): void => this.view.set_cursor(points[Math.max(0, Math.min(points.length - 1, index_near(points, now) + by))].x);
    const zoom = (factor: number): void => {
      const half = ((x.max - x.min) / 2) * factor, from = Math.max(0, Math.round(now - half));
      this.view.set_window(from, Math.max(from + 1, Math.round(now + half)));
    };
    const far = Math.max(1, Math.round(points.length / 20));
    const actions: Record<string, () => void> = {
      ArrowLeft: () => move(event.shiftKey ? -far : -1), ArrowRight: () => move(event.shiftKey ? far : 1), Home: () => move(-points.length), End: () => move(points.length),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => this.view.set_window(null, null), Escape: () => this.view.set_cursor(null),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

// A short piece of the line that a curve is drawn with.
export function swatch(style: number, points = false): SVGElement {
  const make = (tag: string, attributes: Record<string, string | number>): SVGElement => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, v] of Object.entries(attributes)) element.setAttribute(name, String(v));
    return element;
  };
  const svg = make("svg", { width: 22, height: 8, "aria-hidden": "true", class: `line-${1 + (style % 6)}` });
  svg.append(make("line", { x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": 2.5, "stroke-dasharray": DASHES[style % DASHES.length].join(" ") }));
  if (points) svg.append(make("circle", { cx: 11, cy: 4, r: 3, "stroke-width": 1.6 }));
  return svg;
}

// Exponential moving average that begins without bias (as TensorBoard has it); gaps stay gaps.
export function smooth(points: Point[], weight: number): Point[] {
  let sum = 0, weights = 0;
  return points.map((p) => {
    if (Number.isNaN(p.y)) return p;
    sum = weight * sum + (1 - weight) * p.y;
    weights = weight * weights + (1 - weight);
    return { x: p.x, y: sum / weights };
  });
}

// Of a logarithmic axis 1, 2 and 5 are named.
function thinned(x: number, log: boolean, text: (x: number) => string): string | null {
  if (!log || x <= 0) return text(x);
  const first = Math.round(x / 10 ** Math.floor(Math.log10(x) + 1e-9));
  return first === 1 || first === 2 || first === 5 ? text(x) : null;
}

// Points are only ever appended to an array, so that it and its length say what is in it.
const ids = new WeakMap<Point[], number>();
let num_ids = 0;
function id_of(points: Point[]): number {
  if (!ids.has(points)) ids.set(points, ++num_ids);
  return ids.get(points)!;
}

function last_of(points: Point[]): Point | null { return points.length > 0 ? points[points.length - 1] : null; }

function index_near(points: Point[], step: number): number {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < step) low = middle + 1; else high = middle;
  }
  return low > 0 && step - points[low - 1].x < points[low].x - step ? low - 1 : low;
}
function nearest(points: Point[], step: number): Point | null { return points.length > 0 ? points[index_near(points, step)] : null; }
