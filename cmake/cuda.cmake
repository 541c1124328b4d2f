# libweft_cuda.so, the module for GPUs, which the program loads where a recipe asks for it (docs/gpu.md). The program
# itself is built without CUDA.
if(WEFT_CUDA)
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # A100; H100 and H200, and the code for newer ones
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
  elseif(NOT WEFT_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "WEFT_CUDA is ${WEFT_CUDA}, but there is no CUDA compiler: put nvcc on the PATH, or name it by "
                        "-DCMAKE_CUDA_COMPILER=/path/to/nvcc (docs/gpu.md)")
  endif()
endif()
set(WEFT_HAS_CUDA OFF)
if(CMAKE_CUDA_COMPILER AND TARGET CUDA::cublasLt AND NOT WEFT_SANITIZE)
  set(WEFT_HAS_CUDA ON)
  message(STATUS "run.backend = \"cuda\": CUDA ${CUDAToolkit_VERSION}, GPUs ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "run.backend = \"cuda\": not built (no CUDA toolkit, or WEFT_CUDA is OFF, or sanitizers)")
endif()

function(weft_cuda_module)
  if(NOT WEFT_HAS_CUDA)
    return()
  endif()
  set_target_properties(weft_base weft_tensor weft_device weft_ops PROPERTIES POSITION_INDEPENDENT_CODE ON)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/weft/device/cuda/*.cpp
       ${PROJECT_SOURCE_DIR}/src/weft/ops/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/weft/ops/cuda/*.cu)
  add_library(weft_cuda MODULE ${sources})
  # fmt's constexpr formatting is beyond nvcc; `--expt-relaxed-constexpr` lets kernels call the constexpr functions that
  # the host uses too.
  target_compile_definitions(weft_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1;FMT_CONSTEVAL=>)
  target_compile_options(weft_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  set_target_properties(weft_cuda PROPERTIES CUDA_STANDARD 20 CUDA_EXTENSIONS OFF CUDA_RUNTIME_LIBRARY Static
                                             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_link_libraries(weft_cuda PRIVATE weft_ops CUDA::cublasLt CUDA::cudart_static CUDA::nvtx3)
endfunction()
