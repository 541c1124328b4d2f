// The live page: asks the server, keeps what it answers, and lets each panel show its part.
import * as api from "./api";
import { on_colours_changed } from "./colours";
import { CurveStore } from "./curve_store";
import { h, put } from "./dom";
import { format, whole } from "./format";
import { events_panel } from "./panels/events";
import { experts_panel } from "./panels/experts";
import { gradients_panel } from "./panels/gradients";
import { learning_panel } from "./panels/learning";
import { machine_panel } from "./panels/machine";
import { memory_panel } from "./panels/memory";
import { others_panel, recipe_panel } from "./panels/others";
import { progress_panel } from "./panels/progress";
import { speed_panel } from "./panels/speed";
import { tensors_panel } from "./panels/tensors";
import { waits_panel } from "./panels/waits";
import { RunList } from "./run_list";
import { Panel, State } from "./state";
import { toolbar } from "./toolbar";
import { View } from "./view";

const HEAT_COLUMNS = 120, OFTEN_MS = 1000, MACHINE_MS = 2000, HIDDEN_MS = 15000;

const view = new View();
const s: State = { view, now: 0, lines: [], shown: [], run: null, names: [], curves: new CurveStore(), plan: null, heat: null, machine: null };
let clock_ahead_s = 0;      // the server's clock beside this one
let plan_of = "", heat_of = "", counts = "";
let details_old = true;     // something of the run with the details is another than when it was asked
let names_old = true;
let connected = true, problem = "", asked = false;

const panels: Panel[] = [progress_panel(), learning_panel(view), speed_panel(view), memory_panel(), waits_panel(view), events_panel(), machine_panel(),
  experts_panel(view), gradients_panel(), others_panel(view, () => refresh()), tensors_panel(), recipe_panel()];
const sections = panels.map((p) => h("section", { id: p.id, hidden: true, "aria-labelledby": `${p.id}-title` }, h("h2", { id: `${p.id}-title` }, p.title), p.body));
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
  Object.assign(s, { run: null, names: [], plan: null, heat: null });
  details_old = names_old = true;
  plan_of = heat_of = counts = "";
  keep_choice();
  refresh();
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
        if (error instanceof api.Refused && error.status === 404) details_old = true;
      }
      draw();
      await new Promise((done) => setTimeout(done, 150));
    }
    busy = false;
  };
  void round();
}

async function ask(): Promise<void> {
  if (s.lines.length === 0) await ask_runs();
  if (s.shown.length === 0) return;
  const main = s.shown[0];
  if (details_old) {
    details_old = false;
    const run = await api.run(main);
    if (run.run !== s.shown[0]) return;
    s.run = run;
    set_clock(run.now);
  }
  if (names_old) {
    names_old = false;
    s.names = (await api.names(main)).names;
  }
  draw();
  const wanted = [...new Set(panels.flatMap((p) => p.wants?.(s.names) ?? []))];
  for (const run of s.shown) {
    const generation = s.lines.find((l) => l.run === run)?.generation ?? 0;
    await s.curves.update(run, wanted, view.from, view.to, generation);
  }
  ask_plan(main);
  await ask_heat(main);
}

async function ask_runs(): Promise<void> {
  const answer = await api.runs();
  s.lines = answer.runs;
  set_clock(answer.now);
  const { main, over } = chosen(), of = (id: string | null): number | undefined => answer.runs.find((l) => l.id === id)?.run;
  if (s.shown.length > 0 || answer.runs.length === 0) return;
  const first = of(main) ?? answer.runs.find((l) => l.state === "running")?.run ?? answer.runs[0].run;
  s.shown = [first, ...over.map(of).filter((r): r is number => r !== undefined && r !== first)];
}

// It may take seconds, so nothing waits for it.
function ask_plan(run: number): void {
  const of = `${run} ${s.run?.attempts.length}`;
  if (plan_of === of) return;
  plan_of = of;
  api.plan(run).catch((e: unknown): api.Plan => ({ available: false, reason: String((e as Error).message), world: 0, axes: {}, num_params: 0, classes: [] })).then((plan) => {
    if (plan_of !== of) return;
    s.plan = plan;
    draw();
  }, () => undefined);
}

async function ask_heat(run: number): Promise<void> {
  const last = s.curves.last_step(run), of = `${run} ${s.run?.generation} ${view.from} ${view.to} ${last}`;
  if (heat_of === of || (s.heat && !s.heat.available && heat_of.split(" ")[0] === String(run))) return;
  heat_of = of;
  s.heat = await api.heat(run, view.from, view.to, HEAT_COLUMNS);
}

function set_clock(now: number): void {
  clock_ahead_s = now - Date.now() / 1000;
}

let details_at = 0;

function on_changes(now: number, changes: api.Change[]): void {
  set_clock(now);
  if (changes.some((c) => !s.lines.some((l) => l.run === c.run))) s.lines = [];
  for (const c of changes) {
    const line = s.lines.find((l) => l.run === c.run);
    if (!line) continue;
    if (line.generation !== c.generation) {
      s.curves.forget(c.run);
      if (c.run === s.shown[0]) heat_of = "";
    }
    Object.assign(line, { generation: c.generation, state: c.state, step: c.step, total: c.total, eta_s: c.eta_s, latest: c.latest });
    if (c.run !== s.shown[0]) continue;
    const other = `${c.generation} ${c.state} ${c.events} ${c.attempts} ${c.checkpoints}`;
    // What stands in records alone need not be asked for at every message.
    if (other !== counts || (c.step !== s.run?.step && Date.now() - details_at > 2 * OFTEN_MS)) {
      counts = other;
      details_at = Date.now();
      details_old = names_old = true;
    }
  }
  if (!document.hidden) refresh();
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
    sections[i].hidden = false;
    const any = panel.update(s);
    sections[i].hidden = links[i].hidden = !any;
  });
  bar.hidden = s.names.length === 0;
  document.documentElement.dataset.ready = asked ? "yes" : "no";
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
  if (yes && !connected) details_old = names_old = true;  // what happened meanwhile
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
  if (document.hidden && s.run) void api.run(s.run.run).then((run) => { document.title = title_of(run); }, () => undefined);
}, HIDDEN_MS);
look();
void watch_machine();
