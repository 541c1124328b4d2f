// What happened?
import { Checkpoint } from "../api";
import { h, Table, value } from "../dom";
import { MISSING, when, whole } from "../format";
import { Panel } from "../state";
import { happenings } from "./marks";

export function events_panel(): Panel {
  const list = new Table("What happened, newest first", [{ name: "Time" }, { name: "Step", numeric: true }, { name: "What" }, { name: "", wide: true }]);
  const checkpoints = new Table("Checkpoints", [{ name: "Step" }, { name: "Size", numeric: true }, { name: "Held-out loss", numeric: true }]);
  const evaluations = new Table("Evaluations", [{ name: "Step" }, { name: "Loss", numeric: true }]);
  const kept = h("div", {}, h("h3", {}, "Checkpoints"), checkpoints.element), measured = h("div", {}, h("h3", {}, "Evaluations"), evaluations.element);
  return {
    id: "events", title: "What happened", body: h("div", { class: "wide-narrow" }, list.element, h("div", {}, measured, kept)),
    update(s) {
      const run = s.run;
      if (!run) return false;
      const all = happenings(run), held_out = s.curves.of(run.run, "held_out.loss").slice(-100).reverse(), saved = run.checkpoints.filter((c) => !c.time).slice(-100).reverse();
      list.rows(all.map((x) => [x.time !== null ? when(x.time, s.now) : MISSING, x.step !== null ? whole(x.step) : "",
        h("span", { class: x.bad ? "bad" : undefined, "data-event": x.kind }, h("span", { class: "symbol", "aria-hidden": "true" }, x.symbol), x.kind), x.checkpoint ? kept_as(x.checkpoint) : x.text]), all);
      kept.hidden = saved.length === 0;
      checkpoints.rows(saved.map((c) => [whole(c.step), value(`checkpoint.${c.step}.bytes`, c.bytes, "bytes"), value(`checkpoint.${c.step}.held_out_loss`, c.held_out_loss, "nats")]), saved);
      measured.hidden = held_out.length === 0;
      evaluations.rows(held_out.map((p) => [whole(p.x), value(`evaluation.${p.x}`, p.y, "nats")]), held_out);
      return all.length + saved.length + held_out.length > 0;
    },
  };
}

function kept_as(c: Checkpoint): HTMLElement {
  return h("span", {}, value(`checkpoint.${c.step}.bytes`, c.bytes, "bytes"), c.held_out_loss !== null && ", held-out loss ", c.held_out_loss !== null && value(`checkpoint.${c.step}.held_out_loss`, c.held_out_loss, "nats"));
}
