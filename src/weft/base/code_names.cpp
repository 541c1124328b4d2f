#include "weft/base/code_names.h"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"

namespace weft {

namespace {

constexpr size_t kLongestName = 240;

struct CodeFunction {
  uint64_t at = 0, bytes = 0;
  std::string_view name;
};

// All zero where the file ends before.
template <class T>
T read_entry(std::span<const std::byte> file, uint64_t offset, uint64_t index = 0) {
  T entry{};
  if (index < file.size() && offset <= file.size() && sizeof entry * (index + 1) <= file.size() - offset)
    std::memcpy(&entry, file.data() + offset + sizeof entry * index, sizeof entry);
  return entry;
}

std::string_view read_name(std::span<const std::byte> file, uint64_t at) {
  if (at >= file.size()) return {};
  const char* begin = reinterpret_cast<const char*>(file.data()) + at;
  return {begin, ::strnlen(begin, file.size() - at)};
}

// The functions of one table of symbols, by address.
std::vector<CodeFunction> functions_of(std::span<const std::byte> file, const Elf64_Ehdr& head,
                                       const Elf64_Shdr& table) {
  const auto names = read_entry<Elf64_Shdr>(file, head.e_shoff, table.sh_link);
  std::vector<CodeFunction> functions;
  const uint64_t count = std::min<uint64_t>(table.sh_size, file.size()) / sizeof(Elf64_Sym);
  for (uint64_t i = 0; i < count; ++i) {
    const auto symbol = read_entry<Elf64_Sym>(file, table.sh_offset, i);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
    functions.push_back({symbol.st_value, symbol.st_size, read_name(file, names.sh_offset + symbol.st_name)});
  }
  std::sort(functions.begin(), functions.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return functions;
}

std::string readable(std::string_view name) {
  int status = 0;
  const std::string mangled(name);
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  std::string plain = status == 0 && text ? text.get() : mangled;
  return plain.size() > kLongestName ? plain.substr(0, kLongestName) + "..." : plain;
}

}  // namespace

struct CodeNames::Module {
  std::optional<MappedFile> file;  // none: it cannot be read
  std::vector<Elf64_Phdr> loads;
  std::vector<CodeFunction> functions;  // by address

  explicit Module(const std::string& path) {
    try {
      file.emplace(path);
    } catch (const FileError&) { return; }
    const std::span<const std::byte> bytes = file->bytes();
    const auto head = read_entry<Elf64_Ehdr>(bytes, 0);
    if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64) return;
    for (int i = 0; i < head.e_phnum; ++i)
      if (const auto p = read_entry<Elf64_Phdr>(bytes, head.e_phoff, uint64_t(i)); p.p_type == PT_LOAD)
        loads.push_back(p);
    // What a stripped file still has stands in for the whole table.
    for (const uint32_t kind : {uint32_t(SHT_SYMTAB), uint32_t(SHT_DYNSYM)})
      for (int i = 0; i < head.e_shnum && functions.empty(); ++i)
        if (const auto s = read_entry<Elf64_Shdr>(bytes, head.e_shoff, uint64_t(i)); s.sh_type == kind)
          functions = functions_of(bytes, head, s);
  }

  // Where the linker has put that byte of the file.
  uint64_t linked_at(uint64_t offset) const {
    for (const Elf64_Phdr& p : loads)
      if (offset >= p.p_offset && offset - p.p_offset < p.p_filesz) return offset - p.p_offset + p.p_vaddr;
    return offset;
  }

  const CodeFunction* function(uint64_t at) const {
    auto behind = std::upper_bound(functions.begin(), functions.end(), at,
                                   [](uint64_t a, const CodeFunction& f) { return a < f.at; });
    if (behind == functions.begin()) return nullptr;
    --behind;
    return at - behind->at < behind->bytes ? &*behind : nullptr;
  }
};

CodeNames::CodeNames() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Range range;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %*s %n", &range.begin, &range.end,
                    &range.offset, &path_at) != 3)
      continue;
    range.path = line.substr(size_t(path_at));
    if (range.path.starts_with('/')) ranges_.push_back(std::move(range));
  }
}

CodeNames::~CodeNames() = default;

const CodeNames::Module& CodeNames::module(const std::string& path) {
  std::unique_ptr<Module>& of = modules_[path];
  if (!of) of = std::make_unique<Module>(path);
  return *of;
}

std::string CodeNames::name(uintptr_t address) {
  const auto range = std::find_if(ranges_.begin(), ranges_.end(),
                                  [&](const Range& r) { return address >= r.begin && address < r.end; });
  if (range == ranges_.end()) return fmt::format("{:#x}", address);
  const Module& of = module(range->path);
  const uint64_t at = of.linked_at(address - range->begin + range->offset);
  const std::string place = fmt::format("({}+{:#x})", range->path, at);
  const CodeFunction* function = of.function(at);
  return function == nullptr ? place : fmt::format("{}+{:#x} {}", readable(function->name), at - function->at, place);
}

}  // namespace weft
