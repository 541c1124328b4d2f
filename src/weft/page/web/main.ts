// The live page: asks the server, keeps what it answers, and lets each panel show its part.
import * as api from "./api";
import { on_colours_changed } from "./colours";
import { CurveStore } from "./curve_store";
import { h, put } from "./dom";
import { format, whole } from "./format";
import { events_panel } from "./panels/events";
import { experts_panel } from "./panels/experts";
import { learning_panel } from "./panels/learning";
import { machine_panel } from "./panels/machine";
import { memory_panel } from "./panels/memory";
import { gradients_panel, weights_panel } from "./panels/norms";
import { others_panel, recipe_panel } from "./panels/others";
import { progress_panel } from "./panels/progress";
import { samples_panel } from "./panels/samples";
import { speed_panel } from "./panels/speed";
import { tensors_panel } from "./panels/tensors";
import { trace_panel } from "./panels/trace";
import { waits_panel } from "./panels/waits";
import { RunList } from "./run_list";
import { Panel, State } from "./state";
import { toolbar } from "./toolbar";
import { View } from "./view";

const HEAT_COLUMNS = 120, HEAT_MS = 10000, NO_HEAT_MS = 30000, DETAILS_MS = 2000, MACHINE_MS = 2000, HIDDEN_MS = 15000;

const view = new View();
const s: State = { view, now: 0, lines: [], shown: [], run: null, names: [], curves: new CurveStore(), plan: null, heats: {}, traffic: null, machine: null };
let clock_ahead_s = 0;      // the server's clock beside this one
let plan_of = "", counts = "";
let details_old = true;     // something of the run with the details is another than when it was asked
let names_old = true;
let runs_old = true;        // perhaps another server answers, which numbers runs in its own way
let told: api.Change[] = [];  // the last message of the stream
let connected = true, problem = "", asked = false;

const panels: Panel[] = [progress_panel(), learning_panel(view), speed_panel(view), memory_panel(), waits_panel(view), trace_panel(() => draw()), events_panel(), machine_panel(),
  samples_panel(), experts_panel(view), gradients_panel(), weights_panel(), others_panel(view, () => refresh()), tensors_panel(), recipe_panel()];
const broken = panels.map(() => h("p", { class: "why", role: "status", hidden: true }));
const sections = panels.map((p, i) => h("section", { id: p.id, hidden: true, "aria-labelledby": `${p.id}-title` }, h("h2", { id: `${p.id}-title` }, p.title), broken[i], p.body));
const links = panels.map((p) => h("a", { href: `#${p.id}`, hidden: true, click: (e) => jump(e, p.id) }, p.title));
const title = h("h1", {}, "weft"), where = h("p", { class: "path" }), notice = h("p", { class: "notice", role: "alert", hidden: true });
const run_list = new RunList((run) => look_at(run), overlay), bar = toolbar(view);

put(document.body, h("header", {}, h("div", { class: "head" }, title, where), h("nav", { "aria-label": "Panels" }, ...links)), notice,
  h("main", {}, run_list.element, ...sections.slice(0, 1), bar, ...sections.slice(1)), h("footer", {}, "weft reads the run's folder and changes nothing."));

// --- which runs ---

function chosen(): { main: string | null; over: string[] } {
  const q = new URLSearchParams(location.search);
  return { main: q.get("run"), over: (q.get("with") ?? "").split(",") };
}
function keep_choice(): void {
  const q = new URLSearchParams(), id = (run: number): string => s.lines.find((l) => l.run === run)?.id ?? "";
  if (s.lines.length > 1) q.set("run", id(s.shown[0]));
  if (s.shown.length > 1) q.set("with", s.shown.slice(1).map(id).join(","));
  history.replaceState(null, "", `${location.pathname}${q.toString() ? "?" + q.toString() : ""}${location.hash}`);
}
function look_at(run: number): void {
  if (s.shown[0] === run) return;
  s.shown = [run, ...s.shown.slice(1).filter((r) => r !== run)];
  forget_details();
  keep_choice();
  refresh();
}
function forget_details(): void {
  Object.assign(s, { run: null, names: [], plan: null, heats: {}, traffic: null });
  details_old = names_old = true;
  plan_of = counts = "";
}
function overlay(run: number, yes: boolean): void {
  s.shown = yes ? [...s.shown.filter((r) => r !== run), run] : s.shown.filter((r) => r !== run);
  keep_choice();
  refresh();
}

// --- asking ---

let busy = false, again = false;

// One round at a time: what comes meanwhile makes one more afterwards.
function refresh(): void {
  again = true;
  if (busy) return;
  busy = true;
  const round = async (): Promise<void> => {
    while (again) {
      again = false;
      try {
        await ask();
        asked = true;
        problem = "";
      } catch (error) {
        problem = error instanceof api.Refused ? error.message : "The server does not answer.";
        details_old = names_old = true;
      }
      draw();
      await new Promise((done) => setTimeout(done, 150));
    }
    busy = false;
  };
  void round();
}

