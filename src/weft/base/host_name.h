// Where this process runs.
#pragma once
#include <unistd.h>

#include <string>

namespace weft {

inline std::string name_of_host() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace weft
