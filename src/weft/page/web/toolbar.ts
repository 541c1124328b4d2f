// How the curves are looked at: window of steps, smoothing, axes. By keyboard too.
import { h } from "./dom";
import { View } from "./view";

export function toolbar(view: View): HTMLElement {
  const from = h("input", { type: "number", min: 0, placeholder: "first", "aria-label": "From step" });
  const to = h("input", { type: "number", min: 1, placeholder: "newest", "aria-label": "To step" });
  const smoothing = h("input", { type: "range", min: 0, max: 99, step: 1, "aria-label": "Smoothing", value: Math.round(100 * view.smoothing) });
  const log_y = h("input", { type: "checkbox", checked: view.log_y }), log_x = h("input", { type: "checkbox", checked: view.log_x });
  const shown = h("output", { class: "number" });
  const all = h("button", { type: "button", click: () => view.set_window(null, null) }, "All steps");
  const show = (): void => {
    from.value = view.from === null ? "" : String(view.from);
    to.value = view.to === null ? "" : String(view.to);
    all.disabled = view.from === null;
    shown.textContent = view.smoothing === 0 ? "off" : view.smoothing.toFixed(2);
  };
  const window_changed = (): void => {
    const [a, b] = [from, to].map((e) => (e.value === "" ? null : Math.round(Number(e.value))));
    if (a === null && b === null) view.set_window(null, null);
    else if (a !== null && b !== null && b > a) view.set_window(a, b);
  };
  from.addEventListener("change", window_changed);
  to.addEventListener("change", window_changed);
  smoothing.addEventListener("input", () => {
    view.smoothing = Number(smoothing.value) / 100;
    view.changed();
  });
  log_y.addEventListener("change", () => {
    view.log_y = log_y.checked;
    view.changed();
  });
  log_x.addEventListener("change", () => {
    view.log_x = log_x.checked;
    view.changed();
  });
  view.on_changed(show);
  show();
  return h("form", { class: "toolbar", "aria-label": "Curves", submit: (e) => e.preventDefault() },
    h("span", { class: "group" }, "Steps ", from, "–", to, all),
    h("label", { class: "group" }, "Smoothing ", smoothing, shown),
    h("span", { class: "group" }, h("label", {}, log_y, " log values"), h("label", {}, log_x, " log steps")));
}
