// Is it learning?
import { Name } from "../api";
import { h, Table, value } from "../dom";
import { Panel } from "../state";
import { View } from "../view";
import { ChartGrid, some_of, unit_of } from "./curves";

// What the charts of this panel draw, in this order; the other panels leave these to it.
export const LEARNING = ["loss", "held_out.loss", "grad_norm", "lr"];

export function learning_panel(view: View): Panel {
  const grid = new ChartGrid(view, [
    { id: "loss", title: "Loss", unit: "nats", about: "nats per token", log: true, wants: some_of("loss", "held_out.loss"), label: (n) => (n === "loss" ? "training" : "held out") },
    { id: "grad_norm", title: "Gradient norm", unit: "", about: "before clipping", log: true, wants: some_of("grad_norm") },
    { id: "lr", title: "Learning rate", unit: "", log: true, wants: some_of("lr") },
  ]);
  const tasks = new Table("Results of tasks", [{ name: "Task" }, { name: "Result", numeric: true }, { name: "Standard error", numeric: true }, { name: "Step", numeric: true }]);
  const task_grid = new ChartGrid(view), task_part = h("div", {}, h("h3", {}, "Tasks"), tasks.element, task_grid.element);
  const task_names = (names: Name[]): Name[] => names.filter((n) => n.kind === "task" && !n.name.endsWith("_stderr")).slice(0, 12);
  return {
    id: "learning", title: "Learning", body: h("div", {}, grid.element, task_part),
    wants: (names) => [...grid.wants(names), ...task_names(names).filter((n) => n.points > 1).map((n) => n.name)],
    update(s) {
      const any = grid.update(s);
      task_grid.set(task_names(s.names).filter((n) => n.points > 1).map((n) => ({ id: n.name, title: n.name, unit: unit_of(n), wants: some_of(n.name) })));
      task_grid.update(s);
      const results = s.run?.tasks ?? [];
      task_part.hidden = results.length === 0;
      tasks.rows(results.map((t) => [t.name, value(t.name, t.value, "score"), value(`${t.name}_stderr`, t.stderr), value(`${t.name}.step`, t.step, "count")]), results);
      return any || results.length > 0;
    },
    redraw() {
      grid.redraw();
      task_grid.redraw();
    },
  };
}
