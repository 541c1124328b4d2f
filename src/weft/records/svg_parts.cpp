#include "weft/records/svg_parts.h"

#include <fmt/format.h>

#include <cstdint>

namespace weft::svg_parts {

const std::string_view kSvgStyle = R"(<style>
text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #4a515c }
.ground { fill: #ffffff } .title { font-size: 17px; font-weight: 600; fill: #1d2127 }
.grid { stroke: #e6e8ec } .axis { stroke: #9aa1ab }
.raw { stroke: #a9c3ea } .smooth { stroke: #1f5fbf } .eval { stroke: #d1480f } .dot { fill: #d1480f; stroke: #ffffff }
.eval { stroke-dasharray: 1 4 }
path { fill: none; stroke-linejoin: round; stroke-linecap: round }
@media (prefers-color-scheme: dark) {
text { fill: #aab2bd } .ground { fill: #14171c } .title { fill: #e8ebef }
.grid { stroke: #2a2f37 } .axis { stroke: #67707c }
.raw { stroke: #3d5a86 } .smooth { stroke: #82b4ff } .eval { stroke: #ff9757 } .dot { fill: #ff9757; stroke: #14171c }
}
</style>
)";

std::string escaped(std::string_view text) {
  constexpr std::string_view kSigns = "<>&\"";
  constexpr const char* kNames[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
  std::string out;
  for (const char c : text) {
    const size_t sign = kSigns.find(c);
    out += sign != kSigns.npos ? kNames[sign] : std::string(1, uint8_t(c) < 0x20 ? ' ' : c);
  }
  return out;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view kind) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                     kind.empty() ? "" : fmt::format(" class=\"{}\"", kind), escaped(text));
}

std::string svg_line(std::string_view kind, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1, x2,
                     y2);
}

}  // namespace weft::svg_parts
