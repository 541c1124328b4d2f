// Times the reading of prompts and the writing of texts.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// Greedily, one text and a batch of them in turns, the best of --iters rounds. Beside the tokens that are written: the
// bytes of weights, keys and values that each reads, and the bandwidth that was measured meanwhile. Beside a prompt:
// training's forward pass over the same tokens. Returns the exit status. Throws ConfigError, FileError.
int bench_decode(const BenchOptions& options);

}  // namespace weft
