# Writes FOLDER/page_files.cpp, which holds the bytes of the page's files. A script: cmake -DFOLDER=... -P page_embed.cmake
set(arrays "")
set(entries "")
foreach(file "/=index.html=text/html" /page.js=page.js=text/javascript /page.css=page.css=text/css /icon.svg=icon.svg=image/svg+xml)
  string(REPLACE "=" ";" parts ${file})
  list(GET parts 0 path)
  list(GET parts 1 name)
  list(GET parts 2 type)
  file(READ ${FOLDER}/${name} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(MAKE_C_IDENTIFIER ${name} array)
  string(APPEND arrays "constexpr unsigned char ${array}[] = {${bytes}};\n")
  string(APPEND entries
    "      {\"${path}\", \"${type}; charset=utf-8\", {reinterpret_cast<const char*>(${array}), sizeof ${array}}},\n")
endforeach()
file(WRITE ${FOLDER}/page_files.cpp "// Made by cmake/page_embed.cmake of src/weft/page/web.
#include \"weft/page/page_files.h\"

namespace weft {
namespace {
${arrays}}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile files[] = {
${entries}  };
  return files;
}

}  // namespace weft
")
