// Stands in for the page's files in a build without esbuild or Chart.js (cmake/page.cmake).
#include "weft/page/page_files.h"

namespace weft {

std::span<const PageFile> page_files() { return {}; }

}  // namespace weft
