// Which runs there are, whose details are shown, and whose curves are drawn over each other.
import { RunLine } from "./api";
import { swatch } from "./charts";
import { h, Table, value } from "./dom";
import { format, whole } from "./format";
import { state_of } from "./panels/progress";

export class RunList {
  readonly element: HTMLElement;
  private readonly table = new Table("Runs", [{ name: "Run" }, { name: "State" }, { name: "Step", numeric: true }, { name: "Left", numeric: true }, { name: "Loss", numeric: true }, { name: "Curves" }]);

  constructor(private readonly look_at: (run: number) => void, private readonly overlay: (run: number, yes: boolean) => void) {
    this.element = h("section", { class: "runs", "aria-label": "Runs" }, this.table.element);
  }

  show(lines: RunLine[], shown: number[]): void {
    this.element.hidden = lines.length < 2;
    // The rows are made anew only where others are chosen: what has the focus keeps it.
    this.table.rows(lines.map((l) => {
      const main = l.run === shown[0], at = shown.indexOf(l.run);
      return [h("button", { type: "button", class: "link", "aria-current": main ? "true" : undefined, title: l.path, click: () => this.look_at(l.run) }, l.name),
        h("span", { "data-cell": `state-${l.run}` }), h("span", { "data-cell": `step-${l.run}`, class: "number" }), h("span", { "data-cell": `left-${l.run}` }), h("span", { "data-cell": `loss-${l.run}` }),
        h("label", {}, h("input", { type: "checkbox", checked: at >= 0, disabled: main, "aria-label": `Draw the curves of ${l.name}`, change: (e) => this.overlay(l.run, (e.target as HTMLInputElement).checked) }),
          at >= 0 && shown.length > 1 && swatch(at))];
    }), [lines.map((l) => [l.run, l.id, l.name]), shown]);
    for (const l of lines) {
      this.cell(`state-${l.run}`, state_of(l.state));
      this.cell(`step-${l.run}`, `${whole(l.step)}${l.total ? ` / ${whole(l.total)}` : ""}`);
      this.cell(`left-${l.run}`, l.state === "running" ? format(l.eta_s, "s") : "");
      this.cell(`loss-${l.run}`, value("run.loss", l.latest?.loss, "nats"));
    }
  }

  private cell(name: string, content: Node | string): void {
    const cell = this.table.element.querySelector(`[data-cell="${name}"]`);
    if (cell && cell.textContent !== (typeof content === "string" ? content : content.textContent)) cell.replaceChildren(content);
  }
}
