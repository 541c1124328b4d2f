// Made-up runs for the page's test, and a server that answers of them as docs/formats/page.md says: one that runs, one that is
// finished, one that failed and has a hostile name, one of 256 ranks and a million steps with experts, and one without records.
//   node tests/page/made_up_runs.mjs FOLDER [PORT]    serves the built page in FOLDER, to look at
import { createServer } from "node:http";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const NOW = 1795861800;
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };

// The same number for the same x, between 0 and 1.
function noise(x) {
  const y = Math.sin(x * 12.9898) * 43758.5453;
  return y - Math.floor(y);
}

function step_record(run, step, whole = true) {
  const calm = 9.2 * step ** -0.19 + 0.9 + run.offset, warm = Math.min(1, step / 100), time = run.step_s * (1 + 0.06 * noise(step * 3.1) + (step % 97 === 0 ? 0.5 : 0));
  const spike = run.spikes?.includes(step) ? 4 : 0;
  const record = {
    step, loss: calm + 0.12 * (noise(step) - 0.5) + spike, aux_loss: run.layers ? 1.01 + 0.02 * noise(step * 7) : 0,
    grad_norm: run.nonfinite === step ? null : 0.4 + 3 / Math.sqrt(step) + 0.1 * noise(step * 1.7) + 6 * spike, lr: 1e-3 * warm * (0.1 + 0.45 * (1 + Math.cos((Math.PI * Math.min(step, run.total)) / run.total))),
    tokens_per_s: run.tokens / time, step_time_s: time, mfu: 0.44 * (run.step_s / time), memory_bytes: run.memory, data_s: 0.004 * time * (1 + noise(step * 5)),
    waits_s: { dp: 0.04 * time * (1 + noise(step * 2.3)), tp: 0.07 * time * (1 + noise(step * 1.1)) },
  };
  if (run.layers && whole) {
    record.expert_load = Array.from({ length: run.layers }, (_, l) => load_of(l, step));
    record.router_entropy = Array.from({ length: run.layers }, (_, l) => 3.1 + 0.2 * noise(l + step));
  }
  return record;
}

function load_of(layer, step) {
  return Array.from({ length: 64 }, (_, e) => Math.round(4096 * (0.5 + noise(layer * 64 + e) + 0.1 * noise(step + e))));
}
const mean = (row) => row.reduce((a, b) => a + b) / row.length, fullest = (row) => Math.max(...row) / mean(row), emptiest = (row) => Math.min(...row) / mean(row);

// The numbers that a record's curves have, by name.
function numbers_of(record) {
  const out = {};
  for (const [name, v] of Object.entries(record)) {
    if (name === "step") continue;
    if (typeof v === "number" || v === null) out[name] = v;
    else if (name === "expert_load") v.forEach((row, l) => Object.assign(out, { [`expert_load.${l}.max_over_mean`]: fullest(row), [`expert_load.${l}.min_over_mean`]: emptiest(row) }));
    else for (const [part, x] of Object.entries(v)) out[`${name}.${part}`] = x;
  }
  return out;
}

const UNITS = { loss: "nats", aux_loss: "", data_s: "s", step_time_s: "s", memory_bytes: "bytes", tokens_per_s: "tokens/s", mfu: "fraction", "held_out.loss": "nats", "held_out.perplexity": "" };
const unit_of = (name) => UNITS[name] ?? (name.startsWith("waits_s.") ? "s" : "");

export class MadeUpRun {
  constructor(options) {
    Object.assign(this, { offset: 0, spikes: [], layers: 0, memory: 5.2e9, tokens: 65536, step_s: 1.9, generation: 1, events: [], reason: "", ...options });
    this.held_out = [];
    for (let step = this.every; step <= this.step; step += this.every) this.evaluate(step);
    this.began = NOW - 4 - this.step * this.step_s * 1.04;
    this.attempts ??= [{ attempt: 1, began: this.began, ended: this.state === "running" ? null : NOW - 60, status: this.state === "running" ? null : this.state === "finished" ? 0 : 1, reason: this.reason, host: "node-1", machine: "AMD EPYC 9654, 96 cores", ranks: this.world, from_step: null }];
  }
  evaluate(step) {
    const loss = step_record(this, step, false).loss * 1.01 + 0.03 * noise(step * 11);
    this.held_out.push({ step, loss, perplexity: Math.exp(loss), tokens: 65536 });
  }
  // One more step is done.
  go_on() {
    ++this.step;
    if (this.step % this.every === 0) this.evaluate(this.step);
  }
  go_back(step) {
    this.step = step;
    this.held_out = this.held_out.filter((e) => e.step <= step);
    ++this.generation;
  }
  record(step = this.step, whole = true) { return step_record(this, step, whole); }

