// Is it alive, and how long still?
import { Run } from "../api";
import { fact, h, put, value } from "../dom";
import { duration, format, when, whole } from "../format";
import { Panel, State } from "../state";

// A word, a symbol and a colour: none of them alone.
const STATES: Record<string, [string, string]> = {
  running: ["▶", "good"], stalled: ["!", "bad"], finished: ["✓", "good"], stopped: ["■", "calm"], failed: ["✕", "bad"], lost: ["✕", "bad"],
  unfinished: ["■", "calm"], unreadable: ["?", "bad"], away: ["?", "calm"],
};

export function state_of(state: string): HTMLElement {
  const [symbol, mood] = STATES[state] ?? ["•", "calm"];
  return h("span", { class: `state ${mood}`, "data-state": state }, h("span", { "aria-hidden": "true" }, symbol), ` ${state}`);
}

export function progress_panel(): Panel {
  const head = h("div", { class: "status", role: "status" }), line = h("div", { class: "progress" }), facts = h("dl", { class: "facts" }), about = h("p", { class: "about" }), loading = h("p", { class: "why", hidden: true });
  const problems = h("ul", { class: "problems" });
  return {
    id: "progress", title: "Progress", body: h("div", {}, head, loading, line, facts, about, problems),
    update(s) {
      const run = s.run;
      if (!run) return false;
      const text = `${run.state}|${run.reason}`;
      if (head.dataset.text !== text) put(head, state_of(run.state), run.reason && h("span", { class: "reason" }, run.reason));
      head.dataset.text = text;
      const share = run.total ? run.step / run.total : null;
      put(line, h("p", {}, value("step", run.step), run.total !== null && " of ", run.total !== null && value("total", run.total), " steps", share !== null && h("strong", {}, format(share, "share"))),
        share !== null && h("progress", { max: 1, value: share, "aria-label": "steps done" }));
      for (const number of line.querySelectorAll<HTMLElement>("data")) number.textContent = whole(Number(number.dataset.value));
      put(facts, ...facts_of(run, s));
      put(about, [run.model, run.objective && `objective ${run.objective}`, layout_of(run), run.machine || run.host, run.weft && `weft ${run.weft}`].filter((t) => t).join(" · "));
      loading.hidden = (run.loaded ?? 1) >= 1;
      loading.textContent = `metrics.jsonl is being read: ${format(run.loaded, "share")} so far.`;
      put(problems, ...run.problems.map((p) => h("li", {}, p)));
      return true;
    },
  };
}

function facts_of(run: Run, s: State): HTMLElement[] {
  const going = run.state === "running" || run.state === "stalled", end = run.attempts.length > 0 ? run.attempts[run.attempts.length - 1].ended : null;
  const facts: HTMLElement[] = [];
  if (going && run.eta_s !== null) facts.push(fact("Left", value("eta_s", run.eta_s, "s"), `until ${when(s.now + run.eta_s, s.now)}`));
  if (run.began !== null) facts.push(fact("Trained", value("running_s", run.running_s ?? (going ? s.now : end ?? run.last_record ?? s.now) - run.began, "s"), `began ${when(run.began, s.now)}`));
  if (run.last_record !== null) facts.push(fact("Last record", going ? `${duration(Math.max(0, Math.round(s.now - run.last_record)))} ago` : when(run.last_record, s.now)));
  if (run.price) facts.push(fact("Price so far", h("span", {}, value("price.so_far", run.price.so_far, "money"), run.price.currency && `\u00a0${run.price.currency}`), `${format(run.price.per_hour, "money")}${run.price.currency ? ` ${run.price.currency}` : ""} an hour`));
  if (run.held_out) facts.push(fact("Held-out loss", value("held_out.loss", run.held_out.loss, "nats"), run.best_held_out && run.best_held_out.step !== run.held_out.step
    ? `best ${format(run.best_held_out.loss, "nats")} at ${whole(run.best_held_out.step)}` : `at step ${whole(run.held_out.step)}`));
  const loss = run.latest?.loss;
  if (typeof loss === "number") facts.push(fact("Loss", value("loss", loss, "nats"), "of the last step"));
  return facts;
}

function layout_of(run: Run): string {
  if (!run.layout) return run.ranks ? `${run.ranks} ranks` : "";
  const axes = Object.entries(run.layout).filter(([axis, n]) => axis !== "zero_stage" && n > 1).map(([axis, n]) => `${axis} ${n}`);
  if (run.layout.zero_stage) axes.push(`ZeRO ${run.layout.zero_stage}`);
  const ranks = run.ranks || 1;  // 0: not known
  return `${ranks} rank${ranks === 1 ? "" : "s"}${axes.length > 0 ? ` (${axes.join(" × ")})` : ""}`;
}
