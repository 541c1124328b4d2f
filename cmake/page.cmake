# The live page: esbuild makes few files of src/weft/page/web and of Chart.js, which are compiled into the program. Where
# esbuild or Chart.js is missing (Debian's packages esbuild and node-chart.js), all else is built, and the page says so.

find_program(WEFT_ESBUILD esbuild)
find_path(WEFT_CHART_JS chart.js/package.json PATHS /usr/share/nodejs /usr/lib/node_modules)

# Gives weft_page its page_files(). Called where weft_page is there.
macro(weft_page_files)
  set(page_made ${PROJECT_BINARY_DIR}/page)
  set(page_missing ${PROJECT_SOURCE_DIR}/src/weft/page/page_files_missing.cpp)
  list(APPEND WEFT_MISSING_FILES ${page_missing})
  set_source_files_properties(${page_missing} ${page_made}/page_files.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(WEFT_ESBUILD AND WEFT_CHART_JS AND NOT parts STREQUAL none)
    set(page_web ${PROJECT_SOURCE_DIR}/src/weft/page/web)
    file(GLOB_RECURSE page_sources LIST_DIRECTORIES false CONFIGURE_DEPENDS ${page_web}/*)
    set(page_options --minify --target=es2020 --log-level=warning)
    add_custom_command(OUTPUT ${page_made}/page_files.cpp
      COMMAND ${CMAKE_COMMAND} -E env NODE_PATH=${WEFT_CHART_JS} ${WEFT_ESBUILD} ${page_web}/main.ts --bundle ${page_options}
              --outfile=${page_made}/page.js
      COMMAND ${WEFT_ESBUILD} ${page_web}/page.css ${page_options} --outfile=${page_made}/page.css
      COMMAND ${CMAKE_COMMAND} -E copy ${page_web}/index.html ${page_web}/icon.svg ${page_made}
      COMMAND ${CMAKE_COMMAND} -DFOLDER=${page_made} -P ${PROJECT_SOURCE_DIR}/cmake/page_embed.cmake
      DEPENDS ${page_sources} ${PROJECT_SOURCE_DIR}/cmake/page_embed.cmake
      COMMENT "Bundling the live page" VERBATIM)
    target_sources(weft_page PRIVATE ${page_made}/page_files.cpp)
  else()
    target_sources(weft_page PRIVATE ${page_missing})
    string(APPEND WEFT_MISSING "\\nnot in this build: the live page (without esbuild and Chart.js)")
    message(STATUS "esbuild or Chart.js: not found; not in this build: the live page (packages esbuild and node-chart.js)")
  endif()
endmacro()
