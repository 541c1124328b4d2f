// Numbers as people read them: three or four digits and a unit, the same everywhere on the page.

export type Unit = "" | "count" | "nats" | "score" | "share" | "s" | "bytes" | "bytes/s" | "tokens" | "tokens/s" | "W" | "J" | "°C" | "Hz" | "money";

export const MISSING = "–";

// So many significant digits: 2.341, 0.0123, 1.20e-5.
function digits(x: number, significant: number): string {
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return x.toExponential(significant - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return x.toFixed(Math.max(0, significant - 1 - Math.floor(Math.log10(size))));
}

function scaled(x: number, base: number, names: string[]): [string, string] {
  let size = Math.abs(x), at = 0;
  while (size >= base * 0.9995 && at + 1 < names.length) {
    size /= base;
    ++at;
  }
  const shown = at === 0 ? digits(x, 3) : (Math.sign(x) * size).toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
  return [shown, names[at]];
}

export function count(x: number): string {
  if (Number.isInteger(x) && Math.abs(x) < 10000) return String(x);
  return scaled(x, 1000, ["", "k", "M", "G", "T", "P"]).join("");
}

// Whole numbers in full, with thin spaces: a step is looked up by its number.
export function whole(x: number): string {
  return String(Math.round(x)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}

export function duration(s: number): string {
  const size = Math.abs(s);
  if (Number.isInteger(s) && size < 60) return `${s} s`;
  if (size < 1e-3) return `${digits(s * 1e6, 3)} µs`;
  if (size < 1) return `${digits(s * 1e3, 3)} ms`;
  if (size < 60) return `${digits(s, 3)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 60) return s < 600 ? `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s` : `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export function format(x: number | null | undefined, unit: Unit = ""): string {
  if (typeof x !== "number" || Number.isNaN(x)) return MISSING;  // a file may have anything in a number's place
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  switch (unit) {
    case "count": return count(x);
    case "nats": case "score": return digits(x, 4);  // they are compared closely
    case "share": return `${(100 * x).toFixed(1)}\u00a0%`;
    case "s": return duration(x);
    case "bytes": return scaled(x, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]).join("\u00a0");
    case "bytes/s": return `${format(x, "bytes")}/s`;
    case "tokens": return `${count(x)}\u00a0tok`;
    case "tokens/s": return `${count(x)}\u00a0tok/s`;
    case "W": return scaled(x, 1000, ["W", "kW", "MW"]).join("\u00a0");
    case "J": return x >= 3600 ? scaled(x / 3600, 1000, ["Wh", "kWh", "MWh"]).join("\u00a0") : `${digits(x, 3)}\u00a0J`;
    case "°C": return `${digits(x, 3)}\u00a0°C`;
    case "Hz": return scaled(x, 1000, ["Hz", "kHz", "MHz", "GHz"]).join("\u00a0");
    case "money": return x.toFixed(x < 100 ? 2 : 0);
    default: return digits(x, 3);
  }
}

// Beside an axis: no digit that says nothing, and units only where they scale.
export function tick(x: number, unit: Unit): string {
  const text = unit === "tokens/s" || unit === "count" ? count(x) : unit === "nats" || unit === "score" || unit === "" ? digits(x, 4) : format(x, unit);
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

// Local time; the day only where it is not today's.
export function when(time_s: number, now_s: number): string {
  const t = new Date(time_s * 1000), two = (n: number): string => String(n).padStart(2, "0");
  const clock = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  return t.toDateString() === new Date(now_s * 1000).toDateString()
    ? clock : `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${clock}`;
}