  identity() { return { run: this.run, id: this.id, name: this.name, path: this.path, generation: this.generation, state: this.state, step: this.step, total: this.total }; }
  line() { return { ...this.identity(), model: this.model, objective: "lm" }; }
  news() {
    return { run: this.run, generation: this.generation, state: this.state, step: this.step, total: this.total, eta_s: this.eta_s(), records: this.step + this.held_out.length, events: this.events.length,
      attempts: this.attempts.length, checkpoints: this.checkpoints().length, latest: this.latest };
  }
  get latest() { return this.step === 0 ? {} : Object.fromEntries(Object.entries(this.record()).filter(([, v]) => typeof v === "number" || v === null)); }
  eta_s() { return this.state === "running" && this.total ? (this.total - this.step) * this.step_s * 1.04 : null; }
  checkpoints() {
    const some = this.held_out.slice(-12);
    return some.map((e) => ({ step: e.step, bytes: 1.53e9, held_out_loss: e.loss, time: this.began + e.step * this.step_s * 1.04 }));
  }
  times(steps) {
    const sum = { steps: Math.min(steps, this.step), step_s: 0, data_s: 0, waits_s: { dp: 0, tp: 0 } };
    for (let step = Math.max(1, this.step - steps + 1); step <= this.step; ++step) {
      const r = this.record(step, false);
      sum.step_s += r.step_time_s;
      sum.data_s += r.data_s;
      for (const axis of ["dp", "tp"]) sum.waits_s[axis] += r.waits_s[axis];
    }
    return { ...sum, eval_s: 0.02 * sum.step_s, save_s: 0.015 * sum.step_s, compute_s: sum.step_s - sum.data_s - sum.waits_s.dp - sum.waits_s.tp };
  }
  details() {
    const none = { steps: 0, step_s: 0, data_s: 0, waits_s: {}, eval_s: 0, save_s: 0, compute_s: 0 };
    if (this.step === 0) return { ...this.line(), now: NOW, reason: "", loaded: 1, eta_s: null, began: null, last_record: null, running_s: 0, machine: "", host: "", weft: "", ranks: 0, launcher: "", layout: null, latest: null, held_out: null, best_held_out: null, tasks: [],
      speed: null, time: none, time_recent: none, memory: { used_bytes: null }, price: null, attempts: [], events: [], checkpoints: [], recipe: {}, problems: ["metrics.jsonl cannot be read"] };
    const recent = this.times(200), steps = Math.min(200, this.step), last = this.held_out.at(-1) ?? null, best = this.held_out.reduce((a, b) => (!a || b.loss < a.loss ? b : a), null);
    return { ...this.line(), now: NOW, reason: this.reason, eta_s: this.eta_s(), began: this.began, last_record: this.state === "running" ? NOW - 1 : NOW - 61, machine: "AMD EPYC 9654, 96 cores", host: "node-1", weft: "0.1.0", ranks: this.world, launcher: "threads",
      layout: this.layout, latest: this.record(), held_out: last, best_held_out: best && { step: best.step, loss: best.loss }, tasks: this.tasks ?? [],
      speed: { steps, tokens_per_s: (this.tokens * steps) / recent.step_s, step_time_s: recent.step_s / steps, mfu: 0.43 }, time: this.times(Math.min(this.step, 2000)), time_recent: recent,
      memory: { used_bytes: this.memory }, price: { per_hour: 32, so_far: (32 * (NOW - this.began)) / 3600, currency: null }, loaded: 1, running_s: NOW - this.began, attempts: this.attempts, samples: this.samples ?? [], events: this.events, checkpoints: this.checkpoints(),
      recipe: { "optimizer.lr": "0.001", "train.seq_length": "1024", "run.dir": `"${this.path}"` }, problems: [] };
  }
  names() {
    if (this.step === 0) return { run: this.run, generation: this.generation, names: [] };
    const last = numbers_of(this.record()), held = this.held_out.at(-1);
    const step = Object.entries(last).map(([name, x]) => ({ name, kind: "step", unit: unit_of(name), points: this.step, last: x, last_step: this.step }));
    const held_out = held ? ["loss", "perplexity"].map((n) => ({ name: `held_out.${n}`, kind: "held_out", unit: unit_of(`held_out.${n}`), points: this.held_out.length, last: held[n], last_step: held.step })) : [];
    return { run: this.run, generation: this.generation, names: [...step, ...held_out] };
  }
  // Each stretch's least and greatest. (Of a million made-up steps, those that are looked at are enough.)
  curve(name, from, to, points) {
    if (name.startsWith("held_out.")) {
      const seen = this.held_out.filter((e) => e.step >= from && e.step <= to);
      return { name, kind: "held_out", thinned: false, steps: seen.map((e) => e.step), values: seen.map((e) => e[name.slice(9)] ?? null) };
    }
    if (!(name in numbers_of(this.record()))) return { name, kind: null, thinned: false, steps: [], values: [] };
    const all = to - from + 1, stretch = all > points ? (2 * all) / points : 0, curve = { name, kind: "step", thinned: all > points, steps: [], values: [] };
    const push = (step) => { curve.steps.push(step); curve.values.push(number_at(step)); };
    const layer = /^expert_load\.(\d+)\.(max|min)/.exec(name), number_at = (step) => (layer ? (layer[2] === "max" ? fullest : emptiest)(load_of(Number(layer[1]), step)) : numbers_of(this.record(step, name.startsWith("router_")))[name]);
    if (stretch === 0) for (let step = from; step <= to; ++step) push(step);
    else for (let at = from; at <= to; at += stretch) { push(Math.floor(at)); push(Math.min(to, Math.floor(at + stretch / 2))); }
    return curve;
  }
  curves(names, from, to, points) {
    const [a, b] = [Math.max(1, from ?? 1), Math.min(this.step, to ?? this.step)];
    return { run: this.run, generation: this.generation, first_step: 1, last_step: this.step, curves: names.map((n) => this.curve(n, a, b, points)) };
  }
  // Gradients of every step, weights of every tenth.
  heat(of, from, to, columns) {
    const told = { run: this.run, generation: this.generation, of };
    if (of === "grad_norm" ? !this.grad_norms : !this.weight_norms) return { ...told, available: false, reason: "these are recorded with an option of train" };
    if (of !== "grad_norm") return { ...told, available: true, ...this.weights(of, from, to, columns) };
    const a = from ?? 1, b = Math.min(this.step, to ?? this.step), steps = Array.from({ length: Math.min(columns, b - a + 1) }, (_, i) => Math.floor(a + (i * (b - a + 1)) / Math.min(columns, b - a + 1)));
    const names = tensors(this.blocks).map((t) => t.name);
    return { ...told, available: true, names, steps, ends: [...steps.slice(1).map((s) => s - 1), b], values: names.map((_, n) => steps.map((s) => (this.nonfinite && s >= this.nonfinite ? null : n === 0 && s === 1 ? 0 : 10 ** (-3 + 2 * noise(n) + 0.3 * noise(n * 100 + s)) * (1 + 8 / Math.sqrt(s))))) };
  }
  weights(of, from, to, columns) {
    const recorded = Array.from({ length: Math.floor(this.step / 10) }, (_, i) => 10 * (i + 1)).filter((s) => s >= (from ?? 1) && s <= (to ?? this.step));
    const n = Math.min(columns, recorded.length), of_column = Array.from({ length: n }, (_, i) => recorded.slice(Math.floor((i * recorded.length) / n), Math.floor(((i + 1) * recorded.length) / n)));
    const names = tensors(this.blocks).map((t) => t.name);
    const value = (t, s) => (of === "weight_norm" ? (5 + 20 * noise(t)) * (1 + s / 5000) : t === 1 && s === 10 ? null : 10 ** (-3.5 + noise(t) + 0.3 * noise(t * 100 + s)));
    return { names, steps: of_column.map((c) => c[0]), ends: of_column.map((c) => c.at(-1)), values: names.map((_, t) => of_column.map((c) => value(t, c[0]))) };
  }
  // Of the last hundredth step: pairs of neighbours, and all data ranks.
  traffic() {
    const told = { run: this.run, generation: this.generation };
    if (this.step === 0) return { ...told, available: false, reason: "what ranks send is recorded behind the first step" };
    const each = Math.ceil(this.world / 64), cells = Math.ceil(this.world / each), axis = (name, calls, bytes) => {
      const matrix = Array.from({ length: cells }, (_, r) => Array.from({ length: cells }, (_, c) => (r === c ? 0 : bytes(r, c))));
      return { axis: name, calls, bytes: matrix.flat().reduce((a, b) => a + b), most_bytes: Math.max(...matrix.flat()), from: 0, to: 1, matrix };
    };
    return { ...told, available: true, step: 100 * Math.max(1, Math.floor(this.step / 100)), step_time_s: this.step_s, world: this.world, ranks_per_cell: each,
      axes: [axis("dp", 9 * this.world, () => 4096000), axis("tp", 64 * this.world, (r, c) => (r >> 1 === c >> 1 ? 268435456 : 0))] };
  }
  // Each rank has eight micro-batches, forward and backward, a tenth of a second for each.
  trace(from, to, rank) {
    const told = { run: this.run, generation: this.generation };
    if (!this.traced) return { ...told, available: false, reason: "a run traces a step now and then with train.trace_interval = N (steps)" };
    const ranks = Array.from({ length: this.world }, (_, r) => r), names = [], kinds = ["forward", "backward", "op"], a = from ?? 0, b = to ?? 1.8e6;
    const slice = (began, lasted, name, kind, m) => [began, lasted, names.indexOf(name) < 0 ? names.push(name) - 1 : names.indexOf(name), kind, m, 1];
    const row = (r, track) => ({ rank: r, track, slices: Array.from({ length: 16 }, (_, i) => slice(1e5 * (i + r / 2), 9e4, track === 0 ? `${i % 2 ? "B" : "F"}${i >> 1}` : "matmul", track === 0 ? i % 2 : 2, i >> 1)).filter((s) => s[0] + s[1] >= a && s[0] <= b) });
    const rows = ranks.filter((r) => rank === null || r === rank).flatMap((r) => [row(r, 0), row(r, 2)]);
    return { ...told, available: true, step: 1200, ranks, end_us: 1.8e6, from_us: a, to_us: b, names, kinds, rows };
  }
  plan() {
    if (this.step === 0) return { available: false, reason: "model.path is not here" };
    const { dp, tp, pp } = this.layout, stage = this.world / pp, gi = 2 ** 30;
    const ranks_of = (p) => Array.from({ length: stage }, (_, r) => p * stage + r);
    const classes = Array.from({ length: pp }, (_, p) => {
      const memory = [["parameters", "masters and compute copies", 1.8], ["gradients", "summed over micro-batches", 0.9], ["optimizer state", "two moments", 1.2], ["activations", "from forward until dgrad", 1.1 - 0.02 * p], ["workspace", "of libraries", 0.06], ["communication", "what is in transit", 0.12]]
        .map(([name, meaning, x]) => ({ name, meaning, bytes: Math.round(x * gi * (this.memory / 5.5e9)) }));
      return { class: p, rank: p * stage, ranks: ranks_of(p), memory, total_bytes: memory.reduce((s, m) => s + m.bytes, 0),
        communication: [["tp", "all_reduce", 64, 268435456], ["dp", "reduce_scatter", 4, 150994944], ...(pp > 1 ? [["pp", "send", 16, 33554432]] : [])].map(([axis, kind, calls, bytes_sent]) => ({ axis, kind, calls, bytes_sent })) };
    });
    const per_stage = Math.ceil(this.blocks / pp);
    const held = (t) => {
      const p = t.block === null ? (t.name === "embedding" ? 0 : pp - 1) : Math.floor(t.block / per_stage);
      return [{ ranks: ranks_of(p), bytes: t.in_codes ? null : t.cut ? t.bytes / tp : t.bytes }];
    };
    return { available: true, world: this.world, axes: { dp, tp, pp, cp: 1, ep: 1 }, num_params: 124439808, num_trained: 124439808 - 32000 * 768, classes,
      tensors: tensors(this.blocks).map((t) => ({ name: t.name, shape: t.shape, dtype: t.in_codes ? "codes" : "bf16", bytes: t.in_codes ? null : t.bytes, trained: t.name !== "embedding", placement: t.cut ? `Shard(${t.cut === 2 ? 1 : 0}) on tp` : "Invariant on tp", held: held(t) })) };
  }
}

