// What do ranks wait for, and what do they send?
import { h, Table, value } from "../dom";
import { Panel } from "../state";
import { View } from "../view";
import { ChartGrid } from "./curves";
import { ranks_in_words } from "./memory";

export const is_wait = (name: string): boolean => name === "data_s" || name.startsWith("waits_s.");

export function waits_panel(view: View): Panel {
  const grid = new ChartGrid(view, [{ id: "waits", title: "Waiting", unit: "s", about: "seconds of a step, first rank", zero: true,
    wants: (names) => names.map((n) => n.name).filter(is_wait), label: (n) => (n === "data_s" ? "reading samples" : `on ${n.slice("waits_s.".length)}`) }]);
  const sent = new Table("What ranks send in a step, as planned", [{ name: "Ranks" }, { name: "Axis" }, { name: "Collective" }, { name: "Calls", numeric: true }, { name: "Sent by one rank", numeric: true }]);
  const sent_part = h("div", {}, h("h3", {}, "What ranks send in a step"), h("p", { class: "why" }, "As planned."), sent.element);
  return {
    id: "waits", title: "Waiting and sending", body: h("div", {}, grid.element, sent_part),
    wants: (names) => grid.wants(names),
    update(s) {
      const any = grid.update(s), classes = s.plan?.available ? s.plan.classes : [];
      const rows = classes.flatMap((c) => c.communication.map((x) => ({ ...x, c })));
      sent_part.hidden = rows.length === 0;
      sent.rows(rows.map(({ c, axis, kind, calls, bytes_sent }) => [ranks_in_words(c.ranks), axis, kind.replace(/_/g, "-"),
        value(`sent.${c.class}.${axis}.${kind}.calls`, calls, "count"), value(`sent.${c.class}.${axis}.${kind}`, bytes_sent, "bytes")]), rows);
      return any || rows.length > 0;
    },
    redraw: () => grid.redraw(),
  };
}
