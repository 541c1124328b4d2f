// Does it fit?
import { PlanClass } from "../api";
import { fact, h, put, say, Table, value } from "../dom";
import { format } from "../format";
import { Panel } from "../state";

export function memory_panel(): Panel {
  const facts = h("dl", { class: "facts" }), bars = h("div", { class: "stacks" }), why = h("div"), kinds = new Table("Planned memory by kind", []);
  return {
    id: "memory", title: "Memory", body: h("div", {}, facts, bars, kinds.element, why),
    update(s) {
      const used = s.run?.memory?.used_bytes ?? null, plan = s.plan, classes = plan?.available ? plan.classes : [];
      if (used === null && !plan) return false;
      const most = classes.reduce((m, c) => Math.max(m, c.total_bytes), 0);
      put(facts, used !== null && fact("Used", value("memory.used_bytes", used, "bytes"), "busiest rank, at its peak"),
        most > 0 && fact("Planned", value("plan.most_bytes", most, "bytes"), "busiest rank"),
        most > 0 && used !== null && fact("Used of the plan", value("memory.share", used / most, "share")));
      put(why, plan && !plan.available && say(`No plan here: ${plan.reason ?? "the server says no reason"}`), !plan && say("The plan is being computed."));
      kinds.element.hidden = bars.hidden = classes.length === 0;
      if (classes.length === 0) return true;
      const names = [...new Map(classes.flatMap((c) => c.memory).filter((m) => m.bytes > 0).map((m) => [m.name, m.meaning]))];
      if (kinds.rows(names.map(([name, meaning], i) => [h("span", { title: meaning }, h("span", { class: `key fill-${1 + (i % 6)} step-${Math.floor(i / 6)}` }), name, h("small", {}, meaning)),
          ...classes.map((c) => value(`plan.${c.class}.${name}`, c.memory.find((m) => m.name === name)?.bytes ?? 0, "bytes"))]), classes,
        [{ name: "Kind" }, ...classes.map((c) => ({ name: ranks_in_words(c.ranks), numeric: true }))],
        ["Together", ...classes.map((c) => value(`plan.${c.class}.total_bytes`, c.total_bytes, "bytes"))])) put(bars, ...classes.map((c) => stack(c, most, names.map(([n]) => n))));
      return true;
    },
  };
}

function stack(c: PlanClass, most: number, names: string[]): HTMLElement {
  const pieces = names.map((name, i) => {
    const bytes = c.memory.find((m) => m.name === name)?.bytes ?? 0, piece = h("span", { class: `fill-${1 + (i % 6)} step-${Math.floor(i / 6)}`, title: `${name}: ${format(bytes, "bytes")}` });
    piece.style.width = `${(100 * bytes) / most}%`;
    return piece;
  });
  return h("div", { class: "stack" }, h("span", { class: "name" }, ranks_in_words(c.ranks)), h("span", { class: "pieces", "aria-hidden": "true" }, ...pieces), h("span", { class: "number" }, format(c.total_bytes, "bytes")));
}

// [0, 1, 2, 5] -> "ranks 0–2, 5"
export function ranks_in_words(ranks: number[]): string {
  const runs: [number, number][] = [];
  for (const r of ranks) {
    const last = runs[runs.length - 1];
    if (last && r === last[1] + 1) last[1] = r; else runs.push([r, r]);
  }
  const texts = runs.slice(0, 6).map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
  return `rank${ranks.length === 1 ? "" : "s"} ${texts.join(", ")}${runs.length > 6 ? `, … (${ranks.length})` : ""}`;
}
