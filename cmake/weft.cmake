# How a folder becomes a target.

# Warnings stop the build where CI compiles; a newer compiler's new ones must not keep a user from his program.
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15))
  set(werror -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;${werror}>")
if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(WEFT_SANITIZE STREQUAL thread)
    add_compile_definitions(WEFT_SANITIZES_THREADS)
  else()
    add_compile_definitions(WEFT_SANITIZES)
  endif()
  if(WEFT_SANITIZE MATCHES undefined)
    # A null pointer ends the program all the same, and the address sanitizer sees what leaves an object; checks of every
    # access for these take a seventh of the time to compile.
    add_compile_options(-fno-sanitize=null,vptr,object-size)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Their instrumentation hides from g++ which branch was taken; the release build keeps this warning.
    add_compile_options(-Wno-maybe-uninitialized)
  else()
    add_compile_options(-Wno-pass-failed)  # what -O1 does not vectorise
  endif()
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()

# With sanitizers a program of tests is large: mold links it in a second. (Elsewhere it would make the small programs of
# tests large, and slow to start: it takes from all of weft's libraries what g++'s linker takes from the first.)
find_program(WEFT_MOLD mold)
if(WEFT_SANITIZE AND WEFT_MOLD AND
   (NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1))
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

# What makes a cold build short. The headers that cost most are precompiled once for all folders, once more for the tests
# (tests/CMakeLists.txt). A folder that computes nothing heavy is compiled with -O1, which takes a third less time.
set(WEFT_COMMON_HEADERS <algorithm> <array> <atomic> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <map>
    <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility> <variant>
    <vector> <fmt/format.h> <nlohmann/json.hpp>)
set(WEFT_O1 $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
if(WEFT_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # ccache asks for the first. For the others g++ forgets that precompiled code of the standard library is the system's,
  # and warns of what cannot happen there; builds with sanitizers keep these warnings.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess;-Wno-stringop-overflow;-Wno-array-bounds;-Wno-restrict>")
endif()
function(weft_precompiled_headers)
  if(WEFT_PCH)
    file(WRITE ${PROJECT_BINARY_DIR}/precompiled.cpp "")
    add_library(weft_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
    target_link_libraries(weft_precompiled PRIVATE weft::fmt weft::json)
    target_precompile_headers(weft_precompiled PRIVATE ${WEFT_COMMON_HEADERS})
    set_target_properties(weft_precompiled PROPERTIES POSITION_INDEPENDENT_CODE ${WEFT_HAS_CUDA})
  endif()
endfunction()

# The files of a folder share most of their templates, which take half of the time: six files are compiled as one. Their
# unnamed namespaces become one, so the names in them must differ.
function(weft_unity target)
  if(WEFT_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    # g++ takes the files for headers, and warns of types in their unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# weft_folder(tokenize DEPS ... PARTS pattern=PCRE2 ...) makes the target weft_tokenize of all *.cpp in src/weft/tokenize.
# pattern.cpp needs the part PCRE2: in a build without it, pattern_missing.cpp stands in its place, which throws NotBuilt.
# All such files are listed in WEFT_MISSING_FILES. COLD: -O1 does. OWN_HEADERS: no precompiled ones, for other macros.
# EACH_FILE: no unity build (Highway compiles a file several times).
set(WEFT_MISSING_FILES)
function(weft_folder folder)
  cmake_parse_arguments(ARG "COLD;OWN_HEADERS;EACH_FILE" "" "DEPS;PARTS" ${ARGN})
  string(REPLACE "/" "_" name weft_${folder})
  set(path ${PROJECT_SOURCE_DIR}/src/weft/${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${path}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_missing\\.cpp$")
  foreach(part ${ARG_PARTS})
    string(REGEX MATCH "(.*)=(.*)" _ ${part})
    list(APPEND WEFT_MISSING_FILES ${path}/${CMAKE_MATCH_1}_missing.cpp)
    # weft_bare links X_missing.cpp instead of X.cpp: both are objects of their own.
    set_source_files_properties(${path}/${CMAKE_MATCH_1}.cpp ${path}/${CMAKE_MATCH_1}_missing.cpp
      PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    if(TARGET weft::${CMAKE_MATCH_2})
      list(APPEND ARG_DEPS weft::${CMAKE_MATCH_2})
    else()
      list(REMOVE_ITEM sources ${path}/${CMAKE_MATCH_1}.cpp)
      list(APPEND sources ${path}/${CMAKE_MATCH_1}_missing.cpp)
    endif()
  endforeach()
  set(WEFT_MISSING_FILES ${WEFT_MISSING_FILES} PARENT_SCOPE)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} PUBLIC ${ARG_DEPS})
    if(NOT ARG_EACH_FILE)
      weft_unity(${name})
    endif()
    if(ARG_COLD)
      target_compile_options(${name} PRIVATE ${WEFT_O1})
    endif()
    if(WEFT_PCH AND NOT ARG_OWN_HEADERS)
      target_precompile_headers(${name} REUSE_FROM weft_precompiled)
      # The module for GPUs is made of position-independent code; precompiled headers are for one kind of code.
      set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${WEFT_HAS_CUDA})
    endif()
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
  endif()
endfunction()
