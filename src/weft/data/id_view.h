// Ids as they lie in a mapped file, whatever their width. Internal to data.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <string>

#include "weft/base/mapped_file.h"

namespace weft {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read where they lie");

enum class IdType : uint8_t { u8, i8, i16, i32, i64, u16, u32 };
int64_t bytes_of(IdType type);
int64_t largest_of(IdType type);  // the largest id that it holds, as far as an id (31 bits) goes
// "uint16", "uint32", "int32". Throws ConfigError.
IdType id_type_named(const std::string& dtype);

// All ids of a mapped file, which is borrowed.
struct IdView {
  const MappedFile* file = nullptr;
  IdType type = IdType::u16;
  int64_t size = 0;        // ids
  int64_t vocab_size = 0;  // 0: any id of 31 bits is one

  // Ids [first, first + ids.size()). Throws FileError with file, offset and id where one is not in the vocabulary.
  void read(int64_t first, std::span<int32_t> ids) const;

 private:
  template <class T>
  void copy(int64_t first, std::span<int32_t> ids) const;
  [[noreturn]] void fail(int64_t token) const;
};

// Size and a hash of a file: of all of it up to 64 MiB, beyond of 64 pieces of 1 MiB spread evenly, both ends included.
std::string hash_of(const MappedFile& file);

}  // namespace weft
