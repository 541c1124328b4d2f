// When does each rank do what, within a step?
import * as api from "../api";
import { h, put, say, value } from "../dom";
import { Panel } from "../state";
import { Timeline } from "../timeline";

const LATER_MS = 200, ANEW_MS = 30000;

export function trace_panel(draw: () => void): Panel {
  let run = -1, of = "", asked_at = 0, trace: api.Trace | null = null, whole: api.Trace | null = null, timer: number | undefined, window: [number, number] | null = null;
  const rank = h("input", { type: "number", min: 0, placeholder: "all", "aria-label": "Only this rank", change: () => ask(true) });
  let told: api.Trace | null = null;
  const head = h("p", { class: "why", role: "status" }), why = h("div"), parts = h("div");
  const timeline = new Timeline((from, to) => {
    window = whole && from <= 0 && to >= whole.end_us ? null : [from, to];
    clearTimeout(timer);
    timer = setTimeout(() => ask(false), LATER_MS);
  });
  put(parts, h("div", { class: "filters" }, h("label", {}, "Rank ", rank)), timeline.element,
    h("p", { class: "why" }, "Above, what the schedule has: F is forward, B backward, D and W its two halves, with the number of the micro-batch; below, its instructions and their ops. Of more than 16 ranks, only the first is shown of each, unless one is chosen."));
  function ask(anew: boolean): void {
    const asked = run, only = rank.value === "" ? null : Number(rank.value);
    if (anew) window = null;
    api.trace(run, window?.[0] ?? null, window?.[1] ?? null, only).then((t) => {
      if (asked !== run) return;
      if (!window) whole = t;
      const other = anew || t.step !== trace?.step || t.end_us !== trace.end_us;
      trace = t;
      if (t.available && t.rows.length > 0) timeline.show(t, other);
      draw();
    }, () => undefined);
  }
  return {
    id: "trace", title: "A step as it ran", body: h("div", {}, why, head, parts),
    update(s) {
      if (!s.run) return false;
      const now = `${s.run.id} ${s.run.generation}`, is_other = now !== of, grows = s.run.state === "running" && Date.now() - asked_at > ANEW_MS;
      if (is_other) [trace, whole] = [null, null];
      if (is_other || (grows && !window)) {
        [of, run, asked_at] = [now, s.run.run, Date.now()];
        ask(is_other || !trace?.available);
      }
      if (trace === told) return trace !== null;
      told = trace;
      const any = trace?.available === true && trace.rows.length > 0;
      parts.hidden = trace?.available !== true;
      head.hidden = !any;
      put(why, trace !== null && !any && say(trace.available ? "There is no such rank." : `No trace: ${trace.reason ?? "the server says no reason"}.`));
      if (any) put(head, "Step ", value("trace.step", trace!.step, "count"), " took ", value("trace.end", trace!.end_us * 1e-6, "s"), " while it was traced.");
      return trace !== null;
    },
    redraw: () => timeline.redraw(),
  };
}
