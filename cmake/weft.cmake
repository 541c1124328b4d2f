# The libraries weft stands on, and how a folder becomes a target.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
# A library by its header and its file, where the distribution's own description asks for more than is used here.
function(weft_library name header file)
  find_path(${name}_INCLUDE ${header} REQUIRED)
  find_library(${name}_LIBRARY ${file} REQUIRED)
  add_library(${name}::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name}::${name} INTERFACE ${${name}_INCLUDE})
  target_link_libraries(${name}::${name} INTERFACE ${${name}_LIBRARY})
endfunction()
weft_library(DNNL oneapi/dnnl/dnnl.hpp dnnl)                                  # asks for OpenCL's headers
weft_library(SENTENCEPIECE sentencepiece_processor.h sentencepiece)           # asks for protobuf's
weft_library(UTF8PROC utf8proc.h utf8proc)                                    # has none
weft_library(CLD2 cld2/public/compact_lang_det.h cld2)                        # has none
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(LibXml2 REQUIRED)
find_package(MPI QUIET COMPONENTS C)  # without it, run.ranks = "mpi" is refused with this reason
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy libhwy-contrib)
add_library(hwy::hwy ALIAS PkgConfig::HWY)
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(tomlplusplus::tomlplusplus INTERFACE IMPORTED)
target_include_directories(tomlplusplus::tomlplusplus INTERFACE ${TOMLPLUSPLUS_INCLUDE})

# Warnings stop the build where CI compiles; a newer compiler's new ones must not keep a user from his program.
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  set(werror -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;${werror}>")
if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Their instrumentation hides from g++ which branch was taken; the release build keeps this warning.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()

# weft_folder(ops/cpu DEPS ...) makes the target weft_ops_cpu of all *.cpp in src/weft/ops/cpu.
function(weft_folder folder)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  string(REPLACE "/" "_" name weft_${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/weft/${folder}/*.cpp)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()
