// The .idx half of Megatron's indexed datasets (docs/formats/token_files.md).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/data/id_view.h"

namespace weft {

// What an index says. A view: the bytes that were judged must outlive it.
class MegatronIndex {
 public:
  // Judges a whole index and its .bin of `bin_bytes` bytes: afterwards, nothing in it can be out of bounds. Throws
  // FileError, beginning with `source`. Allocates nothing, whatever numbers are in it.
  MegatronIndex(std::span<const std::byte> bytes, int64_t bin_bytes, std::string source);

  IdType type() const { return type_; }
  int64_t num_tokens() const { return tokens_; }
  int64_t num_documents() const { return documents_; }
  // Token at which a document begins; of num_documents(): where the last ends.
  int64_t document_begin(int64_t document) const;

 private:
  template <class T>
  T next(const char* what);
  const std::byte* take_list(uint64_t count, uint64_t each, const char* what);
  void set_type(uint8_t code);
  void judge_sequences(int64_t bin_bytes);
  void judge_documents(int64_t bounds);
  [[noreturn]] void fail(const std::string& what) const;

  std::span<const std::byte> rest_;  // while it is read: what comes next
  std::string source_;
  IdType type_ = IdType::u16;
  const std::byte *sizes_ = nullptr, *offsets_ = nullptr, *bounds_ = nullptr;
  int64_t tokens_ = 0, sequences_ = 0, documents_ = 0;
};

// The magic number with which an index begins, and its codes of types.
inline constexpr char kMegatronMagic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
inline constexpr uint64_t kMegatronVersion = 1;
inline constexpr uint8_t kMegatronInt32 = 4, kMegatronUint16 = 8;

}  // namespace weft
