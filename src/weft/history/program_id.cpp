#include "weft/history/program_id.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/hashing.h"

namespace weft {
namespace {

std::string as_hex(const unsigned char* bytes, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

// The build id among the notes of a segment; empty: there is none.
std::string id_in_notes(const unsigned char* notes, size_t size) {
  const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes + at, sizeof head);
    const size_t name = at + sizeof head, value = name + padded(head.n_namesz);
    if (value + head.n_descsz > size) break;
    const bool is_gnu = head.n_namesz == 4 && std::memcmp(notes + name, "GNU", 4) == 0;
    if (is_gnu && head.n_type == NT_GNU_BUILD_ID) return as_hex(notes + value, head.n_descsz);
    at = value + padded(head.n_descsz);
  }
  return "";
}

}  // namespace

std::string id_of_this_program() {
  std::string id;
  const auto of_first = [](dl_phdr_info* info, size_t, void* out) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      std::string& id = *static_cast<std::string*>(out);
      if (segment.p_type == PT_NOTE && id.empty())
        id = id_in_notes(reinterpret_cast<const unsigned char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    }
    return 1;  // the program comes first: no library
  };
  ::dl_iterate_phdr(of_first, &id);
  if (!id.empty()) return id;
  try {
    return hash_of_file("/proc/self/exe");
  } catch (const FileError&) { return ""; }
}

}  // namespace weft
