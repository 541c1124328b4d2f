#include "weft/data/token_writer.h"

#include <algorithm>
#include <limits>

#include "weft/base/error.h"
#include "weft/data/megatron_index.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIdsAtOnce = 1 << 16;

IdType megatron_type(const std::string& dtype) {
  const IdType type = id_type_named(dtype);
  if (type == IdType::u32) throw ConfigError("Megatron's token files have no uint32; use int32");
  return type;
}

template <class T>
void put(DurableFile& out, T value) {
  out.write({reinterpret_cast<const char*>(&value), sizeof value});
}

}  // namespace

RawTokenWriter::RawTokenWriter(const fs::path& file, const std::string& dtype)
    : path_(file), type_(id_type_named(dtype)), file_(file, kOwnName) {}

void RawTokenWriter::append(std::span<const int32_t> ids) {
  const int64_t most = largest_of(type_), each = bytes_of(type_);
  for (; !ids.empty(); ids = ids.subspan(std::min(ids.size(), kIdsAtOnce))) {
    bytes_.clear();
    for (int32_t id : ids.first(std::min(ids.size(), kIdsAtOnce))) {
      if (id < 0 || id > most)
        throw FileError(fmt::format("{}: id {} of token {} does not fit into {} bytes; choose a wider dtype",
                                    path_.string(), id, size_, each));
      bytes_.append(reinterpret_cast<const char*>(&id), size_t(each));
      ++size_;
    }
    file_.write(bytes_);
  }
}

MegatronWriter::MegatronWriter(const fs::path& prefix, const std::string& dtype)
    : prefix_(prefix), type_(megatron_type(dtype)), ids_(prefix.string() + ".bin", dtype) {}

void MegatronWriter::add_document(std::span<const int32_t> ids) {
  append(ids);
  end_document();
}

void MegatronWriter::end_document() {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  do {
    const int64_t size = std::min(kMost, ids_.size() - begin_);
    sizes_.push_back(int32_t(size));
    begin_ += size;
  } while (begin_ < ids_.size());
  ends_.push_back(int64_t(sizes_.size()));
}

void MegatronWriter::commit() {
  DurableFile out(prefix_.string() + ".idx", kOwnName);
  out.write({kMegatronMagic, sizeof kMegatronMagic});
  put(out, kMegatronVersion);
  put(out, type_ == IdType::u16 ? kMegatronUint16 : kMegatronInt32);
  put(out, uint64_t(sizes_.size()));
  put(out, uint64_t(ends_.size() + 1));
  for (int32_t size : sizes_) put(out, size);
  int64_t offset = 0;
  for (int32_t size : sizes_) {
    put(out, offset);
    offset += size * bytes_of(type_);
  }
  put(out, int64_t(0));
  for (int64_t end : ends_) put(out, end);
  out.commit();  // first: a .bin without its index would be taken for raw ids
  ids_.commit();
}

}  // namespace weft
