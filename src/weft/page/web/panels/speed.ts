// Is it fast?
import { Times } from "../api";
import { bar, fact, h, put, say, Table, value } from "../dom";
import { whole } from "../format";
import { Panel, State } from "../state";
import { View } from "../view";
import { ChartGrid, some_of } from "./curves";

export const SPEED = ["tokens_per_s", "step_time_s", "mfu"];

export function speed_panel(view: View): Panel {
  const facts = h("dl", { class: "facts" }), stragglers = h("div", { class: "apart" });
  const times = new Table("Where the time went", [{ name: "Part" }, { name: "Recent", numeric: true }, { name: "", numeric: true }, { name: "Whole run", numeric: true }, { name: "", numeric: true }]);
  const time_part = h("div", {}, h("h3", {}, "Where the time went"), times.element, h("p", { class: "why" }, "Of the first rank. What it waits for others is communication that no computing hides."));
  const grid = new ChartGrid(view, [
    { id: "tokens_per_s", title: "Throughput", unit: "tokens/s", about: "tokens per second, all ranks", zero: true, wants: some_of("tokens_per_s") },
    { id: "step_time_s", title: "Time of a step", unit: "s", zero: true, wants: some_of("step_time_s") },
    { id: "mfu", title: "MFU", unit: "share", about: "of the machine's measured matmul rate", zero: true, wants: some_of("mfu") },
  ]);
  return {
    id: "speed", title: "Speed", body: h("div", {}, facts, grid.element, time_part, stragglers),
    wants: (names) => grid.wants(names),
    update(s) {
      const speed = s.run?.speed;
      if (!speed) return grid.update(s);
      const over = `mean of ${whole(speed.steps)} step${speed.steps === 1 ? "" : "s"}`;
      put(facts, fact("Throughput", value("speed.tokens_per_s", speed.tokens_per_s, "tokens/s"), over), fact("A step", value("speed.step_time_s", speed.step_time_s, "s"), over),
        fact("MFU", value("speed.mfu", speed.mfu, "share"), speed.mfu === null ? "not measured" : over));
      grid.update(s);
      const recent = parts_of(s.run!.time_recent), whole_run = parts_of(s.run!.time);
      time_part.hidden = recent.length === 0 && whole_run.length === 0;
      times.rows(whole_run.map(([part, key, seconds, share]) => {
        const now = recent.find((r) => r[1] === key);
        return [part, now ? value(`time_recent.${key}`, now[2], "s") : "", now ? with_bar(`time_recent.${key}.share`, now[3]) : "", value(`time.${key}`, seconds, "s"), with_bar(`time.${key}.share`, share)];
      }), [recent, whole_run]);
      show_stragglers(stragglers, s);
      return true;
    },
    redraw: () => grid.redraw(),
  };
}

function with_bar(key: string, share: number): HTMLElement {
  return h("span", { class: "barred" }, bar(share), value(key, share, "share"));
}

// Name, key, seconds, share of all.
function parts_of(t: Times | null): [string, string, number, number][] {
  if (!t) return [];
  const parts: [string, string, number | null][] = [["Computing", "compute_s", t.compute_s], ["Reading samples", "data_s", t.data_s],
    ...Object.entries(t.waits_s ?? {}).map(([axis, s]): [string, string, number | null] => [`Waiting on ${axis}`, `waits_s.${axis}`, s]),
    ["Evaluations", "eval_s", t.eval_s], ["Checkpoints", "save_s", t.save_s]];
  const all = parts.reduce((sum, p) => sum + (p[2] ?? 0), 0);
  return all > 0 ? parts.filter((p) => p[2] !== null).map(([name, key, s]) => [name, key, s!, s! / all]) : [];
}

function show_stragglers(element: HTMLElement, s: State): void {
  const slow = new Map<number, string>();
  for (const e of s.run!.events) {
    if (e.event === "straggler") slow.set(Number(e.rank), `Rank ${e.rank} is slower than others with the same work since step ${whole(Number(e.since_step))}.`);
    if (e.event === "straggler_over") slow.delete(Number(e.rank));
  }
  put(element, ...(slow.size > 0 ? [h("h3", {}, "Slow ranks"), ...[...slow.values()].map(say)] : []));
}