function tensors(blocks) {
  // The last layer's "down" is kept in codes, whose size is not known.
  const of = (block, name, shape, cut) => ({ block, in_codes: block === blocks - 1 && name === "down", name: block === null ? name : `layers.${block}.${name}`, shape, cut, bytes: 2 * shape.reduce((a, b) => a * b) });
  const layer = (b) => [of(b, "attention_norm", [768], 0), of(b, "q", [768, 768], 1), of(b, "k", [256, 768], 1), of(b, "v", [256, 768], 1), of(b, "o", [768, 768], 2), of(b, "mlp_norm", [768], 0), of(b, "gate", [2048, 768], 1), of(b, "up", [2048, 768], 1), of(b, "down", [768, 2048], 2)];
  return [of(null, "embedding", [32000, 768], 1), ...Array.from({ length: blocks }, (_, b) => layer(b)).flat(), of(null, "final_norm", [768], 0), of(null, "head", [32000, 768], 1)];
}

export function made_up_runs() {
  const small = { world: 4, layout: { dp: 2, tp: 2, pp: 1, cp: 1, ep: 1, zero_stage: 1 }, model: "llama-small", blocks: 6, every: 100 };
  const failed_events = [
    { time: NOW - 4000, event: "started", attempt: 1, newest_step: 0, ranks: 4 },
    { time: NOW - 2600, event: "spike", step: 412, batch: 411, loss: 7.9, grad_norm: 24.5, of: "loss", median: 3.9, limit: 5.1, spikes: 1, action: "skipped" },
    { time: NOW - 2400, event: "straggler", rank: 3, step: 480, since_step: 430, compute_s: 2.4, wait_s: 0.1, median_s: 1.8 },
    { time: NOW - 1900, event: "ended", attempt: 1, cause: "killed", section: "step", step: 640, saved_step: 600, reason: "rank 2 was ended by signal 9" },
    { time: NOW - 1890, event: "started", attempt: 2, newest_step: 600, ranks: 4 },
    { time: NOW - 70, event: "large_update", step: 890, tensor: "layers.3.down", update_ratio: 0.4, limit: 0.1, weight_norm: 12, since_step: 890, tensors: 3, reason: "the update changed layers.3.down by 0.4 of its norm, above 0.1" },
    { time: NOW - 62, event: "nonfinite", step: 893, transient: false, loss: null, grad_norm: null, tensor: "layers.3.down", ranks: [2] },
    { time: NOW - 60, event: "ended", attempt: 2, cause: "not_finite", section: "step", step: 892, saved_step: 800, reason: "step 893: the gradient of layers.3.down is not finite on rank 2" },
    { time: NOW - 59, event: "stopped", status: 93, reason: "three attempts have come to nothing" },
  ];
  return [
    new MadeUpRun({ ...small, run: 0, id: "0f1e2d3c4b", name: "first", path: "/data/runs/first", state: "running", step: 1240, total: 5000, grad_norms: true, weight_norms: true, traced: true,
      samples: [{ step: 600, samples: [{ prompt: "Once upon a ", text: "the the" }] }, { step: 1200, samples: [{ prompt: "Once upon a ", text: "time <b>there" }] }],
      tasks: [{ name: "piqa.acc", value: 0.6121, stderr: 0.0114, step: 1200 }, { name: "hellaswag.acc_norm", value: 0.3127, stderr: 0.0046, step: 1200 }] }),
    new MadeUpRun({ ...small, run: 1, id: "1a2b3c4d5e", name: "wider", path: "/data/runs/wider", state: "finished", step: 3000, total: 3000, offset: -0.12, step_s: 2.3 }),
    new MadeUpRun({ ...small, run: 2, id: "2b3c4d5e6f", name: "<script>alert(1)</script>", path: "/data/runs/<script>alert(1)</script>", state: "failed", step: 893, total: 5000, offset: 0.2, spikes: [412, 893], nonfinite: 893, events: failed_events, grad_norms: true,
      reason: "step 893: the gradient of layers.3.down is not finite on rank 2", attempts: [
        { attempt: 1, began: NOW - 4000, ended: null, status: null, reason: "", host: "node-1", machine: "AMD EPYC 9654, 96 cores", ranks: 4, from_step: null },
        { attempt: 2, began: NOW - 1888, ended: NOW - 60, status: 88, reason: "step 893: the gradient of layers.3.down is not finite on rank 2", host: "node-1", machine: "AMD EPYC 9654, 96 cores", ranks: 4, from_step: 600 }] }),
    new MadeUpRun({ run: 3, id: "3c4d5e6f70", name: "mixture", path: "/data/runs/mixture", state: "running", step: 1000000, total: 2000000, world: 256, layout: { dp: 16, tp: 4, pp: 4, cp: 1, ep: 8, zero_stage: 1 }, model: "mixtral-like", blocks: 24, layers: 24, every: 10000, memory: 6.1e10, tokens: 4194304, step_s: 2.6 }),
    new MadeUpRun({ ...small, run: 4, id: "4d5e6f7081", name: "new", path: "/data/runs/new", state: "running", step: 0, total: null }),
  ];
}

