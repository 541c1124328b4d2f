// What the server answers (docs/formats/page.md), and how it is asked.

export type Num = number | null;

export interface RunLine {
  run: number; id: string; name: string; path: string; generation: number; state: string; step: number; total: Num;
  model: string; objective: string; eta_s?: Num; latest?: Record<string, Num>;
}
export interface Runs { weft: string; host: string; now: number; runs: RunLine[] }

export interface Evaluation { step: number; loss: Num; [term: string]: Num }
export interface Times { step_s: Num; data_s: Num; waits_s: Record<string, Num>; eval_s: Num; save_s: Num; compute_s: Num }
export interface Attempt { attempt: number; began: Num; ended: Num; status: Num; reason: string; host: string; machine: string; ranks: Num; from_step?: Num }
export interface RunEvent { event: string; time: Num; [what: string]: unknown }
export interface Checkpoint { step: number; bytes: Num; held_out_loss: Num; time?: Num }
export interface Run {
  run: number; id: string; name: string; path: string; generation: number; now: number; state: string; reason: string; step: number;
  total: Num; eta_s: Num; began: Num; last_record: Num; model: string; objective: string; machine: string; host: string;
  weft: string; ranks: Num; launcher: string; layout: Record<string, number> | null; latest: Record<string, unknown> | null;
  held_out: Evaluation | null; best_held_out: Evaluation | null; tasks: { name: string; value: Num; stderr: Num; step: number }[];
  speed: { steps: number; tokens_per_s: Num; step_time_s: Num; mfu: Num } | null; time: Times | null; time_recent: Times | null;
  memory: { used_bytes: Num } | null; price: { per_hour: Num; so_far: Num; currency: string | null } | null;
  attempts: Attempt[]; events: RunEvent[]; checkpoints: Checkpoint[]; recipe: Record<string, string>; problems: string[];
  loaded?: Num; running_s?: Num; samples?: { step: number; samples: { prompt: string; text: string }[] }[];
}

export interface Name { name: string; kind: "step" | "held_out" | "task"; unit: string; points: number; last: Num; last_step: number }
export interface Names { generation: number; names: Name[]; more?: number }

export interface RawCurve { name: string; thinned: boolean; steps: number[]; values: Num[] }
export interface Curves { generation: number; first_step: number; last_step: number; curves: RawCurve[] }

export const HEAT_KINDS = ["grad_norm", "weight_norm", "update_ratio"] as const;
export type HeatKind = (typeof HEAT_KINDS)[number];
export interface Heat { available: boolean; reason?: string; names: string[]; steps: number[]; ends: number[]; values: Num[][] }

export interface PlanClass {
  class: number; rank: number; ranks: number[]; total_bytes: number; memory: { name: string; meaning: string; bytes: number }[];
  communication: { axis: string; kind: string; calls: number; bytes_sent: number }[];
}
export interface Tensor {
  name: string; shape: number[]; dtype: string; bytes: Num; trained: boolean; placement: string; held: { ranks: number[]; bytes: Num }[];
}
export interface Plan {
  available: boolean; reason?: string; world: number; axes: Record<string, number>; num_params: number; classes: PlanClass[];
  tensors?: Tensor[]; tensors_reason?: string;
}

export interface TrafficAxis { axis: string; calls: number; bytes: number; most_bytes: number; from: number; to: number; matrix: number[][] }
export interface Traffic { available: boolean; reason?: string; step: number; step_time_s: number; world: number; ranks_per_cell: number; axes: TrafficAxis[] }

// A slice: when it began and how long it took (µs), its name (-1: `count` short ones together) and kind, its micro-batch (-1: of none).
export type Slice = [number, number, number, number, number, number];
export interface Trace {
  available: boolean; reason?: string; step: number; ranks: number[]; end_us: number; from_us: number; to_us: number;
  names: string[]; kinds: string[]; rows: { rank: number; track: number; slices: Slice[] }[];
}

