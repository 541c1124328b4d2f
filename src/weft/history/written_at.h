// When a file was last written to.
#pragma once
#include <sys/stat.h>

#include <filesystem>

namespace weft {

// Seconds since 1970; 0: nothing is there that can be looked at.
inline double written_at(const std::filesystem::path& file) {
  struct stat s = {};
  return ::stat(file.c_str(), &s) == 0 ? double(s.st_mtim.tv_sec) + 1e-9 * double(s.st_mtim.tv_nsec) : 0;
}

}  // namespace weft
