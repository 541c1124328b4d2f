// The cores of this host.
#pragma once

namespace weft {

// The cores that this process may use: at least one.
int usable_cores();

}  // namespace weft
