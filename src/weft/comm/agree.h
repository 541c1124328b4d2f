// What one rank has to say to all.
#pragma once
#include <functional>
#include <string>

#include "weft/comm/communicator.h"

namespace weft {

// Runs `f`, which may throw a FileError or a filesystem_error, on every rank that calls this, and throws what the first
// that did has to say, as a FileError, on all of them. Without `f` a rank only hears of the others. Blocks until all
// have called it. Throws CommError.
void agree(Communicator& ranks, const std::function<void()>& f, Site site = Site::current());

// The text of the first rank that has one, on all of them; empty where none has. Blocks.
std::string first_text(Communicator& ranks, const std::string& mine, Site site = Site::current());

}  // namespace weft
