// What do ranks wait for, and what do they send?
import { Name } from "../api";
import { h, Table, value } from "../dom";
import { Panel } from "../state";
import { View } from "../view";
import { ChartGrid, some_of } from "./curves";
import { ranks_in_words } from "./memory";
import { TrafficPart } from "./traffic";

export const is_wait = (name: string): boolean => name === "data_s" || name.startsWith("waits_s.");

export function waits_panel(view: View): Panel {
  const grid = new ChartGrid(view);
  const title = (name: string): string => (name === "data_s" ? "Reading samples" : `Waiting on ${name.slice("waits_s.".length)}`);
  const waits = (names: Name[]): string[] => names.map((n) => n.name).filter(is_wait);
  const sent = new Table("What ranks send in a step, as planned", [{ name: "Ranks" }, { name: "Axis" }, { name: "Collective" }, { name: "Calls", numeric: true }, { name: "Sent by one rank", numeric: true }]);
  const traffic = new TrafficPart();
  const sent_part = h("div", {}, h("h3", {}, "What ranks send in a step, as planned"), sent.element);
  return {
    id: "waits", title: "Waiting and sending", body: h("div", {}, grid.element, traffic.element, sent_part),
    wants: waits,
    update(s) {
      grid.set(waits(s.names).map((name) => ({ id: name, title: title(name), unit: "s", about: "of a step, first rank", zero: true, wants: some_of(name) })));
      const any = grid.update(s), classes = s.plan?.available ? s.plan.classes : [];
      const rows = classes.flatMap((c) => c.communication.map((x) => ({ ...x, c })));
      sent_part.hidden = rows.length === 0;
      sent.rows(rows.map(({ c, axis, kind, calls, bytes_sent }) => [ranks_in_words(c.ranks), axis, kind.replace(/_/g, "-"),
        value(`sent.${c.class}.${axis}.${kind}.calls`, calls, "count"), value(`sent.${c.class}.${axis}.${kind}`, bytes_sent, "bytes")]), rows);
      return traffic.update(s) || any || rows.length > 0;
    },
    redraw: () => {
      grid.redraw();
      traffic.redraw();
    },
  };
}