async function ask(): Promise<void> {
  if (runs_old || s.lines.length === 0) await ask_runs();
  if (s.shown.length === 0) return;
  const main = s.shown[0];
  if (details_old) {
    details_old = false;
    const run = await api.run(main);
    if (main !== s.shown[0]) return;
    if (run.id !== line_of(main)?.id) return ask_anew();
    s.run = run;
    set_clock(run.now);
  }
  if (names_old) {
    names_old = false;
    const names = (await api.names(main)).names;
    if (main !== s.shown[0]) return;
    s.names = names;
  }
  draw();
  const wanted = [...new Set(panels.flatMap((p) => p.wants?.(s.names) ?? []))];
  for (const run of s.shown) {
    const generation = line_of(run)?.generation ?? 0;
    await s.curves.update(run, wanted, view.from, view.to, generation);
    if (s.curves.generation(run) !== generation) return ask_anew();
  }
  ask_plan(main);
  for (const kind of api.HEAT_KINDS) await ask_heat(main, kind);
  await ask_traffic(main);
}

const line_of = (run: number): api.RunLine | undefined => s.lines.find((l) => l.run === run);

// What was just asked of a run by its number does not fit to what is known of it: the next round begins with the list of runs.
function ask_anew(): void {
  runs_old = details_old = names_old = again = true;
}

// A run that is shown stays so whatever its number is now.
async function ask_runs(): Promise<void> {
  runs_old = false;
  const answer = await api.runs().catch((error: unknown) => {
    runs_old = true;
    throw error;
  });
  const of = (id: string | null | undefined): number | undefined => answer.runs.find((l) => l.id === id)?.run;
  const is_a_number = (r: number | undefined): r is number => r !== undefined;
  const moved = s.lines.length > 0 && (s.lines.length !== answer.runs.length || s.lines.some((l) => of(l.id) !== l.run));
  if (moved) {
    const before = s.shown[0], shown = s.shown.map((run) => of(line_of(run)?.id));
    s.shown = shown.filter(is_a_number);
    s.curves.forget_all();
    if (shown[0] !== before) forget_details();
  }
  s.lines = answer.runs;
  set_clock(answer.now);
  take_over(told);
  if (s.shown.length > 0 || answer.runs.length === 0) return;
  const { main, over } = chosen(), first = of(main) ?? answer.runs.find((l) => l.state === "running")?.run ?? answer.runs[0].run;
  s.shown = [first, ...over.map(of).filter(is_a_number).filter((r) => r !== first)];
}

// It may take seconds, so nothing waits for it.
function ask_plan(run: number): void {
  const of = `${s.run?.id} ${s.run?.attempts.length}`;
  if (plan_of === of) return;
  plan_of = of;
  api.plan(run).catch((e: unknown): api.Plan => ({ available: false, reason: String((e as Error).message), world: 0, axes: {}, num_params: 0, classes: [] })).then((plan) => {
    if (plan_of !== of) return;
    s.plan = plan;
    draw();
  }, () => undefined);
}

// A map that grows is asked for now and then; one that is not there may come to be.
const heat_asked: Partial<Record<api.HeatKind, { of: string; last: number; at: number }>> = {};
const heat_timers: Partial<Record<api.HeatKind, number>> = {};

async function ask_heat(run: number, kind: api.HeatKind): Promise<void> {
  const of = `${line_of(run)?.id} ${line_of(run)?.generation} ${view.from} ${view.to}`, last = s.curves.last_step(run), known = heat_asked[kind], shown = s.heats[kind];
  const is_known = shown !== undefined && known?.of === of;
  if (is_known && shown.available && known.last === last) return;
  const wait = is_known ? known.at + (shown.available ? HEAT_MS : NO_HEAT_MS) - Date.now() : 0;
  const look_in = (ms: number): number => setTimeout(() => { if (!document.hidden) refresh(); }, ms);
  clearTimeout(heat_timers[kind]);
  if (wait > 0) {
    heat_timers[kind] = look_in(wait);
    return;
  }
  const heat = await api.heat(run, kind, view.from, view.to, HEAT_COLUMNS);
  if (run !== s.shown[0]) return;
  heat_asked[kind] = { of, last, at: Date.now() };
  s.heats[kind] = heat;
  if (!heat.available) heat_timers[kind] = look_in(NO_HEAT_MS);
}

// It is of one step, which is replaced as the run goes on.
let traffic_asked = { of: "", last: 0, at: 0 }, traffic_timer: number | undefined;

