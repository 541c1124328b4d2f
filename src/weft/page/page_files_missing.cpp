// Instead of the files that the build makes of src/weft/page/web, in a build without esbuild.
#include "weft/page/page_files.h"

namespace weft {

std::span<const PageFile> page_files() { return {}; }

}  // namespace weft