export interface Machine {
  host: string; now: number; cores: Num; usable_cores: Num; load: Num[]; busy: Num;
  memory: { total_bytes: Num; available_bytes: Num; swap_used_bytes: Num } | null;
  energy: { name: string; watts: Num }[]; temperatures: { name: string; celsius: Num }[]; clocks: { mhz: Num; max_mhz: Num } | null;
  disks: { run: number; path: string; total_bytes: Num; free_bytes: Num }[];
  devices: { name: string; read_bytes_per_s: Num; written_bytes_per_s: Num }[];
  network: { name: string; received_bytes_per_s: Num; sent_bytes_per_s: Num; errors: Num; dropped: Num }[];
  pressure: { name: string; some_10s: Num }[];
}

export interface Change { run: number; generation: number; state: string; step: number; total: Num; eta_s: Num; records: number; events: number; attempts: number; checkpoints: number; latest: Record<string, Num> }

export class Refused extends Error {
  constructor(readonly status: number, message: string) { super(message); }
}

async function get<T>(what: string, q: Record<string, string | string[] | number | null> = {}): Promise<T> {
  const query = new URLSearchParams();
  for (const [name, v] of Object.entries(q)) for (const x of Array.isArray(v) ? v : [v]) if (x !== null) query.append(name, String(x));
  const answer = await fetch(`api/${what}?${query.toString()}`, { cache: "no-store" });
  if (answer.status === 403) throw new Refused(403, "This page needs its token: open the address that weft printed.");
  const body = await answer.json().catch(() => null) as (T & { error?: string }) | null;
  if (!answer.ok || body === null) throw new Refused(answer.status, body?.error ?? `the server answered ${answer.status}`);
  return body;
}

export const runs = (): Promise<Runs> => get("runs");
export const run = (run: number): Promise<Run> => get("run", { run });
export const names = (run: number): Promise<Names> => get("names", { run });
export const plan = (run: number): Promise<Plan> => get("plan", { run });
export const traffic = (run: number): Promise<Traffic> => get("traffic", { run });
export const trace = (run: number, from_us: Num, to_us: Num, rank: Num): Promise<Trace> => get("trace", { run, from_us, to_us, rank });
export const machine = (): Promise<Machine> => get("machine");
export const heat = (run: number, of: HeatKind, from: Num, to: Num, columns: number): Promise<Heat> => get("heat", { run, of, from, to, columns });

// At most 64 names are asked for at once. Each is a parameter of its own: a name may have a comma. (Without any, one that is
// empty: the answer tells the last step all the same.)
export async function curves(run: number, wanted: string[], from: Num, to: Num, points: number): Promise<Curves> {
  const answers: Curves[] = [];
  for (let i = 0; i < Math.max(1, wanted.length); i += 64) {
    answers.push(await get<Curves>("curves", { run, names: wanted.length > 0 ? wanted.slice(i, i + 64) : "", from, to, points }));
  }
  if (answers.some((a) => a.generation !== answers[0].generation)) return curves(run, wanted, from, to, points);
  return { ...answers[0], curves: answers.flatMap((a) => a.curves) };
}

// The stream of changes. A browser has six connections to a server, for all its tabs: who is not looked at gives his back.
export class Stream {
  private source: EventSource | null = null;
  private wait_s = 1;

  // `connected` is told of each new connection, perhaps to a server that was started anew, and when it is lost.
  constructor(private readonly changed: (now: number, runs: Change[]) => void, private readonly connected: (yes: boolean) => void) {}

  open(): void {
    if (this.source) return;
    const source = this.source = new EventSource("api/stream");
    source.addEventListener("open", () => this.connected(true));
    source.addEventListener("runs", (event) => {
      this.wait_s = 1;
      const message = JSON.parse((event as MessageEvent<string>).data) as { now: number; runs: Change[] };
      this.changed(message.now, message.runs);
    });
    source.addEventListener("error", () => {
      this.connected(false);
      // The browser connects again by itself, but where the server refused.
      if (source.readyState !== EventSource.CLOSED || this.source !== source) return;
      this.source = null;
      setTimeout(() => this.open(), this.wait_s * 1000);
      this.wait_s = Math.min(30, this.wait_s * 2);
    });
  }
  close(): void {
    this.source?.close();
    this.source = null;
  }
}
