// Making elements. Text from files only ever becomes text: nothing here takes markup.
import { format, Unit } from "./format";

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | undefined | ((event: Event) => void)>;

// An element with attributes (a function listens to the event that its name says) and children.
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
  put(element, ...children);
  return element;
}

// Makes these the only children.
export function put(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((c): c is Node | string | number => c !== null && c !== undefined && c !== false)
    .map((c) => (typeof c === "number" ? String(c) : c)));
}

// A number: as people read it, with the exact one beside it for programs and on hovering.
export function value(key: string, x: number | null | undefined, unit: Unit = ""): HTMLElement {
  const exact = typeof x === "number" ? String(x) : "";
  return h("data", { value: exact, "data-key": key, "data-value": exact, title: exact, class: "number" }, format(x, unit));
}

// A labelled number of a row of such.
export function fact(label: string, content: Child, note: Child = null): HTMLElement {
  return h("div", { class: "fact" }, h("dt", {}, label), h("dd", {}, content, note && h("small", {}, note)));
}

export interface Column { name: string; numeric?: boolean; wide?: boolean }  // wide: sentences

// A table that scrolls by itself where it is wider or longer than its place. It stays as it is (also to the keyboard) while
// what it shows does.
export class Table {
  readonly element: HTMLElement;
  private last = "";

  constructor(private readonly caption: string, private columns: Column[]) {
    this.element = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption });
  }

  // `what` tells whether anything is another; true if so. `foot` is a last row that sums up.
  rows(rows: Child[][], what: unknown, columns = this.columns, foot?: Child[]): boolean {
    const now = JSON.stringify(what);
    if (now === this.last) return false;
    this.last = now;
    this.columns = columns;
    const head = h("tr", {}, ...columns.map((c) => h("th", { scope: "col", class: c.numeric ? "number" : undefined }, c.name)));
    const line = (row: Child[]): HTMLElement => h("tr", {}, ...row.map((cell, i) => i === 0
      ? h("th", { scope: "row" }, cell) : h("td", { class: columns[i].numeric ? "number" : columns[i].wide ? "wide" : undefined }, cell)));
    put(this.element, h("table", {}, h("caption", { class: "unseen" }, this.caption), h("thead", {}, head), h("tbody", {}, ...rows.map(line)), foot && h("tfoot", {}, line(foot))));
    return true;
  }
}

// A bar beside its number, as wide as the share.
export function bar(share: number): HTMLElement {
  const fill = h("span");
  fill.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, fill);
}

export function say(text: string): HTMLElement {
  return h("p", { class: "why" }, text);
}
