// Makes one rank's error or text known to all.
#pragma once
#include <functional>
#include <string>

#include "weft/comm/communicator.h"

namespace weft {

// Runs `f` on every rank that calls this. If it throws a FileError or filesystem_error on some, all ranks throw the
// first one's message as a FileError. A rank without `f` only learns of the others. Blocks until all have called it.
// Throws CommError.
void agree(Communicator& ranks, const std::function<void()>& f, Site site = Site::current());

// The text of the first rank that has one, on all of them; empty where none has. Blocks.
std::string first_text(Communicator& ranks, const std::string& mine, Site site = Site::current());

}  // namespace weft
