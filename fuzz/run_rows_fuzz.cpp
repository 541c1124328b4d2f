// Any bytes as a table of measured runs: refused with an Error, or every row becomes a recipe or says why it does not.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "memory_file.h"
#include "weft/base/error.h"
#include "weft/forecast/run_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    for (const weft::RunRow& row : weft::read_run_rows(file.path())) {
      if (row.line < 2 || row.n_layers < 0) std::abort();
      try {
        const weft::RowRun run = weft::run_of(row);
        if (run.recipe.train.micro_batch_size < 1 || run.config.spec.num_layers < 1) std::abort();
      } catch (const weft::Error&) {}
    }
  } catch (const weft::Error&) {}
  return 0;
}
