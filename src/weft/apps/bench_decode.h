// Times the reading of prompts and the writing of texts.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// Greedily, one text and a batch of them in turns, the best of --iters rounds. Beside the writing of a token: the time
// in which memory gives the weights and the keys and values that it reads. Beside a prompt: that of its products and
// attention at the rate of large products. Returns the exit status. Throws ConfigError, FileError.
int bench_decode(const BenchOptions& options);

}  // namespace weft
