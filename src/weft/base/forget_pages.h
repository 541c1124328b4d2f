// Pages of mapped files that are not read again.
#pragma once
#include <cstddef>
#include <span>

namespace weft {

// Says that these bytes of a MappedFile have been read: the pages that lie in them whole leave the process's memory. To
// read them again is as before, and takes the time that it took. Does nothing where the system has no such call.
void forget_pages(std::span<const std::byte> bytes);

}  // namespace weft