const machine = () => ({ host: "node-1", now: NOW, cores: 96, usable_cores: 96, load: [91.2, 88.5, 80.1], busy: 0.94, memory: { total_bytes: 811748818944, available_bytes: 590558003200, swap_used_bytes: 0 },
  energy: [{ name: "package-0", watts: 338.4 }], temperatures: [{ name: "k10temp Tctl", celsius: 71.5 }, { name: "nvme Composite", celsius: 44 }], clocks: { mhz: 3412, max_mhz: 3707 },
  disks: [0, 1, 2, 3, 4].map((run) => ({ run, path: "/data", total_bytes: 7.68e12, free_bytes: 3.1e12 })), devices: [{ name: "nvme0n1", read_bytes_per_s: 1.2e6, written_bytes_per_s: 8.8e7 }],
  network: [{ name: "eth0", received_bytes_per_s: 12800, sent_bytes_per_s: 5400, errors: 0, dropped: 0 }], pressure: [{ name: "cpu", some_10s: 4.2 }, { name: "memory", some_10s: 0 }, { name: "io", some_10s: 1.1 }] });

// Listens on 127.0.0.1. `tell` sends the stream's next message; `drop` ends all streams.
export async function serve(runs, folder, port = 0) {
  const streams = new Set(), asked = [];
  const message = () => `event: runs\ndata: ${JSON.stringify({ now: NOW, runs: runs.map((r) => r.news()) })}\n\n`;
  const answer = (url) => {
    const q = url.searchParams, number = (name) => (q.has(name) ? Number(q.get(name)) : null), run = runs[Number(q.get("run"))];
    switch (url.pathname) {
      case "/api/runs": return { weft: "0.1.0", host: "node-1", now: NOW, runs: runs.map((r) => r.line()) };
      case "/api/machine": return machine();
      case "/api/run": return run?.details();
      case "/api/names": return run?.names();
      case "/api/curves": return run?.curves(q.getAll("names").filter((n) => n), number("from"), number("to"), number("points") ?? 1000);
      case "/api/heat": return run?.heat(q.get("of") ?? "grad_norm", number("from"), number("to"), number("columns") ?? 200);
      case "/api/trace": return run?.trace(number("from_us"), number("to_us"), number("rank"));
      case "/api/traffic": return run?.traffic();
      case "/api/plan": return run?.plan();
    }
  };
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://here"), policy = { "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer" };
    asked.push(request.url);
    if (url.pathname === "/api/stream") {
      response.writeHead(200, { ...policy, "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
      response.write(message());
      streams.add(response);
      request.on("close", () => streams.delete(response));
      return;
    }
    const file = join(folder, url.pathname === "/" ? "index.html" : url.pathname), body = url.pathname.startsWith("/api/") ? answer(url) : undefined;
    if (body !== undefined) response.writeHead(200, { ...policy, "Content-Type": "application/json" }).end(JSON.stringify(body));
    else if (!url.pathname.includes("..") && existsSync(file)) response.writeHead(200, { ...policy, "Content-Type": TYPES[file.split(".").at(-1)] }).end(readFileSync(file));
    else response.writeHead(404, { ...policy, "Content-Type": "application/json" }).end('{"error":"no such run or page"}');
  });
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  return { address: `http://127.0.0.1:${server.address().port}/`, asked, tell: () => streams.forEach((s) => s.write(message())), drop: () => streams.forEach((s) => s.end()), close: () => { server.closeAllConnections(); server.close(); } };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const runs = made_up_runs(), server = await serve(runs, process.argv[2], Number(process.argv[3] ?? 8080));
  console.log(server.address);
  setInterval(() => { runs[0].go_on(); server.tell(); }, 1000);
}
