// Which build of weft this is.
#pragma once
#include <string>

namespace weft {

// Another text for another program: the linker's build id, or, of a program that was linked without one, a hash of its
// file. Empty where neither can be had.
std::string id_of_this_program();

}  // namespace weft
