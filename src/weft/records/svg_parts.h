// What pictures in SVG share: their style, texts and lines. Pixels, y downwards.
#pragma once
#include <string>
#include <string_view>

namespace weft::svg_parts {

// A <style> for light and dark grounds: classes ground, title, grid, axis, raw, smooth, eval, dot.
extern const std::string_view kSvgStyle;

// `text` as it stands in an SVG document, whatever is in it.
std::string escaped(std::string_view text);
// `anchor`: start, middle or end. `kind`: a class of the style.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view kind = "");
std::string svg_line(std::string_view kind, double x1, double y1, double x2, double y2);

}  // namespace weft::svg_parts
