// Where the checkout and the programs of this build lie. Only places.cpp is compiled with these paths, so a compiler
// cache serves the tests of every checkout.
#pragma once

namespace weft::testing {

extern const char* const kSourceDir;    // the root of the checkout
extern const char* const kProgram;      // weft
extern const char* const kBareProgram;  // weft with every optional library left out
extern const char* const kDiskLayer;    // tests/apps/disk_layer.cpp; empty in a build with sanitizers
extern const char* const kRankProgram;  // the program that test_mpi's ranks run; empty in a build without MPI

// The module for GPUs; empty where it is not built.
const char* cuda_module_file();

}  // namespace weft::testing
