// The live page's own files, which the build makes of src/weft/page/web and embeds in the program.
#pragma once
#include <span>
#include <string_view>

namespace weft {

struct PageFile {
  std::string_view path;   // "/" (the page itself), "/page.js"
  std::string_view type;   // of its contents: "text/html; charset=utf-8"
  std::string_view bytes;  // lives as long as the program
};

// None in a build without esbuild: the server then says so in place of the page.
std::span<const PageFile> page_files();

}  // namespace weft
