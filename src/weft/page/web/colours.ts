// Colours that people with any colour vision tell apart, and dashes that tell the same without colour. Contrast with the
// ground is at least 4.5 : 1 for the first six of each list.

export interface Colours { lines: string[]; ink: string; soft: string; grid: string; ground: string; bad: string; good: string }

export const DASHES: number[][] = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2, 1, 2, 1, 2], [12, 4]];

const dark = matchMedia("(prefers-color-scheme: dark)");

export function colours(): Colours {
  const style = getComputedStyle(document.documentElement), get = (name: string): string => style.getPropertyValue(name).trim();
  return {
    lines: [1, 2, 3, 4, 5, 6].map((i) => get(`--line-${i}`)), ink: get("--ink"), soft: get("--soft"), grid: get("--grid"),
    ground: get("--card"), bad: get("--bad"), good: get("--good"),
  };
}

export function on_colours_changed(f: () => void): void {
  dark.addEventListener("change", f);
}

// From little (pale; dark in the dark) to much: cividis, whose lightness alone tells the order.
const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116],
  [195, 179, 105], [225, 204, 85], [253, 231, 55]];
// What is no number is drawn as the least.
export function heat(share: number): string {
  const x = (share > 0 ? Math.min(1, share) : 0) * (CIVIDIS.length - 1), i = Math.min(CIVIDIS.length - 2, Math.floor(x)), f = x - i;
  const mix = [0, 1, 2].map((c) => Math.round(CIVIDIS[i][c] * (1 - f) + CIVIDIS[i + 1][c] * f));
  return `rgb(${mix.join(" ")})`;
}
