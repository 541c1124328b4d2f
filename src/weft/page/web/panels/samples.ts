// What does it write?
import { h, put, value } from "../dom";
import { whole } from "../format";
import { Once, Panel, State } from "../state";

export function samples_panel(): Panel {
  const step = h("select", { "aria-label": "Step", change: () => draw() }), list = h("div", { class: "samples" }), once = new Once();
  const head = h("p", { class: "filters" }, h("label", {}, "After step ", step));
  let all: NonNullable<NonNullable<State["run"]>["samples"]> = [];
  const draw = (): void => {
    const shown = all.find((a) => String(a.step) === step.value) ?? all[all.length - 1];
    put(list, ...shown.samples.map((s) => h("p", {}, h("span", { class: "prompt" }, s.prompt), h("span", { class: "written" }, s.text))), value("samples.step", shown.step, "count"));
    list.lastElementChild?.classList.add("unseen");
  };
  return {
    id: "samples", title: "Samples of text", body: h("div", {}, head, list, h("p", { class: "why" }, "What follows each prompt, the likeliest tokens.")),
    update(s) {
      all = s.run?.samples ?? [];
      if (all.length === 0 || !once.changed(all)) return all.length > 0;
      // Who looks at the newest sees the newest.
      const chosen = step.selectedIndex === step.options.length - 1 ? "" : step.value, newest = all[all.length - 1].step;
      put(step, ...all.map((a) => h("option", { value: String(a.step), selected: chosen === "" ? a.step === newest : String(a.step) === chosen }, whole(a.step))));
      draw();
      return true;
    },
  };
}