async function ask_traffic(run: number): Promise<void> {
  const of = `${line_of(run)?.id} ${line_of(run)?.generation}`, last = s.curves.last_step(run), known = traffic_asked;
  const is_known = s.traffic !== null && known.of === of, wait = is_known ? known.at + HEAT_MS - Date.now() : 0;
  if (is_known && known.last === last) return;
  clearTimeout(traffic_timer);
  if (wait > 0) {
    traffic_timer = setTimeout(() => { if (!document.hidden) refresh(); }, wait);
    return;
  }
  const traffic = await api.traffic(run);
  if (run !== s.shown[0]) return;
  traffic_asked = { of, last, at: Date.now() };
  s.traffic = traffic;
}

function set_clock(now: number): void {
  clock_ahead_s = now - Date.now() / 1000;
}

let details_at = 0;
let details_timer: number | undefined;

function on_changes(now: number, changes: api.Change[]): void {
  set_clock(now);
  told = changes;
  if (changes.some((c) => !line_of(c.run))) runs_old = true;
  if (!runs_old) take_over(changes);
  if (!document.hidden) refresh();
}

function take_over(changes: api.Change[]): void {
  for (const c of changes) {
    const line = line_of(c.run);
    if (!line) continue;
    if (line.generation !== c.generation) s.curves.forget(c.run);
    Object.assign(line, { generation: c.generation, state: c.state, step: c.step, total: c.total, eta_s: c.eta_s, latest: c.latest });
    if (c.run !== s.shown[0]) continue;
    const other = `${c.generation} ${c.state} ${c.events} ${c.attempts} ${c.checkpoints}`;
    // What stands in records alone need not be asked for at every message.
    const wait = other !== counts ? 0 : details_at + DETAILS_MS - Date.now();
    if (other === counts && c.step === s.run?.step) continue;
    clearTimeout(details_timer);
    if (wait > 0) {
      details_timer = setTimeout(() => {
        details_at = Date.now();
        details_old = names_old = true;
        if (!document.hidden) refresh();
      }, wait);
      continue;
    }
    counts = other;
    details_at = Date.now();
    details_old = names_old = true;
  }
}

async function watch_machine(): Promise<void> {
  if (!document.hidden && connected) {
    s.machine = await api.machine().catch(() => s.machine);
    draw();
  }
  setTimeout(() => void watch_machine(), MACHINE_MS);
}

// --- showing ---

let drawing = false;

function draw(): void {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    show();
  });
}

function show(): void {
  s.now = Date.now() / 1000 + clock_ahead_s;
  const run = s.run;
  notice.hidden = connected && problem === "";
  const text = problem || "The connection is lost; trying again.";
  if (notice.textContent !== text) notice.textContent = text;
  title.textContent = run ? run.name : "weft";
  where.textContent = run ? `${run.path} · ${run.id}` : "";
  document.title = run ? title_of(run) : "weft";
  run_list.show(s.lines, s.shown);
  panels.forEach((panel, i) => {
    // Shown first: a chart measures its place.
    sections[i].hidden = panel.body.hidden = false;
    sections[i].hidden = links[i].hidden = !updated(panel, broken[i]);
  });
  bar.hidden = s.names.length === 0;
  document.documentElement.dataset.ready = asked ? "yes" : "no";
}

// Files may say anything: what one panel cannot show leaves the others as they are.
function updated(panel: Panel, why: HTMLElement): boolean {
  let text = "", any = true;
  try {
    any = panel.update(s);
  } catch (error) {
    text = `This cannot be shown: the run's files have something unexpected in it (${(error as Error).message}).`;
  }
  why.hidden = text === "";
  panel.body.hidden = text !== "";
  if (why.textContent !== text) why.textContent = text;
  return any;
}

function title_of(run: api.Run): string {
  return `${run.state === "running" && run.total ? format(run.step / run.total, "share") : run.state} · step ${whole(run.step)} · ${run.name}`;
}

function jump(event: Event, id: string): void {
  event.preventDefault();
  const heading = document.getElementById(`${id}-title`)!;
  heading.tabIndex = -1;
  heading.focus();
  heading.scrollIntoView();
}

view.on_changed(refresh);
on_colours_changed(() => {
  for (const panel of panels) panel.redraw?.();
});
const stream = new api.Stream(on_changes, (yes) => {
  told = [];  // its numbers may be those of another server
  if (yes) runs_old = details_old = names_old = true;  // what happened meanwhile
  connected = yes;
  draw();
});
function look(): void {
  if (document.hidden) return stream.close();
  stream.open();
  details_old = names_old = true;
  refresh();
}
document.addEventListener("visibilitychange", look);
addEventListener("pagehide", () => stream.close());
addEventListener("pageshow", (event) => { if (event.persisted) look(); });
// The title of a tab in the background goes on.
setInterval(() => {
  if (document.hidden && s.run) void api.run(s.run.run).then((run) => { if (run.id === s.run?.id) document.title = title_of(run); }, () => undefined);
}, HIDDEN_MS);
look();
void watch_machine();
