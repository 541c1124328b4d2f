// What happened to a run, in one list: for the curves (by step) and for people.
import { Checkpoint, Run, RunEvent } from "../api";
import { Mark } from "../charts";
import { format, whole } from "../format";

export interface Happening { time: number | null; step: number | null; symbol: string; kind: string; text: string; bad: boolean; checkpoint?: Checkpoint }

const GOOD_CAUSES = ["finished", "preempted", "moved", "yielded"];
const number = (x: unknown): number | null => (typeof x === "number" ? x : null);

function of_event(e: RunEvent): Happening {
  const bad = e.event === "ended" ? !GOOD_CAUSES.includes(String(e.cause)) : ["nonfinite", "corrupted", "hang", "crash", "spike", "large_update", "weight_growth", "vanished_gradient"].includes(e.event);
  const step = number(e.step) ?? number(e.newest_step) ?? number(e.saved_step);
  const symbols: Record<string, string> = { started: "↻", ended: bad ? "✕" : "■", finished: "✓", stopped: "■", spike: "▲", large_update: "▲", weight_growth: "▲", vanished_gradient: "▼", nonfinite: "✕", corrupted: "✕", hang: "✕", straggler: "◔", straggler_over: "○", layout: "⇄", fleet: "⇄", waiting: "…", queued: "…", yielding: "…" };
  return { time: number(e.time), step, symbol: symbols[e.event] ?? "•", kind: e.event.replace(/_/g, " "), text: sentence(e), bad };
}

// The fields of an event in the order that they are written, but those that have a column.
function sentence(e: RunEvent): string {
  const parts = Object.entries(e).filter(([k]) => !["event", "time", "step", "reason"].includes(k))
    .map(([k, v]) => `${k.replace(/_s$/, "").replace(/_/g, " ")} ${plain(k, v)}`);
  return [typeof e.reason === "string" ? e.reason : "", parts.join(", ")].filter((t) => t !== "").join(" – ");
}
function plain(key: string, v: unknown): string {
  if (typeof v === "number") return Number.isInteger(v) && !key.endsWith("_s") ? whole(v) : format(v, key.endsWith("_s") ? "s" : "");
  if (Array.isArray(v)) return v.map((x) => plain("", x)).join(" ");
  return v === null ? "–" : typeof v === "object" ? JSON.stringify(v) : String(v);
}

// A supervisor tells of the same beginnings and ends as the run does, and says more.
function told(run: Run, event: string, time: number | null): boolean {
  const within_s = 30;
  return time !== null && run.events.some((e) => e.event === event && e.time !== null && Math.abs(e.time - time) < within_s);
}

// Newest first.
export function happenings(run: Run): Happening[] {
  const all = run.events.map(of_event);
  for (const a of run.attempts) {
    const where = [a.ranks ? `${a.ranks} rank${a.ranks === 1 ? "" : "s"}` : "", a.host && `on ${a.host}`].filter((t) => t).join(" ");
    if (!told(run, "started", a.began)) all.push({ time: a.began, step: a.from_step ?? null, symbol: a.attempt > 1 ? "↻" : "▶", kind: `attempt ${a.attempt} begins`, text: where, bad: false });
    if ((a.ended === null && a.status === null) || told(run, "ended", a.ended)) continue;
    const bad = a.status !== 0 && a.status !== 75 && a.status !== 130;
    all.push({ time: a.ended, step: null, symbol: bad ? "✕" : a.status === 0 ? "✓" : "■", kind: `attempt ${a.attempt} ends`, text: [a.status !== null && `status ${a.status}`, a.reason].filter((t) => t).join(": "), bad });
  }
  for (const c of run.checkpoints) if (c.time) all.push({ time: c.time, step: c.step, symbol: "◆", kind: "checkpoint", text: "", bad: false, checkpoint: c });
  return all.map((x, i) => ({ x, i })).sort((a, b) => (b.x.time ?? 0) - (a.x.time ?? 0) || b.i - a.i).map(({ x }) => x);
}

// What stands on the curves. A first beginning and an end in peace say nothing there.
export function marks_of(run: Run): Mark[] {
  const marks = run.events.filter((e) => !["finished", "stopped", "fleet", "waiting", "straggler_over"].includes(e.event) && !(e.event === "started" && number(e.attempt) === 1))
    .map(of_event).filter((x) => x.step !== null).map(({ step, symbol, bad }): Mark => ({ step: step!, symbol, bad, quiet: false }));
  const restarts = run.attempts.filter((a) => a.attempt > 1 && a.from_step != null && !told(run, "started", a.began)).map((a): Mark => ({ step: a.from_step!, symbol: "↻", bad: false, quiet: false }));
  return [...run.checkpoints.map((c): Mark => ({ step: c.step, symbol: "◆", bad: false, quiet: true })), ...restarts, ...marks];
}
