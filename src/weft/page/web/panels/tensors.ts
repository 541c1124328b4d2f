// Which tensor lies where?
import { Num, Plan, Tensor } from "../api";
import { h, put, say, Table, value } from "../dom";
import { count, format, whole } from "../format";
import { HeatMap } from "../heat";
import { Panel } from "../state";
import { ranks_in_words } from "./memory";

const UNKNOWN = "not known";
const MOST = 200;  // rows at once: more are found by the filter

export function tensors_panel(): Panel {
  const filter = h("input", { type: "search", placeholder: "name, placement or type", "aria-label": "Filter of tensors", spellcheck: "false" });
  const rank = h("input", { type: "number", min: 0, placeholder: "all", "aria-label": "Only what this rank holds" });
  const sum = h("p", { class: "why", role: "status" }), why = h("div");
  const map = new HeatMap("Tensors by rank", "Bytes of a tensor on a rank at rest; a dash: it has none of it, or nobody knows. Point at a cell, or use the arrow keys, for its number.");
  const list = new Table("Tensors", [{ name: "Tensor" }, { name: "Shape" }, { name: "Type" }, { name: "Whole", numeric: true }, { name: "Placement" }, { name: "Held" }]);
  const form = h("div", { class: "filters" }, h("label", {}, "Filter ", filter), h("label", {}, "Rank ", rank)), parts = h("div", {}, form, sum, map.element, list.element);
  let plan: Plan | null = null, shown: Tensor[] | null = null;

  const show = (): void => {
    const all = plan?.tensors ?? [], text = filter.value.trim().toLowerCase(), of = rank.value === "" ? null : Number(rank.value);
    const found = all.filter((t) => (text === "" || `${t.name} ${t.placement} ${t.dtype}`.toLowerCase().includes(text)) && (of === null || part_on(t, of) !== undefined));
    const seen = found.slice(0, MOST);
    const sizes = found.map((t) => (of === null ? t.bytes : part_on(t, of)!.bytes)), here = sizes.reduce((s: number, b) => s + (b ?? 0), 0), unknown = sizes.filter((b) => b === null).length;
    put(sum, value("tensors.found", found.length, "count"), ` of ${whole(all.length)} tensors, `, value("tensors.bytes", here, "bytes"), of === null ? " whole" : ` on rank ${of}`, unknown > 0 && ` and ${whole(unknown)} whose size is not known`,
      plan && ` – ${count(plan.num_params)} parameters, ${whole(plan.world)} ranks`, seen.length < found.length && `. Shown: the first ${MOST}.`);
    map.element.hidden = seen.length === 0;
    if (seen.length > 0) {
      const columns = of === null ? Array.from({ length: plan!.world }, (_, r) => r) : [of];
      map.show({ key: "held", unit: "bytes", log: true, rows: seen.map((t) => t.name), columns: columns.map((r) => `rank ${r}`), axis: [`rank ${columns[0]}`, `rank ${columns[columns.length - 1]}`],
        values: seen.map((t) => row_of(t, columns)), gap: (row, i) => (part_on(seen[row], columns[i]) ? UNKNOWN : "none of it") });
    }
    list.rows(seen.map((t) => [t.name, t.shape.join(" × "), t.dtype, t.bytes === null ? UNKNOWN : value(`tensor.${t.name}.bytes`, t.bytes, "bytes"), h("span", {}, t.placement, !t.trained && h("small", {}, "frozen")),
      h("span", {}, ...t.held.slice(0, 4).map((p) => h("small", {}, `${p.bytes === null ? UNKNOWN : format(p.bytes, "bytes")} on ${ranks_in_words(p.ranks)}`)), t.held.length > 4 && h("small", {}, `and ${t.held.length - 4} more`))]), seen);
  };
  filter.addEventListener("input", show);
  rank.addEventListener("input", show);
  return {
    id: "tensors", title: "Tensors", body: h("div", {}, parts, why),
    update(s) {
      plan = s.plan;
      if (!plan) return false;
      const reason = !plan.available ? plan.reason ?? "there is no plan" : plan.tensors ? "" : plan.tensors_reason ?? "the plan has none";
      parts.hidden = reason !== "";
      put(why, reason !== "" && say(`No map of tensors: ${reason}`));
      if (reason === "" && plan.tensors !== shown) {
        shown = plan.tensors!;
        rank.max = String(plan.world - 1);
        show();
      }
      return true;
    },
    redraw: () => map.redraw(),
  };
}

const part_on = (t: Tensor, rank: number): { bytes: Num } | undefined => t.held.find((p) => p.ranks.includes(rank));

function row_of(t: Tensor, columns: number[]): Num[] {
  const of = new Map(t.held.flatMap((p) => p.ranks.map((r): [number, Num] => [r, p.bytes])));
  return columns.map((r) => of.get(r) ?? null);
}
