// Names of functions in this process's own code, by address.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace weft {

// Reads /proc/self/maps when it is made, and the tables of symbols in the files of the code that is asked for. Takes no
// lock of the dynamic linker, which a thread that hangs may hold. To be used by one thread at a time.
class CodeNames {
 public:
  CodeNames();
  ~CodeNames();
  CodeNames(const CodeNames&) = delete;
  CodeNames& operator=(const CodeNames&) = delete;
  // "weft::f(int)+0x12 (PATH+0x4567)": `addr2line -e PATH 0x4567` says the line. Without a name where the file has
  // none for it; the bare address where no file is mapped there. Does not throw for files that are gone or broken.
  std::string name(uintptr_t address);

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    uint64_t offset = 0;
    std::string path;
  };
  struct Module;
  const Module& module(const std::string& path);
  std::vector<Range> ranges_;  // ascending
  std::map<std::string, std::unique_ptr<Module>> modules_;
};

}  // namespace weft
