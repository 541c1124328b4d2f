// Where the checkout and the programs of this build lie. Only places.cpp is compiled with these paths, so a compiler
// cache serves the tests of every checkout.
#pragma once

namespace weft::testing {

extern const char* const kSourceDir;       // the root of the checkout
extern const char* const kProgram;         // weft
extern const char* const kBareProgram;     // weft with every optional library left out
extern const char* const kRankProgram;     // the program that test_mpi's ranks run; empty in a build without MPI
extern const char* const kCudaModuleFile;  // the module for GPUs; empty in a build without CUDA

}  // namespace weft::testing
