"""Small pictures as SVG, which follow the reader's preference for light or dark grounds."""
import html

STYLE = """<style>
text { font: 13px sans-serif; fill: #333 } .title { font-size: 15px } .small { font-size: 11px; fill: #777 }
.bar { fill: #9bbcdb } .error, .axis { stroke: #777; fill: none } .a { stroke: #c0703a } .b { stroke: #2f6fab }
.line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .small { fill: #999 } .bar { fill: #41688c } }
</style>"""
WIDTH = 640


def document(height, title, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    return "\n".join([head, STYLE, text(12, 24, title, "title"), *parts, "</svg>"]) + "\n"


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def bars(path, title, rows):
    """A bar for each share from 0 to 1, with its standard error: {name: (share, error)}."""
    left, full, parts = 270, 290, []
    for i, (name, (share, error)) in enumerate(rows.items()):
        y = 42 + 26 * i
        low, high = (left + full * min(max(v, 0), 1) for v in (share - error, share + error))
        parts += [text(left - 8, y + 13, name, anchor="end"),
                  f'<rect class="bar" x="{left}" y="{y}" width="{full * share:.1f}" height="18"/>',
                  f'<path class="error" d="M{low:.1f} {y + 9}H{high:.1f}"/>',
                  text(left + full + 14, y + 13, f"{100 * share:.1f} %")]
    parts.append(f'<path class="axis" d="M{left} 38V{42 + 26 * len(rows)}"/>')
    path.write_text(document(56 + 26 * len(rows), title, parts))


def lines(path, title, curves):
    """Two curves over steps: {name: [(step, value), ...]}."""
    left, top, width, height = 60, 44, 430, 190
    points = [p for curve in curves.values() for p in curve]
    most_step = max(step for step, _ in points)
    low = min(value for _, value in points)
    high = min(max(value for _, value in points), low + 3 * (max(c[-1][1] for c in curves.values()) - low) + 0.1)

    def x(step):
        return left + width * step / most_step

    def y(value):
        return top + height * (1 - (min(value, high) - low) / (high - low))

    parts = [f'<path class="axis" d="M{left} {top}V{top + height}H{left + width}"/>',
             text(left + width, top + height + 18, f"{most_step} steps", "small", "end")]
    for tick in range(5):
        value = low + (high - low) * tick / 4
        parts.append(text(left - 6, y(value) + 4, f"{value:.2f}", "small", "end"))
    for kind, (name, curve) in zip("ab", curves.items()):
        parts.append(f'<path class="line {kind}" d="M' + "L".join(f"{x(s):.1f} {y(v):.1f}" for s, v in curve) + '"/>')
        parts.append(text(left + width + 8, y(curve[-1][1]) + 4, f"{name}: {curve[-1][1]:.3f}"))
    path.write_text(document(top + height + 30, title, parts))
